"""What starts, at a glance: a line a role, and under it its pods by how far they are."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mmdeploy.report import durations
from mmdeploy.report.findings import clean
from mmdeploy.report.waits import PLACES

_PARTS = ("encode", "prefill", "decode", "router", "gateway", "pool", "model")
_OVER = ("ready", "gone", "stopping", "ended")
_TROUBLE = ("unschedulable", "restarting", "unready", "refused", "absent", "unseen")
_LINES = 4
"""Of a reason, at most."""


@dataclass
class _Thing:
    phase: str
    detail: str
    began: float
    """By the reader's clock."""


@dataclass
class _Part:
    summary: str = ""
    ready: bool = False
    things: dict[tuple[str, str], _Thing] = field(default_factory=dict)
    """Kind and name → where it stands."""


class Board:
    """Takes events; draws rows."""

    def __init__(self) -> None:
        self._parts: dict[str, _Part] = {}
        self._begun: float | None = None

    @property
    def busy(self) -> bool:
        """Whether there is something to draw: a wait is under way."""
        return self._begun is not None

    def take(self, event: Mapping[str, Any], now: float) -> None:
        """Take the next event; ``now`` in seconds by the reader's clock."""
        word = event["event"]
        if word in ("failed", "finished", "interrupted", "stage-done", "stage-started"):
            self._begun = None
            self._parts.clear()
        elif word == "waiting":
            self._begun = now if self._begun is None else self._begun
            self._waiting(event, now)
        elif word == "ready" and self.busy:
            part = self._part(event["role"])
            part.ready, part.summary = True, clean(event["detail"] or event["name"])
            part.things.clear()

    def _part(self, role: str) -> _Part:
        return self._parts.setdefault(role or "?", _Part())

    def _waiting(self, event: Mapping[str, Any], now: float) -> None:
        part = self._part(event["role"])
        key = (event["kind"], event["name"])
        if event["kind"] == "Role":
            part.ready, part.summary = False, clean(event["detail"])
        elif event["phase"] in _OVER:
            part.things.pop(key, None)
        else:
            part.ready = False
            part.things[key] = _Thing(event["phase"], clean(event["detail"]), now - float(event.get("since") or 0))

    def rows(self, columns: int, now: float, height: int = 1 << 16) -> list[tuple[str, str]]:
        """Kind (for its colour) and text of each row, no longer than ``columns``, no more than ``height``."""
        found: list[tuple[str, str]] = []
        for role in sorted(self._parts, key=_place):
            part = self._parts[role]
            found.append(
                ("ready" if part.ready else "role", _cut(f"{PLACES.get(role, role):<8} {part.summary}", columns))
            )
            found += self._things(part, columns, now)
        if len(found) > height > 1:
            left = len(found) - height + 1
            found = [*found[: height - 1], ("dim", f"… {left} more rows")]
        return found

    def _things(self, part: _Part, columns: int, now: float) -> Iterator[tuple[str, str]]:
        grouped: dict[tuple[str, str, str], list[_Thing]] = {}
        for (kind, _), thing in part.things.items():
            grouped.setdefault((kind, thing.phase, thing.detail), []).append(thing)
        for (kind, phase, detail), things in grouped.items():
            troubled = phase in _TROUBLE
            for line in _row(kind, phase, detail, things, columns, now)[: _LINES if troubled else 1]:
                yield "trouble" if troubled else "", _cut(line, columns)


def _row(kind: str, phase: str, detail: str, things: list[_Thing], columns: int, now: float) -> list[str]:
    """The row of things that do the same; a reason that is too long goes on under itself."""
    what = kind if kind != "Pod" else "1 pod" if len(things) == 1 else f"{len(things)} pods"
    since = durations.text(now - min(thing.began for thing in things))
    left = f"  {what:<8} {phase:<13} {since:>6}  "
    if len(left) + len(detail) <= columns or phase not in _TROUBLE:
        return [left + detail]
    inside = textwrap.wrap(detail, max(20, columns - 4), break_on_hyphens=False)
    return [left, *(f"    {line}" for line in inside)]


def _cut(text: str, columns: int) -> str:
    text = text.rstrip()
    return text if len(text) <= columns else f"{text[: max(1, columns - 1)]}…"


def _place(role: str) -> tuple[int, str]:
    return (_PARTS.index(role) if role in _PARTS else len(_PARTS), role)
