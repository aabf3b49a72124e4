"""What the evidence points to: short names of things seen, each with a phrase that says what was seen.

Causes in ``catalog/causes.yaml`` name the hints that speak for them (``when``) and against them (``unless``).
"""

from __future__ import annotations

from collections.abc import Iterator

from mmdeploy.verify import counters
from mmdeploy.verify.evidence import Evidence
from mmdeploy.verify.facts import Facts
from mmdeploy.verify.window import ROUTED, Window, restarts

Hint = tuple[str, str]
_TLS_WORDS = ("https server", "ssl", "tls")


def seen(evidence: Evidence, facts: Facts) -> dict[str, str]:
    """Every hint in this evidence, by name."""
    found: dict[str, str] = {}
    for part in (_statuses, _pods, _models, _pages, _decisions, _misplaced):
        for name, phrase in part(evidence, facts):
            found.setdefault(name, phrase)
    return found


def _statuses(evidence: Evidence, facts: Facts) -> Iterator[Hint]:
    """``dropped``, ``tls``, ``cut``, ``timeout``, ``refused``, ``says-encoder``, ``says-model`` of requests through the
    router."""
    for sent in evidence.requests:
        if sent.target not in ROUTED:
            continue
        reason = sent.fields.get("header:x-llm-d-request-dropped-reason")
        if reason:
            yield "dropped", f"the picker gives the reason {reason!r}"
        if sent.status is None:
            kind = sent.error.partition(":")[0]
            yield {"unreachable": "refused"}.get(kind, kind), f"{sent.id}: {sent.error}"
        if any(word in sent.error.lower() for word in _TLS_WORDS):
            yield "tls", f"{sent.id}: {sent.error}"
        for word in ("encoder", "model"):
            if word in sent.error.lower():
                yield f"says-{word}", f"{sent.id}: {sent.error[:120]}"


def _pods(evidence: Evidence, facts: Facts) -> Iterator[Hint]:
    """``encode-dead`` and so on for pods that do not answer, ``encode-unready`` as the cluster says, ``encode-none``
    where that is so of every one."""
    asked = {sent.target: sent for sent in evidence.of("models", "health")}
    for role in facts.roles:
        pods = facts.targets.of(role)
        dead = [pod.name for pod in pods if pod.name in asked and not asked[pod.name].answered]
        if dead:
            yield f"{role}-dead", f"{', '.join(dead)} did not answer"
        if dead and len(dead) == len(pods):
            yield f"{role}-none", f"no {role} pod answers"
        unready = [pod.name for pod in pods if pod.ready is False]
        if unready:
            yield f"{role}-unready", f"{', '.join(unready)} are not ready"
        if unready and len(unready) == len(pods):
            yield f"{role}-none", f"no {role} pod is ready"
    for sent in asked.values():
        if any(word in sent.error.lower() for word in _TLS_WORDS):
            yield "tls", f"{sent.target}: {sent.error}"


def _models(evidence: Evidence, facts: Facts) -> Iterator[Hint]:
    """``other-model`` of some pods, ``other-name`` where all list one and the same other name; ``other-version``."""
    listed = {sent.target: tuple(sent.fields["models"]) for sent in evidence.of("models") if "models" in sent.fields}
    others = {name: models for name, models in listed.items() if facts.targets.model not in models}
    if others and others == listed and len(set(others.values())) == 1:
        yield "other-name", f"every pod lists {', '.join(next(iter(others.values()))) or 'no model'}"
    elif others:
        yield "other-model", "; ".join(f"{name} lists {', '.join(models)}" for name, models in others.items())
    versions = {sent.target: sent.fields["version"] for sent in evidence.of("version") if "version" in sent.fields}
    if len(set(versions.values())) > 1:
        yield "other-version", ", ".join(f"{name} is {version}" for name, version in versions.items())


def _pages(evidence: Evidence, facts: Facts) -> Iterator[Hint]:
    """``restarted``, ``picker-unread``, ``poll-errors``, ``lost`` (a page that was there at first and then was not)."""
    if not evidence.steps:
        return
    whole = Window.of(evidence, facts, *evidence.steps)
    again = restarts(evidence, facts)
    if again:
        yield "restarted", f"{', '.join(again)} restarted during the run"
    for picker in facts.targets.pickers:
        page = whole.page_after(picker.name)
        if page is not None and not page.readable:
            yield "picker-unread", f"{picker.name}'s metrics are {page.missing} ({page.detail})"
        family = facts.page("picker").families["readyEndpoints"]
        ready = counters.value(page, family)
        if ready is not None and ready > len(facts.pool):
            yield "pool-foreign", f"{picker.name} counts {round(ready)} endpoints where {len(facts.pool)} should be"
        errors = whole.change(picker.name, "picker", "pollErrors")
        if errors.number:
            yield "poll-errors", f"{picker.name} failed to read metrics of its endpoints {errors.number} times"
    for pod in facts.targets.pods:
        first, last = evidence.page(pod.name, whole.before), whole.page_after(pod.name)
        if first is not None and first.readable and last is not None and last.missing == "unreachable":
            yield "lost", f"{pod.name} was there at first and is unreachable now"


def _decisions(evidence: Evidence, facts: Facts) -> Iterator[Hint]:
    """``decided-encode``, ``decided-no-encode`` for requests with media, ``text-decided-encode``."""
    topology = facts.targets.topology
    with_media, without = facts.metrics.decision(topology, True), facts.metrics.decision(topology, False)
    if with_media is None or without is None:
        return
    for step in evidence.steps:
        window = Window.of(evidence, facts, step)
        moved = {word: window.moved("picker", "decisions", decision_type=word).total for word in (with_media, without)}
        kinds = {bool(sent.media) for sent in window.routed}
        if kinds == {True} and moved[with_media]:
            yield "decided-encode", f"the picker counts {with_media} for them"
        elif kinds == {True} and moved[without]:
            yield "decided-no-encode", f"the picker counts {without} for them"
        elif kinds == {False} and moved[with_media]:
            yield "text-decided-encode", f"the picker counts {with_media} for text"


def _misplaced(evidence: Evidence, facts: Facts) -> Iterator[Hint]:
    """``encode-for-decode``: encode pods counted text, or requests that no decode pod counted."""
    if not facts.encodes:
        return
    for step in evidence.steps:
        window = Window.of(evidence, facts, step)
        if step.name == "headers" or not window.routed or not window.answered or not window.quiet:
            continue
        encoded = window.moved("encode", "requests")
        missed = len(window.routed) - window.moved("decode", "requests").total
        if encoded.total and (missed > 0 or not window.items):
            yield "encode-for-decode", f"{step.name}: {encoded}, {missed} requests that no decode pod counted"
