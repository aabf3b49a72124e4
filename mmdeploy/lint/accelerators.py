"""What an engine's ranks need and what its pod, or its group of pods, holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mmdeploy.documents import KeyPath
from mmdeploy.lint.peers import opaque
from mmdeploy.lint.pods import Container, Engine, Pod
from mmdeploy.lint.source import dig
from mmdeploy.lint.tables import Tables

if TYPE_CHECKING:
    from mmdeploy.lint.index import Deployment

_TENSOR = ("--tensor-parallel-size", "-tp", "--tp-size", "--tp")
_PIPELINE = ("--pipeline-parallel-size", "-pp", "--pp-size", "--pp")
_DATA = ("--data-parallel-size", "-dp", "--dp-size", "--dp")
_LOCAL = ("--data-parallel-size-local", "-dpl")
_ONE_RANK = ("--data-parallel-rank", "-dpn", "--data-parallel-external-lb", "-dpe")
_SPREAD = (
    "--data-parallel-address", "-dpa", "--data-parallel-start-rank", "-dpr", "--data-parallel-hybrid-lb", "-dph",
    "--headless",
)  # fmt: skip


@dataclass(frozen=True)
class Parallel:
    """Parallel sizes of an engine."""

    tensor: int
    pipeline: int
    data: int
    """Data parallel ranks in this pod."""
    data_total: int
    local_only: bool
    """Whether the pod's share of the ranks is said, so that the pod is judged alone."""

    @property
    def world(self) -> int:
        """Ranks of the whole engine."""
        return self.tensor * self.pipeline * self.data_total

    @property
    def local(self) -> int:
        """Ranks in this pod."""
        return self.tensor * self.pipeline * self.data

    def __str__(self) -> str:
        sizes = (("TP", self.tensor), ("PP", self.pipeline), ("DP", self.data if self.local_only else self.data_total))
        return " x ".join(f"{name} {size}" for name, size in sizes if size > 1 or name == "TP")


def integer(engine: Engine, tables: Tables, names: tuple[str, ...], default: int) -> int | None:
    """The last value of a flag under any of its names and prefixes; None where it is given but is no number here."""
    found: str | None = str(default)
    for flag in engine.command.flags:
        name = flag.name
        if name not in names and engine.kind == "vllm" and name.startswith("--") and len(name) > 9:
            row = tables.vllm_flag(name)
            name = row["flag"] if row is not None else name
        if name in names:
            found = flag.value
    return int(found) if found is not None and found.isdigit() else None


def parallel_of(engine: Engine, tables: Tables) -> Parallel | None:
    """Parallel sizes of an engine; None where a file or a variable that is not here decides them."""
    command = engine.command
    if opaque(engine) or command.last("--data-parallel-supervisor-port") is not None:
        return None
    tensor, pipeline = integer(engine, tables, _TENSOR, 1), integer(engine, tables, _PIPELINE, 1)
    total, local = integer(engine, tables, _DATA, 1), integer(engine, tables, _LOCAL, 0)
    if not tensor or not pipeline or not total or local is None:
        return None
    if engine.kind == "sglang" and command.last("--enable-dp-attention", "--attn-dp-size") is not None:
        total = 1  # the data parallel ranks share the tensor parallel ones
    if command.last(*_ONE_RANK) is not None:
        return Parallel(tensor, pipeline, local or 1, total, True)
    if local:
        return Parallel(tensor, pipeline, local, total, True)
    if command.last(*_SPREAD) is not None:
        return None
    return Parallel(tensor, pipeline, total, total, False)


@dataclass(frozen=True)
class Accelerators:
    """Accelerators that a container holds: how many of which resource or device class, and where that is said."""

    resource: str
    count: int
    path: KeyPath


def accelerators_of(container: Container, deployment: Deployment) -> Accelerators | None:
    """Accelerators of a container by its limits or its device claims; None where that cannot be known."""
    facts = deployment.tables.notes("platform")["accelerators"]
    for resource in facts["resources"]:
        for kind in ("limits", "requests"):
            count = container.quantity(kind, resource)
            if count is not None and count == int(count) and count > 0:
                return Accelerators(resource, int(count), (*container.path, "resources", kind, resource))
    claims = dig(container.spec, ("resources", "claims"))
    found = [
        held
        for claim in (claims if isinstance(claims, list) else ())
        if isinstance(claim, Mapping)
        for held in _claimed(container, claim, deployment, facts["deviceClasses"])
    ]
    if not found or any(held is None for held in found):
        return None
    known = [held for held in found if held is not None]
    count = sum(number for _, number in known)
    return Accelerators(known[0][0], count, (*container.path, "resources", "claims")) if count else None


def _claimed(
    container: Container, claim: Mapping[str, Any], deployment: Deployment, classes: list[str]
) -> Iterator[tuple[str, int] | None]:
    """``(device class, count)`` of each device request behind a claim; None for what cannot be counted."""
    listed = container.pod.spec.get("resourceClaims")
    entry = next(
        (item for item in (listed if isinstance(listed, list) else ())
         if isinstance(item, Mapping) and item.get("name") == claim.get("name")), None,
    )  # fmt: skip
    name = entry.get("resourceClaimTemplateName") if entry is not None else None
    template = next((item for item in deployment.kind("ResourceClaimTemplate") if item.name == name), None)
    requests = template.get("spec", "spec", "devices", "requests") if template is not None else None
    if not isinstance(requests, list):
        yield None
        return
    for request in requests:
        if not isinstance(request, Mapping) or claim.get("request") not in (None, request.get("name")):
            continue
        exact = request.get("exactly") if isinstance(request.get("exactly"), Mapping) else request
        count = exact.get("count", 1) if isinstance(exact, Mapping) else None
        device = exact.get("deviceClassName") if isinstance(exact, Mapping) else None
        if device is None or not isinstance(count, int) or exact is None or exact.get("allocationMode") == "All":
            yield None
        elif device in classes:
            yield str(device), count


@dataclass(frozen=True)
class Group:
    """Accelerators of the pods that run one engine together."""

    held: Accelerators
    size: int
    per_pod: bool
    """Whether only this pod's share is to be compared."""


def group_of(engine: Engine, deployment: Deployment, ranks: Parallel | None) -> Group | None:
    """What the pods of an engine hold together; None where members are not all here."""
    pod = engine.pod
    held = accelerators_of(engine.container, deployment)
    if ranks is None or held is None or is_follower(pod, deployment):
        return None
    size = group_size(pod)
    if size is None:
        # A cluster made by hand (Ray, several nodes by rank): its other members are not to be seen.
        return None if _clustered(engine) else Group(held, 1, ranks.local_only)
    if size == 1 or ranks.local_only:
        return Group(held, 1 if ranks.local_only else size, ranks.local_only)
    worker = _worker_of(pod, deployment)
    others = held if worker is None else next(
        (found for item in worker.containers if (found := accelerators_of(item, deployment)) is not None), None
    )  # fmt: skip
    if others is None:
        return None
    return Group(Accelerators(held.resource, held.count + (size - 1) * others.count, held.path), size, False)


def _clustered(engine: Engine) -> bool:
    nodes = engine.command.value("--nnodes", "-n")
    backend = engine.command.value("--distributed-executor-backend")
    return nodes not in (None, "1") or backend not in (None, "mp", "uni")


def group_size(pod: Pod) -> int | None:
    """Pods of a group of a LeaderWorkerSet or of a role of a DisaggregatedSet; None for other workloads."""
    if pod.kind not in ("LeaderWorkerSet", "DisaggregatedSet"):
        return None
    size = dig(pod.document.value, (*pod.object_path, "leaderWorkerTemplate", "size"))
    return size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else 1


def is_follower(pod: Pod, deployment: Deployment) -> bool:
    """Whether a template is that of workers beside a leader of its own."""
    return not pod.leader and any(
        other.leader and other.document is pod.document and other.object_path == pod.object_path
        for other in deployment.pods
    )


def _worker_of(pod: Pod, deployment: Deployment) -> Pod | None:
    return next(
        (other for other in deployment.pods
         if not other.leader and other.document is pod.document and other.object_path == pod.object_path
         and other is not pod), None,
    )  # fmt: skip
