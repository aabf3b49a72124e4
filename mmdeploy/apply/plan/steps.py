"""What apply would do to one object: wanted, live and last applied, and the server's own word in a dry run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mmdeploy.apply.comparison import immutable
from mmdeploy.apply.comparison.fieldowners import FieldOwners
from mmdeploy.apply.comparison.merging import merged
from mmdeploy.apply.plan.drift import History, bare, foreign
from mmdeploy.apply.plan.plan import Object, Step
from mmdeploy.errors import ConflictError, ForbiddenError, NotFoundError, RejectedError

if TYPE_CHECKING:
    from mmdeploy.cluster.session import Session


@dataclass(frozen=True)
class Allowed:
    """What the person said may be done."""

    adopt: bool = False
    recreate: bool = False
    force: bool = False
    """Take over fields that others manage."""


@dataclass(frozen=True)
class Known:
    """What inventories say of one object."""

    last: Object | None = None
    """As it was last applied."""
    uid: str = ""
    """Of the object that was applied."""
    elsewhere: str = ""
    """Another deployment that has it, by name."""


@dataclass(frozen=True)
class _Outcome:
    """What the server, or the data, says that applying comes to."""

    after: Any
    managers: tuple[str, ...] = ()
    fixed: tuple[str, ...] | None = None
    """Fields that cannot be changed, where some would be."""
    asked: bool = True


def step_for(session: Session, stage: str, wanted: Object, known: Known, allowed: Allowed) -> tuple[Step, bool]:
    """The step for one object, and whether the server was asked where that was needed.

    Two requests at most where nothing is in the way: the object, and a dry run unless the owners of its fields prove
    that nothing would change. Raises `RejectedError` for an object that the server refuses, and `ForbiddenError` where
    it may not even be read.
    """
    live = session.live(wanted)
    if live is None or live["metadata"].get("deletionTimestamp"):  # what ends is gone before it is made anew
        return Step(stage, wanted, "create"), True
    owners = FieldOwners.of(live)
    uid = str(live["metadata"].get("uid", ""))
    owned = not known.elsewhere and (owners.ours or bool(known.uid and known.uid == uid))
    beside = foreign(live, wanted, owners)
    if owned and owners.prove_unchanged(wanted, live):
        return Step(stage, wanted, "unchanged", foreign=beside, uid=uid), True
    outcome = _tried(session, wanted, live, known)
    history = History(live, wanted, known.last, owners)
    if outcome.fixed is not None:
        step = _recreated(stage, wanted, history, outcome, owned, allowed, uid)
    else:
        step = _changed(stage, wanted, history, outcome, owned, allowed, uid)
    return (replace(step, foreign=beside) if step.verb != "recreate" else step), outcome.asked


def _changed(
    stage: str, wanted: Object, history: History, outcome: _Outcome, owned: bool, allowed: Allowed, uid: str
) -> Step:
    changes = history.changes(outcome.after)
    if not owned:
        needs = "" if allowed.adopt else "--adopt"
        return Step(stage, wanted, "adopt", changes, managers=outcome.managers, needs=needs, uid=uid)
    if not changes:
        return Step(stage, wanted, "unchanged", uid=uid)
    if outcome.managers and not allowed.force:
        return Step(stage, wanted, "conflict", changes, managers=outcome.managers, needs="--force-conflicts", uid=uid)
    return Step(stage, wanted, "update", changes, managers=outcome.managers, uid=uid)


def _recreated(
    stage: str, wanted: Object, history: History, outcome: _Outcome, owned: bool, allowed: Allowed, uid: str
) -> Step:
    needs = "" if allowed.recreate else "--recreate"
    if not owned and not allowed.adopt:
        needs = "--adopt"
    reason = immutable.sentence(outcome.fixed or ())
    return Step(stage, wanted, "recreate", history.changes(outcome.after), immutable=reason, needs=needs, uid=uid)


def _tried(session: Session, wanted: Object, live: Object, known: Known) -> _Outcome:
    """What a dry run says; by the data alone for a person who may not change the object."""
    managers: tuple[str, ...] = ()
    try:
        try:
            return _Outcome(session.apply(wanted, dry_run=True))
        except ConflictError as conflict:
            managers = conflict.managers
            return _Outcome(session.apply(wanted, dry_run=True, force=True), managers)
    except ForbiddenError:
        return _by_data(wanted, live, known)
    except NotFoundError:  # it went away between the two requests
        return _Outcome(wanted)
    except RejectedError as refused:
        fixed = immutable.refused(refused.found)
        if fixed is None:
            raise _named(refused, wanted) from None
    _must_be_valid(session, wanted)
    return _Outcome(_merged(wanted, live, known), managers, fixed)


def _by_data(wanted: Object, live: Object, known: Known) -> _Outcome:
    fixed = immutable.changed(bare(live), wanted)
    return _Outcome(_merged(wanted, live, known), _others(live, wanted, known), fixed or None, asked=False)


def _merged(wanted: Object, live: Object, known: Known) -> Any:
    return {**merged(bare(live), wanted, known.last), "status": live.get("status")}


def _others(live: Object, wanted: Object, known: Known) -> tuple[str, ...]:
    """Managers of fields that would change."""
    owners = FieldOwners.of(live)
    changes = History(live, wanted, known.last, owners).changes(_merged(wanted, live, known))
    return tuple(dict.fromkeys(change.manager for change in changes if change.manager))


def _must_be_valid(session: Session, wanted: Object) -> None:
    """Raise `RejectedError` for an object that could not be made anew either."""
    try:
        session.create(wanted, dry_run=True)
    except (ConflictError, ForbiddenError):
        return  # it exists, which is what is asked after everything else
    except RejectedError as refused:
        raise _named(refused, wanted) from None


def _named(refused: RejectedError, wanted: Mapping[str, Any]) -> RejectedError:
    refused.origin = f"{wanted['kind']}/{wanted['metadata']['name']}"
    return refused


__all__ = ["Allowed", "Known", "step_for"]
