"""What the tests of failures share: a deployment with every stage, and how it stands when nobody disturbs its apply."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.failures import afterwards
from tests.rig import rendering
from tests.rig.api import Api, Object, wait
from tests.rig.contents import Contents
from tests.rig.controlplane import ControlPlane
from tests.rig.deploying import Running
from tests.rig.standing import standing

SPEC = {
    "topology": "e-pd",
    "workload": "Deployment",
    "namePrefix": "mm",
    "mode": "gateway",
    "gateway": {"gatewayClass": "istio"},
    "monitoring": True,
    "encode": {"replicas": 1},
    "decode": {"replicas": 1},
}
"""Small, and every stage has something to do."""
WAIT_SECONDS = 3.0
"""Nobody says which model is served here, so a wait lasts longer than this."""
_number = itertools.count(1)


@dataclass(frozen=True)
class Undisturbed:
    """An apply that nobody disturbs."""

    seconds: float
    """From the start of the process to its end, without waiting for pods."""
    stages: dict[str, float]
    """Seconds by stage."""
    standing: dict[str, Any]
    """What it leaves, as `tests.rig.standing` reads it."""
    inventory: Object
    """The ConfigMap."""


@dataclass(frozen=True)
class Place:
    """A namespace that does not exist yet, and a bundle for it."""

    namespace: str
    bundle: Path


@pytest.fixture(scope="session")
def contents(admin: Api) -> Iterator[Contents]:
    """What is in namespaces."""
    with closing(Contents(admin)) as found:
        yield found


@contextmanager
def new_place(admin: Api, contents: Contents, folder: Path) -> Iterator[Place]:
    """A place, and everything in it gone at the end."""
    name = f"fails-{next(_number):03}"
    try:
        yield Place(name, rendering.write_bundle(folder / name, {**SPEC, "namespace": name}))
    finally:
        for path in contents.wide(name):
            admin.delete(f"/apis/rbac.authorization.k8s.io/v1/{path}")
        where = f"/api/v1/namespaces/{name}"
        admin.delete(where)
        admin.delete(f"{where}/pods")  # at once: the next one needs the accelerators


@pytest.fixture
def place(admin: Api, contents: Contents, custom_resources: None, tmp_path: Path) -> Iterator[Place]:
    """Where one test works."""
    with new_place(admin, contents, tmp_path) as found:
        yield found


@pytest.fixture(scope="session")
def undisturbed(
    plane: ControlPlane, admin: Api, contents: Contents, custom_resources: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Undisturbed:  # fmt: skip
    """Preflight, and all that follows."""
    with new_place(admin, contents, tmp_path_factory.mktemp("undisturbed")) as place:
        begun = time.monotonic()
        words = afterwards.words(place.bundle, checked=True)
        with Running(plane, *words, environ=afterwards.ENVIRON) as running:
            code, said = running.end()
        seconds = time.monotonic() - begun
        assert code == 0, said
        afterwards.assert_in_order(contents, place.namespace)
        done = [event for event in running.events if event["event"] == "stage-done"]
        stages = {event["stage"]: event["seconds"] for event in done}
        wait("its pods are ready", lambda: _all_ready(admin, place.namespace))
        kept = contents.of(place.namespace)[afterwards.INVENTORY]
        return Undisturbed(seconds, {**stages, "wait": WAIT_SECONDS}, standing(contents, place.namespace), kept)


def _all_ready(admin: Api, namespace: str) -> bool:
    pods = admin.items(f"/api/v1/namespaces/{namespace}/pods")
    ready = [each["status"] for pod in pods for each in pod["status"].get("conditions", []) if each["type"] == "Ready"]
    return ready == ["True"] * 3  # the router's, encode's and decode's
