"""The log level of engines is raised for the time of a run, and put back however the run ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mmdeploy import intended
from mmdeploy.catalog import Catalog
from mmdeploy.cluster.access import Access
from mmdeploy.cluster.session import Session
from mmdeploy.errors import ForbiddenError, TimedOutError
from mmdeploy.verify.probes.debuglogs import ANNOTATION, DebugLogs
from tests.rig import users
from tests.rig.api import Api, wait
from tests.rig.controlplane import ControlPlane
from tests.rig.deploying import render
from tests.rig.sets import Sets

ROOT = Path(__file__).resolve().parents[3]
CATALOG = Catalog(ROOT / "blueprints")
VARIABLE = "VLLM_LOGGING_LEVEL"

pytestmark = pytest.mark.usefixtures("custom_resources")


class Workloads:
    """The model servers of a bundle, made without mmdeploy apply."""

    def __init__(self, plane: ControlPlane, api: Api, namespace: str, place: Path, form: str, *words: str) -> None:
        bundle = render(
            plane, place / "bundle", namespace, "-t", "e-pd", "--workload", form, *words,
            encode_replicas=1, decode_replicas=2,
        )  # fmt: skip
        self.meant = intended.read(bundle, CATALOG)
        self.api, self.namespace = api, namespace
        for item in self.meant.model_servers:
            api.apply(item)
        wait("the pods are ready", lambda: len(self.ready()) == 3, seconds=60)

    def ready(self) -> list[dict[str, Any]]:
        found = self.api.items(f"/api/v1/namespaces/{self.namespace}/pods")
        return [
            item
            for item in found
            if "deletionTimestamp" not in item["metadata"]
            and any(
                each["type"] == "Ready" and each["status"] == "True" for each in item["status"].get("conditions", ())
            )
        ]

    def levels(self) -> list[str | None]:
        """Of the engines of ready pods."""
        return [self.level(item["spec"]["containers"][0]) for item in self.ready()]

    @staticmethod
    def level(container: dict[str, Any]) -> str | None:
        return next((item.get("value") for item in container.get("env", ()) if item["name"] == VARIABLE), None)

    def live(self, session: Session) -> list[dict[str, Any]]:
        found = [session.live(item) for item in self.meant.workloads]
        assert all(found)
        return [dict(item) for item in found if item]

    def templates(self, session: Session) -> list[Any]:
        """What the workloads say of their pods, and their notes."""
        return [(item["spec"], ANNOTATION in item["metadata"].get("annotations", {})) for item in self.live(session)]


def debug_logs(session: Session, there: Workloads, **more: Any) -> DebugLogs:
    return DebugLogs.of(
        session, CATALOG, there.namespace, there.meant.workloads, ("encode", "decode"), **{"patience": 90, **more}
    )


@pytest.fixture
def session(plane: ControlPlane) -> Session:
    return Session.connect(Access(plane.kubeconfig()))


@pytest.mark.parametrize("form", ["Deployment", "DisaggregatedSet"])
def test_pods_tell_inside_and_are_as_before_outside(
    form: str, plane: ControlPlane, admin: Api, namespace: str, tmp_path: Path, session: Session, sets: Sets
) -> None:
    there = Workloads(plane, admin, namespace, tmp_path, form)
    before = there.templates(session)
    with debug_logs(session, there).raised():
        assert there.levels() == ["DEBUG"] * 3
    assert there.templates(session) == before
    wait("the pods are as before", lambda: there.levels() == [None] * 3, seconds=60)


def test_a_level_of_ones_own_comes_back(
    plane: ControlPlane, admin: Api, namespace: str, tmp_path: Path, session: Session
) -> None:
    there = Workloads(plane, admin, namespace, tmp_path, "Deployment", f"--set=encode.extraEnv.{VARIABLE}=WARNING")
    with debug_logs(session, there).raised():
        assert there.levels() == ["DEBUG"] * 3
    wait("the pods are as before", lambda: sorted(map(str, there.levels())) == ["None", "None", "WARNING"], seconds=60)


def test_an_interrupt_puts_it_back(
    plane: ControlPlane, admin: Api, namespace: str, tmp_path: Path, session: Session
) -> None:
    there = Workloads(plane, admin, namespace, tmp_path, "Deployment")
    before = there.templates(session)
    with pytest.raises(KeyboardInterrupt), debug_logs(session, there).raised():
        raise KeyboardInterrupt
    assert there.templates(session) == before


def test_pods_that_do_not_come_put_it_back(
    plane: ControlPlane, admin: Api, namespace: str, tmp_path: Path, session: Session
) -> None:
    there = Workloads(plane, admin, namespace, tmp_path, "Deployment")
    before = there.templates(session)
    with pytest.raises(TimedOutError), debug_logs(session, there, patience=0).raised():
        pytest.fail("no pod can have come at once")
    assert there.templates(session) == before


def test_what_a_killed_run_left_is_put_back_by_the_next(
    plane: ControlPlane, admin: Api, namespace: str, tmp_path: Path, session: Session
) -> None:
    there = Workloads(plane, admin, namespace, tmp_path, "Deployment")
    before = there.templates(session)
    killed = debug_logs(session, there).raised()
    killed.__enter__()  # and nobody ever leaves
    noted = [json.loads(item["metadata"]["annotations"][ANNOTATION]) for item in there.live(session)]
    assert sorted(noted, key=str) == [{"decode": None}, {"encode": None}]
    with debug_logs(session, there).raised():
        assert there.levels() == ["DEBUG"] * 3
    assert there.templates(session) == before


def test_somebody_without_the_right_changes_nothing(
    plane: ControlPlane, admin: Api, namespace: str, tmp_path: Path, session: Session
) -> None:
    there = Workloads(plane, admin, namespace, tmp_path, "Deployment")
    before = there.templates(session)
    viewer = Session.connect(Access(plane.kubeconfig(users.VIEWER)))
    with pytest.raises(ForbiddenError), debug_logs(viewer, there).raised():
        pytest.fail("nobody may look")
    assert there.templates(session) == before
