"""Causes of a contradiction, most likely first: ``catalog/causes.yaml`` ranked by what the evidence shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mmdeploy.errors import BlueprintError
from mmdeploy.verify.facts import Facts
from mmdeploy.verify.verdicts import Cause

_OTHER = "http-error"
"""Stands for the statuses that have no causes of their own."""

MOST = 6
"""Causes that are told of one verdict."""


def ranked(facts: Facts, claim: str, symptoms: Iterable[str], hints: Mapping[str, str]) -> tuple[Cause, ...]:
    """Causes of the symptoms, the first symptom's first; those that a hint points to before those that are merely
    possible, and without those that a hint or the deployment itself rules out.

    ``hints`` maps a hint to what was seen. Raises `BlueprintError` for a symptom that the table does not have.
    """
    table = facts.catalog.table("causes")
    own: Mapping[str, list[dict[str, Any]]] = {**table["every"], **table["claims"].get(claim, {})}
    pointed: list[Cause] = []
    possible: list[Cause] = []
    for said in dict.fromkeys(symptoms):
        symptom = _OTHER if said not in own and said.startswith("http-") else said
        if symptom not in own:
            document = facts.catalog.document("catalog", "causes.yaml")
            raise BlueprintError(f"{claim} has no symptom {symptom!r}", origin=document.origin(("claims", claim)))
        for entry in own[symptom]:
            if not _fits(entry, facts) or any(hint in hints for hint in entry.get("unless", ())):
                continue
            wanted = entry.get("when", ())
            because = "; ".join(hints[hint] for hint in wanted if hint in hints)
            cause = Cause(entry["why"], entry["look"], entry["source"], because)
            (pointed if because else possible).append(cause)
    first: dict[str, Cause] = {}
    for cause in (*pointed, *possible):
        first.setdefault(cause.why, cause)
    return tuple(first.values())[:MOST]


def _fits(entry: Mapping[str, Any], facts: Facts) -> bool:
    """Whether a cause can be one of this deployment's: of its server and roles, and of the way it was found."""
    targets = facts.targets
    return (
        entry.get("server") in (None, targets.server)
        and entry.get("role") in (None, *facts.roles)
        and (not entry.get("listed") or targets.listed)
    )
