"""The router's chart from a registry, as by default and as a site with a mirror has it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig import registry
from tests.rig.api import Api
from tests.rig.controlplane import ControlPlane
from tests.rig.deploying import CHART, NAME, Ran, everything, hold_token, mmdeploy, render, succeeded
from tests.rig.registry import Registry

VERSION = "v0.10.0"
"""Of the router that goes with llm-d v0.9 (router.md §0)."""


@pytest.fixture(scope="module")
def mirror(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """A mirror with the rig's chart in it."""
    with registry.serving(plane) as found:
        found.push(plane, CHART, VERSION, tmp_path_factory.mktemp("packed"))
        yield found


@pytest.fixture
def bundle(plane: ControlPlane, admin: Api, namespace: str, tmp_path: Path, custom_resources: None) -> Path:
    hold_token(admin, namespace)
    return render(plane, tmp_path / "bundle", namespace, release="v0.9", namePrefix="mm")


def run(plane: ControlPlane, bundle: Path, *words: str, trusted: bool = True, command: str = "apply") -> Ran:
    """A command with a cache of helm's own, so that what is asked is asked of the registry."""
    cache = bundle.parent / "cache"
    environ = {"HELM_CACHE_HOME": str(cache), "SSL_CERT_FILE": str(plane.authority) if trusted else "/dev/null"}
    return mmdeploy(plane, command, str(bundle), *words, environ=environ)


def words(reference: str) -> list[str]:
    return ["-y", "--no-wait", "-o", "jsonl", "--router-chart", reference]


def test_a_chart_of_a_mirror(plane: ControlPlane, bundle: Path, namespace: str, mirror: Registry) -> None:
    assert succeeded(run(plane, bundle, *words(mirror.reference))).applied[f"HelmRelease/{NAME}"] == "created"
    assert any(path.endswith(f"/manifests/{VERSION}") for path in mirror.asked)
    (release,) = json.loads(plane.helm("list", "-n", namespace, "-o", "json"))
    assert (release["status"], release["chart"]) == ("deployed", f"llm-d-router-standalone-{VERSION}")
    again = succeeded(run(plane, bundle, *words(mirror.reference)))
    assert set(again.applied.values()) == {"unchanged"}
    assert run(plane, bundle, "--router-chart", mirror.reference, command="diff").code == 0


def test_a_version_that_the_mirror_lacks(
    plane: ControlPlane, admin: Api, bundle: Path, namespace: str, mirror: Registry
) -> None:
    before = everything(admin, namespace)
    ran = run(plane, bundle, *words(f"{mirror.reference}-of-another"))
    assert ran.code == 1, ran.err
    (problem,) = [event for event in ran.of("checked") if event["result"] == "error"]
    assert VERSION in problem["detail"]
    assert "not found" in problem["detail"]
    assert everything(admin, namespace) == before


@pytest.mark.parametrize(
    ("said", "trusted"), [("oci://127.0.0.1:1/charts/llm-d-router-standalone", True), ("", False)],
    ids=["away", "untrusted"],
)  # fmt: skip
def test_a_registry_that_is_not_reached(
    plane: ControlPlane, admin: Api, bundle: Path, namespace: str, mirror: Registry, said: str, trusted: bool
) -> None:
    before = everything(admin, namespace)
    ran = run(plane, bundle, *words(said or mirror.reference), trusted=trusted)
    assert ran.code == 1, ran.err
    (problem,) = [event for event in ran.of("checked") if event["result"] == "error"]
    assert "--router-chart PATH" in problem["hint"]
    assert everything(admin, namespace) == before
