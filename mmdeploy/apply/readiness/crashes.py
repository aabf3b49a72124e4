"""How a container ended, if it did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mmdeploy.apply.readiness.objects_seen import moment
from mmdeploy.apply.readiness.startup import Meaning, Startup

_LOST = ("Unknown", "ContainerStatusUnknown")
"""Reasons that a kubelet gives when its node was restarted: the container did nothing wrong."""


@dataclass(frozen=True)
class Ended:
    """The last end of a container that should run."""

    reason: str
    code: int
    message: str
    at: datetime | None
    restarts: int
    before: bool
    """Whether it was the run before the one that the container's state tells of: its log is the previous one."""
    runs_again: bool
    started: bool
    """Whether the run that is under way has passed its startup probe."""

    @property
    def lost(self) -> bool:
        """Whether it ended with its node."""
        return self.reason in _LOST

    @property
    def how(self) -> str:
        """In a person's words."""
        known = self.reason in ("", "Error", "Completed")
        return f"ended with exit code {self.code}" if known else f"ended with {self.reason}, exit code {self.code}"

    def meaning(self, startup: Startup, limit: str) -> Meaning | None:
        """What its reason says by itself, of a container with this memory limit (``""`` for none)."""
        rule = startup.endings.get(self.reason)
        if rule is None:
            return None
        if rule.read:
            return startup.meaning(rule.read, self.message)
        return Meaning(rule.say.replace("{limit}", f" of {limit}" if limit else ""), True, "", rule.hint)


def ended(status: Mapping[str, Any]) -> Ended | None:
    """How a container ended that should run; None for one that is ready, has not ended yet, or has done its step."""
    state = status.get("state") or {}
    now, before = state.get("terminated"), (status.get("lastState") or {}).get("terminated")
    found = now or before
    if not found or status.get("ready") or (now and now.get("exitCode") == 0 and now.get("reason") == "Completed"):
        return None
    return Ended(
        reason=str(found.get("reason") or ""),
        code=int(found.get("exitCode", -1)),
        message=" ".join(str(found.get("message") or "").split()),
        at=moment(found.get("finishedAt")),
        restarts=int(status.get("restartCount", 0)),
        before=not now,
        runs_again=bool(state.get("running")),
        started=bool(status.get("started")),
    )
