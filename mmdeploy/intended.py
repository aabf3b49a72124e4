"""What is to be on a cluster: a bundle read back from its directory, or a spec rendered in memory.

A directory is taken as it stands, edits and all: its kustomizations say which objects there are, its
``mmdeploy.yaml`` says what they are for.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmdeploy import documents
from mmdeploy.errors import SpecError, UsageError

if TYPE_CHECKING:
    from mmdeploy.catalog import Catalog

SPEC_FILE = "mmdeploy.yaml"
VALUES_FILE = "router/values.yaml"
BUILD_SECONDS = 60
"""A kustomization with remote bases may hang."""

ROLES = ("encode", "prefill", "decode")
"""In the order in which they are applied: what consumes comes after what produces."""

_PLAIN_KEYS = frozenset({"apiVersion", "kind", "namespace", "resources"})
_WORKLOADS = frozenset({"Deployment", "StatefulSet", "DisaggregatedSet", "LeaderWorkerSet"})

Object = Mapping[str, Any]


@dataclass(frozen=True)
class Intended:
    """What is to be on a cluster: a Helm release (the router) and objects, all in one namespace."""

    origin: str
    """The directory or file it was read from, for messages and for the commands that are suggested next."""
    spec: Mapping[str, Any]
    """The resolved spec (``mmdeploy.yaml``)."""
    values: Mapping[str, Any]
    """The router's Helm values."""
    parts: Mapping[str, Sequence[Object]]
    """Objects by directory of the bundle: ``modelserver``, ``gateway``, ``monitoring``; all with their namespace."""

    @property
    def name(self) -> str:
        """The deployment's name, which is the Helm release of the router."""
        return str(self.spec["name"])

    @property
    def namespace(self) -> str:
        """The namespace of everything."""
        return str(self.spec["namespace"])

    @property
    def mode(self) -> str:
        """``standalone`` or ``gateway``."""
        return str(self.spec["mode"])

    @property
    def chart_version(self) -> str:
        """Version of the router's chart."""
        return str(self.spec["versions"]["routerChart"])

    @property
    def roles(self) -> tuple[str, ...]:
        """Roles of the topology, in the order in which they are applied. ``decode`` also serves whole requests where
        there is no other role."""
        return tuple(role for role in ROLES if role in self.spec)

    @property
    def objects(self) -> tuple[Object, ...]:
        """Every object, in the order in which it is applied; the router's own are helm's."""
        return (*self.model_servers, *self.parts.get("gateway", ()), *self.parts.get("monitoring", ()))

    @cached_property
    def model_servers(self) -> tuple[Object, ...]:
        """Objects of the model servers: what pods need first, then the workloads from encode to decode."""
        order = {role: number for number, role in enumerate(ROLES, 1)}
        return tuple(sorted(self.parts.get("modelserver", ()), key=lambda item: order.get(role_of(item), _last(item))))

    @property
    def workloads(self) -> tuple[Object, ...]:
        """The objects of the model servers that make pods."""
        return tuple(item for item in self.model_servers if item["kind"] in _WORKLOADS)

    def pods(self) -> Iterator[tuple[str, int, Object]]:
        """Role, number of replicas and pod template (``metadata``, ``spec``) of every role's pods."""
        for item in self.workloads:
            for role, spec in _of_roles(item):
                yield role, int(spec.get("replicas", 1)), _templates(spec)[0]

    def templates(self) -> Iterator[Object]:
        """Every pod template: of groups of several hosts the leader's and the workers'."""
        for item in self.workloads:
            for _, spec in _of_roles(item):
                yield from _templates(spec)


def _of_roles(item: Object) -> Iterator[tuple[str, Object]]:
    """Role, and what says how many pods of which shape: one for each role of a DisaggregatedSet."""
    if item["kind"] == "DisaggregatedSet":
        yield from ((str(role["name"]), role["spec"]) for role in item["spec"]["roles"])
    else:
        yield role_of(item) or "decode", item["spec"]


def _templates(spec: Object) -> list[Object]:
    """Pod templates, that of the pod which serves first."""
    group = spec.get("leaderWorkerTemplate")
    if group is None:
        return [spec["template"]]
    return [*([group["leaderTemplate"]] if group.get("leaderTemplate") else ()), group["workerTemplate"]]


def role_of(item: Object) -> str:
    """The role that an object's pods play, by their label; ``""`` for an object without pods, or with several roles."""
    spec = (item.get("spec") or {}) if item.get("kind") in _WORKLOADS else {}
    group = spec.get("leaderWorkerTemplate") or {}
    template = group.get("leaderTemplate") or group.get("workerTemplate") or spec.get("template") or {}
    return str((template.get("metadata") or {}).get("labels", {}).get("llm-d.ai/role", ""))


def _last(item: Object) -> int:
    """Workloads whose role is unknown come last, everything that is not a workload first."""
    return len(ROLES) + 1 if item["kind"] in _WORKLOADS else 0


def read(path: Path, catalog: Catalog) -> Intended:
    """What ``path`` says: a bundle's directory, or a spec file that is rendered in memory.

    Raises `UsageError` and its kin for what is missing, unreadable, or cannot be rendered.
    """
    if path.is_dir():
        return _bundle(path)
    if not path.exists():
        raise UsageError(
            "no such file or directory",
            origin=str(path),
            next_step=f"mmdeploy render -d {path} writes a bundle; a spec file will do too",
        )
    return rendered(path, catalog)


def place(path: Path, catalog: Catalog) -> tuple[str, str]:
    """Namespace and name of a deployment: all that taking it away needs, so the rest of a bundle may be broken.

    Raises what `read` raises where even they are not to be had.
    """
    spec = documents.read(path / SPEC_FILE).value if (path / SPEC_FILE).is_file() else None
    if isinstance(spec, dict) and all(isinstance(spec.get(key), str) for key in ("namespace", "name")):
        return spec["namespace"], spec["name"]
    found = read(path, catalog)
    return found.namespace, found.name


def rendered(path: Path, catalog: Catalog) -> Intended:
    """What a spec file comes to. Raises what rendering raises."""
    from mmdeploy import inputs
    from mmdeploy.render import bundle as bundles
    from mmdeploy.render.resolve import Resolver

    collected = inputs.collect(file=str(path), options={}, settings=[], environ={}, from_env=False)
    deployment = Resolver(catalog).resolve(collected.spec(), collected.origin_of)
    contents = bundles.contents(bundles.render(catalog, deployment))
    parts: dict[str, list[Object]] = {}
    for name, content in contents.items():
        directory = name.partition("/")[0]
        if directory in bundles.DIRECTORIES:
            parts.setdefault(directory, []).append(content)
    return Intended(str(path), contents[SPEC_FILE], contents[VALUES_FILE], parts)


def _bundle(directory: Path) -> Intended:
    from mmdeploy.render.bundle import DIRECTORIES

    for name in (SPEC_FILE, VALUES_FILE):
        if not (directory / name).is_file():
            raise UsageError(
                f"not a bundle: it has no {name}",
                origin=str(directory),
                next_step=f"mmdeploy render -d {directory} writes one, or name a bundle's own directory",
            )
    spec = _mapping(directory / SPEC_FILE)
    values = _mapping(directory / VALUES_FILE)
    lacking = [key for key in ("name", "namespace", "mode", "topology", "versions") if key not in spec]
    if lacking:
        raise SpecError(
            f"not a whole spec: it lacks {', '.join(lacking)}",
            origin=str(directory / SPEC_FILE),
            next_step=f"mmdeploy render -f {directory / SPEC_FILE} -d {directory} decides what is left out",
        )
    parts = {name: _objects(directory / name, spec) for name in DIRECTORIES if (directory / name).is_dir()}
    return Intended(str(directory), spec, values, parts)


def _mapping(path: Path) -> dict[str, Any]:
    value = documents.read(path).value
    if not isinstance(value, dict):
        raise SpecError("holds no mapping", origin=str(path), next_step="render the bundle again")
    return value


def _objects(directory: Path, spec: Mapping[str, Any]) -> list[Object]:
    """The objects of one kustomization. Raises `UsageError` for one that cannot be built, or names another
    namespace than the spec."""
    file = directory / "kustomization.yaml"
    plan = _mapping(file)
    resources = [name for name in plan.get("resources") or () if isinstance(name, str)]
    for name in resources:
        if "://" not in name and not (directory / name).exists():
            raise UsageError(
                f"lists {name}, which is not there",
                origin=str(file),
                next_step="put it back, or render the bundle again",
            )
    plain = not plan.keys() - _PLAIN_KEYS and all((directory / name).is_file() for name in resources)
    found = _listed(directory, plan) if plain else _built(directory)
    seen: set[tuple[str, str, str]] = set()
    for item in found:
        metadata = item.get("metadata") if isinstance(item, dict) else None
        if not isinstance(metadata, dict) or not metadata.get("name") or not item.get("kind"):
            raise UsageError("holds something that is no object", origin=str(file), next_step="render the bundle again")
        if metadata.setdefault("namespace", spec["namespace"]) != spec["namespace"]:
            raise UsageError(
                f"{item['kind']} {metadata['name']} is in namespace {metadata['namespace']}, but the router goes to "
                f"{spec['namespace']}",
                origin=str(file),
                next_step=f"set namespace in {SPEC_FILE} and render the bundle again, so that both halves agree",
            )
        identity = (str(item.get("apiVersion")), str(item["kind"]), str(metadata["name"]))
        if identity in seen:
            raise UsageError(
                f"{item['kind']} {metadata['name']} is listed twice", origin=str(file), next_step="take one of them out"
            )
        seen.add(identity)
    return found


def _listed(directory: Path, plan: Mapping[str, Any]) -> list[Any]:
    found: list[Any] = []
    for name in plan.get("resources", ()):
        path = directory / name
        found += documents.parse_all(documents.read_text(path), str(path))
    for item in found:
        if plan.get("namespace") and isinstance(item, dict) and isinstance(item.get("metadata"), dict):
            item["metadata"]["namespace"] = plan["namespace"]
    return found


def _built(directory: Path) -> list[Any]:
    """What kustomize makes of a kustomization that does more than list files."""
    programs = [words for words in (("kubectl", "kustomize"), ("kustomize", "build")) if shutil.which(words[0])]
    if not programs:
        raise UsageError(
            "does more than list files, and neither kubectl nor kustomize is here to build it",
            origin=str(directory / "kustomization.yaml"),
            next_step="install kubectl",
        )
    try:
        done = subprocess.run(
            [*programs[0], str(directory)], capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise UsageError(f"was not built within {BUILD_SECONDS} s", origin=str(directory)) from None
    if done.returncode:
        raise _not_built(directory, done.stderr)
    return documents.parse_all(done.stdout, str(directory))


_MISSING = re.compile(r"lstat (?P<path>[^:]+): no such file or directory$")
_PATH = re.compile(r"'(?P<path>[^']+)' must resolve to a file|in File: (?P<file>\S+)|from '(?P<from>[^'\n]+)'")
_FETCH = re.compile(r"Get \"(?P<url>[^\"]+)\": (?P<why>[^\n']+)")
_HEAD = re.compile(
    r"^(accumulating resources: )+(accumulation err=')?((accumulating|merging) resources from '[^']+': )?"
)
_TAIL = re.compile(r"': (must build at directory|couldn't make target).*$")


def _unlogged(said: str) -> str:
    """Without the log line that some builds of kubectl (Google's dispatcher) wrap their last word in."""
    found = re.match(r'E\d{4} \S+ +\d+ \S+\] "command failed" err=(?:"(?P<quoted>.*)"|< (?P<long>.*) >)$', said)
    if found is None:
        return said
    return found["long"] or found["quoted"].replace('\\"', '"').replace("\\\\", "\\")


def _not_built(directory: Path, complaint: str) -> UsageError:
    """One sentence of what kustomize says at length, about the file that is to be mended."""
    lines = [line for line in complaint.strip().splitlines() if not line.startswith(("# Warning", "Warning:"))]
    said = _unlogged(" ".join(" ".join(lines).split())).removeprefix("error: ")
    said = said.replace(str(directory.resolve()) + "/", "")
    origin, missing, fetched = directory / "kustomization.yaml", _MISSING.search(said), _FETCH.search(said)
    if fetched:
        return UsageError(f"{fetched['url']} cannot be fetched: {fetched['why']}", origin=str(origin),
                          next_step="use a copy on this machine")  # fmt: skip
    if missing:
        return UsageError(f"names {missing['path']}, which is not there", origin=str(origin),
                          next_step="put it back, or take it out of the list")  # fmt: skip
    named = next((found[group] for found in _PATH.finditer(said) for group in ("path", "file", "from") if found[group]
                  and (directory / found[group]).is_file()), "")  # fmt: skip
    short = (
        re.sub(r"`[^`]*`: ", "", _HEAD.sub("", _TAIL.sub("", said))).strip().rstrip("'") or "kustomize gives no reason"
    )
    return UsageError(
        f"cannot be built: {short}", origin=str(directory / named if named else origin),
        next_step=f"kubectl kustomize {directory} shows all that it says",
    )  # fmt: skip


__all__ = ["ROLES", "SPEC_FILE", "VALUES_FILE", "Intended", "Object", "place", "read", "rendered", "role_of"]
