"""Every supported combination as a tree of bundles.

A bundle stands in ``<release>/<topology>/<accelerator>/<server>[-<model>]/<provider>``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from mmdeploy.catalog import Catalog
from mmdeploy.catalog.catalog import AXES
from mmdeploy.catalog.support import choose
from mmdeploy.errors import UsageError
from mmdeploy.render.bundle import Bundle, render
from mmdeploy.render.disk import changes, write
from mmdeploy.render.resolve import OriginOf, Resolver
from mmdeploy.spec import DeploymentSpec


def path_of(combination: Mapping[str, str], catalog: Catalog) -> Path:
    """Where a combination's bundle stands in the tree; the model is named where it is not the first one shipped."""
    alone = {key: combination[key] for key in ("topology", "accelerator", "server", "release")}
    first = next(other for other in catalog.combinations() if all(other[key] == value for key, value in alone.items()))
    same = combination["model"] == first["model"]
    suffix = "" if same else "-" + combination["model"].rsplit("/", 1)[-1].lower()
    server = combination["server"] + suffix
    return Path(
        combination["release"], combination["topology"], combination["accelerator"], server, combination["provider"]
    )


def bundles(
    catalog: Catalog, spec: DeploymentSpec, origin_of: OriginOf = lambda path: "spec"
) -> Iterator[tuple[Path, Bundle]]:
    """Every combination of the matrix that fits what ``spec`` says, in its release's default form.

    Other settings of ``spec`` apply to all of them. Raises `UsageError` where none fits, or one of them refuses.
    """
    resolver = Resolver(catalog)
    said = {axis: getattr(spec, axis) for axis in AXES if getattr(spec, axis) is not None}
    if not any(_fits(combination, said) for combination in catalog.combinations()):
        choose(catalog, said)
        raise UsageError("no shipped combination fits", next_step="mmdeploy matrix lists them all")
    for combination in catalog.combinations():
        if _fits(combination, said):
            one = spec.model_copy(update={axis: combination[axis] for axis in AXES})
            yield path_of(combination, catalog), render(catalog, resolver.resolve(one, origin_of))


def _fits(combination: Mapping[str, str], said: Mapping[str, str]) -> bool:
    return all(combination[axis] == value for axis, value in said.items())


def render_all(
    catalog: Catalog,
    spec: DeploymentSpec,
    directory: Path,
    origin_of: OriginOf = lambda path: "spec",
    *,
    check: bool,
    force: bool,
    examine: Callable[[Bundle], None] = lambda bundle: None,
) -> list[str]:
    """Write (or, with ``check``, only compare) the whole tree; the paths of files that changed or would.

    ``examine`` sees each bundle first, and raises for one that must not be written.
    """
    touched = []
    for path, bundle in bundles(catalog, spec, origin_of):
        examine(bundle)
        todo = changes(bundle, directory / path) if check else write(bundle, directory / path, force)
        touched += [str(path / change.path) for change in todo]
    return touched
