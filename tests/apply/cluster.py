"""A cluster of plain documents that changes with a clock of its own: what a wait sees, without waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from mmdeploy.cluster.session import Answer
from mmdeploy.errors import ClusterError, ForbiddenError, NotFoundError

START = datetime(2026, 1, 1, tzinfo=UTC)
Object = dict[str, Any]


def at(seconds: float) -> str:
    """A time as Kubernetes writes it."""
    return (START + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


class Cluster:
    """Takes the place of `mmdeploy.cluster.session.Session` for reading; its clock moves when somebody sleeps."""

    def __init__(self, show: Callable[[float], Mapping[str, list[Object]]]) -> None:
        """``show``: the objects by kind, so many seconds after the start."""
        self.seconds = 0.0
        self.show = show
        self.forbidden: set[str] = set()
        self.away: Callable[[float], ClusterError | None] = lambda _: None
        self.answers: dict[str, Answer] = {}
        self.looks = 0

    def clock(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def sleep(self, seconds: float) -> None:
        self.seconds += max(seconds, 0.01)

    def collection(self, api_version: str, kind: str, namespace: str | None = None) -> str:
        if kind == "InferencePool":
            raise NotFoundError("the cluster does not serve InferencePool")
        return kind

    def items(self, path: str, **_: Any) -> Iterator[Object]:
        problem = self.away(self.seconds)
        if problem:
            raise problem
        if path in self.forbidden:
            raise ForbiddenError(f"{path.lower()}s is forbidden")
        self.looks += path == "Pod"
        for item in self.show(self.seconds).get(path, []):
            yield {"kind": path, "apiVersion": "v1", **item}

    def all(self, calls: list[Callable[[], Any]]) -> list[Any]:
        return [call() for call in calls]

    def once(self, method: str, path: str, *_: Any, **__: Any) -> Answer:
        problem = self.away(self.seconds)
        if problem and problem.next_step != "log in to the cluster again":
            raise problem
        found = next((answer for part, answer in self.answers.items() if part in path), None)
        return found or Answer(401 if problem else 404, {}, b"{}")


def deployment(replicas: int, **status: Any) -> Object:
    """The Deployment of the decode role, as its controller sees it."""
    return {
        "metadata": {
            "name": "engine", "uid": "d", "generation": 1, "creationTimestamp": at(0),
            "annotations": {"deployment.kubernetes.io/revision": "1"},
        },
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "engine"}},
                 "template": {"metadata": {"labels": {"llm-d.ai/role": "decode"}}, "spec": {"containers": []}}},
        "status": {"observedGeneration": 1, **status},
    }  # fmt: skip


def replica_set(replicas: int) -> Object:
    """Its ReplicaSet."""
    return {
        "metadata": {
            "name": "engine-1", "uid": "r", "generation": 1, "ownerReferences": [{"kind": "Deployment", "uid": "d"}],
            "annotations": {"deployment.kubernetes.io/revision": "1"}, "creationTimestamp": at(0),
        },
        "spec": {"replicas": replicas}, "status": {},
    }  # fmt: skip


def pod(number: int, *, node: str = "gpu-0", running: float | None = None, ready: float | None = None) -> Object:
    """One of its pods; ``running`` and ``ready`` say since when."""
    status: Object = {"phase": "Pending", "conditions": []}
    if not node:
        status["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                                 "lastTransitionTime": at(0),
                                 "message": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."}]  # fmt: skip
    if running is not None:
        state = {"running": {"startedAt": at(running)}}
        status["containerStatuses"] = [{"name": "modelserver", "image": "engine:1", "ready": ready is not None,
                                        "started": False, "restartCount": 0, "state": state}]  # fmt: skip
    if ready is not None:
        status["conditions"] = [{"type": "Ready", "status": "True", "lastTransitionTime": at(ready)}]
    spec: Object = {"containers": [{"name": "modelserver", "startupProbe": {"httpGet": {}}}]}
    return {
        "metadata": {"name": f"engine-1-{number}", "uid": f"p{number}", "creationTimestamp": at(0),
                     "labels": {"llm-d.ai/guide": "aggregation"},
                     "ownerReferences": [{"kind": "ReplicaSet", "uid": "r"}]},
        "spec": {**spec, **({"nodeName": node} if node else {})}, "status": status,
    }  # fmt: skip
