"""What a judge says: one of three verdicts on a claim, with the evidence that a sceptic needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Word = Literal["proved", "contradicted", "not observable"]

PROVED: Final[Word] = "proved"
CONTRADICTED: Final[Word] = "contradicted"
NOT_OBSERVABLE: Final[Word] = "not observable"


def amount(count: int, noun: str) -> str:
    """``1 request``, ``2 requests``; a noun of several words takes its plural at the first: ``2 requests of text``."""
    first, _, rest = noun.partition(" ")
    return f"{count} {first}{'s' * (count != 1)}" + (f" {rest}" if rest else "")


@dataclass(frozen=True)
class Line:
    """One piece of evidence."""

    text: str
    """A sentence with the numbers in it."""
    numbers: Mapping[str, float | int | str | None] = field(default_factory=dict)
    """The same numbers for programs."""


@dataclass(frozen=True)
class Cause:
    """Something that would explain a contradiction."""

    why: str
    look: str
    """Where to look, or what to run."""
    source: str
    because: str = ""
    """What in the evidence points to it; empty for one that is merely possible."""


@dataclass(frozen=True)
class Verdict:
    """The verdict on one claim."""

    claim: str
    verdict: Word
    summary: str
    """One sentence."""
    evidence: tuple[Line, ...] = ()
    causes: tuple[Cause, ...] = ()
    """Of a contradiction, most likely first."""
    observable: tuple[str, ...] = ()
    """What would make it observable, where it is not, or not in full."""
    rung: str | None = None
    """How far up a ladder of evidence it got, for claims that have one."""

    def as_data(self) -> dict[str, Any]:
        """As ``-o json`` shows it."""
        data: dict[str, Any] = {
            "claim": self.claim,
            "verdict": self.verdict,
            "summary": self.summary,
            "evidence": [{"text": line.text, "numbers": dict(line.numbers)} for line in self.evidence],
            "causes": [
                {"why": item.why, "look": item.look, "because": item.because, "source": item.source}
                for item in self.causes
            ],
            "observable": list(self.observable),
        }
        return data if self.rung is None else {**data, "rung": self.rung}


@dataclass(frozen=True)
class NotApplicable:
    """A claim that this deployment does not make."""

    claim: str
    reason: str
