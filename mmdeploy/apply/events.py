"""What happens while a deployment is put on a cluster, as a stream: the table, JSON lines and the tests read the same.

Every event is a small frozen value; `as_data` makes it one JSON line. None carries a secret, because none carries the
content of an object.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

STAGES = (
    "preflight", "crds", "namespace", "secret", "router", "model-servers", "gateway", "monitoring", "wait", "verify"
)  # fmt: skip
"""In the order in which they run (field.md §5.4)."""


@dataclass(frozen=True)
class Event:
    """Base of all events."""

    word: ClassVar[str] = ""


@dataclass(frozen=True)
class Target(Event):
    """Where everything goes; always the first event."""

    word = "target"
    command: str
    """``apply`` or ``delete``."""
    name: str
    context: str
    server: str
    namespace: str


@dataclass(frozen=True)
class Planned(Event):
    """What would be done to one object, before anything is; ``verb`` as in `mmdeploy.apply.plan.plan`."""

    word = "planned"
    stage: str
    kind: str
    name: str
    verb: str
    changes: tuple[str, ...] = ()
    """Paths of what changes; no values."""
    needs: str = ""
    """The option without which it is refused."""


@dataclass(frozen=True)
class StageStarted(Event):
    """A stage begins."""

    word = "stage-started"
    stage: str


@dataclass(frozen=True)
class StageDone(Event):
    """A stage is done; ``seconds`` it took."""

    word = "stage-done"
    stage: str
    seconds: float


@dataclass(frozen=True)
class StageSkipped(Event):
    """A stage does nothing, and why."""

    word = "stage-skipped"
    stage: str
    reason: str


@dataclass(frozen=True)
class Checked(Event):
    """One check before anything changes: ``result`` is ok, warning, error or skipped."""

    word = "checked"
    category: str
    name: str
    result: str
    detail: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Applied(Event):
    """An object was written: ``verb`` is created, updated, unchanged, recreated, adopted, removed or would-…"""

    word = "applied"
    stage: str
    kind: str
    name: str
    verb: str


@dataclass(frozen=True)
class Waiting(Event):
    """Where one thing stands that is not ready yet; sent only when that changes, or as a sign of life.

    ``phase`` of a pod: unschedulable, scheduled, pulling, loading, compiling, ready; of an owner: what its controller
    has not done yet. ``since`` is in seconds from the start of that phase.
    """

    word = "waiting"
    role: str
    kind: str
    name: str
    phase: str
    detail: str = ""
    since: float = 0.0


@dataclass(frozen=True)
class Ready(Event):
    """Something serves: a role, the router, the pool, the model."""

    word = "ready"
    role: str
    name: str
    detail: str = ""


@dataclass(frozen=True)
class Verified(Event):
    """A claim was judged: ``verdict`` is proved, contradicted, not observable or not applicable."""

    word = "verified"
    claim: str
    verdict: str
    summary: str


@dataclass(frozen=True)
class Failed(Event):
    """Something fails for good: the reason, the end of its log, and what to do."""

    word = "failed"
    stage: str
    name: str
    reason: str
    log: tuple[str, ...] = ()
    hint: str = ""


@dataclass(frozen=True)
class Warned(Event):
    """Something to know that stops nothing."""

    word = "warning"
    text: str


@dataclass(frozen=True)
class Interrupted(Event):
    """The person stopped it: what is done, what still starts, and how to go on or take it away."""

    word = "interrupted"
    stage: str
    done: tuple[str, ...]
    starting: tuple[str, ...]
    resume: str
    remove: str


@dataclass(frozen=True)
class Finished(Event):
    """All stages are done."""

    word = "finished"
    changed: int
    unchanged: int
    seconds: float
    next: tuple[str, ...] = ()
    """Commands to try now."""


def as_data(event: Event) -> Mapping[str, Any]:
    """An event as one JSON line."""
    return {"event": event.word, **asdict(event)}
