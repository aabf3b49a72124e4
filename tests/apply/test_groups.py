"""Groups of several hosts: one leader, which serves, and workers, which belong to it.

Shapes: a set makes a LeaderWorkerSet a role, that a StatefulSet (Ordinal) or Deployment (Hash) of leaders
(disaggregatedset-observed.md, Shape), and each leader's pod owns a StatefulSet of workers named after it (the
LeaderWorkerSet's own definition, `size`: "a 0-replica StatefulSet for the workers" where it is 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from mmdeploy.apply import secret
from mmdeploy.apply.readiness import serving
from mmdeploy.apply.readiness.objects_seen import Seen, moment
from mmdeploy.apply.readiness.phases import Moment
from mmdeploy.apply.readiness.readiness import Judge, RoleState, Workload, workloads_of
from mmdeploy.apply.readiness.startup import Startup
from mmdeploy.cli import blueprints
from mmdeploy.intended import Intended
from mmdeploy.preflight.demand import demands
from mmdeploy.preflight.facts import Facts
from mmdeploy.preflight.secrets import referred
from tests.apply.cluster import Object, at

CATALOG = blueprints.load()
STARTUP = Startup(CATALOG)
LWS = "leaderworkerset.sigs.k8s.io"
DS = "disaggregatedset.x-k8s.io"
SIZE, GROUPS = 2, 2


def template(kind: str, **env: str) -> Object:
    reference = [{"name": name, "valueFrom": {"secretKeyRef": {"name": of, "key": "k"}}} for name, of in env.items()]
    box = {"name": f"modelserver-{kind}", "env": reference,
           "resources": {"limits": {"google.com/tpu": "4"}}}  # fmt: skip
    return {"metadata": {"labels": {"llm-d.ai/role": "decode"}}, "spec": {"containers": [box]}}


GROUP = {"size": SIZE, "leaderTemplate": template("leader"), "workerTemplate": template("worker")}


def owned(kind: str, name: str, owner: Object | None, spec: Object, status: Object, **labels: str) -> Object:
    metadata: Object = {"name": name, "namespace": "serving", "uid": f"{kind}/{name}", "generation": 1,
                        "creationTimestamp": at(0), "labels": labels}  # fmt: skip
    if owner:
        metadata["ownerReferences"] = [{"kind": owner["kind"], "uid": owner["metadata"]["uid"], "controller": True}]
    return {"kind": kind, "metadata": metadata, "spec": spec, "status": {"observedGeneration": 1, **status}}


def pod(name: str, owner: Object, index: int, *, ready: bool = True) -> Object:
    status: Object = {"phase": "Running"}
    if ready:
        status["conditions"] = [{"type": "Ready", "status": "True", "lastTransitionTime": at(1)}]
    spec = {"containers": [{"name": "modelserver"}], "nodeName": f"tpu-{name}"}
    said = {f"{LWS}/worker-index": str(index), "controller-revision-hash": "r1"}
    return owned("Pod", name, owner, spec, status, **said)


def stateful(name: str, owner: Object, replicas: int) -> Object:
    return owned("StatefulSet", name, owner, {"replicas": replicas}, {"updateRevision": "r1"})


def under(group: Object, unready: Sequence[str] = (), missing: Sequence[str] = ()) -> dict[str, list[Object]]:
    """What a LeaderWorkerSet makes: leaders and, under each, workers."""
    name = group["metadata"]["name"]
    leaders = stateful(name, group, GROUPS)
    sets, pods = [leaders], []
    for number in range(GROUPS):
        leader = pod(f"{name}-{number}", leaders, 0, ready=f"{name}-{number}" not in unready)
        workers = stateful(f"{name}-{number}", leader, SIZE - 1)
        sets.append(workers)
        pods += [leader, pod(f"{name}-{number}-1", workers, 1, ready=f"{name}-{number}-1" not in unready)]
    return {"StatefulSet": sets, "Pod": [each for each in pods if each["metadata"]["name"] not in missing]}


ROLE = {"name": "decode", "spec": {"replicas": GROUPS, "leaderWorkerTemplate": GROUP}}
SET = owned(DS, "mm", None, {"roles": [ROLE]}, {"roleStatuses": [
    {"name": "decode", "replicas": GROUPS, "readyReplicas": GROUPS, "updatedReplicas": GROUPS}]})  # fmt: skip
SET["kind"] = "DisaggregatedSet"
CHILD = owned("LeaderWorkerSet", "mm-0-abcdefgh-decode", SET, ROLE["spec"], {}, **{f"{DS}/role": "decode"})  # type: ignore[arg-type]
ALONE = owned("LeaderWorkerSet", "mm", None, {"replicas": GROUPS, "leaderWorkerTemplate": GROUP}, {})


def judged(workload: Workload, items: dict[str, list[Object]]) -> RoleState:
    now = moment(at(120))
    assert now
    return Judge(Seen(items), STARTUP, Moment(now), lambda _: 60.0).role(workload)


def of_set(**what: Any) -> RoleState:
    items = {"DisaggregatedSet": [SET], "LeaderWorkerSet": [CHILD], **under(CHILD, **what)}
    return judged(Workload("decode", "DisaggregatedSet", "mm"), items)


def test_a_role_is_ready_when_every_leader_and_worker_is() -> None:
    state = of_set()
    assert (state.ready, state.desired, state.done) == (4, 4, True)  # 2 groups × size 2


@pytest.mark.parametrize("name", ["mm-0-abcdefgh-decode-1", "mm-0-abcdefgh-decode-0-1"], ids=["leader", "worker"])
def test_a_leader_or_worker_that_is_not_ready_is_waited_for(name: str) -> None:
    state = of_set(unready=[name])
    assert (state.ready, state.done) == (3, False)


def test_a_worker_that_is_not_there_yet_is_missed() -> None:
    state = of_set(missing=["mm-0-abcdefgh-decode-0-1"])
    assert (state.ready, state.desired, state.done) == (3, 4, False)
    assert [owner.detail for owner in state.owners] == ["3 of 4 pods are there"]


def test_a_leader_worker_set_of_its_own() -> None:
    intended = Intended("bundle", {"name": "mm", "namespace": "serving"}, {}, {"modelserver": [ALONE]})
    (workload,) = workloads_of(intended)
    assert workload == Workload("decode", "LeaderWorkerSet", "mm")
    assert judged(workload, {"LeaderWorkerSet": [ALONE], **under(ALONE)}).done
    assert list(intended.pods()) == [("decode", GROUPS, GROUP["leaderTemplate"])]


def test_leaders_that_a_deployment_makes() -> None:
    """groupIdentity Hash: LeaderWorkerSet → Deployment → ReplicaSet → leaders, and workers under them as before."""
    revision = {"deployment.kubernetes.io/revision": "1"}
    deployment = owned("Deployment", "mm", ALONE, {"replicas": 1, "selector": {}}, {})
    replicas = owned("ReplicaSet", "mm-x", deployment, {"replicas": 1}, {})
    for each in (deployment, replicas):
        each["metadata"]["annotations"] = revision
    leader = pod("mm-x-aaaaa", replicas, 0)
    workers = stateful("mm-x-aaaaa", leader, 1)
    alone = {**ALONE, "spec": {**ALONE["spec"], "replicas": 1, "groupIdentity": "Hash"}}
    items = {"LeaderWorkerSet": [alone], "Deployment": [deployment], "ReplicaSet": [replicas],
             "StatefulSet": [workers], "Pod": [leader, pod("mm-x-aaaaa-1", workers, 1)]}  # fmt: skip
    state = judged(Workload("decode", "LeaderWorkerSet", "mm"), items)
    assert (state.ready, state.desired, state.done) == (2, 2, True)


def test_workers_of_a_leader_of_the_old_revision_are_old_too() -> None:
    items = under(CHILD)
    for each in items["Pod"]:
        if each["metadata"]["name"].endswith("decode-0"):
            each["metadata"]["labels"]["controller-revision-hash"] = "r0"
    state = judged(Workload("decode", "DisaggregatedSet", "mm"),
                   {"DisaggregatedSet": [SET], "LeaderWorkerSet": [CHILD], **items})  # fmt: skip
    assert (state.ready, state.old, state.done) == (2, 2, False)


def test_the_leader_is_asked_for_the_model_and_never_a_worker() -> None:
    state = of_set(unready=["mm-0-abcdefgh-decode-0"])
    places = [by for by, _ in serving._places("serving", Seen({}), "mm", [state], STARTUP, 8000)]
    assert places == ["pod mm-0-abcdefgh-decode-1"]


def test_pods_and_secrets_of_leaders_and_workers_are_counted_apart() -> None:
    """2 groups of 4 hosts with 4 chips each: 2 leaders and 6 workers, 32 chips."""
    group = {"size": 4, "leaderTemplate": template("leader", A="one"), "workerTemplate": template("worker", B="two")}
    item = {**ALONE, "apiVersion": "leaderworkerset.x-k8s.io/v1",
            "spec": {"replicas": 2, "leaderWorkerTemplate": group}}  # fmt: skip
    spec = {"name": "mm", "namespace": "serving", "mode": "standalone"}
    intended = Intended("bundle", spec, {}, {"modelserver": [item]})
    found = [each for each in demands(intended, Facts(CATALOG)) if each.role != "router"]
    assert [(each.role, each.count, each.accelerators) for each in found] == [
        ("decode", 2, {"google.com/tpu": 4000}), ("decode", 6, {"google.com/tpu": 4000}),
    ]  # fmt: skip
    assert sum(each.count * each.accelerators["google.com/tpu"] for each in found) == 32_000
    assert referred(intended) == {"one": {"k"}, "two": {"k"}}
    assert [each.name for each in secret.needed(intended)] == ["one", "two"]
