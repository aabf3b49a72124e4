"""Room on nodes: what the real scheduler would do with the pods, said beforehand and in numbers.

The fleet (tests/rig/fleet.py) has three free nodes of 8 GPUs, one that is tainted and one that is full; 2 × 4 XPUs; and
8 nodes of 4 TPU chips. An aggregated deployment is 8 pods × 2 GPUs (llm-d-guides.md §1), E/P/D 10 pods × 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.check.checking import Checker, pods_of
from tests.rig import fleet
from tests.rig.api import Api, wait
from tests.rig.workloads import deployment, pods, ready_pods

ROOM = "room for all pods"


@pytest.fixture
def extra_node(admin: Api) -> Iterator[Any]:
    """A node more, as a test wants it."""
    made: list[str] = []

    def make(name: str, **spec: Any) -> None:
        fleet.post(admin, fleet.gpu_node(name, **spec))
        made.append(name)

    yield make
    for name in made:
        admin.delete(f"/api/v1/nodes/{name}")


def test_free_room_is_counted_on_each_node(checker: Checker) -> None:
    # 3 nodes × 8 GPUs, 2 a pod: 12. The full and the tainted node do not count.
    assert checker()[ROOM].result == "ok"
    assert checker()[ROOM].detail == "needs 8 pods × 2 nvidia.com/gpu; 3 nodes have ≥ 2 free, room for 12"


def test_gpus_that_are_spread_too_thin_are_no_room(checker: Checker, admin: Api, namespace: str) -> None:
    # Each of the three nodes keeps 3 of 8 GPUs: 9 are free, but tensor parallelism wants 2 on one node: 3 pods.
    admin.apply(deployment("other", namespace, replicas=3, gpus=5))
    wait("they run", lambda: ready_pods(admin, namespace, 3))
    found = checker()[ROOM]
    assert found.result == "warning"
    assert "3 nodes have ≥ 2 free, room for 3" in found.detail
    assert "5 of 8 decode would wait" in found.detail


def test_too_few_gpus_in_all_is_an_error(checker: Checker) -> None:
    # 32 GPUs on nodes without a taint, 2 a pod: 16 pods, whoever uses them now.
    found = checker(decode={"replicas": 17})[ROOM]
    assert found.result == "error"
    assert "4 nodes have ≥ 2 in all, room for 16" in found.detail
    assert checker(decode={"replicas": 16})[ROOM].result == "warning"


def test_more_gpus_a_pod_than_a_node_has(checker: Checker) -> None:
    found = checker(decode={"tensorParallelSize": 16})
    assert found["nodes suit decode pods"].result == "error"
    assert "5 with less nvidia.com/gpu than a pod asks for" in found["nodes suit decode pods"].detail


def test_roles_are_placed_together(checker: Checker) -> None:
    # encode 1 × 8 fills a node; the other two nodes hold 8 pods of 2 GPUs: 2 prefill... 9 do not fit.
    spec = {"topology": "e-pd", "workload": "Deployment", "encode": {"replicas": 1, "tensorParallelSize": 8}}
    good = checker(**spec, decode={"replicas": 8})[ROOM]
    assert good.result == "ok", good
    bad = checker(**spec, decode={"replicas": 9})[ROOM]
    assert bad.result == "warning", bad
    assert "1 of 9 decode would wait" in bad.detail or "1 of 1 encode would wait" in bad.detail


def test_memory_can_be_what_lacks(checker: Checker) -> None:
    # A node has 2Ti and 8 GPUs: four pods of 2 GPUs and 1Ti do not fit, two do. 3 nodes: 6.
    found = checker(decode={"memory": "1Ti", "memoryRequest": "1Ti"})[ROOM]
    assert found.result == "warning"
    assert "room for 12, but by cores and memory for 6" in found.detail


def test_a_deployment_that_runs_needs_no_room(checker: Checker, admin: Api, namespace: str) -> None:
    intended = checker.intended()
    for item in intended.objects:
        admin.apply(item)
    wait("it runs", lambda: ready_pods(admin, namespace, 8))
    # 12 pods fit and 8 are there: a second deployment would not fit, the same one again does.
    assert checker.of(intended)[ROOM].result == "ok"
    assert checker.of(checker.intended(namePrefix="other"))[ROOM].result == "warning"


def test_a_set_that_runs_needs_no_room(checker: Checker, admin: Api, namespace: str, sets: object) -> None:
    intended = checker.intended(topology="e-pd")
    for item in intended.objects:
        admin.apply(item)
    wait("it runs", lambda: len(pods(admin, namespace)) == 10)
    assert checker.of(intended)[ROOM].result == "ok"


def test_a_taint_keeps_pods_away_and_a_toleration_lets_them_in(checker: Checker, admin: Api) -> None:
    names = [f"gpu-{index}" for index in range(3)] + ["gpu-full"]
    taints = {"spec": {"taints": [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]}}
    for name in names:
        admin.merge(f"/api/v1/nodes/{name}", taints)
    try:
        bad = checker()["nodes suit decode pods"]
        assert bad.result == "error"
        assert "4 tainted dedicated=gpu:NoSchedule" in bad.detail
        assert "decode.tolerations" in bad.hint
        tolerated = [{"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}]
        assert checker(decode={"tolerations": tolerated})[ROOM].result == "ok"
    finally:
        for name in names:
            admin.merge(f"/api/v1/nodes/{name}", {"spec": {"taints": None}})


def test_a_cordoned_node_is_no_room_now(checker: Checker, admin: Api) -> None:
    admin.merge("/api/v1/nodes/gpu-0", {"spec": {"unschedulable": True}})
    try:
        # Two nodes hold 8 pods: exactly enough. With 9 one waits.
        found = checker(decode={"replicas": 9})[ROOM]
        assert found.result == "warning"
        assert "room for 8 (not counted: 1 cordoned)" in found.detail
        assert checker(decode={"replicas": 8})[ROOM].result == "ok"
    finally:
        admin.merge("/api/v1/nodes/gpu-0", {"spec": {"unschedulable": None}})


def test_gke_tolerates_the_taint_of_what_a_pod_asks_for(checker: Checker, admin: Api, extra_node: Any) -> None:
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    extra_node("gpu-extra", taints=[taint])
    assert "room for 12" in checker()[ROOM].detail
    admin.merge("/api/v1/nodes/gpu-extra", {"metadata": {"labels": {"cloud.google.com/gke-nodepool": "gpus"}}})
    assert "4 nodes have ≥ 2 free, room for 16" in checker()[ROOM].detail


def test_a_slice_of_another_shape_does_not_suit(checker: Checker, admin: Api) -> None:
    spec = {"accelerator": "tpu/v7", "provider": "gke"}
    good = checker(**spec)
    assert good[ROOM].detail == "needs 8 pods × 4 google.com/tpu; 8 nodes have ≥ 4 free, room for 8"
    for index in range(8):
        admin.merge(
            f"/api/v1/nodes/tpu-{index}", {"metadata": {"labels": {"cloud.google.com/gke-tpu-topology": "2x4"}}}
        )
    try:
        bad = checker(**spec)["nodes suit decode pods"]
        assert bad.result == "error"
        assert "8 not labelled cloud.google.com/gke-tpu-topology=2x2x1" in bad.detail
    finally:
        for index in range(8):
            labels = {"cloud.google.com/gke-tpu-topology": "2x2x1"}
            admin.merge(f"/api/v1/nodes/tpu-{index}", {"metadata": {"labels": labels}})


def test_devices_are_counted_by_class_and_claim(checker: Checker, admin: Api, namespace: str) -> None:
    spec = {"accelerator": "xpu"}
    found = checker(**spec)
    assert found["device class gpu.intel.com"].result == "ok"
    assert "needs 2 pods × 2 gpu.intel.com devices; 2 nodes have ≥ 2 free, room for 4" in found[ROOM].detail
    intended = checker.intended(**spec, namePrefix="first")
    for item in intended.objects:
        admin.apply(item)
    wait("they run", lambda: ready_pods(admin, namespace, 2))
    # 4 of 8 devices are claimed: two more pods fit, and their own claims do not count against themselves.
    assert checker.of(intended)[ROOM].result == "ok"
    other = checker(**spec, decode={"replicas": 3}, namePrefix="second")[ROOM]
    assert other.result == "warning"
    assert "room for 2" in other.detail


def test_a_device_class_that_nobody_made(checker: Checker, admin: Api) -> None:
    where = "/apis/resource.k8s.io/v1/deviceclasses/gpu.intel.com"
    kept = admin.get(where)
    admin.delete(where)
    try:
        assert checker(accelerator="xpu")["device class gpu.intel.com"].result == "error"
    finally:
        item = {key: kept[key] for key in ("apiVersion", "kind", "spec")}
        admin.apply({**item, "metadata": {"name": "gpu.intel.com"}})


def test_infiniband_that_no_node_offers(checker: Checker, admin: Api) -> None:
    # M208: the overlay of CoreWeave on a cluster without the RDMA device plugin; the base overlay asks for none.
    names = [*(f"gpu-{index}" for index in range(3)), "gpu-tainted", "gpu-full"]

    def offer(amount: str | None) -> None:
        for name in names:
            change = {"status": {part: {"rdma/ib": amount} for part in ("capacity", "allocatable")}}
            admin.merge(f"/api/v1/nodes/{name}/status", change)

    spec = {"topology": "e-pd", "workload": "Deployment"}
    offer(None)
    try:
        found = checker(**spec, provider="coreweave")["nodes suit encode pods"]
        assert found.result == "error"
        assert "5 without rdma/ib" in found.detail
        assert "-p base" in found.hint
        assert checker(**spec)[ROOM].result == "ok"
    finally:
        offer("8")
    assert checker(**spec, provider="coreweave")[ROOM].result == "ok"


def test_without_the_right_to_list_nodes_nothing_is_claimed(checker: Checker, deployer: str) -> None:
    found = checker(user=deployer)["room for the pods"]
    assert found.result == "skipped"
    assert "no right" in found.detail


def test_rules_between_pods_are_not_promised(checker: Checker) -> None:
    def apart(item: dict[str, Any]) -> None:
        for pod in pods_of(item):
            term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}
            pod["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}

    found = checker(apart)[ROOM]
    assert found.result == "warning"
    assert "decode's podAntiAffinity may forbid some of it" in found.detail


def test_nodes_may_come_on_demand(checker: Checker) -> None:
    assert checker(decode={"replicas": 17}, options={"autoscaled": True})[ROOM].result == "warning"
