"""Repeats go where their cache is: the same long prompt with the same picture, twice, then the picture under another
prompt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mmdeploy.verify.evidence import Evidence, Scrape
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
from mmdeploy.verify.window import Window, crowd


@dataclass
class _Round:
    """What one round showed."""

    holds: bool | None = None
    """None where it cannot be said."""
    summary: str = ""
    lines: list[Line] = field(default_factory=list)
    symptoms: list[str] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    """Symptom and sentence of each request that was not answered."""
    foreign: int = 0
    reused: bool = False
    """Whether the repeat found the picture in the processor cache."""


def judge(evidence: Evidence, facts: Facts) -> Verdict | NotApplicable:
    """See the module."""
    if not facts.follows_cache:
        return NotApplicable("affinity", "this picker's configuration has no plugin that follows the prefix cache")
    numbers = sorted({step.round for step in evidence.rounds("affinity.again")})
    if not numbers:
        return not_sent("affinity", evidence)
    rounds = [_round(number, evidence, facts) for number in numbers]
    lines = [line for item in rounds for line in item.lines]
    good = [item for item in rounds if item.holds]
    bad = [item for item in rounds if item.holds is False]
    if bad and 3 * len(bad) > len(good) + len(bad):
        share = "" if len(rounds) == 1 else f" ({len(bad)} of {len(rounds)} rounds)"
        symptoms = [symptom for item in bad for symptom in item.symptoms]
        return contradicted("affinity", bad[0].summary + share, lines, symptoms, evidence, facts)
    if good:
        share = "" if len(rounds) == 1 else f" ({len(good)} of {len(rounds)} rounds)"
        return proved("affinity", good[0].summary + share, lines, (text for item in good for text in item.unseen))
    failed = [each for item in rounds for each in item.failed]
    if failed:
        return not_answered("affinity", failed, lines)
    foreign = max(item.foreign for item in rounds)
    if foreign:
        return crowded("affinity", foreign, lines)
    return unseen("affinity", rounds[0].summary, lines, (text for item in rounds for text in item.unseen))


def _round(number: int, evidence: Evidence, facts: Facts) -> _Round:
    steps = {step.name: step for step in evidence.steps if step.round == number}
    first = Window.of(evidence, facts, steps["affinity.first"])
    again = Window.of(evidence, facts, steps["affinity.again"])
    found = _Round(foreign=crowd([first, again]))
    found.failed = unanswered([*first.sent, *again.sent])
    if found.failed:
        return found
    if not (first.quiet and again.quiet):
        _isolated(again, found)
        return found
    role = facts.cached_role
    pods = [_only(window) for window in (first, again)]
    if None in pods:
        reasons = [*first.moved(role, "requests").unknown, *again.moved(role, "requests").unknown]
        if reasons:
            found.summary = "which pod served the requests is not known"
            found.unseen = pages_missing(reasons)
        else:
            found.holds, found.symptoms = False, ["not-decode"]
            found.summary = f"the requests were answered, and no {role} pod counted them"
        return found
    _judged(str(pods[0]), str(pods[1]), first, again, found)
    if "affinity.other" in steps:
        _other(str(pods[1]), Window.of(evidence, facts, steps["affinity.other"]), found)
    return found


def _only(window: Window) -> str | None:
    """The pod that served the one request of a quiet window."""
    where = window.moved(window.facts.cached_role, "requests").where
    return next(iter(where)) if len(where) == 1 and sum(where.values()) == 1 else None


def _judged(first_pod: str, pod: str, first: Window, again: Window, found: _Round) -> None:
    tokens = again.sent[0].prompt_tokens or again.change(pod, again.facts.cached_role, "prefixQueries").number
    hits = again.change(pod, again.facts.cached_role, "prefixHits")
    block = block_size(again.page_after(pod), again.facts)
    wanted = least_hits(tokens, block, again.facts)
    numbers: Mapping[str, int | str | None] = {
        "firstPod": first_pod, "pod": pod, "promptTokens": tokens, "prefixHits": hits.number if hits.known else None,
        "blockSize": block, "leastHits": wanted,
    }  # fmt: skip
    alone = len(again.facts.targets.of(again.facts.cached_role)) == 1
    where = f"{pod} served both (the only pod)" if alone else f"{first_pod} served the first, {pod} the repeat"
    of = f" (whole blocks of {block})" if block else ""
    found.lines.append(
        Line(f"{where}; the repeat hit {hits.number if hits.known else '?'} of {tokens} tokens{of}", numbers)
    )
    times = first.sent[0].first, again.sent[0].first
    if None not in times:
        found.lines.append(Line(f"first token after {times[0]:.3f} s, of the repeat after {times[1]:.3f} s",
                                {"first": times[0], "again": times[1]}))  # fmt: skip
    if first_pod != pod:
        found.holds, found.symptoms = False, ["other-pod"]
        found.summary = f"the repeat went to {pod}, its cache is on {first_pod}"
    elif not hits.known:
        found.summary, found.unseen = f"both went to {pod}; its prefix hits are not known", pages_missing([hits.why])
    elif hits.number < wanted:
        found.holds, found.symptoms = False, ["no-hits" if hits.number == 0 else "few-hits"]
        found.summary = f"both went to {pod}, but only {hits.number} of {tokens} tokens hit its prefix cache"
    else:
        found.holds = True
        found.summary = f"both went to {pod}, and the repeat hit {hits.number} of {tokens} tokens"
        _media(pod, first, again, found)


def _media(pod: str, first: Window, again: Window, found: _Round) -> None:
    """The processor cache: looked up once a request, and hit by the repeat."""
    queries = [window.change(pod, first.facts.cached_role, "mediaQueries") for window in (first, again)]
    hits = again.change(pod, first.facts.cached_role, "mediaHits")
    if not hits.known or not all(item.known for item in queries):
        found.unseen += pages_missing([hits.why or queries[0].why or queries[1].why])
        return
    asked = sum(item.number for item in queries)
    found.lines.append(
        Line(f"the processor cache of {pod} was asked for {asked} items, and the repeat hit {hits.number}",
             {"mediaQueries": asked, "mediaHits": hits.number})
    )  # fmt: skip
    several = _processes(first.facts)
    if hits.number >= 1:
        found.reused = not several
        found.summary += " and the picture"
    elif several:
        found.unseen.append(several)
    elif asked == 0 and first.facts.encodes and not first.facts.raw_media:
        found.unseen.append("the processor cache: this consumer takes what encode pods prepared, and never looks it up")
    else:
        found.holds, found.symptoms = False, ["processor-cache"]
        found.summary += ", but the picture was processed again"


def _processes(facts: Facts) -> str:
    """Why a miss in the processor cache says nothing; empty where it does."""
    count = facts.targets.configuration.get("apiServers") or 1
    said = f"the processor cache: {count} processes of a pod take requests, each with a cache of its own"
    return said if count > 1 else ""


def _other(pod: str, window: Window, found: _Round) -> None:
    """The same picture under another prompt, sent to that pod itself: the picture hits, the prompt does not."""
    if not window.answered or not window.quiet:
        found.unseen.append("the picture under another prompt: its request was not answered, or not alone")
        return
    hits, media = (
        window.change(pod, window.facts.cached_role, "prefixHits"),
        window.change(pod, window.facts.cached_role, "mediaHits"),
    )
    if not (hits.known and media.known):
        found.unseen += pages_missing([hits.why or media.why])
        return
    found.lines.append(
        Line(f"the picture under another prompt, sent to {pod}: {media.number} picture hit, {hits.number} tokens hit",
             {"otherMediaHits": media.number, "otherPrefixHits": hits.number})
    )  # fmt: skip
    block = block_size(window.page_after(pod), window.facts)
    tokens = window.sent[0].prompt_tokens or 0
    if found.holds and tokens and block and hits.number >= max(block, tokens // 2):
        found.holds, found.symptoms = False, ["false-hits"]
        found.summary = f"another prompt hit {hits.number} of {tokens} tokens in {pod}'s prefix cache"
    elif found.holds and found.reused and media.number == 0:
        found.holds, found.symptoms = False, ["processor-cache"]
        found.summary += ", but not under another prompt: it was processed again"


def _isolated(again: Window, found: _Round) -> None:
    """With requests of others in the window: what the answer itself says of the cache."""
    details = again.sent[0].usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    if cached is None:
        isolation = again.facts.metrics.headers["isolation"]
        own = again.sent[0].headers.get(isolation, "")
        cached = again.moved("picker", "cachedTokens", "sum", fairness_id=own).total if own else None
    tokens = again.sent[0].prompt_tokens or 0
    if again.foreign is None:
        found.summary, found.unseen = "no counters are readable", ["metrics of every pod"]
    elif found.foreign:
        found.summary = f"{found.foreign} foreign requests in the window"
    else:
        found.summary, found.unseen = "the counters still moved when patience ended", ["a quiet moment"]
    if cached and tokens and cached >= least_hits(tokens, None, again.facts):
        found.holds = True
        found.summary = f"the repeat was answered with {round(cached)} of {tokens} tokens from a cache"
        found.lines.append(Line(found.summary, {"cachedTokens": round(cached), "promptTokens": tokens}))
        found.unseen.append("the pod and its processor cache: a quiet deployment, or --repeat")


def block_size(page: Scrape | None, facts: Facts) -> int | None:
    """Tokens of a KV block: as the engine says it in a label, or the bundle."""
    family = facts.page(facts.cached_role).families.get("cacheConfig")
    names = family.samples if family is not None else ()
    for sample in page.samples if page is not None else ():
        if sample.name in names and sample.labels.get("block_size", "").isdigit():
            return int(sample.labels["block_size"])
    said = facts.targets.configuration.get("blockSize")
    return int(said) if said else None


def least_hits(tokens: int, block: int | None, facts: Facts) -> int:
    """Tokens that a repeat of a prompt must hit: its whole blocks, the last token left out, as engines compute that one
    always; within the catalog's tolerance."""
    tolerances = facts.metrics.tolerances
    if not block:
        return round(tokens * tolerances["leastHitShare"])
    whole = (tokens - 1) // block * block
    return max(whole - round(tolerances["wholeBlocks"]) * block, min(whole, block))
