"""What judges share: how a finding becomes a verdict."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from mmdeploy.verify import hints
from mmdeploy.verify.causes import ranked
from mmdeploy.verify.evidence import Evidence, Sent
from mmdeploy.verify.facts import Facts
from mmdeploy.verify.verdicts import CONTRADICTED, NOT_OBSERVABLE, PROVED, Line, Verdict

_SHOWN = 200
"""Characters of an error in a sentence."""


def proved(claim: str, summary: str, evidence: Iterable[Line], observable: Iterable[str] = ()) -> Verdict:
    """The claim holds; ``observable`` says what would show the parts that could not be seen."""
    return Verdict(claim, PROVED, summary, tuple(evidence), observable=_once(observable))


def contradicted(
    claim: str, summary: str, lines: Iterable[Line], symptoms: Iterable[str], evidence: Evidence, facts: Facts
) -> Verdict:
    """The claim does not hold; causes are ranked by what the evidence points to."""
    causes = ranked(facts, claim, symptoms, hints.seen(evidence, facts))
    return Verdict(claim, CONTRADICTED, summary, tuple(lines), causes)


def unseen(claim: str, summary: str, evidence: Iterable[Line], observable: Iterable[str]) -> Verdict:
    """Nothing can be said."""
    return Verdict(claim, NOT_OBSERVABLE, summary, tuple(evidence), observable=_once(observable))


def not_sent(claim: str, evidence: Evidence) -> Verdict:
    """The claim's requests were never sent; why stands in the evidence."""
    for item in evidence.observed("not-run"):
        if claim in item.numbers.get("claims", ()):
            return unseen(claim, f"its requests were not sent: {item.detail}", (), (item.about,))
    return unseen(claim, "its requests are not in the evidence", (), (f"run mmdeploy verify --only {claim}",))


def crowded(claim: str, foreign: int, evidence: Iterable[Line]) -> Verdict:
    """Requests of others fell into every window."""
    said = (
        f"{foreign} foreign request{'s' * (foreign != 1)} in the window"
        if foreign
        else "the counters still moved at its end"
    )
    return unseen(
        claim,
        said,
        evidence,
        ("run it when the deployment is quiet, or with --repeat 5 and --wait 5m to catch a quiet moment",),
    )


def not_answered(claim: str, failed: Sequence[tuple[str, str]], evidence: Iterable[Line]) -> Verdict:
    """The claim's requests came to nothing, so that what it is about was not seen; `unanswered` gives ``failed``. That
    they fail is what the claims text, image and roles are about."""
    return unseen(
        claim,
        f"its requests failed: {failed[0][1]}",
        evidence,
        ("requests that succeed: the claims text, image, entry and roles say why these fail",),
    )


def unanswered(sent: Sequence[Sent]) -> list[tuple[str, str]]:
    """Symptom (``no-answer``, ``http-503``) and sentence of each request without a 2xx answer."""
    found = []
    for item in sent:
        if item.status is None:
            found.append(("no-answer", f"{item.id} got no answer: {item.error}"))
        elif not item.answered:
            said = f": {item.error[:_SHOWN]}{'...' * (len(item.error) > _SHOWN)}" if item.error else ""
            found.append((f"http-{item.status}", f"{item.id} was answered HTTP {item.status}{said}"))
    return found


def pages_missing(reasons: Iterable[str], away: Container[str] = ()) -> list[str]:
    """What would make unreadable pages readable, by their reasons; ``away`` are pods that do not answer anything."""
    found = []
    for reason in _once(reasons):
        if "unreachable" in reason and (name := reason.partition("'s metrics")[0]) in away:
            found.append(f"{name} does not answer at all: the claim roles says more of it")
        elif "unauthorised" in reason:
            found.append(f"{reason}: give a token (token: env:NAME), or render with monitoring, which opens the page")
        elif "no right to" in reason:
            found.append(f"{reason}: mmdeploy verify BUNDLE --print-rbac --for USER prints the rights")
        elif "restarted" in reason:
            found.append(f"{reason}: run it again once the pod is stable")
        elif "has no" in reason or "counts no such" in reason:
            found.append(f"{reason}: an engine release that counts it, with metrics switched on")
        else:
            found.append(f"{reason}: give the right metrics address, and let it be reached from here")
    return found


def _once(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words))
