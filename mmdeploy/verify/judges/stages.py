"""Stages run where they should: encode pods count the media and nothing else, language pods count every request, and
the picker counts the right decisions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

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
from mmdeploy.verify.verdicts import Line, NotApplicable, Verdict, amount
from mmdeploy.verify.window import Moved, Window, crowd, windows

STEPS = ("text", "image", "affinity.first", "affinity.again", "pictures")
"""Whatever was sent through the router as a client would send it."""


@dataclass
class _Tally:
    """What a role counted over several windows."""

    sent: int = 0
    """What it should have counted."""
    counted: int = 0
    short: int = 0
    """By how much the windows in which it is known fell short; what others sent can hide this, never make it."""
    exact: bool = True
    """Whether nobody else sent anything in any of the windows."""
    where: dict[str, int] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    """Why it is not known of some pods."""

    def add(self, window: Window, moved: Moved, wanted: int) -> None:
        """Take one more window in."""
        self.sent += wanted
        self.counted += moved.total
        self.exact = self.exact and window.quiet
        self.reasons += moved.unknown
        if not moved.unknown:
            self.short += max(0, wanted - moved.total)
        for name, number in moved.where.items():
            self.where[name] = self.where.get(name, 0) + number

    def line(self, role: str, what: str) -> Line:
        """What it counted."""
        others = "" if self.exact else ", with requests of others among them"
        numbers: dict[str, int | str] = {"role": role, "sent": self.sent, "counted": self.counted}
        text = f"{role} pods counted {self.counted} for {amount(self.sent, what)} ({Moved(self.where)}){others}"
        return Line(text, numbers)


@dataclass
class _Found:
    lines: list[Line] = field(default_factory=list)
    wrong: list[tuple[str, str]] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)


def judge(evidence: Evidence, facts: Facts) -> Verdict | NotApplicable:
    """See the module."""
    if not facts.encodes:
        return NotApplicable("stages", "every pod of this topology runs all stages")
    everything = windows(evidence, facts, *STEPS)
    found = [window for window in everything if window.answered]
    media = [window for window in found if window.items]
    text = [window for window in found if not window.items]
    if not everything:
        return not_sent("stages", evidence)
    for group, kind in ((media, True), (text, False)):
        failed = unanswered([sent for window in everything if bool(window.items) is kind for sent in window.sent])
        if failed and not group:
            return not_answered("stages", failed, ())
    result = _Found()
    _encoded(media, result)
    _text(text, result)
    for role in facts.language_roles:
        _language(role, found, result)
    _decisions(media, text, result)
    return _verdict(found, media, text, result, evidence, facts)


def _verdict(
    found: Sequence[Window],
    media: Sequence[Window],
    text: Sequence[Window],
    result: _Found,
    evidence: Evidence,
    facts: Facts,
) -> Verdict:
    if result.wrong:
        summary = "; ".join(dict.fromkeys(sentence for _, sentence in result.wrong))
        return contradicted("stages", summary, result.lines, [name for name, _ in result.wrong], evidence, facts)
    if not media or not text:
        lacking = "with media" if not media else "of text alone"
        return unseen("stages", f"no request {lacking} was sent", result.lines, ("both claims text and image",))
    quiet = [window for window in media if window.quiet]
    if not quiet or not any(window.quiet for window in text):
        if any(window.foreign is not None for window in found):
            return crowded("stages", crowd([*found]), result.lines)
        return unseen("stages", "no counter is readable", result.lines, result.unseen)
    if result.unseen:
        return unseen("stages", "not every counter that is needed is known", result.lines, result.unseen)
    items = sum(window.items for window in quiet)
    words = " and ".join(facts.language_roles)
    summary = f"encode pods counted {items} of {items} pictures and no text; {words} pods counted every request"
    return proved("stages", summary, result.lines, _unread_decisions(found, facts))


def _tally(role: str, found: Sequence[Window], wanted: Callable[[Window], int]) -> _Tally:
    """Over the quiet windows where there are any, and what fell short over all of them."""
    everything, quiet = _Tally(), _Tally()
    for window in found:
        moved = window.moved(role, "requests")
        everything.add(window, moved, wanted(window))
        if window.quiet:
            quiet.add(window, moved, wanted(window))
    chosen = quiet if quiet.where or quiet.sent else everything
    chosen.short, chosen.reasons = everything.short, everything.reasons
    return chosen


def _encoded(media: Sequence[Window], result: _Found) -> None:
    tally = _tally("encode", media, lambda window: window.items)
    result.lines.append(tally.line("encode", "picture"))
    if tally.short:
        sent = sum(window.items for window in media)
        symptom = "encode-idle" if tally.short == sent else "encode-partly"
        result.wrong.append((symptom, f"encode pods counted {sent - tally.short} of {sent} pictures"))
    if tally.reasons:
        result.unseen += pages_missing(tally.reasons)
    elif tally.exact and tally.counted > tally.sent:
        more = tally.counted - tally.sent
        result.unseen.append(
            f"encode pods counted {more} more than was sent, so somebody else uses them: a quiet moment"
        )


def _text(text: Sequence[Window], result: _Found) -> None:
    tally = _tally("encode", [window for window in text if window.quiet], lambda window: 0)
    sent = sum(len(window.routed) for window in text if window.quiet)
    if sent:
        numbers = {"texts": sent, "encoded": tally.counted}
        result.lines.append(Line(f"encode pods counted {tally.counted} for {amount(sent, 'request of text')}", numbers))
    if tally.counted:
        result.wrong.append(
            ("text-encoded", f"encode pods counted {tally.counted} for {amount(sent, 'request of text alone')}")
        )
    result.unseen += pages_missing(tally.reasons)


def _language(role: str, found: Sequence[Window], result: _Found) -> None:
    tally = _tally(role, found, lambda window: len(window.routed))
    result.lines.append(tally.line(role, "request"))
    if tally.short:
        sent = sum(len(window.routed) for window in found)
        symptom = f"{role}-idle" if tally.short == sent else f"{role}-partly"
        result.wrong.append((symptom, f"{role} pods counted {sent - tally.short} of {sent} requests"))
    result.unseen += pages_missing(tally.reasons)


def _decisions(media: Sequence[Window], text: Sequence[Window], result: _Found) -> None:
    """The picker's own count; it says what was decided, not what the sidecar did."""
    for group, with_media in ((media, True), (text, False)):
        if not group or not group[0].facts.router_encodes:
            continue
        facts = group[0].facts
        word = facts.metrics.decision(facts.targets.topology, with_media)
        if word is None:
            continue
        moved = [window.moved("picker", "decisions", decision_type=word) for window in group]
        if not all(item.complete for item in moved):
            continue
        sent, counted = sum(len(window.routed) for window in group), sum(item.total for item in moved)
        kind = "with media" if with_media else "of text alone"
        numbers: dict[str, int | str] = {"decision": word, "counted": counted, "sent": sent}
        result.lines.append(
            Line(f"the picker decided {word} {amount(counted, 'time')} for {amount(sent, f'request {kind}')}", numbers)
        )
        short = sum(max(0, len(window.routed) - item.total) for window, item in zip(group, moved, strict=True))
        if short:
            symptom = "media-decision" if with_media else "text-decision"
            result.wrong.append((symptom, f"the picker decided {word} for {sent - short} of {sent} requests {kind}"))


def _unread_decisions(found: Sequence[Window], facts: Facts) -> list[str]:
    if not facts.router_encodes:
        return []
    if not facts.targets.pickers:
        return ["the picker's decisions: list its metrics address (picker: in the targets file)"]
    return pages_missing(found[0].moved("picker", "decisions").unknown)
