"""What engines wrote to their logs since a run began."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from mmdeploy.errors import ClusterError

if TYPE_CHECKING:
    from mmdeploy.cluster.session import Session

LARGEST: Final = 16 << 20
"""Bytes of one log."""
SLACK: Final = timedelta(seconds=2)
"""Nodes' clocks differ by about that from the API server's."""


class PodLogs:
    """Reads logs of engines. ``logs(pod)`` gives the lines since it was made, oldest first."""

    def __init__(self, session: Session, namespace: str, containers: Mapping[str, str]) -> None:
        """``containers`` names the engine's container of each pod."""
        self._session, self._namespace, self._containers = session, namespace, containers
        session.version  # noqa: B018  # whatever answers first tells the API server's time
        self._since = (session.now() - SLACK).strftime("%Y-%m-%dT%H:%M:%SZ")

    def __call__(self, pod: str) -> list[str]:
        """The lines; none where the pod has gone or its log cannot be read now."""
        path = f"/api/v1/namespaces/{self._namespace}/pods/{pod}/log"
        query = {"sinceTime": self._since, "limitBytes": LARGEST}
        if pod in self._containers:
            query["container"] = self._containers[pod]
        try:
            answer = self._session.once("GET", path, query)
        except ClusterError:
            return []
        return answer.data.decode("utf-8", "replace").splitlines() if answer.status == 200 else []
