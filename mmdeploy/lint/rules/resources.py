"""5xx, first half: memory, shared memory and accelerators of the model servers. Probes are in `resources_probes`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mmdeploy.documents import KeyPath
from mmdeploy.lint.accelerators import Accelerators, Parallel, accelerators_of, group_of, parallel_of
from mmdeploy.lint.findings import Found, Level, rule
from mmdeploy.lint.index import Deployment
from mmdeploy.lint.pods import Container, Engine
from mmdeploy.lint.source import dig
from mmdeploy.quantities import quantity
from mmdeploy.words import counted

GIB = 1 << 30
_QUANTITY = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+|[numkMGTPE]|[KMGTPE]i)?")
"""A quantity as the API server reads it."""
_SMALLEST_MEMORY = 1 << 20


@dataclass(frozen=True)
class Shm:
    """What stands at /dev/shm of a container: bytes (infinite without a bound of its own), and where that is said."""

    size: float
    path: KeyPath
    mounted: bool


def shm_of(container: Container, default: float) -> Shm:
    """The shared memory of a container; ``default`` is what a runtime gives when nothing is mounted."""
    pod = container.pod
    if pod.spec.get("hostIPC") is True:
        return Shm(float("inf"), container.path, True)
    for mount_path, name, path in container.mounts():
        if mount_path.rstrip("/") != "/dev/shm":
            continue
        volumes = pod.spec.get("volumes")
        for index, volume in enumerate(volumes if isinstance(volumes, list) else ()):
            if isinstance(volume, Mapping) and volume.get("name") == name:
                at: KeyPath = (*pod.path, "spec", "volumes", index)
                directory = volume.get("emptyDir")
                limit = directory.get("sizeLimit") if isinstance(directory, Mapping) else None
                size = _number(limit)
                return Shm(float("inf") if size is None else size, (*at, "emptyDir", "sizeLimit"), True)
        return Shm(float("inf"), path, True)
    return Shm(default, container.path, False)


def _number(value: Any) -> float | None:
    try:
        return None if value is None else quantity(value)
    except ValueError:
        return None


def _size(value: float) -> str:
    if value == float("inf"):
        return "unlimited"
    return f"{value / GIB:.4g} GiB" if value >= GIB else f"{value / (1 << 20):.4g} MiB"


def title(container: Container) -> str:
    """How findings call a container."""
    return f"{container.pod.title} {container.name}".strip()


def _default_shm(deployment: Deployment) -> float:
    return quantity(deployment.tables.notes("platform")["memory"]["defaultShm"])


@rule("MMD501", Level.error, "vllm-project/production-stack#276; model-servers.md §1.2 (a container gets 64 MiB)")
def shared_memory(deployment: Deployment) -> Iterator[Found]:
    """Tensor parallel ranks talk through /dev/shm, and the container's own is 64 MiB."""
    default = _default_shm(deployment)
    collective = deployment.tables.notes("platform")["accelerators"]["sharedMemory"]
    for engine in deployment.engines:
        ranks = parallel_of(engine, deployment.tables)
        if ranks is None or ranks.tensor * ranks.pipeline < 2:
            continue
        held = accelerators_of(engine.container, deployment)
        if held is not None and held.resource not in collective:
            continue
        shm = shm_of(engine.container, default)
        if shm.size > default:
            continue
        what = f"{ranks.tensor * ranks.pipeline} ranks share /dev/shm"
        if shm.mounted:
            yield Found(
                engine.pod.document, shm.path, title(engine.container),
                f"{what}, whose sizeLimit of {_size(shm.size)} is no more than the container default",
                "raise sizeLimit; the guide gives 20Gi",
            )  # fmt: skip
        else:
            yield Found(
                engine.pod.document, _mounts_path(engine.container), title(engine.container),
                f"{what}, but nothing is mounted there: the runtime's default is {_size(default)}",
                "mount an emptyDir with medium: Memory at /dev/shm",
            )  # fmt: skip


def _mounts_path(container: Container) -> KeyPath:
    return (*container.path, "volumeMounts") if container.spec.get("volumeMounts") else (*container.path, "name")


@dataclass(frozen=True)
class EcCache:
    """The encoder cache of an ECCPUConnector: bytes on this pod, and where they are said."""

    size: float
    path: KeyPath


def ec_cache(engine: Engine, ranks: Parallel | None) -> EcCache | None:
    """``ec_cpu_bytes`` times the data parallel ranks on the pod; None where no CPU tier is configured (or a fork)."""
    if engine.ec_connector != "ECCPUConnector" or engine.forked:
        return None
    text = str(engine.ec_extra.get("ec_cpu_bytes"))
    if not re.fullmatch(r"\d+(\.\d+)?(e\d+)?", text):
        return None
    copies = ranks.data if ranks is not None else 1
    return EcCache(float(text) * copies, value_path(engine, "--ec-transfer-config"))


def value_path(engine: Engine, name: str) -> KeyPath:
    """Where a flag's value stands: the item after the flag, unless both are one argument."""
    flag = engine.command.last(name)
    path = engine.command.path_of(name)
    if flag is None or engine.command.shell or flag.value is None or not path or not isinstance(path[-1], int):
        return path
    words = dig(engine.pod.document.value, path[:-1])
    same = isinstance(words, list) and path[-1] < len(words) and "=" in str(words[path[-1]])
    return path if same else (*path[:-1], path[-1] + 1)


@rule("MMD502", Level.error, "model-servers.md §1.2 (pages are populated at start); field.md §4.3.7")
def encoder_cache_fits(deployment: Deployment) -> Iterator[Found]:
    """``ec_cpu_bytes`` is a file in /dev/shm, which counts against the memory limit: the three must nest."""
    default = _default_shm(deployment)
    for engine in deployment.engines:
        cache = ec_cache(engine, parallel_of(engine, deployment.tables))
        shm = shm_of(engine.container, default)
        limit = engine.container.quantity("limits", "memory")
        document, subject = engine.pod.document, title(engine.container)
        if cache is not None and cache.size > shm.size:
            held = f"of {_size(shm.size)}" if shm.mounted else f"(nothing is mounted: {_size(shm.size)})"
            yield Found(
                document, cache.path, subject,
                f"ec_cpu_bytes takes {_size(cache.size)} in /dev/shm {held}",
                "raise the sizeLimit of the volume at /dev/shm above ec_cpu_bytes, or lower ec_cpu_bytes",
            )  # fmt: skip
        elif cache is not None and limit is not None and cache.size > limit:
            yield Found(
                document, cache.path, subject,
                f"ec_cpu_bytes takes {_size(cache.size)} of memory, and the limit is {_size(limit)}: /dev/shm counts",
                "raise the memory limit above ec_cpu_bytes and the engine's own needs, or lower ec_cpu_bytes",
            )  # fmt: skip
        elif limit is not None and limit < shm.size < float("inf"):
            yield Found(
                document, shm.path, subject,
                f"/dev/shm may grow to {_size(shm.size)}, but the container is killed at its memory limit of "
                f"{_size(limit)}",
                "keep the sizeLimit below the memory limit",
                Level.warning,
            )  # fmt: skip


@rule("MMD503", Level.warning, "model-servers.md §1.1; vllm-project/vllm#35191")
def processor_cache_fits(deployment: Deployment) -> Iterator[Found]:
    """The processor cache is held once a process: value x (API servers + data parallel ranks)."""
    default = _default_shm(deployment)
    for engine in deployment.engines:
        cache = _processor_cache(engine, parallel_of(engine, deployment.tables))
        if cache is None:
            continue
        held = ec_cache(engine, parallel_of(engine, deployment.tables))
        beside = f" beside {_size(held.size)} of ec_cpu_bytes" if held else ""
        extra = held.size if held else 0.0
        shm, limit = shm_of(engine.container, default), engine.container.quantity("limits", "memory")
        # One API server keeps the layout only and the engine keeps the items; counted fully where the tier is pinned.
        copies = 1 if cache.copies == 2 and held is None else cache.copies
        if cache.in_shm and extra <= shm.size < cache.each + extra:
            message = f"the processor cache of {_size(cache.each)} lives in /dev/shm of {_size(shm.size)}{beside}"
        elif limit is not None and extra <= limit < cache.each * copies + extra:
            message = (
                f"the processor cache of {_size(cache.each)} is held {copies} times ({cache.why}): "
                f"{_size(cache.each * copies)}{beside}, more than the memory limit of {_size(limit)}"
            )
        else:
            continue
        yield Found(
            engine.pod.document, cache.path, title(engine.container), message,
            "lower --mm-processor-cache-gb or --api-server-count, or give the container more memory",
        )  # fmt: skip


@dataclass(frozen=True)
class _ProcessorCache:
    each: float
    copies: int
    why: str
    path: KeyPath
    in_shm: bool


def _processor_cache(engine: Engine, ranks: Parallel | None) -> _ProcessorCache | None:
    command = engine.command
    given, servers = command.value("--mm-processor-cache-gb"), command.integer("--api-server-count", "-asc")
    text = given if given is not None else "4"
    if engine.kind != "vllm" or ranks is None or not re.fullmatch(r"\d+(\.\d+)?", text):
        return None
    if given is None and servers is None:
        return None
    count = servers or ranks.data_total
    path = command.path_of("--api-server-count") if servers else command.path_of("--mm-processor-cache-gb")
    why = f"{count} API server{'s' if count > 1 else ''} and {ranks.data_total} data parallel"
    in_shm = command.value("--mm-processor-cache-type") == "shm"
    return _ProcessorCache(float(text) * GIB, count + ranks.data_total, why, path, in_shm)


@rule("MMD504", Level.error, "model-servers.md §1; accelerators.yaml; kserve/kserve#4946")
def accelerators_match(deployment: Deployment) -> Iterator[Found]:
    """Ranks that the command line asks for, against the accelerators that the pod (or the group) holds."""
    shares = deployment.tables.notes("platform")["accelerators"]["ranksPerDevice"]
    for engine in deployment.engines:
        ranks = parallel_of(engine, deployment.tables)
        group = group_of(engine, deployment, ranks)
        if ranks is None or group is None:
            continue
        held, needed = group.held, ranks.world if not group.per_pod else ranks.local
        fitting = {held.count * share for share in shares.get(held.resource, [1])}
        if needed in fitting:
            continue
        yield from _mismatch(engine, ranks, held, needed, group.size)


def _mismatch(engine: Engine, ranks: Parallel, held: Accelerators, needed: int, size: int) -> Iterator[Found]:
    where = f"{held.count} {held.resource}" + (f" in a group of {size} pods" if size > 1 else "")
    document, subject = engine.pod.document, title(engine.container)
    if needed > held.count:
        spans = size > 1 or engine.pod.kind == "LeaderWorkerSet"
        path = (*engine.pod.object_path, "leaderWorkerTemplate", "size") if spans else held.path
        yield Found(
            document, path, subject,
            f"{ranks} need {counted(needed, 'accelerator')}, and there are {where}: ranks are waited for that "
            "never come",
            "make size times the accelerators of a pod equal to the ranks" if spans
            else f"ask for {counted(needed, 'accelerator')}, or lower the parallel sizes",
        )  # fmt: skip
    elif engine.container.variable("CUDA_VISIBLE_DEVICES") is None:
        yield Found(
            document, held.path, subject,
            f"{ranks} use {needed} of {where}; the other {held.count - needed} stand idle",
            f"ask for {needed}, or use the rest with --tensor-parallel-size or --data-parallel-size",
            Level.warning,
        )  # fmt: skip


@rule("MMD505", Level.warning, "llm-d-guides.md §3, §6")
def no_accelerator(deployment: Deployment) -> Iterator[Found]:
    """An engine built for CUDA in a pod that asks for no device at all."""
    for engine in deployment.engines:
        pod, container = engine.pod, engine.container
        if not re.search(r"(^|/)(vllm/vllm-openai|lmsysorg/sglang|llm-d/llm-d-cuda)[:@]", container.image):
            continue
        resources = container.spec.get("resources")
        named = [*_keys(dig(resources, ("limits",))), *_keys(dig(resources, ("requests",)))]
        other = any("/" in name for name in named) or dig(resources, ("claims",)) or pod.spec.get("resourceClaims")
        granted = pod.spec.get("runtimeClassName") or container.variable("NVIDIA_VISIBLE_DEVICES")
        device = engine.command.value("--device") in ("cpu", "xpu") or container.variable("VLLM_CPU_KVCACHE_SPACE")
        if other or granted or device:
            continue
        path = (*container.path, "resources") if resources else (*container.path, "image")
        yield Found(
            pod.document, path, title(container),
            f"{container.image} needs a GPU, and the container asks for none: it finds no device where it lands",
            "ask for accelerators in resources.limits, for example nvidia.com/gpu",
        )  # fmt: skip


def _keys(value: Any) -> Iterator[str]:
    return (str(key) for key in value) if isinstance(value, Mapping) else iter(())


@rule("MMD506", Level.error, "Kubernetes API (rejected when the pod is created)")
def quantities(deployment: Deployment) -> Iterator[Found]:
    """Quantities that are none, requests above limits, extended resources that differ."""
    for pod in deployment.pods:
        if pod.engine is None and pod.sidecar is None and not any(item.program == "epp" for item in pod.containers):
            continue
        for container in pod.containers:
            yield from _bad_quantities(container)
            yield from _bad_requests(container)


def _bad_quantities(container: Container) -> Iterator[Found]:
    for kind in ("limits", "requests"):
        values = dig(container.spec, ("resources", kind))
        for name, value in values.items() if isinstance(values, Mapping) else ():
            path = (*container.path, "resources", kind, name)
            if not isinstance(value, str | int | float) or not _QUANTITY.fullmatch(str(value)):
                yield Found(
                    container.pod.document, path, title(container),
                    f"{kind}.{name}: {value!r} is not a quantity",
                    "write a number with one of Ki, Mi, Gi, k, M, G or m, for example 128Gi",
                )  # fmt: skip
            elif name == "memory" and (size := _number(value)) is not None and size < _SMALLEST_MEMORY:
                yield Found(
                    container.pod.document, path, title(container),
                    f"{kind}.memory: {value!r} is {counted(size, 'byte')}",
                    "write the unit: Gi or Mi (m means thousandths)",
                )  # fmt: skip


def _bad_requests(container: Container) -> Iterator[Found]:
    requests, limits = dig(container.spec, ("resources", "requests")), dig(container.spec, ("resources", "limits"))
    for name, value in requests.items() if isinstance(requests, Mapping) else ():
        asked = _number(value) if isinstance(value, str | int | float) else None
        given = limits.get(name) if isinstance(limits, Mapping) else None
        limit = _number(given) if isinstance(given, str | int | float) else None
        extended = "/" in str(name)
        if asked is None or (limit is None and not (extended and given is None)):
            continue
        path = (*container.path, "resources", "requests", str(name))
        if limit is None:
            message, fix = f"{name} is requested without a limit", f"write {name}: {value} under limits as well"
        elif asked > limit:
            message, fix = f"{name}: {value} is requested with a limit of {given}", "keep requests at or below limits"
        elif extended and asked != limit:
            message, fix = f"{name}: {value} is requested with a limit of {given}", "give both the same number"
        else:
            continue
        yield Found(container.pod.document, path, title(container), message + ": the pod is rejected", fix)
