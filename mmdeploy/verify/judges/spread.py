"""Several pictures of one request: on several encode pods where the picker is configured for it, else on one."""

from __future__ import annotations

from collections.abc import Sequence

from mmdeploy.verify import hints
from mmdeploy.verify.evidence import Evidence
from mmdeploy.verify.facts import Facts
from mmdeploy.verify.judges.findings import (
    contradicted,
    crowded,
    not_answered,
    not_sent,
    pages_missing,
    proved,
    unanswered,
    unseen,
)
from mmdeploy.verify.verdicts import Line, NotApplicable, Verdict
from mmdeploy.verify.window import crowd, windows

_ASK = "an encode profile with a picker of its own and maxNumOfEndpoints above 1"


def judge(evidence: Evidence, facts: Facts) -> Verdict | NotApplicable:
    """See the module."""
    if not facts.encodes:
        return NotApplicable("spread", "this topology has no encode pods")
    if not facts.router_encodes:
        return NotApplicable("spread", f"{facts.targets.server}'s language server picks its encoders itself")
    found = windows(evidence, facts, "pictures")
    if not found:
        return not_sent("spread", evidence)
    lines, pods, reasons = [], set[str](), list[str]()
    for window in found:
        moved = window.moved("encode", "requests")
        lines.append(
            Line(f"{window.items} pictures in one request: {moved}", {"pictures": window.items, **moved.where})
        )
        reasons += moved.unknown
        if window.quiet and window.answered:
            pods |= moved.where.keys()
    failed = unanswered([sent for window in found for sent in window.sent])
    if failed:
        return not_answered("spread", failed, lines)
    quiet = [window for window in found if window.quiet]
    if not quiet:
        readable = any(window.foreign is not None for window in found)
        return crowded("spread", crowd(found), lines) if readable else _unread(lines, reasons, ())
    if reasons:
        return _unread(lines, reasons, hints.dead(evidence, facts.targets.of("encode")))
    items = sum(window.items for window in quiet)
    counted = sum(window.moved("encode", "requests").total for window in quiet)
    if counted < items:
        summary = f"encode pods counted {counted} of {items} pictures"
        return contradicted("spread", summary, lines, ["encode-idle"], evidence, facts)
    most = max(len(window.moved("encode", "requests").where) for window in quiet)
    return _verdict(most, pods, lines, evidence, facts)


def _verdict(most: int, pods: set[str], lines: list[Line], evidence: Evidence, facts: Facts) -> Verdict:
    if facts.spreads:
        if most > 1:
            return proved("spread", f"{most} encode pods shared the pictures of one request, as configured", lines)
        if len(facts.targets.of("encode")) == 1:
            return unseen("spread", "there is one encode pod only", lines, ("two encode pods or more",))
        summary = f"{min(pods)} encoded every picture, though the picker is configured to spread them"
        return contradicted("spread", summary, lines, ["one-pod"], evidence, facts)
    if most > 1 and facts.configured:
        summary = f"{most} encode pods shared the pictures of one request, though the bundle's picker takes one"
        return contradicted("spread", summary, lines, ["several-pods"], evidence, facts)
    if most > 1:
        return proved("spread", f"{most} encode pods shared the pictures of one request", lines)
    took = "as configured: one encode pod took every picture of a request"
    if not facts.configured:
        took = "one encode pod took every picture of a request, as it should unless the picker is configured otherwise"
    return proved("spread", f"{took} ({_ASK} would spread them)", lines)


def _unread(lines: list[Line], reasons: list[str], away: Sequence[str]) -> Verdict:
    return unseen("spread", "the encode pods' counters are not all known", lines, pages_missing(reasons, away))
