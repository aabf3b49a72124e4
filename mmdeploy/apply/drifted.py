"""What others changed on the cluster since the last apply: the objects that mmdeploy wrote, and the router's, which are
helm's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from mmdeploy.apply.inventory import Entry, Inventory
from mmdeploy.apply.plan.plan import Change
from mmdeploy.errors import ForbiddenError

if TYPE_CHECKING:
    from mmdeploy.cluster.session import Session

Drift = list[dict[str, Any]]
"""Objects by ``kind`` and ``name``: whether it is ``gone``, else its ``changes``."""


def look(session: Session, found: Inventory | None) -> tuple[Drift | None, list[str]]:
    """What differs, and what could not be looked at; None where nobody knows what was applied."""
    if found is None or not found.content:
        return None, []
    entries = [entry for entry in found.entries if entry.uid and entry.key in found.content]
    calls: list[Callable[[], Any]] = [partial(_object, session, found, entry) for entry in entries]
    looked: list[Any] = session.all([*calls, partial(_router, session, found)])
    router, notes = looked.pop()
    return [*(each for each in looked if each), *router], notes


def _object(session: Session, found: Inventory, entry: Entry) -> dict[str, Any] | None:
    from mmdeploy.apply.comparison.fieldowners import FieldOwners
    from mmdeploy.apply.comparison.merging import merged
    from mmdeploy.apply.plan.drift import History

    try:
        live = session.live(entry.item(found.namespace))
    except ForbiddenError:
        return None
    if live is None:
        return _gone(entry.kind, entry.name)
    applied = found.content[entry.key]
    history = History(live, applied, applied, FieldOwners.of(live))
    return _changed(entry.kind, entry.name, history.changes(merged(live, applied, applied)))


def _router(session: Session, found: Inventory) -> tuple[Drift, list[str]]:
    """The release's objects, by the same comparison as ``mmdeploy diff`` makes."""
    from mmdeploy.apply.plan.releaseplan import edited

    if found.release is None or "router" not in found.stages:
        return [], []
    name = found.release.name
    try:
        edits = edited(session, found.namespace, name)
    except ForbiddenError:
        return [], ["drift of the router's objects is not known: there is no right to read helm's releases"]
    if edits is None:
        return [_gone("HelmRelease", name)], []
    steps, unseen = edits
    listed = [
        _gone(step.kind, step.name) if step.verb == "create" else _changed(step.kind, step.name, step.changes)
        for step in steps
    ]
    notes = [f"drift is not known of what may not be read: {', '.join(unseen)}"] if unseen else []
    return [each for each in listed if each], notes


def _gone(kind: str, name: str) -> dict[str, Any]:
    return {"kind": kind, "name": name, "gone": True, "changes": []}


def _changed(kind: str, name: str, changes: Iterable[Change]) -> dict[str, Any] | None:
    found: Sequence[dict[str, Any]] = [
        {"path": change.path, "applied": change.after, "live": change.before, "manager": change.manager}
        for change in changes if change.cause == "drift"
    ]  # fmt: skip
    return {"kind": kind, "name": name, "gone": False, "changes": list(found)} if found else None


__all__ = ["look"]
