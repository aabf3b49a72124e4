"""Logs of engines that a targets file names: files, or addresses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from mmdeploy.errors import UsageError
from mmdeploy.verify.targets import Endpoint, Targets
from mmdeploy.verify.transport import Request, Transport

SECONDS = 10.0
"""What reading one log over HTTP may take."""


def reader(targets: Targets, transport: Transport) -> Callable[[str], Sequence[str]] | None:
    """Lines of a pod's log by the pod's name, oldest first; None where no pod has one.

    A log that cannot be read raises `UsageError`: somebody named it.
    """
    places = {pod.name: pod.log for pod in targets.pods if pod.log}
    if not places:
        return None

    def lines(pod: str) -> Sequence[str]:
        place = places.get(pod, "")
        if not place:
            return ()
        if place.startswith(("http://", "https://")):
            answer = transport.send(Request(Endpoint(f"{pod} log", place), SECONDS))
            if answer.status != 200:
                raise _unreadable(pod, place, answer.detail or f"it answers {answer.status}")
            return answer.body.decode("utf-8", "replace").splitlines()
        try:
            return Path(place).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError as problem:
            raise _unreadable(pod, place, problem.strerror or str(problem)) from None

    return lines


def _unreadable(pod: str, place: str, why: str) -> UsageError:
    return UsageError(
        f"the log of {pod} cannot be read: {why}", origin=place, next_step="mend the log: of that pod, or leave it out"
    )
