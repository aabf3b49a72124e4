"""What apply would do to the Secret of the token, without ever telling what is in it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mmdeploy.apply import secret
from mmdeploy.apply.plan.plan import Change, Step
from mmdeploy.apply.secret import Needed
from mmdeploy.errors import ForbiddenError
from mmdeploy.secrecy import MASK

if TYPE_CHECKING:
    from mmdeploy.cluster.session import Session
    from mmdeploy.intended import Intended

STAGE = "secret"

Planned = tuple[list[Step], list[str]]
"""Steps, and what is to be said besides."""


def secret_steps(
    session: Session, intended: Intended, token: str | None, *, adopt: bool, namespace_exists: bool = True
) -> Planned:
    """What is missing or would be written, in the order in which pods name it. ``token`` is what apply was given.

    A Secret that is there, and to which nothing would be done, is no step. One that may not be read is said to be not
    checked.
    """
    steps: list[Step] = []
    notes: list[str] = []
    own = secret.name_of(intended)
    for each in secret.needed(intended):
        try:
            live = session.find(secret.path(intended.namespace, each.name)) if namespace_exists else None
        except ForbiddenError:
            notes.append(f"Secret/{each.name} was not checked: there is no right to read it")
            continue
        if each.name != own:
            notes += _foreign(intended, each, live)
        elif not any(step.name == own for step in steps):
            step = _own(intended, each, live, token, adopt)
            steps += [step] if step else []
    return steps, notes


def _own(intended: Intended, wanted: Needed, live: Mapping[str, Any] | None, token: str | None, adopt: bool) -> Any:
    item = {
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": wanted.name, "namespace": intended.namespace},
    }  # fmt: skip
    lacks = "" if token is not None else secret.OPTION
    if live is None:
        return Step(STAGE, item, "create", needs=lacks)
    uid = str(live["metadata"].get("uid", ""))
    there = (live.get("data") or {}).get(wanted.key)
    if token is None:
        added = (Change(f"data.{wanted.key}", None, MASK),)
        return None if there is not None else Step(STAGE, item, "update", added, needs=lacks, uid=uid)
    if there == base64.b64encode(token.encode()).decode():
        return Step(STAGE, item, "unchanged", uid=uid)
    changed = (Change(f"data.{wanted.key}", None if there is None else MASK, MASK),)
    if secret.ours(live, intended.name):
        return Step(STAGE, item, "update", changed, uid=uid)
    return Step(STAGE, item, "adopt", changed, needs="" if adopt else "--adopt", uid=uid)


def _foreign(intended: Intended, wanted: Needed, live: Mapping[str, Any] | None) -> list[str]:
    if live is not None and wanted.key in (live.get("data") or {}):
        return []
    what = "is not there" if live is None else f"has no key {wanted.key}"
    return [f"Secret/{wanted.name} {what}, and pods read {wanted.key} from it: create it in {intended.namespace}"]


__all__ = ["STAGE", "secret_steps"]
