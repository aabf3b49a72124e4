"""Writing one object: server-side apply, or deletion and creation where a field cannot be changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from mmdeploy.apply.comparison.fieldowners import FieldOwners
from mmdeploy.apply.plan.plan import Step
from mmdeploy.errors import ConflictError, MmdeployError, RejectedError, TimedOutError

if TYPE_CHECKING:
    from mmdeploy.cluster.session import Session

VERBS: Mapping[str, str] = {
    "create": "created",
    "update": "updated",
    "unchanged": "unchanged",
    "recreate": "recreated",
    "adopt": "adopted",
    "conflict": "updated",
    "remove": "removed",
}
"""What was done, by what a plan calls it."""
_LOOK_SECONDS = 0.3


def written(
    session: Session,
    step: Step,
    *,
    force: bool,
    recreate: bool,
    dry_run: bool = False,
    pause: Callable[[float], None],
    seconds: float,
) -> Any:
    """The object as it became. ``pause`` sleeps between looks at an object that is going, ``seconds`` at most.

    Raises `ConflictError` that names other managers, unless ``force``; `RejectedError` for what the server refuses.
    """
    if step.verb == "recreate" and not dry_run:
        session.delete(step.object, uid=step.uid or None)
        gone(session, step.object, step.uid, pause, seconds)
    elif step.verb == "recreate":
        return session.live(step.object)  # a dry run would refuse what deletion makes possible
    try:
        live = session.apply(step.object, force=force or step.verb == "adopt", dry_run=dry_run)
        if live["metadata"].get("deletionTimestamp") and not dry_run:  # it is ending: an earlier removal
            gone(session, step.object, live["metadata"]["uid"], pause, seconds)
            live = session.apply(step.object, force=force or step.verb == "adopt")
        return live
    except MmdeployError as problem:
        raise _about(problem, step, recreate=recreate) from None


def _about(problem: MmdeployError, step: Step, *, recreate: bool) -> MmdeployError:
    """The same, saying which object it is about."""
    problem.origin = problem.origin or step.title
    if isinstance(problem, ConflictError) and problem.managers:
        who = ", ".join(problem.managers)
        problem.found = f"{who} manages fields of {step.title} that apply would change: {problem.found}"
    elif isinstance(problem, RejectedError) and "immutable" in problem.found and not recreate:
        problem.next_step = "--recreate deletes the object and makes it anew; its pods start again"
    problem.args = (problem.found,)
    return problem


def gone(session: Session, item: Mapping[str, Any], uid: str, pause: Callable[[float], None], seconds: float) -> None:
    """Return when an object is gone, or another stands in its place. Raises `TimedOutError` that says what holds it."""
    waited = 0.0
    while True:
        live = session.live(item)
        if live is None or (uid and live["metadata"]["uid"] != uid):
            return
        if waited >= seconds:
            held = live["metadata"].get("finalizers") or []
            why = f"finalizers {', '.join(held)}" if held else "its pods still end"
            raise TimedOutError(f"{item['kind']}/{item['metadata']['name']} is not gone: {why}")
        pause(_LOOK_SECONDS)
        waited += _LOOK_SECONDS


def left(live: Mapping[str, Any], uid: str) -> str:
    """Why an object that an inventory lists under ``uid`` is not to be deleted; empty where it may be.

    Without a uid, or with another, it was either written by a process that was killed before it could note so, or made
    by somebody else: the field manager tells.
    """
    if (uid and live["metadata"]["uid"] == uid) or FieldOwners.of(live).ours:
        return ""
    return "somebody else made it anew"


__all__ = ["VERBS", "gone", "left", "written"]
