"""Waiting on a real control plane: slow starts are waited for, what fails for good is told within seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mmdeploy import intended
from mmdeploy.apply.events import Event, Failed, Ready, Waiting
from mmdeploy.apply.readiness import waiting
from mmdeploy.cli import blueprints
from mmdeploy.cluster.access import Access
from mmdeploy.cluster.session import Session
from mmdeploy.errors import TimedOutError
from tests.rig import engines, users
from tests.rig.api import wait
from tests.rig.bundles import AGGREGATION, E_PD, bundle, change, put
from tests.rig.controlplane import ControlPlane
from tests.rig.sets import Sets
from tests.rig.workloads import pods

MODEL = "Qwen/Qwen3-VL-32B-Instruct"
SECONDS = 12  # "within seconds", on a machine that others use too


@pytest.fixture
def model(pod_network: None) -> Iterator[None]:
    """Every pod lists the model that the shipped bundles serve."""
    with engines.serving(MODEL):
        yield


def events(
    plane: ControlPlane, made: Path, user: str = users.ADMIN, seconds: float = 60, **options: Any
) -> Iterator[Event]:
    """What a wait yields."""
    catalog = blueprints.load()
    session = Session.connect(Access(plane.kubeconfig(user)))
    deadline = time.monotonic() + seconds
    return waiting.wait(session, intended.read(made, catalog), catalog, deadline=deadline, **options)


def failure(found: list[Event]) -> Failed:
    last = found[-1]
    assert isinstance(last, Failed), last
    return last


def test_a_deployment_becomes_ready_part_by_part(
    plane: ControlPlane, namespace: str, deployer: str, custom_resources: None, model: None, tmp_path: Path
) -> None:
    made = bundle(AGGREGATION, namespace, tmp_path, ready_after="3s", pull_for="2s")
    put(plane, made, namespace, deployer)
    found = list(events(plane, made, deployer))
    assert [event.role for event in found if isinstance(event, Ready)] == ["decode", "router", "pool", "model"]
    assert [event.detail for event in found if isinstance(event, Ready)][:3] == [
        "8 of 8",
        "1 of 1",
        "selects 8 ready pods: 8 decode",
    ]
    phases = {event.phase for event in found if isinstance(event, Waiting) and event.kind == "Pod"}
    assert {"pulling", "loading", "ready"} <= phases


def test_a_set_becomes_ready(
    plane: ControlPlane, namespace: str, deployer: str, sets: Sets, model: None, tmp_path: Path
) -> None:
    made = bundle(E_PD, namespace, tmp_path)
    put(plane, made, namespace, deployer)
    found = [event for event in events(plane, made, deployer) if isinstance(event, Ready)]
    assert {(event.role, event.detail) for event in found[:2]} == {("encode", "2 of 2"), ("decode", "8 of 8")}
    assert found[3].detail == "selects 10 ready pods: 2 encode, 8 decode"


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        ("image-missing", "there is no such image: docker.io/vllm/vllm-openai:"),
        ("crash-loop", "it crashes again and again: ended with exit code 1"),
        ("out-of-memory", "it was killed: it took more memory than its limit of 256Gi"),
    ],
)
def test_what_fails_for_good_is_told_within_seconds(
    plane: ControlPlane, namespace: str, tmp_path: Path, behaviour: str, said: str
) -> None:
    made = bundle(AGGREGATION, namespace, tmp_path, behaviour=behaviour)
    put(plane, made, namespace, router=False)
    started = time.monotonic()
    last = failure(list(events(plane, made, parts=("model-servers",))))
    assert last.reason.startswith(said)
    assert last.name.startswith("decode: Pod mm-baseline-nvidia-gpu-vllm-decode-")
    assert time.monotonic() - started < SECONDS


def test_a_refused_flag_stops_with_the_log_at_the_first_crash(
    plane: ControlPlane, namespace: str, pod_network: None, tmp_path: Path
) -> None:
    made = bundle(AGGREGATION, namespace, tmp_path, behaviour="crash-loop")
    put(plane, made, namespace, router=False)
    (first, *_) = wait("pods", lambda: pods(plane.api(), namespace))
    # The words of Python's argparse, as vllm serve prints them (model-servers.md §1.4).
    said = ("usage: vllm serve [options]", "vllm serve: error: unrecognized arguments: --mm-encoder-onyl")
    plane.write_log(namespace, first["metadata"]["name"], *said, previous=said)
    found = list(events(plane, made, parts=("model-servers",)))
    refused = [event for event in found if isinstance(event, Failed) and "--mm-encoder-onyl" in event.reason]
    assert [event.reason for event in refused] == ["the engine does not know --mm-encoder-onyl"]
    assert refused[0].log[-1] == said[1]
    assert first["metadata"]["name"] in refused[0].name


def test_waiting_for_capacity_is_no_failure_and_says_why(plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    made = bundle(AGGREGATION, namespace, tmp_path)

    def more(template: dict[str, Any]) -> None:
        resources = template["spec"]["containers"][0]["resources"]
        for amounts in resources.values():
            amounts["nvidia.com/gpu"] = "16"

    change(made, more)
    put(plane, made, namespace, router=False)
    found: list[Event] = []
    with pytest.raises(TimedOutError, match=r"not ready within --timeout 6s: decode: 0 of 8 ready, 8 unschedulable"):
        found.extend(events(plane, made, seconds=6, limit="--timeout 6s", parts=("model-servers",)))
    # 15 machines in fleet.py: one tainted; none of the other 14 has 16 GPUs.
    waits = [event for event in _all(plane, made) if event.kind == "Pod"]
    assert waits[0].phase == "unschedulable"
    assert waits[0].detail == "of 15 nodes 14 without enough free nvidia.com/gpu, 1 tainted"


def _all(plane: ControlPlane, made: Path) -> list[Waiting]:
    """What a first look tells."""
    found = []
    for event in events(plane, made, parts=("model-servers",)):
        if isinstance(event, Waiting):
            found.append(event)
            if event.kind == "Role":
                break
    return found


def test_a_manager_that_reports_nothing_is_not_believed_to_be_ready_and_pods_are(
    plane: ControlPlane, namespace: str, sets: Sets, tmp_path: Path
) -> None:
    made = bundle(E_PD, namespace, tmp_path)
    with sets.being("silent"):
        put(plane, made, namespace, router=False)
        found = list(events(plane, made, parts=("model-servers",)))
    details = {event.role: event.detail for event in found if isinstance(event, Ready)}
    note = "judged by its pods: the status of DisaggregatedSet e-pd-disaggregation-nvidia-gpu-vllm stays empty"
    assert details == {"encode": f"2 of 2; {note}", "decode": f"8 of 8; {note}"}


def test_a_manager_that_is_away_is_reported(plane: ControlPlane, namespace: str, sets: Sets, tmp_path: Path) -> None:
    made = bundle(E_PD, namespace, tmp_path)
    with sets.being("away"):
        put(plane, made, namespace, router=False)
        for event in events(plane, made, parts=("model-servers",)):
            if isinstance(event, Waiting) and "enableDisaggregatedSet" in event.detail:
                break
        else:
            pytest.fail("nothing was said of the manager")
    assert event.kind == "DisaggregatedSet"
    assert event.detail.startswith(
        "no controller has acted on DisaggregatedSet e-pd-disaggregation-nvidia-gpu-vllm for"
    )


def test_a_stale_status_is_not_believed(
    plane: ControlPlane, namespace: str, sets: Sets, tmp_path: Path
) -> None:  # disaggregatedset-observed.md: Available stays True while observedGeneration is behind
    made = bundle(E_PD, namespace, tmp_path)
    put(plane, made, namespace, router=False)
    assert [event.role for event in events(plane, made, parts=("model-servers",)) if isinstance(event, Ready)]
    with sets.being("away"):
        change(made, lambda template: template["spec"]["containers"][0].update(image="example.com/engine:2"))
        put(plane, made, namespace, router=False)
        with pytest.raises(TimedOutError, match="0 of 2 ready"):
            list(events(plane, made, seconds=4, parts=("model-servers",)))
    found = [event for event in events(plane, made, parts=("model-servers",)) if isinstance(event, Ready)]
    assert {event.role for event in found} == {"encode", "decode"}
    images = {pod["spec"]["containers"][0]["image"] for pod in pods(plane.api(), namespace)}
    assert images == {"example.com/engine:2"}


def test_pods_of_the_old_revision_do_not_count(plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    made = bundle(AGGREGATION, namespace, tmp_path)
    put(plane, made, namespace, router=False)
    list(events(plane, made, parts=("model-servers",)))
    change(made, lambda template: template["metadata"]["annotations"].update({"rig/behaviour": "unready"}))
    put(plane, made, namespace, router=False)
    with pytest.raises(TimedOutError, match=r"decode: 0 of 8 ready, \d loading, \d of the old revision"):
        list(events(plane, made, seconds=5, parts=("model-servers",)))


def test_a_quota_stops_with_the_server_s_words(plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few", "namespace": namespace}}
    plane.api().apply({**quota, "spec": {"hard": {"pods": "3"}}})
    wait("the quota counts", lambda: _counted(plane, namespace))
    made = bundle(AGGREGATION, namespace, tmp_path)
    put(plane, made, namespace, router=False)
    last = failure(list(events(plane, made, parts=("model-servers",))))
    assert "exceeded quota: few" in last.reason
    # The Deployment's condition and the ReplicaSet's event say the same; either may come first.
    assert last.name.startswith(("decode: ReplicaSet mm-baseline-", "decode: Deployment mm-baseline-"))


def _counted(plane: ControlPlane, namespace: str) -> bool:
    (quota,) = plane.api().items(f"/api/v1/namespaces/{namespace}/resourcequotas")
    return "used" in (quota.get("status") or {})


def test_a_missing_service_account_stops(plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    made = bundle(AGGREGATION, namespace, tmp_path)
    change(made, lambda template: template["spec"].update(serviceAccountName="nobody"))
    put(plane, made, namespace, router=False)
    last = failure(list(events(plane, made, parts=("model-servers",))))
    assert 'serviceaccount "nobody" not found' in last.reason


def test_a_server_that_is_restarted_does_not_end_the_wait(
    plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:  # fmt: skip
    made = bundle(AGGREGATION, namespace, tmp_path, ready_after="6s")
    put(plane, made, namespace, router=False)
    found: list[Event] = []
    for event in events(plane, made, parts=("model-servers",)):
        if not found:
            plane.restart("kube-apiserver", pause=2)
        found.append(event)
    assert isinstance(found[-1], Ready)


def test_a_deployment_that_somebody_deletes_meanwhile_is_told(
    plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    made = bundle(AGGREGATION, namespace, tmp_path, ready_after="60s")
    put(plane, made, namespace, router=False)
    found: list[Event] = []
    for event in events(plane, made, parts=("model-servers",)):
        if not found:
            plane.kubectl("delete", "deployment", "--all", "-n", namespace)
        found.append(event)
    assert failure(found).reason == "it is gone: somebody deleted it"


def test_another_model_than_the_bundle_s_is_told(
    plane: ControlPlane, namespace: str, custom_resources: None, pod_network: None, tmp_path: Path
) -> None:
    made = bundle(AGGREGATION, namespace, tmp_path)
    put(plane, made, namespace)
    with engines.serving("somebody/else"):
        last = failure(list(events(plane, made)))
    assert last.reason == f"service multimodal-serving-epp serves somebody/else and not {MODEL}"


def test_without_the_right_to_ask_the_model_is_not_checked(
    plane: ControlPlane, namespace: str, custom_resources: None, tmp_path: Path
) -> None:
    made = bundle(AGGREGATION, namespace, tmp_path)
    put(plane, made, namespace)
    found = [event for event in events(plane, made, users.VIEWER) if isinstance(event, Ready)]
    assert found[-1].role == "model"
    assert found[-1].detail.startswith("not checked: no right to ask")
