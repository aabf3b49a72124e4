"""A role without a pod is never ready, whoever scaled it down."""

from __future__ import annotations

from mmdeploy.apply.events import Failed, Ready
from mmdeploy.apply.readiness import waiting
from mmdeploy.cli import blueprints
from mmdeploy.intended import Intended
from tests.apply.cluster import Cluster, deployment, replica_set


def test_none_of_none_is_not_ready() -> None:
    found = Cluster(lambda _: {"Deployment": [deployment(0)], "ReplicaSet": [replica_set(0)], "Pod": []})
    template = {"metadata": {"labels": {"llm-d.ai/role": "decode"}}, "spec": {"containers": []}}
    item = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "engine"},
            "spec": {"replicas": 0, "template": template}}  # fmt: skip
    spec = {"name": "mm", "namespace": "serving", "model": "a/b"}
    wanted = Intended("bundle", spec, {}, {"modelserver": [item]})
    events = list(
        waiting.wait(
            found, wanted, blueprints.load(), parts=("model-servers",), clock=found.clock, now=found.now,
            sleep=found.sleep,  # type: ignore[arg-type]
        )
    )  # fmt: skip
    assert not [event for event in events if isinstance(event, Ready)]
    failed = [event for event in events if isinstance(event, Failed)]
    assert [event.reason for event in failed] == ["it is scaled to 0 pods: nobody plays the role"]
    assert failed[0].hint
