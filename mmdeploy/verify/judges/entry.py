"""The entry point: what is sent to it reaches the pool through the picker, and so through the Gateway where there is
one; no timeout cuts it; and whether a client's own routing headers have an effect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mmdeploy.lint.gateways import seconds
from mmdeploy.verify import counters
from mmdeploy.verify.evidence import Evidence, Sent
from mmdeploy.verify.facts import Facts
from mmdeploy.verify.judges.answers import symptom
from mmdeploy.verify.judges.findings import contradicted, not_sent, pages_missing, proved, unanswered, unseen
from mmdeploy.verify.verdicts import Line, Verdict, amount
from mmdeploy.verify.window import ROUTED, Window, crowd, windows

STEPS = ("text", "image", "affinity.first", "affinity.again", "pictures")
HOLD = "hold"
_GATEWAY_TIMEOUT = 504
_NOT_FOUND = 404


@dataclass
class _Found:
    lines: list[Line] = field(default_factory=list)
    wrong: list[tuple[str, str]] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    served: bool = False
    """Whether the pool's pods were seen to count every request, and no others'."""
    picked: bool = False
    """Whether the pickers were seen to count every request."""
    isolated: bool = False
    """... under the run's own name, so that no request of others was among them."""

    @property
    def reaches(self) -> bool:
        """Whether requests were seen to reach the pool through a picker."""
        return self.picked and (self.served or self.isolated)


def judge(evidence: Evidence, facts: Facts) -> Verdict:
    """See the module."""
    found = windows(evidence, facts, *STEPS)
    gateway = windows(evidence, facts, "gateway")
    sent = [item for window in (*found, *gateway) for item in window.routed]
    if not sent:
        return not_sent("entry", evidence)
    result = _Found()
    _reached("the entry point", found, facts, result)
    _strangers(sent, evidence, facts, result)
    _gateway(gateway, facts, result)
    _resolved(evidence, result)
    _times(evidence, facts, result)
    _headers(evidence, facts, result)
    if result.wrong:
        summary = "; ".join(dict.fromkeys(sentence for _, sentence in result.wrong[:3]))
        return contradicted("entry", summary, result.lines, [name for name, _ in result.wrong], evidence, facts)
    if not result.reaches:
        said = "no counter shows where the requests went"
        if result.served:
            said = "pods counted the requests, but no picker's counters show that they went through it"
        return unseen("entry", said, result.lines, result.unseen)
    through = "the Service and the Gateway" if gateway else "the entry point"
    summary = "; ".join([f"requests through {through} reach the pool", *result.remarks])
    return proved("entry", summary, result.lines, result.unseen)


def _reached(what: str, found: Sequence[Window], facts: Facts, result: _Found) -> None:
    """Answered requests are counted by the pool's pods and by the picker."""
    sent = [item for window in found for item in window.routed]
    failed = unanswered(sent)
    if failed and len(failed) == len(sent):
        result.wrong += [(failed[0][0], f"{what} gave no answer: {failed[0][1]}")]
        return
    answered = [window for window in found if window.answered and window.routed]
    if not answered:
        return
    number = sum(len(window.routed) for window in answered)
    exact = all(window.quiet for window in answered)
    _served(what, answered, number, exact, facts, result)
    _picked(what, answered, number, exact, facts, result)
    if not exact and not result.reaches:
        others = crowd([*answered])
        why = f"{others} foreign request{'s' * (others != 1)} in the window" if others else "the counters moved on"
        result.unseen.append(f"where requests go: {why}; a quiet moment")


def _strangers(sent: Sequence[Sent], evidence: Evidence, facts: Facts, result: _Found) -> None:
    """Answers that say that the model is unknown, while every listed pod serves it: they are of other pods."""
    lost = [item for item in sent if item.status == _NOT_FOUND]
    lists = [item.fields["models"] for item in evidence.of("models") if "models" in item.fields]
    if lost and all(facts.targets.model in models for models in lists):
        text = f"{len(lost)} of {len(sent)} requests had the answer HTTP 404, though every pod here serves the model"
        result.lines.append(Line(f"{text}: {lost[0].id}: {lost[0].error[:120]}", {"strangers": len(lost)}))
        result.wrong.append(("http-404", text))


def _served(what: str, answered: Sequence[Window], number: int, exact: bool, facts: Facts, result: _Found) -> None:
    """What the pods counted; requests of others can hide that some are missing, never make it so."""
    role = facts.language_roles[-1]
    pods = [window.moved(role, "requests") for window in answered]
    if not all(item.complete for item in pods):
        result.unseen += pages_missing(reason for item in pods for reason in item.unknown)
        return
    counted = sum(item.total for item in pods)
    others = ", those of others among them" if crowd([*answered]) else ""
    text = f"{role} pods counted {counted} for {amount(number, 'request')} through {what}{others}"
    result.lines.append(Line(text, {"sent": number, "pods": counted}))
    result.served = result.served or (exact and counted == number)
    if counted < number:
        result.wrong.append(("elsewhere", f"{number - counted} of {number} answers came from somewhere else"))


def _picked(what: str, answered: Sequence[Window], number: int, exact: bool, facts: Facts, result: _Found) -> None:
    """What the pickers counted, under the run's own name where they set clients apart."""
    own = answered[0].routed[0].headers.get(facts.metrics.headers["isolation"], "")
    names = [{"fairness_id": own}] if _isolates(answered[-1], facts) else [{}]
    moved = [window.moved("picker", "requests", **labels) for window in answered for labels in names]
    silent = _silent(answered[-1], facts)
    nobody = bool(facts.targets.pickers) and len(silent) == len(facts.targets.pickers)
    if not nobody and not any(item.known for item in moved):
        reasons = [reason for item in moved for reason in item.unknown]
        result.unseen += pages_missing(reasons) or ["whether the picker routes: list its metrics address"]
        return
    counted = 0 if nobody else sum(item.total for item in moved)
    result.lines.append(Line(f"the picker counted {counted} of {number} requests through {what}", {"picked": counted}))
    if not nobody and not all(item.complete for item in moved):
        return
    if counted == 0:
        result.wrong.append(("bypassed", f"the picker has counted none of {number} requests through {what}"))
    elif counted < number:
        result.wrong.append(("partly-picked", f"the picker has counted {counted} of {number} requests through {what}"))
    else:
        result.picked = result.picked or exact or names != [{}]
        result.isolated = result.isolated or names != [{}]


def _isolates(window: Window, facts: Facts) -> bool:
    """Whether the pickers count requests by client."""
    family = facts.page("picker").families["requests"]
    pages = [window.page_after(picker.name) for picker in facts.targets.pickers]
    return any(counters.by_label(page, family, "fairness_id") for page in pages)


def _silent(window: Window, facts: Facts) -> list[str]:
    """Pickers whose page says which build they are, and has never counted a request: such a series is there from the
    first request on."""
    kept = facts.page("picker")
    found = []
    for picker in facts.targets.pickers:
        page = window.page_after(picker.name)
        if page is None or not page.readable or not any(name in page.families for name in kept.families["info"].names):
            continue
        names = {sample.name for sample in page.samples} | set(page.families)
        if not names & set(kept.families["requests"].names):
            found.append(picker.name)
    return found


def _gateway(found: Sequence[Window], facts: Facts, result: _Found) -> None:
    if not found:
        if facts.targets.configuration.get("mode") == "gateway" and facts.targets.gateway is None:
            result.unseen.append("the Gateway: give its address (gateway: in the targets file)")
        return
    for window in found:
        for sent in window.routed:
            wrong = symptom(sent)
            if wrong in ("empty", "no-chat-answer", "broken-off", "off-topic"):
                said = (sent.text or sent.error)[:60]
                result.wrong.append((wrong, f"through the Gateway, {sent.id} was answered {said!r}"))
    _reached("the Gateway", found, facts, result)


def _resolved(evidence: Evidence, result: _Found) -> None:
    """What the cluster's controllers say of the route and of the pool behind it."""
    for item in evidence.observed("cluster"):
        if item.numbers.get("claim") == "entry":
            result.lines.append(Line(item.detail))
            if item.numbers.get("symptom"):
                result.wrong.append((str(item.numbers["symptom"]), item.detail))


def _times(evidence: Evidence, facts: Facts, result: _Found) -> None:
    """The slowest request, the one that was kept open on purpose, the route's timeout, and anything that was cut."""
    routed = [item for item in evidence.requests if item.target in ROUTED]
    usual = [item for item in routed if item.purpose != HOLD]
    slowest = max(usual, key=lambda item: item.seconds)
    held = max((item.seconds for item in routed if _held(item)), default=0.0)
    longest = max(slowest.seconds, held)
    said = facts.targets.configuration.get("requestTimeout")
    limit = seconds(said)
    text = f"the slowest request took {slowest.seconds:.2f} s; {_allowed(facts)}"
    numbers = {"slowest": slowest.seconds, "held": held, "timeout": limit}
    result.lines.append(Line(f"{text}{_untried(longest, limit)}", numbers))
    result.lines += [_told(item) for item in routed if item.purpose == HOLD]
    for sent in routed:
        if sent.status == _GATEWAY_TIMEOUT or sent.error.startswith("cut"):
            result.wrong.append(("cut", f"{sent.id} was cut after {sent.seconds:.1f} s{_on(sent)}"))
        elif sent.error.startswith("timeout") and sent.purpose != HOLD:
            result.wrong.append(("too-slow", f"{sent.id} had no answer after {sent.seconds:.1f} s"))
    if limit and slowest.answered and slowest.seconds >= limit:
        result.wrong.append(("cut", f"{slowest.id} took {slowest.seconds:.1f} s, longer than the route's {said}"))


def _allowed(facts: Facts) -> str:
    """What the route says, and who says that."""
    said = facts.targets.configuration.get("requestTimeout")
    live = facts.targets.configuration.get("requestTimeoutOf")
    of = live or "the bundle"
    if said is None:
        return f"{live} says no timeout, so that the gateway's own is in force" if live else "no route timeout is known"
    return f"the route has no timeout, says {of}" if seconds(said) == 0 else f"the route allows {said}, says {of}"


def _untried(longest: float, limit: float | None) -> str:
    """What of the timeouts was not tested: those of proxies and balancers in front stand nowhere that is read."""
    if limit and longest >= limit:
        return ""
    return f"; whether anything cuts one that takes longer than {longest:.2f} s was not tried: --hold 5m tries it"


def _held(sent: Sent) -> bool:
    """Whether it was still being answered when it was ended from here."""
    return sent.purpose == HOLD and sent.answered and sent.error.startswith("timeout")


def _told(sent: Sent) -> Line:
    """What came of the request that was kept open."""
    text = f"{sent.id} through the {sent.target} point" if sent.target == "entry" else f"{sent.id} through the Gateway"
    if _held(sent):
        said = f"was still being answered after {sent.seconds:.1f} s"
    elif sent.answered and not sent.error:
        said = f"was answered in whole within {sent.seconds:.1f} s: its model is faster, or its context shorter"
    else:
        said = f"ended after {sent.seconds:.1f} s: {sent.error[:120] or f'HTTP {sent.status}'}"
    return Line(f"{text} {said}", {"held": sent.seconds})


def _on(sent: Sent) -> str:
    return f" (HTTP {sent.status})" if sent.status is not None else ""


def _headers(evidence: Evidence, facts: Facts, result: _Found) -> None:
    """Whether a client's own header sent text to an encode pod."""
    for window in windows(evidence, facts, "headers"):
        moved = window.moved("encode", "requests")
        name = facts.metrics.headers["prefiller"]
        if moved.unknown or not window.quiet or not window.answered:
            result.unseen.append(f"the effect of a client's own {name}: a quiet moment, and the encode pods' counters")
            continue
        through = window.routed[0].target if window.routed else "entry"
        result.lines.append(
            Line(f"text with a client's own {name}: encode pods counted {moved.total}", {"encoded": moved.total})
        )
        if moved.total == 0:
            result.remarks.append(f"a client's own {name} has no effect")
        elif through == "gateway" and name in facts.targets.configuration.get("strippedHeaders", ()):
            result.wrong.append(
                ("headers", f"a client's own {name} sends text to {', '.join(moved.where)} through the Gateway")
            )
        else:
            result.remarks.append(
                f"but a client's own {name} is obeyed, as wherever nothing strips it: strip it at the edge"
            )
