"""What waits, as lines: one for each thing that matters, none for each of eight pods that do the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from mmdeploy.report import durations
from mmdeploy.report.findings import clean
from mmdeploy.report.terminal import style

QUIET: Final = frozenset({
    "scheduling", "scheduled", "pulling", "starting", "loading", "compiling", "ready", "creating", "rolling",
    "selecting", "unreported", "gone", "ended", "stopping",
})  # fmt: skip
"""Phases that need no line of their own: the line of their role counts them."""
PLACES: Final = {"ending": "until gone"}
"""What stands in a role's place where the wait is not for one."""
_SIGN_SECONDS: Final = 1
"""A role's line says for how long it has been so, from here on."""


class WaitLines:
    """Turns events about waiting into lines, and remembers what was said."""

    def __init__(self) -> None:
        self._said: set[tuple[str, str, str]] = set()
        self._labelled = False

    def of(self, event: Mapping[str, Any]) -> Iterator[str]:
        """The line of an event; none for what the line of a role says, or was said of another pod."""
        role, phase, detail = event["role"], event["phase"], event["detail"]
        if event["kind"] == "Role":
            if phase != "ready":
                since = event["since"]
                after = f" (for {durations.text(since)})" if since >= _SIGN_SECONDS else ""
                yield self._line(role, clean(f"{detail}{after}"))
            return
        troubled = phase not in QUIET or (phase == "pulling" and " " in detail)  # else the detail is an image
        if not troubled or (role, phase, detail) in self._said:
            return
        self._said.add((role, phase, detail))
        name = f"{event['kind']} {event['name']}"
        text = detail if name in detail else ": ".join(filter(None, (name, phase, detail)))
        yield self._line(role, style(clean(text), "yellow"))

    def _line(self, role: str, said: str) -> str:
        label = "" if self._labelled else "wait"
        self._labelled = True
        return f"{style(f'{label:<14}', 'bold')}{PLACES.get(role, role):<12}{said}".rstrip()
