"""Every row of the matrix, from an empty namespace to one that serves and back, as a person does it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from tests.e2e import matrix
from tests.rig import engines, users
from tests.rig.api import Api, wait
from tests.rig.contents import Contents
from tests.rig.controlplane import ControlPlane
from tests.rig.deploying import CHART, Ran, hold_token, mmdeploy, succeeded

# Preflight included: it must let all of these through.
CASES = [*matrix.ONCE, *matrix.SHIPPED, *matrix.ROUTED]


class Person:
    """Somebody with rights, a bundle and the commands."""

    def __init__(self, plane: ControlPlane, bundle: Path, user: str) -> None:
        self._plane, self._bundle, self._user = plane, bundle, user

    def does(self, command: str, *words: str) -> Ran:
        """Run a command on the bundle; it must end well."""
        return succeeded(mmdeploy(self._plane, command, self._bundle, *words, user=self._user))

    def applies(self, *words: str) -> Ran:
        """Apply, with the rig's chart."""
        return self.does("apply", "-y", "-o", "jsonl", "--router-chart", str(CHART), *words)


@pytest.fixture
def contents(admin: Api) -> Iterator[Contents]:
    """What is in namespaces."""
    with closing(Contents(admin)) as found:
        yield found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_there_serving_and_gone(
    plane: ControlPlane, admin: Api, namespace: str, deployer: str, pod_network: None, custom_resources: None,
    contents: Contents, tmp_path: Path, case: matrix.Case,
) -> None:  # fmt: skip
    bundle = case.write(tmp_path / "bundle", namespace)
    spec = yaml.safe_load((bundle / "mmdeploy.yaml").read_text())
    # The chart makes ClusterRoles where Prometheus may read metrics, and a DestinationRule for istio (router.md §4.2):
    # an administrator's work here.
    more = case.said.get("monitoring") or case.said.get("mode") == "gateway"
    somebody = Person(plane, bundle, users.ADMIN if more else deployer)
    hold_token(admin, namespace)
    before = contents.uids(namespace)

    with engines.serving(case.model):
        first = somebody.applies()
        ready = {event["role"] for event in first.of("ready")}
        front = {"gateway"} if case.said.get("mode") == "gateway" else set()
        assert ready == {*case.roles, "router", "pool", "model"} | front
        assert set(first.applied.values()) == {"created", "unchanged"}
        status = json.loads(somebody.does("status", "-o", "json").out)
    assert (status["name"], status["ready"], status["model"]["served"]) == (spec["name"], True, True)
    pods = {role: (spec[role]["replicas"], spec[role]["replicas"]) for role in case.roles}
    assert {role["role"]: (role["ready"], role["desired"]) for role in status["roles"]} == pods

    standing = contents.uids(namespace)
    assert somebody.does("diff", "--router-chart", str(CHART)).code == 0
    again = somebody.applies("--no-wait")
    assert set(again.applied.values()) == {"unchanged"}
    assert again.events[-1]["changed"] == 0
    assert contents.uids(namespace) == standing

    somebody.does("delete", "-y")
    # The rig's manager of sets, unlike the real one, looks a few times a second: what it made goes after its set.
    wait("the namespace is as it was", lambda: contents.uids(namespace) == before, seconds=10)
