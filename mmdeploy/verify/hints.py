"""What the evidence points to: short names of things seen, each with a phrase that says what was seen.

Causes in ``catalog/causes.yaml`` name the hints that speak for them (``when``) and against them (``unless``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mmdeploy.verify import counters
from mmdeploy.verify.evidence import Evidence
from mmdeploy.verify.facts import Facts
from mmdeploy.verify.targets import Pod
from mmdeploy.verify.verdicts import amount
from mmdeploy.verify.window import ROUTED, Window, restarts

Hint = tuple[str, str]
_TLS_WORDS = ("https server", "ssl", "tls")


def seen(evidence: Evidence, facts: Facts) -> dict[str, str]:
    """Every hint in this evidence, by name."""
    found: dict[str, str] = {}
    for part in (_statuses, _pods, _models, _pages, _listing, _decisions, _misplaced):
        for name, phrase in part(evidence, facts):
            found.setdefault(name, phrase)
    return found


def _statuses(evidence: Evidence, facts: Facts) -> Iterator[Hint]:
    """``dropped``, ``tls``, ``cut``, ``timeout``, ``refused``, ``says-encoder``, ``says-model`` of requests through the
    router; ``says-no-prefill`` and so on where the picker names the role of which it finds no pod (router.md §1)."""
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
        for role in facts.roles:
            if f"available {role} workers" in sent.error:
                yield f"says-no-{role}", f"{sent.id}: the picker found no {role} worker"
        for word in ("encoder", "model"):
            if word in sent.error.lower():
                yield f"says-{word}", f"{sent.id}: {sent.error[:120]}"


def _pods(evidence: Evidence, facts: Facts) -> Iterator[Hint]:
    """``encode-dead`` and so on for pods that do not answer, ``encode-unready`` as the cluster says, ``encode-none``
    where that is so of every one."""
    for role in facts.roles:
        pods = facts.targets.of(role)
        away = dead(evidence, pods)
        if away:
            yield f"{role}-dead", f"{', '.join(away)} did not answer"
        if away and len(away) == len(pods):
            yield f"{role}-none", f"no {role} pod answers"
        unready = [pod.name for pod in pods if pod.ready is False]
        if unready:
            yield f"{role}-unready", f"{', '.join(unready)} {'is' if len(unready) == 1 else 'are'} not ready"
        if unready and len(unready) == len(pods):
            yield f"{role}-none", f"no {role} pod is ready"
    for sent in evidence.of("models", "health"):
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
            yield (
                "poll-errors",
                f"{picker.name} failed {amount(errors.number, 'time')} to read metrics of its endpoints",
            )
    for pod in facts.targets.pods:
        first, last = evidence.page(pod.name, whole.before), whole.page_after(pod.name)
        if first is not None and first.readable and last is not None and last.missing == "unreachable":
            yield "lost", f"{pod.name} was there at first and is unreachable now"


def _listing(evidence: Evidence, facts: Facts) -> Iterator[Hint]:
    """What the pickers' number of endpoints says of pods and of a list of them: ``unlisted`` (there are pods that a
    targets file leaves out), ``misaddressed`` (a pod does not answer here, and the picker has it), ``uncounted`` (it
    lacks as many as one role has), ``all-listed`` (the file has as many pods of each role as the bundle)."""
    targets, wanted = facts.targets, len(facts.pool)
    short = [f"{listed} of {meant} {role} pods" for role, (listed, meant) in targets.unlisted.items()]
    if short:
        yield "unlisted", f"{targets.where or 'the targets file'} lists {', '.join(short)} of the bundle"
    elif targets.listed and targets.configuration.get("replicas"):
        yield "all-listed", "the targets file lists every pod of the bundle"
    counts = dict(endpoints(evidence, facts))
    for picker, count in counts.items():
        if targets.listed and not targets.configuration.get("replicas") and count > wanted:
            yield "unlisted", f"{picker} counts {count} endpoints, {wanted} are listed"
        away = dead(evidence, facts.pool)
        if targets.listed and away and count >= wanted:
            yield "misaddressed", f"{picker} counts all {wanted} endpoints, {', '.join(away)} among them"
        roles = lacking_roles(count, facts)
        if len(roles) == 1:
            yield "uncounted", f"{picker} counts {count} of {wanted}: as many are missing as there are {roles[0]} pods"


def endpoints(evidence: Evidence, facts: Facts) -> Iterator[tuple[str, int]]:
    """The most endpoints that each picker counted at any time, of those whose page says so."""
    family = facts.page("picker").families["readyEndpoints"]
    for picker in facts.targets.pickers:
        pages = [page for page in evidence.scrapes if page.endpoint == picker.name]
        values = [number for page in pages if (number := counters.value(page, family)) is not None]
        if values:
            yield picker.name, round(max(values))


def lacking_roles(count: int, facts: Facts) -> list[str]:
    """Roles of which a picker may lack all pods, where it counts so many endpoints."""
    sizes = {role: sum(pod.role == role for pod in facts.pool) for role in facts.roles}
    return [role for role, size in sizes.items() if count > 0 and size and len(facts.pool) - count == size]


def dead(evidence: Evidence, pods: Iterable[Pod]) -> list[str]:
    """Names of those that gave no good answer when they were asked what they serve."""
    asked = {sent.target: sent for sent in evidence.of("models", "health")}
    return [pod.name for pod in pods if pod.name in asked and not asked[pod.name].answered]


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
            yield "encode-for-decode", f"{step.name}: {encoded}, {amount(missed, 'request')} that no decode pod counted"
