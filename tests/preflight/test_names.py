"""Names that controllers lengthen: the arithmetic, with lengths from what real controllers were seen to do."""

from __future__ import annotations

from typing import Any

import pytest

from mmdeploy.cli import blueprints
from mmdeploy.intended import Intended
from mmdeploy.preflight.facts import Facts
from mmdeploy.preflight.names import derived

RULES = Facts(blueprints.load())["names"]


def too_long(item: dict[str, Any]) -> list[str]:
    """What would be made of an object's name that nothing takes."""
    intended = Intended("bundle", {"name": "mm", "namespace": "serving"}, {}, {"modelserver": [item]})
    return [each.what for each in derived(intended, RULES) if each.excess > 0]


def named(kind: str, length: int, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "s" * length}, "spec": spec}


def group(size: int = 1, **spec: Any) -> dict[str, Any]:
    return {"replicas": 2, "leaderWorkerTemplate": {"size": size, "workerTemplate": {"spec": {}}}, **spec}


def role_set(length: int, **spec: Any) -> dict[str, Any]:
    return named("DisaggregatedSet", length, roles=[{"name": "prefill", "spec": group(**spec)}])


def test_a_stateful_set() -> None:
    # Seen on Kubernetes 1.35.4: 52 characters get their pod, 53 only "FailedCreate … metadata.labels: Invalid value".
    assert not too_long(named("StatefulSet", 52, replicas=1))
    assert too_long(named("StatefulSet", 53, replicas=1)) == ["the label controller-revision-hash of its pods"]


def test_a_deployment_may_have_any_name_that_the_server_takes() -> None:
    # Seen on Kubernetes 1.35.4 with 63, 242, 243 and 253 characters: the ReplicaSet is made, pods' names are cut.
    assert not too_long(named("Deployment", 253, replicas=1))


@pytest.mark.parametrize(("length", "fits"), [(40, True), (41, False)])
def test_a_set_with_hashed_names(length: int, fits: bool) -> None:
    # disaggregatedset-observed.md: set name and role name are 47 characters at most, and prefill has 7.
    assert (not too_long(role_set(length, groupIdentity="Hash"))) is fits


@pytest.mark.parametrize(("length", "fits"), [(33, True), (34, False)])
def test_a_set_whose_groups_are_stateful_sets(length: int, fits: bool) -> None:
    # 63 − "-" and a hash of 10 = 52 for the StatefulSet; it is SET-0-REVISION-ROLE: 52 − 3 − 8 − 1 − 7 = 33.
    assert (not too_long(role_set(length))) is fits


@pytest.mark.parametrize(("length", "fits"), [(31, True), (32, False)])
def test_groups_of_several_hosts_have_a_stateful_set_of_workers_each(length: int, fits: bool) -> None:
    # As above, and the workers' StatefulSet is named after the leader: "-0" or "-1" more.
    assert (not too_long(role_set(length, size=4))) is fits


def test_the_number_of_slices_takes_room_too() -> None:
    # The eleventh slice is number 10, one digit more than the webhook's 47 allows for.
    item = role_set(40, groupIdentity="Hash")
    assert not too_long({**item, "spec": {**item["spec"], "slices": 10}})
    assert too_long({**item, "spec": {**item["spec"], "slices": 11}}) == ["the name of a Service"]


def test_a_release_name() -> None:
    # helm 4.3.1: "the length must not be longer than 53".
    def excess(length: int) -> int:
        return next(derived(Intended("b", {"name": "r" * length, "namespace": "s"}, {}, {}), RULES)).excess

    assert (excess(53), excess(54)) == (0, 1)
