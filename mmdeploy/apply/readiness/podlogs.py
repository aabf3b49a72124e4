"""The ends of pods' logs: read when they tell more, no oftener than needed, and without secrets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from mmdeploy.apply.comparison import masks
from mmdeploy.apply.readiness.phases import LogWanted
from mmdeploy.apply.readiness.readiness import PodState
from mmdeploy.errors import ClusterError

if TYPE_CHECKING:
    from mmdeploy.cluster.session import Session

LINES = 60
"""A traceback and what came before it."""
AGAIN_SECONDS = 4.0
"""Between two readings of the log of a container that runs."""
SHOWN = 15
"""Lines of a log that are shown with a failure."""

_Key = tuple[LogWanted, int]


class PodLogs:
    """What pods said, by their uid."""

    def __init__(self, session: Session, namespace: str, clock: Callable[[], float]) -> None:
        self._session = session
        self._namespace = namespace
        self._clock = clock
        self._read: dict[str, tuple[_Key, float]] = {}
        self.lines: dict[str, tuple[str, ...]] = {}
        self.refused = ""
        """Why logs may not be read; empty as long as they may."""

    def refresh(self, pods: Iterable[PodState]) -> bool:
        """Read the logs that tell more, in parallel; whether anything was read."""
        due = [pod for pod in pods if pod.log_wanted and self._due(pod)]
        if self.refused or not due:
            return False
        for pod, lines in zip(due, self._session.all([lambda pod=pod: self._tail(pod) for pod in due]), strict=True):  # type: ignore[misc]
            if lines is not None:
                self.lines[pod.uid] = lines
        return True

    def _due(self, pod: PodState) -> bool:
        assert pod.log_wanted
        key = (pod.log_wanted, _restarts(pod))
        before, at = self._read.get(pod.uid, (None, 0.0))
        if before == key and self._clock() - at < AGAIN_SECONDS:
            return False
        self._read[pod.uid] = (key, self._clock())
        return True

    def _tail(self, pod: PodState) -> tuple[str, ...] | None:
        assert pod.log_wanted
        wanted = pod.log_wanted
        lines = self._asked(pod.name, wanted.container, wanted.previous)
        if not lines and wanted.previous:  # a kubelet drops the log of the run before when space is short
            lines = self._asked(pod.name, wanted.container, False)
        return lines

    def _asked(self, pod: str, container: str, previous: bool) -> tuple[str, ...] | None:
        from urllib.parse import quote

        path = f"/api/v1/namespaces/{self._namespace}/pods/{quote(pod)}/log"
        query = {"container": container, "tailLines": LINES, "timestamps": "true"}
        try:
            answer = self._session.once("GET", path, query | ({"previous": "true"} if previous else {}))
        except ClusterError:
            return None
        if answer.status == 403:
            self.refused = "no right to read pods/log"
        if answer.status != 200:
            return None
        # A progress bar writes over its own line.
        text = answer.data.decode("utf-8", "replace").replace("\r", "\n")
        return tuple(masks.text(line.rstrip()) for line in text.splitlines() if line.strip())


def shown(lines: Iterable[str]) -> tuple[str, ...]:
    """The end of a log as it is shown: without the times in front."""
    return tuple(plain(line) for line in list(lines)[-SHOWN:])


def plain(line: str) -> str:
    """A line without the time that the API server puts in front."""
    head, blank, rest = line.partition(" ")
    return rest if blank and len(head) >= 20 and head[:4].isdigit() and head.endswith("Z") else line


def _restarts(pod: PodState) -> int:
    status = pod.pod.get("status") or {}
    every = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    return sum(int(each.get("restartCount", 0)) for each in every)
