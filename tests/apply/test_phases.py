"""How far a pod is, and whether it can still get there: `phases.yaml` says what a person must be told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from mmdeploy.apply.readiness.objects_seen import Said, moment
from mmdeploy.apply.readiness.phases import Moment, PodJudge
from mmdeploy.apply.readiness.startup import Startup
from mmdeploy.cli import blueprints

CASES = yaml.safe_load((Path(__file__).parent / "phases.yaml").read_text(encoding="utf-8"))
NOW = moment("2026-01-01T00:10:00Z")
BEGUN = "2026-01-01T00:00:00Z"
STARTUP = Startup(blueprints.load())


def pod_of(said: dict[str, Any]) -> dict[str, Any]:
    """A whole pod from the few words of a case."""
    metadata = {"name": "engine-0", "uid": "1", "creationTimestamp": "2026-01-01T00:00:05Z"}
    if said.get("deleted"):
        metadata["deletionTimestamp"] = said["deleted"]
    container = {"name": "modelserver", "startupProbe": {}, "resources": {"limits": {"memory": "128Gi"}}}
    container["startupProbe"] = {"httpGet": {"path": "/v1/models"}}
    status = dict(said.get("status") or {})
    if said.get("ready"):
        status["conditions"] = [{"type": "Ready", "status": "True", "lastTransitionTime": said["ready"]}]
    state = {name: said[name] for name in ("waiting", "running", "terminated") if name in said}
    if state:
        status["containerStatuses"] = [
            {
                "name": "modelserver",
                "image": "docker.io/vllm/vllm-openai:v0.30.0",
                "ready": bool(said.get("ready")),
                "started": bool(said.get("started")),
                "restartCount": said.get("restarts", 0),
                "state": state,
                **({"lastState": {"terminated": said["ended"]}} if "ended" in said else {}),
            }
        ]
    spec = {"containers": [container], **(said.get("spec") or {})}
    if said.get("node"):
        spec["nodeName"] = said["node"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def judge(case: dict[str, Any]) -> PodJudge:
    assert NOW
    begun = moment(case.get("begun", BEGUN))
    events = [
        Said(each["reason"], each["message"], each["warning"], moment(each.get("at", "2026-01-01T00:09:00Z")))
        for each in case.get("said", ())
    ]
    pod = pod_of(case["pod"])
    if "begun" in case:  # a rerun: the pod is older than this apply
        pod["metadata"]["creationTimestamp"] = "2025-12-01T00:00:00Z"
    return PodJudge(pod, events, STARTUP, Moment(NOW, begun), engine=case.get("engine", True))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_pod_is_where_the_case_says(case: dict[str, Any]) -> None:
    found = judge(case).phase(case.get("log", ()))
    assert found.name == case["phase"]
    assert (found.failure.reason if found.failure else None) == case.get("fails")
    if "detail" in case:
        assert found.detail == case["detail"]
    if "since" in case:
        assert found.since == moment(case["since"])


@pytest.mark.parametrize("case", [case for case in CASES if "log" in case], ids=lambda case: case["name"])
def test_a_log_that_tells_more_is_asked_for(case: dict[str, Any]) -> None:
    wanted = judge(case).log_wanted()
    assert wanted
    assert wanted.previous == ("ended" in case["pod"])


@pytest.mark.parametrize("case", [case for case in CASES if "fails" in case], ids=lambda case: case["name"])
def test_a_failure_carries_the_log(case: dict[str, Any]) -> None:
    failure = judge(case).phase(case.get("log", ())).failure
    assert failure
    assert list(failure.log) == case.get("log", [])
