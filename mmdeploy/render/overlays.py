"""Every supported combination as a tree of bundles.

A bundle stands in ``<release>/<topology>/<accelerator>/<server>[-<model>]/<provider>``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from mmdeploy.catalog import Catalog
from mmdeploy.render.bundle import Bundle, render
from mmdeploy.render.disk import changes, write
from mmdeploy.render.resolve import Resolver
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


def bundles(catalog: Catalog, spec: DeploymentSpec) -> Iterator[tuple[Path, Bundle]]:
    """Every combination of the matrix (of ``spec.release``, where it says one), in its release's default form."""
    resolver = Resolver(catalog)
    for combination in catalog.combinations(spec.release):
        axes = {key: value for key, value in combination.items() if key != "status"}
        said = spec.model_copy(update=axes)
        yield path_of(combination, catalog), render(catalog, resolver.resolve(said))


def render_all(catalog: Catalog, spec: DeploymentSpec, directory: Path, *, check: bool, force: bool) -> list[str]:
    """Write (or, with ``check``, only compare) the whole tree; the paths of files that changed or would."""
    touched = []
    for path, bundle in bundles(catalog, spec):
        todo = changes(bundle, directory / path) if check else write(bundle, directory / path, force)
        touched += [str(path / change.path) for change in todo]
    return touched
