"""A bundle's directory read back as it stands, edits and all, or a spec that is rendered in memory."""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmdeploy import documents
from mmdeploy.documents import KeyPath
from mmdeploy.errors import SpecError, UsageError
from mmdeploy.intended import shapes
from mmdeploy.intended.building import built
from mmdeploy.intended.intended import Intended, Object

if TYPE_CHECKING:
    from mmdeploy.catalog import Catalog

SPEC_FILE = "mmdeploy.yaml"
VALUES_FILE = "router/values.yaml"

_PLAIN_KEYS = frozenset({"apiVersion", "kind", "namespace", "resources"})
_MEND = "correct it there, or render the bundle again"

_OriginOf = Callable[[KeyPath], str]
_Placed = tuple[Any, _OriginOf]
"""A value, and where its parts stand."""


def read(path: Path, catalog: Catalog) -> Intended:
    """What ``path`` says: a bundle's directory, or a spec file that is rendered in memory.

    Raises `UsageError` and its kin for what is missing, unreadable, out of shape, or cannot be rendered.
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
        if not _is_there(directory / name):
            raise UsageError(
                f"not a bundle: it has no {name}",
                origin=str(directory),
                next_step=f"mmdeploy render -d {directory} writes one, or name a bundle's own directory",
            )
    spec = _spec(directory / SPEC_FILE)
    values = _mapping(directory / VALUES_FILE, shapes.VALUES)
    parts = {name: _objects(directory / name, spec) for name in DIRECTORIES if (directory / name).is_dir()}
    found = Intended(str(directory), spec, values, parts)
    _complete(directory, found)
    return found


def _spec(file: Path) -> dict[str, Any]:
    spec = _mapping(file, shapes.SPEC)
    lacking = [key for key in ("name", "namespace", "mode", "topology", "versions") if spec.get(key) is None]
    if not lacking:
        lacking += [] if "routerChart" in spec["versions"] else ["versions.routerChart"]
        named = spec["mode"] != "gateway" or (spec.get("gateway") or {}).get("name")
        lacking += [] if named else ["gateway.name"]
    if lacking:
        raise SpecError(
            f"not a whole spec: it lacks {', '.join(lacking)}",
            origin=str(file),
            next_step=f"mmdeploy render -f {file} -d {file.parent} decides what is left out",
        )
    return spec


def _complete(directory: Path, found: Intended) -> None:
    """Raises `UsageError` for a role without a workload: what runs would be taken away, and nothing come instead."""
    there = {role for role, _, _ in found.pods()}
    lacking = [role for role in found.roles if role not in there]
    if lacking:
        folder = directory / "modelserver"
        roles = f"role{'s' * (len(lacking) > 1)} {' and '.join(lacking)}"
        raise UsageError(
            f"no workload plays the {roles} that {SPEC_FILE} asks for",
            origin=_emptied(folder) or f"{folder} holds none",
            next_step=f"mmdeploy render -f {directory / SPEC_FILE} -d {directory} writes it again, or take "
            f"{' and '.join(lacking)} out of {SPEC_FILE} and choose a topology without",
        )


def _emptied(folder: Path) -> str:
    """The file that should hold the workload: one that holds nothing, else the list of all."""
    if not folder.is_dir():
        return ""
    file = folder / "kustomization.yaml"
    names = documents.read(file).value.get("resources") or ()
    paths = [folder / name for name in names if (folder / name).is_file()]
    empty = (path for path in paths if not documents.parse_all(documents.read_text(path), str(path)))
    return str(next(empty, file))


def _is_there(file: Path) -> bool:
    """Whether there is something of the name. Raises `UsageError` for what is no file: a pipe would be waited for, a
    device read without end."""
    try:
        mode = file.stat().st_mode
    except FileNotFoundError:
        return False
    except OSError as problem:  # links in a circle, a folder that may not be entered
        raise UsageError(f"cannot be read: {problem.strerror}", origin=str(file), next_step=_MEND) from None
    kinds = {stat.S_ISDIR: "a directory", stat.S_ISFIFO: "a pipe", stat.S_ISSOCK: "a socket"}
    if not stat.S_ISREG(mode):
        what = next((said for test, said in kinds.items() if test(mode)), "a device")
        raise UsageError(f"is {what}, where a file is wanted", origin=str(file), next_step=_MEND)
    return True


def _mapping(file: Path, shape: shapes.Shape) -> dict[str, Any]:
    """The mapping that a file holds. Raises `SpecError` for another shape."""
    _is_there(file)
    document = documents.read(file)
    if not isinstance(document.value, dict):
        raise SpecError("holds no mapping", origin=str(file), next_step="render the bundle again")
    _fitting(document.value, shape, document.origin)
    return document.value


def _fitting(value: Any, shape: shapes.Shape, origin_of: _OriginOf, whose: str = "") -> None:
    found = shapes.misfit(value, shape)
    if found:
        raise SpecError(f"{whose}{found.found}", origin=origin_of(found.path), next_step=_MEND)


# ------------------------------------------------------------------------------------------------------------- objects


def _objects(directory: Path, spec: Mapping[str, Any]) -> list[Object]:
    """The objects of one kustomization. Raises `UsageError` for one that cannot be built, or names another
    namespace than the spec; `SpecError` for an object out of shape."""
    file = directory / "kustomization.yaml"
    plan = _mapping(file, shapes.KUSTOMIZATION)
    resources: list[str] = plan.get("resources") or []
    for name in resources:
        if "://" not in name and not (directory / name).is_dir() and not _is_there(directory / name):
            raise UsageError(
                f"lists {name}, which is not there",
                origin=str(file),
                next_step="put it back, or render the bundle again",
            )
    plain = not plan.keys() - _PLAIN_KEYS and all((directory / name).is_file() for name in resources)
    placed = _listed(directory, resources) if plain else [(item, lambda _: str(file)) for item in built(directory)]
    found: list[Object] = []
    seen: set[tuple[str, str, str]] = set()
    for each, origin_of in placed:
        item = _object(each, origin_of)
        metadata = item["metadata"]
        if plain and plan.get("namespace"):
            metadata["namespace"] = plan["namespace"]
        if metadata.setdefault("namespace", spec["namespace"]) != spec["namespace"]:
            raise UsageError(
                f"{item['kind']} {metadata['name']} is in namespace {metadata['namespace']}, but the router goes to "
                f"{spec['namespace']}",
                origin=str(file),
                next_step=f"set namespace in {SPEC_FILE} and render the bundle again, so that both halves agree",
            )
        identity = (item["apiVersion"], item["kind"], metadata["name"])
        if identity in seen:
            raise UsageError(
                f"{item['kind']} {metadata['name']} is listed twice", origin=str(file), next_step="take one of them out"
            )
        seen.add(identity)
        found.append(item)
    return found


def _object(item: Any, origin_of: _OriginOf) -> dict[str, Any]:
    """An object in the shape that the program relies on, without the fields that are null."""
    metadata = item.get("metadata") if isinstance(item, dict) else None
    if not isinstance(metadata, dict) or not metadata.get("name") or not item.get("kind"):
        raise UsageError("holds something that is no object", origin=origin_of(()), next_step=_MEND)
    named = isinstance(item["kind"], str) and isinstance(metadata["name"], str)
    shape = shapes.OBJECT | (shapes.KINDS.get(item["kind"], {}) if named else {})
    _fitting(item, shape, origin_of, f"{item['kind']} {metadata['name']}: " if named else "")
    result: dict[str, Any] = shapes.without_nulls(item, shape)
    return result


def _listed(directory: Path, resources: list[str]) -> list[_Placed]:
    found: list[_Placed] = []
    for name in resources:
        path = directory / name
        text = documents.read_text(path)
        for number, item in enumerate(documents.parse_all(text, str(path))):
            found.append((item, _origin_of(text, path, number)))
    return found


def _origin_of(text: str, path: Path, number: int) -> _OriginOf:
    return lambda steps: documents.origin_in(text, str(path), number, steps)


__all__ = ["SPEC_FILE", "VALUES_FILE", "place", "read", "rendered"]
