"""The rules of waiting (field.md §5.2, §5.4) with a clock that nobody waits for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from mmdeploy.apply.events import Event, Failed, Ready, Waiting, Warned
from mmdeploy.apply.readiness import waiting
from mmdeploy.cli import blueprints
from mmdeploy.cluster.session import Answer
from mmdeploy.errors import ClusterError, TimedOutError
from mmdeploy.intended import Intended
from tests.apply.cluster import Cluster, Object, deployment, pod, replica_set

CATALOG = blueprints.load()
SERVERS = ("model-servers",)
HOUR = 3600


def intended(kind: str = "Deployment", roles: tuple[str, ...] = ("decode",)) -> Intended:
    template = {"metadata": {"labels": {"llm-d.ai/role": "decode", "llm-d.ai/guide": "aggregation"}}, "spec": {}}
    spec: Object = {"replicas": 2, "template": template}
    if kind == "DisaggregatedSet":
        spec = {"roles": [{"name": role, "spec": {"leaderWorkerTemplate": _group("1")}} for role in roles]}
    item = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "engine"}, "spec": spec}
    values = {"router": {"modelServers": {"matchLabels": {"llm-d.ai/guide": "aggregation"}}}}
    return Intended(
        "bundle", {"name": "mm", "namespace": "serving", "model": "a/b"}, values, {"modelserver": [item]}
    )  # fmt: skip


def _group(image: str) -> Object:
    return {"workerTemplate": {"spec": {"containers": [{"name": "modelserver", "image": f"engine:{image}"}]}}}


def cluster(pods: Callable[[float], list[Object]], **status: Any) -> Cluster:
    def show(seconds: float) -> Mapping[str, list[Object]]:
        return {"Deployment": [deployment(2, **status)], "ReplicaSet": [replica_set(2)], "Pod": pods(seconds)}

    return Cluster(show)


def wait(found: Cluster, wanted: Intended | None = None, **options: Any) -> list[Event]:
    options = {"parts": SERVERS, **options}
    return list(
        waiting.wait(
            found, wanted or intended(), CATALOG, clock=found.clock, sleep=found.sleep, **options  # type: ignore[arg-type]
        )
    )  # fmt: skip


def both(**state: Any) -> list[Object]:
    return [pod(0, **state), pod(1, **state)]


def test_an_hour_without_capacity_and_an_hour_of_loading_are_no_failure() -> None:
    def pods(seconds: float) -> list[Object]:
        if seconds < HOUR:
            return both(node="")
        return both(running=HOUR) if seconds < 2 * HOUR else both(running=HOUR, ready=2 * HOUR)

    # A Deployment gives up on progress after 600 s by itself; that alone means nothing for a model server.
    late = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    found = cluster(pods, conditions=[late])
    events = wait(found)
    assert events[-1] == Ready("decode", "engine", "2 of 2")
    assert not any(isinstance(event, Failed) for event in events)
    assert 2 * HOUR <= found.seconds < 2 * HOUR + 3


def test_silence_lasts_no_longer_than_half_a_minute() -> None:
    times: list[float] = []
    found = cluster(lambda seconds: both(running=0) if seconds < 600 else both(running=0, ready=600))
    for _ in waiting.wait(found, intended(), CATALOG, parts=SERVERS, clock=found.clock, sleep=found.sleep):  # type: ignore[arg-type]
        times.append(found.seconds)
    gaps = [after - before for before, after in zip(times, times[1:], strict=False)]
    assert max(gaps) <= 30 + waiting.LOOK_SECONDS
    assert len(times) < 600 / 30 + 12  # and nobody is told the same every second


def test_a_change_is_told_once() -> None:
    found = cluster(lambda seconds: both(running=0) if seconds < 20 else both(running=0, ready=20))
    pods = [event for event in wait(found) if isinstance(event, Waiting) and event.kind == "Pod"]
    assert [(event.name, event.phase) for event in pods] == [
        ("engine-1-0", "loading"),
        ("engine-1-1", "loading"),
        ("engine-1-0", "ready"),
        ("engine-1-1", "ready"),
    ]


def test_the_message_says_which_limit_fired_and_what_still_starts() -> None:
    found = cluster(lambda _: [pod(0, running=0, ready=5), pod(1, node="")])
    with pytest.raises(TimedOutError) as caught:
        wait(found, deadline=60.0, limit="--stage-timeout wait=1m")
    assert caught.value.found == (
        "not ready within --stage-timeout wait=1m: decode: 1 of 2 ready, 1 unschedulable "
        "(of 1 nodes 1 without enough free nvidia.com/gpu)"
    )
    assert "mmdeploy status" in (caught.value.next_step or "")
    assert found.seconds <= 61


@pytest.mark.parametrize("number", range(4))
def test_it_can_be_closed_at_every_event(number: int) -> None:
    found = cluster(lambda seconds: both(running=0) if seconds < 3 else both(running=0, ready=3))
    stream = waiting.wait(found, intended(), CATALOG, parts=SERVERS, clock=found.clock, sleep=found.sleep)  # type: ignore[arg-type]
    for _ in range(number + 1):
        next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert list(stream) == []


def test_a_server_that_is_away_for_a_minute_is_waited_for() -> None:
    found = cluster(lambda _: both(running=0, ready=5))
    gone = ClusterError("the API server cannot be reached: nothing listens there")
    found.away = lambda seconds: gone if 0 < seconds < 60 or not seconds else None
    events = wait(found)
    assert [type(event) for event in events] == [Warned, Ready]
    assert found.seconds >= 60


def test_a_server_that_stays_away_ends_it() -> None:
    found = cluster(lambda _: both(running=0, ready=5))
    gone = ClusterError("the API server cannot be reached: nothing listens there")
    found.away = lambda _: gone
    with pytest.raises(ClusterError, match="nothing listens there"):
        wait(found)
    assert waiting.OUTAGE_SECONDS <= found.seconds < waiting.OUTAGE_SECONDS + 10


def test_credentials_that_expire_end_it_at_once() -> None:
    found = cluster(lambda _: both(running=0))
    over = ClusterError("the credentials are not accepted", next_step="log in to the cluster again")
    found.away = lambda seconds: over if seconds > 5 else None
    with pytest.raises(ClusterError, match="not accepted"):
        wait(found)
    assert found.seconds < 10


def test_what_may_not_be_read_is_said_once_and_pods_are_judged_without_it() -> None:
    found = cluster(lambda seconds: both(running=0) if seconds < 20 else both(running=0, ready=20))
    found.forbidden = {"Event"}
    events = wait(found)
    assert [event.text for event in events if isinstance(event, Warned)] == [
        "Events cannot be read: events is forbidden"
    ]  # fmt: skip
    assert isinstance(events[-1], Ready)


def test_a_manager_that_never_acts_is_reported_after_half_a_minute_and_is_no_failure() -> None:
    item = {"metadata": {"name": "engine", "uid": "s", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"}}
    item["spec"] = intended("DisaggregatedSet").workloads[0]["spec"]
    found = Cluster(lambda _: {"DisaggregatedSet": [item]})
    told: list[tuple[float, str]] = []

    def watched() -> None:
        for event in waiting.wait(
            found, intended("DisaggregatedSet"), CATALOG, parts=SERVERS, clock=found.clock, sleep=found.sleep,
            deadline=600.0,
        ):  # type: ignore[arg-type]  # fmt: skip
            assert not isinstance(event, Failed)
            if isinstance(event, Waiting) and event.kind == "DisaggregatedSet":
                told.append((found.seconds, event.detail))

    with pytest.raises(TimedOutError):
        watched()
    assert [detail for _, detail in told] == [
        "its controller has not acted yet",
        "no controller has acted on DisaggregatedSet engine for 30 s: is LeaderWorkerSet running with "
        "enableDisaggregatedSet?",
    ]
    assert 30 <= told[1][0] < 33


def test_an_old_available_is_not_believed_while_the_children_are_of_the_old_template() -> None:
    """For a moment after an apply the old Available=True stands (disaggregatedset-observed.md)."""
    labels = {"disaggregatedset.x-k8s.io/role": "decode"}
    child = {"metadata": {"name": "engine-0-old-decode", "uid": "g", "labels": labels, "generation": 1,
                          "ownerReferences": [{"kind": "DisaggregatedSet", "uid": "s"}]},
             "spec": {"replicas": 1, "leaderWorkerTemplate": _group("0")}}  # fmt: skip
    item = {"metadata": {"name": "engine", "uid": "s", "generation": 2},
            "spec": intended("DisaggregatedSet").workloads[0]["spec"],
            "status": {"observedGeneration": 1, "conditions": [
                {"type": "Available", "status": "True", "observedGeneration": 1}]}}  # fmt: skip
    ready = pod(0, running=0, ready=1)
    ready["metadata"]["ownerReferences"] = [{"kind": "StatefulSet", "uid": "w"}]
    workload = {"metadata": {"name": "w", "uid": "w", "generation": 1,
                             "ownerReferences": [{"kind": "LeaderWorkerSet", "uid": "g"}]},
                "spec": {"replicas": 1}, "status": {"observedGeneration": 1}}  # fmt: skip
    found = Cluster(
        lambda _: {"DisaggregatedSet": [item], "LeaderWorkerSet": [child], "StatefulSet": [workload], "Pod": [ready]}
    )
    with pytest.raises(TimedOutError, match="0 of 1 ready, 1 of the old revision"):
        wait(found, intended("DisaggregatedSet"), deadline=20.0)


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (403, "not checked: no right to ask pod engine-1-0 through the API server"),
        (503, "not checked: pod engine-1-0 answers 503: connection refused"),
    ],
)
def test_a_model_that_cannot_be_asked_for_is_not_checked_and_nothing_hangs(status: int, said: str) -> None:
    found = cluster(lambda _: both(running=0, ready=5))
    found.answers = {"/proxy/v1/models": Answer(status, {}, b'{"message": "connection refused"}')}
    events = wait(found, parts=("model-servers", "pool", "model"))
    assert [event.role for event in events if isinstance(event, Ready)] == ["decode", "pool", "model"]
    assert events[-1] == Ready("model", "a/b", said)
    assert found.seconds < waiting.SURE_SECONDS + 3


def test_a_pool_that_selects_none_of_the_pods_is_a_failure() -> None:
    found = cluster(lambda _: [_relabelled(each) for each in both(running=0, ready=5)])
    events = wait(found, parts=("model-servers", "pool"))
    assert isinstance(events[-1], Failed)
    assert events[-1].reason == "selects none of the decode pods: its selector is llm-d.ai/guide=aggregation"


def _relabelled(item: Object) -> Object:
    return {**item, "metadata": {**item["metadata"], "labels": {"llm-d.ai/guide": "another"}}}


def test_a_token_in_a_log_is_not_shown() -> None:
    item = pod(0)
    item["status"]["containerStatuses"] = [{
        "name": "modelserver", "image": "engine:1", "ready": False, "restartCount": 3,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": "2026-01-01T00:00:00Z"}},
    }]  # fmt: skip
    found = cluster(lambda _: [item])
    found.answers = {
        "/log": Answer(200, {}, b"2026-01-01T00:00:00.0Z login with hf_abcdefghijklmnopqrstuvwxyz012345 failed\n")
    }
    last = wait(found)[-1]
    assert isinstance(last, Failed)
    assert last.log
    assert "hf_abcdefghijkl" not in str(last)
    assert "failed" in last.log[-1]
