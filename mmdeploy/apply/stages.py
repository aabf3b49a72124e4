"""Which stages run, and how long they may take."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mmdeploy.apply.events import STAGES
from mmdeploy.errors import TimedOutError, UsageError
from mmdeploy.quantities import seconds
from mmdeploy.words import nearest


@dataclass(frozen=True)
class Selection:
    """The stages that somebody asked for."""

    only: tuple[str, ...] = ()
    """Empty for all."""
    skip: tuple[str, ...] = ()

    @classmethod
    def of(cls, only: Sequence[str], skip: Sequence[str], idle: Mapping[str, str] | None = None) -> Selection:
        """``idle``: stages that do not run whatever is selected, and why.

        Raises `UsageError` for a stage that does not exist, and where nothing would be left to do.
        """
        for option, words in (("--only", only), ("--skip", skip)):
            for word in words:
                known(word, option)
        found = cls(tuple(only), tuple(skip))
        reasons = [found.why_not(stage) or (idle or {}).get(stage, "") for stage in STAGES]
        if all(reasons):
            words = list(
                dict.fromkeys(
                    found.words[index] + " " + found.words[index + 1] for index in range(0, len(found.words), 2)
                )
            )
            words += [reason for stage, reason in (idle or {}).items() if found.runs(stage)]
            raise UsageError(
                f"no stage is left: {', '.join(words)}", origin="--skip" if found.skip else "--only",
                next_step="leave one of them out",
            )  # fmt: skip
        return found

    def why_not(self, stage: str) -> str:
        """Why a stage does not run; empty for one that does."""
        if stage in self.skip:
            return f"--skip {stage}"
        if self.only and stage not in self.only:
            return f"--only {' --only '.join(self.only)}"
        return ""

    def runs(self, stage: str) -> bool:
        """Whether a stage runs."""
        return not self.why_not(stage)

    @property
    def words(self) -> list[str]:
        """The options again, for a command that goes on."""
        return [word for option, names in (("--only", self.only), ("--skip", self.skip)) for name in names
                for word in (option, name)]  # fmt: skip


def known(stage: str, option: str) -> str:
    """The stage of that name. Raises `UsageError` with the nearest where there is none."""
    if stage not in STAGES:
        raise UsageError(f"there is no stage {stage!r}", origin=option, nearest=nearest(stage, STAGES) or STAGES)
    return stage


def limits(said: Sequence[str]) -> dict[str, float]:
    """Seconds by stage, of ``STAGE=DURATION`` each. Raises `UsageError`."""
    found = {}
    for text in said:
        stage, equals, duration = text.partition("=")
        if not equals:
            raise UsageError(
                f"{text!r} is not STAGE=DURATION", origin="--stage-timeout", next_step="wait=30m, router=2m"
            )
        found[known(stage, "--stage-timeout")] = duration_of(duration, "--stage-timeout")
    return found


_FORMS: Final = "h, m and s, in this order: 90s, 10m, 1h30m"
_UNITS: Final = {"d": 86400, "h": 3600, "m": 60, "s": 1, "ms": 0.001}
_WORDS: Final = re.compile(
    r"(\d+(?:[.,]\d+)?)\s*(ms|milliseconds?|days?|d|hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s|)(?![a-z])\s*",
    re.ASCII,
)
"""What people write elsewhere, a piece at a time."""


def duration_of(text: str, option: str) -> float:
    """Seconds of ``90s``, ``10m`` or ``1h30m``. Raises `UsageError` with what was meant, where that can be told."""
    try:
        found = seconds(text)
    except ValueError:
        meant = _meant(text)
        raise UsageError(
            f"{text!r} is not a duration", origin=option, nearest=[spelled(meant)] if meant else [], next_step=_FORMS
        ) from None
    if not found:
        raise UsageError("must be longer than nothing", origin=option, next_step=_FORMS)
    return found


def _meant(text: str) -> float:
    """Whole seconds of what is spelled otherwise: ``5 minutes``, ``1.5h``, ``100ms``; 0 for what is no duration."""
    whole, end, unit = 0.0, 0, ""
    for piece in _WORDS.finditer(text.strip().lower()):
        if piece.start() != end:
            return 0
        end = piece.end()
        bare = "m" if unit == "h" else "s"  # 1h30
        unit = "ms" if piece[2].startswith(("ms", "milli")) else piece[2][:1] or bare
        whole += float(piece[1].replace(",", ".")) * _UNITS[unit]
    return max(1, math.ceil(whole)) if whole and end == len(text.strip()) else 0


@dataclass
class Deadlines:
    """When time runs out: in all, and for the stage that runs."""

    total: float | None = None
    """Seconds from `start`."""
    stages: Mapping[str, float] = field(default_factory=dict)
    clock: Callable[[], float] = time.monotonic
    _begun: float = 0.0
    _stage: str = ""
    _stage_begun: float = 0.0

    def start(self) -> None:
        """Time runs from now on."""
        self._begun = self.clock()

    def enter(self, stage: str) -> None:
        """A stage begins."""
        self._stage, self._stage_begun = stage, self.clock()

    @property
    def next(self) -> tuple[float, str] | None:
        """The clock's time at which the first limit is reached, and the option that set it."""
        ends = []
        if self._stage in self.stages:
            limit = self.stages[self._stage]
            ends.append((self._stage_begun + limit, f"--stage-timeout {self._stage}={spelled(limit)}"))
        if self.total is not None:
            ends.append((self._begun + self.total, f"--timeout {spelled(self.total)}"))
        return min(ends, default=None)

    def left(self, most: float) -> float:
        """Seconds until the first limit, but no more than ``most``."""
        found = self.next
        return most if found is None else max(0.0, min(most, found[0] - self.clock()))

    def check(self) -> None:
        """Raise `TimedOutError` that names the limit, where one is reached."""
        found = self.next
        if found is not None and self.clock() >= found[0]:
            raise TimedOutError(f"time ran out in stage {self._stage}", origin=found[1])


def spelled(duration: float) -> str:
    """Seconds as a person writes them: ``1h30m``."""
    whole = round(duration)
    parts = ((whole // 3600, "h"), (whole % 3600 // 60, "m"), (whole % 60, "s"))
    return "".join(f"{count}{unit}" for count, unit in parts if count) or f"{duration:g}s"


__all__ = ["Deadlines", "Selection", "duration_of", "known", "limits", "spelled"]
