"""The committed overlays are what mmdeploy renders today, and each renders itself again."""

from __future__ import annotations

import pytest

from mmdeploy import inputs
from mmdeploy.render.bundle import SUMS_FILE, Bundle, render
from mmdeploy.render.overlays import bundles
from mmdeploy.render.resolve import Resolver
from mmdeploy.spec import DeploymentSpec
from tests.fidelity.renders import CATALOG, OPTIONED, OVERLAYS, SHIPPED, Case, names


def test_the_tree_holds_exactly_the_bundles_byte_for_byte() -> None:
    wanted = {}
    for path, bundle in bundles(CATALOG, DeploymentSpec()):
        for name, text in {**bundle.files, SUMS_FILE: bundle.sums()}.items():
            wanted[(path / name).as_posix()] = text.encode()
    there = {
        file.relative_to(OVERLAYS).as_posix(): file.read_bytes() for file in OVERLAYS.rglob("*") if not file.is_dir()
    }
    assert sorted(there) == sorted(wanted), "make overlays"
    stale = [path for path, data in wanted.items() if there[path] != data]
    assert stale == [], "make overlays"


def _differing(new: Bundle, old: Bundle) -> list[str]:
    assert list(new.files) == list(old.files)
    return [name for name, text in old.files.items() if new.files[name] != text]


def test_every_combination_has_a_directory_of_its_own() -> None:
    # As many paths as combinations: none writes over another.
    assert len({case.id for case in SHIPPED}) == len(SHIPPED)


@pytest.mark.parametrize("case", SHIPPED, ids=names)
def test_an_overlay_renders_itself_again(case: Case) -> None:
    # Through the same door as `mmdeploy render -f overlays/…/mmdeploy.yaml`, and without the machine's environment.
    collected = inputs.collect(
        file=str(OVERLAYS / case.id / "mmdeploy.yaml"), options={}, settings=[], environ={}, from_env=False
    )
    again = render(CATALOG, Resolver(CATALOG).resolve(collected.spec(), collected.origin_of))
    assert _differing(again, case.bundle) == []


@pytest.mark.parametrize("case", OPTIONED, ids=names)
def test_a_resolved_spec_renders_the_same_bundle(case: Case) -> None:
    assert _differing(Case(case.id, case.spec).bundle, case.bundle) == []
