"""Taints, tolerations, labels and affinity, by the tables of Kubernetes' documentation."""

from __future__ import annotations

from typing import Any

import pytest

from mmdeploy.cli import blueprints
from mmdeploy.preflight.demand import Demand
from mmdeploy.preflight.devices import driver_of
from mmdeploy.preflight.facts import Facts
from mmdeploy.preflight.machines import Machine, barred, equip, tolerated

FACTS = Facts(blueprints.load())
TAINT = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "covers"),
    [
        ({"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}, True),
        ({"key": "dedicated", "value": "gpu"}, True),  # Equal is the default, and no effect is every effect
        ({"key": "dedicated", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),  # no key and Exists is everything
        ({"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "dedicated", "value": "cpu"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "dedicated"}, False),  # Equal to nothing
    ],
)
def test_tolerations(toleration: dict[str, Any], covers: bool) -> None:
    assert tolerated(TAINT, [toleration]) is covers


def node(**changes: Any) -> Machine:
    plain: dict[str, Any] = {"name": "n", "labels": {}, "taints": (), "ready": True, "cordoned": False, "has": {}}
    return Machine(**{**plain, **changes})


def pod(**spec: Any) -> Demand:
    return Demand("decode", 1, {}, spec, {"nvidia.com/gpu": 1000}, ("Deployment", "decode"))


def affine(*expressions: dict[str, Any], fields: bool = False) -> Demand:
    term = {"matchFields" if fields else "matchExpressions": list(expressions)}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return pod(affinity={"nodeAffinity": required})


@pytest.mark.parametrize(
    ("operator", "values", "allowed"),
    [
        ("In", ["h100", "h200"], True),
        ("In", ["h100"], False),
        ("NotIn", ["h100"], True),
        ("NotIn", ["h200"], False),
        ("Exists", [], True),
        ("DoesNotExist", [], False),
    ],
)
def test_affinity(operator: str, values: list[str], allowed: bool) -> None:
    demand = affine({"key": "gpu", "operator": operator, "values": values})
    assert (barred(demand, node(labels={"gpu": "h200"}), FACTS) == "") is allowed


def test_affinity_by_number_and_name() -> None:
    for operator, allowed in (("Gt", True), ("Lt", False)):
        demand = affine({"key": "memory", "operator": operator, "values": ["80"]})
        assert (barred(demand, node(labels={"memory": "141"}), FACTS) == "") is allowed
    assert barred(affine({"key": "metadata.name", "operator": "In", "values": ["n"]}, fields=True), node(), FACTS) == ""


def test_selectors_name_the_label_that_lacks() -> None:
    demand = pod(nodeSelector={"zone": "a"})
    assert barred(demand, node(labels={"zone": "a"}), FACTS) == ""
    assert barred(demand, node(labels={"zone": "b"}), FACTS) == "not labelled zone=a"


def test_only_gke_tolerates_by_itself_and_only_the_resource_s_own_taint() -> None:
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    gke = {"cloud.google.com/gke-nodepool": "gpus"}
    assert barred(pod(), node(taints=(taint,)), FACTS) == "tainted nvidia.com/gpu=present:NoSchedule"
    assert barred(pod(), node(taints=(taint,), labels=gke), FACTS) == ""
    assert barred(pod(), node(taints=(TAINT,), labels=gke), FACTS) == "tainted dedicated=gpu:NoSchedule"


# ------------------------------------------------------------------------------------------------------------ devices


def published(node_name: str, count: int, generation: int = 1, **spec: Any) -> dict[str, Any]:
    pool = {"name": node_name, "generation": generation}
    devices = [{"name": f"card{index}"} for index in range(count)]
    return {"spec": {"driver": "gpu.intel.com", "nodeName": node_name, "pool": pool, "devices": devices, **spec}}


def claim(pod_name: str, *devices: str) -> dict[str, Any]:
    results = [{"driver": "gpu.intel.com", "pool": "n", "device": device} for device in devices]
    return {"status": {"allocation": {"devices": {"results": results}}, "reservedFor": [{"name": pod_name}]}}


CLASS = {"gpu.intel.com": "gpu.intel.com"}
KEY = "gpu.intel.com devices"


def test_the_newest_generation_of_a_pool_counts() -> None:
    place = node()
    equip([place], [published("n", 4, 1), published("n", 2, 2)], CLASS, [], frozenset())
    assert place.has[KEY] == 2000


def test_claims_take_devices_except_our_own() -> None:
    place = node()
    equip([place], [published("n", 4)], CLASS, [claim("other", "card0"), claim("mine", "card1")], frozenset({"mine"}))
    assert place.free()[KEY] == 3000


def test_devices_of_no_single_node_are_no_room() -> None:
    place = node()
    equip([place], [published("elsewhere", 4), published("", 4, allNodes=True)], CLASS, [], frozenset())
    assert KEY not in place.has


@pytest.mark.parametrize(
    ("expression", "driver"),
    [
        ('device.driver == "gpu.intel.com"', "gpu.intel.com"),
        ("device.driver == 'gpu.intel.com'", "gpu.intel.com"),
        ('device.driver == "gpu.intel.com" && device.capacity["x"].memory > 1', ""),
    ],
)
def test_the_driver_of_a_class(expression: str, driver: str) -> None:
    assert driver_of({"spec": {"selectors": [{"cel": {"expression": expression}}]}}) == driver
