"""Bundles rendered in the process of the tests: where many are needed, a program for each would take minutes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from mmdeploy.catalog import Catalog
from mmdeploy.render.bundle import render
from mmdeploy.render.disk import write
from mmdeploy.render.resolve import Resolver
from mmdeploy.spec import validate

ROOT = Path(__file__).resolve().parents[2]


@cache
def catalog() -> Catalog:
    """The repository's own."""
    return Catalog(ROOT / "blueprints")


@cache
def _resolver() -> Resolver:
    return Resolver(catalog())


def write_bundle(directory: Path, said: Mapping[str, Any]) -> Path:
    """The bundle of a spec, as ``mmdeploy render -f SPEC -d DIRECTORY`` writes it."""
    write(render(catalog(), _resolver().resolve(validate(dict(said), str))), directory, force=True)
    return directory
