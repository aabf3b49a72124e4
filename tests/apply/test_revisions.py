"""Which pods are of an old revision, also where kinds were read one after the other and do not fit together.

A look lists Deployments, then ReplicaSets, then pods: within a first apply a Deployment may be seen before its
controller has counted it, and its pods all the same. None of them is old.
"""

from __future__ import annotations

from typing import Any

import pytest

from mmdeploy.apply.readiness.objects_seen import Seen, moment
from mmdeploy.apply.readiness.phases import Moment
from mmdeploy.apply.readiness.readiness import Judge, RoleState, Workload
from mmdeploy.apply.readiness.startup import Startup
from mmdeploy.cli import blueprints
from tests.apply.cluster import Object, at, deployment, pod, replica_set

STARTUP = Startup(blueprints.load())


def template(image: str) -> Object:
    return {
        "metadata": {"labels": {"llm-d.ai/role": "decode"}},
        "spec": {"containers": [{"name": "a", "image": image}]},
    }


def judged(item: Object, kind: str = "Deployment", **others: list[Object]) -> RoleState:
    now = moment(at(60))
    assert now
    items = {kind: [{"kind": kind, **item}], **others}
    named = {name: [{"kind": name, **each} for each in found] for name, found in items.items()}
    return Judge(Seen(named), STARTUP, Moment(now), lambda _: 0.0).role(Workload("decode", kind, "engine"))


def unseen(image: str, generation: int) -> Object:
    """A Deployment that its controller has not looked at since its spec was written."""
    item = deployment(1)
    item["metadata"] |= {"generation": generation, "annotations": {}}
    item["spec"]["template"] = template(image)
    item["status"] = {"observedGeneration": generation - 1} if generation > 1 else {}
    return item


def replicas(image: str) -> Object:
    item = replica_set(1)
    item["spec"]["template"] = template(image)
    item["spec"]["template"]["metadata"]["labels"]["pod-template-hash"] = "abc"
    return item


@pytest.mark.parametrize(
    ("generation", "image", "old"),
    [
        (1, "engine:1", 0),  # a first apply
        (2, "engine:1", 0),  # scaled: the pods are as they should be
        (2, "engine:2", 1),  # a new image: what runs is old, whether its controller knows yet or not
    ],
)
def test_a_deployment_that_was_read_before_its_controller_counted_it(generation: int, image: str, old: int) -> None:
    there = {"ReplicaSet": [replicas("engine:1")], "Pod": [pod(0, running=0, ready=1)]}
    state = judged(unseen(image, generation), **there)
    assert (state.old, state.ready) == (old, 1 - old)
    assert not state.done, "its controller has not acted yet"
    assert ("old revision" in state.summary) is bool(old)


def stateful(generation: int, observed: int, revision: str | None) -> Any:
    metadata = {"name": "engine", "uid": "s", "generation": generation, "creationTimestamp": at(0)}
    status: Object = {"observedGeneration": observed} | ({"updateRevision": revision} if revision else {})
    return {"metadata": metadata, "spec": {"replicas": 1}, "status": status}


@pytest.mark.parametrize(
    ("item", "old"),
    [
        (stateful(1, 0, None), 0),
        (stateful(1, 1, "r1"), 0),
        (stateful(2, 1, "r1"), 1),
        (stateful(2, 2, "r2"), 1),
    ],
    ids=["a first apply, not counted yet", "counted", "changed, not counted yet", "changed and counted"],
)
def test_a_stateful_set(item: Object, old: int) -> None:
    one = pod(0, running=0, ready=1)
    one["metadata"] |= {"ownerReferences": [{"kind": "StatefulSet", "uid": "s"}],
                        "labels": {"controller-revision-hash": "r1"}}  # fmt: skip
    assert judged(item, "StatefulSet", Pod=[one]).old == old
