"""Filters, scorers and pickers: which pods a scheduling profile chooses for a request.

Source: facts router.md sections 2.1 to 2.3. Scores lie in [0, 1], are multiplied by their weights and summed; what the
stand-in does not know scores 0 everywhere. Equal scores are settled by lot, as in the real picker.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mmdeploy.rehearse.configuration import Plugin, Profile

ROLE = "llm-d.ai/role"


@dataclass
class Candidate:
    """A pod that a request may go to."""

    name: str
    address: str
    labels: Mapping[str, str]
    queue: int = 0
    running: int = 0
    usage: float = 0.0
    inflight_requests: int = 0
    inflight_tokens: int = 0
    matched: int = 0
    """Leading blocks of the request that it is thought to hold."""


@dataclass
class Context:
    """What the plugins of one profile know."""

    facts: Mapping[str, Any]
    """``picking`` of ``catalog/rehearse.yaml``."""
    role_both: bool
    blocks: int
    """Blocks of the request."""
    block_size: int
    lot: random.Random
    in_turn: bool = False
    blind_load: bool = False
    turns: dict[str, int] = field(default_factory=dict)
    cold: dict[str, int] = field(default_factory=dict)
    """Pods in the order in which they last took a request that nobody held."""


def choose(profile: Profile, candidates: Sequence[Candidate], context: Context) -> list[Candidate]:
    """The pods that the profile chooses, best first; [] where its filters leave none."""
    left = list(candidates)
    for plugin in profile.filters:
        left = _filtered(plugin, left, context)
    if not left:
        return []
    scores = {id(each): 0.0 for each in left}
    for plugin, weight in profile.scorers:
        scorer = _SCORERS.get(plugin.kind)
        for each in left if scorer else ():
            scores[id(each)] += weight * min(1.0, max(0.0, scorer(plugin, each, left, context)))  # type: ignore[misc]
    return _picked(profile, left, scores, context)


def _picked(profile: Profile, left: list[Candidate], scores: Mapping[int, float], context: Context) -> list[Candidate]:
    count = profile.picker.parameters.get("maxNumOfEndpoints", 1)
    count = count if isinstance(count, int) and count > 0 else 1
    if context.in_turn:
        turn = context.turns[profile.name] = context.turns.get(profile.name, -1) + 1
        left = [left[(turn + at) % len(left)] for at in range(len(left))]
    else:
        context.lot.shuffle(left)
    if profile.picker.kind == "weighted-random-picker":
        left.sort(key=lambda each: -(context.lot.random() ** (1 / max(scores[id(each)], 1e-6))))
    elif profile.picker.kind == "max-score-picker":
        left.sort(key=lambda each: -scores[id(each)])
    return left[:count]


def _filtered(plugin: Plugin, left: list[Candidate], context: Context) -> list[Candidate]:
    roles = context.facts["roles"].get(plugin.kind)
    if roles is not None:
        both = ["both"] if context.role_both and plugin.kind != "encode-filter" else []
        unlabelled = [""] if plugin.kind == "decode-filter" else []
        return [each for each in left if each.labels.get(ROLE, "") in (*roles, *both, *unlabelled)]
    if plugin.kind in ("label-selector-filter", "by-label-selector"):
        wanted = plugin.parameters.get("matchLabels") or {}
        expressions = plugin.parameters.get("matchExpressions") or ()
        return [each for each in left if _selected(each.labels, wanted, expressions)]
    if plugin.kind == "prefix-cache-affinity-filter":
        return _affine(plugin, left, context)
    return left


def _selected(labels: Mapping[str, str], wanted: Mapping[str, str], expressions: Sequence[Mapping[str, Any]]) -> bool:
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    tests: dict[str, Callable[[str, Sequence[str]], bool]] = {
        "In": lambda key, values: labels.get(key) in values,
        "NotIn": lambda key, values: labels.get(key) not in values,
        "Exists": lambda key, _: key in labels,
        "DoesNotExist": lambda key, _: key not in labels,
    }
    return all(tests[each["operator"]](each["key"], each.get("values") or ()) for each in expressions)


def _affine(plugin: Plugin, left: list[Candidate], context: Context) -> list[Candidate]:
    """Pods that hold enough of the prompt, unless waiting for them costs too much."""
    said = {**context.facts["affinity"], **plugin.parameters}
    threshold = said["affinityThreshold"]
    if threshold <= 0 or not context.blocks or not left:
        return left
    warm = [each for each in left if each.matched / context.blocks >= threshold]
    if not warm:
        return left
    penalty = said["maxTTFTPenaltyMs"]
    if penalty > 0:
        per_token = 1000 / said["peakPrefillThroughput"]
        waits = [min(each.inflight_tokens for each in group) * per_token for group in (warm, left)]
        if waits[0] - waits[1] > penalty:
            return left
    return warm


def _token_load(plugin: Plugin, each: Candidate, left: Sequence[Candidate], context: Context) -> float:
    threshold = plugin.parameters.get("queueThresholdTokens") or 0
    threshold = threshold if threshold > 0 else context.facts["queueThresholdTokens"]
    held = 0 if context.blind_load else each.matched
    return 1 - min(1.0, (each.inflight_tokens + (context.blocks - held) * context.block_size) / threshold)


def _active(plugin: Plugin, each: Candidate, left: Sequence[Candidate], context: Context) -> float:
    idle = plugin.parameters.get("idleThreshold", 0)
    most = max(other.inflight_requests for other in left)
    if each.inflight_requests <= idle or not most:
        return 1.0
    return float(plugin.parameters.get("maxBusyScore", 1.0)) * (most - each.inflight_requests) / most


def _least(value: Callable[[Candidate], float]) -> Callable[..., float]:
    """The least loaded scores 1, the most loaded 0; all score 1 where all are equal."""

    def score(plugin: Plugin, each: Candidate, left: Sequence[Candidate], context: Context) -> float:
        low, high = min(map(value, left)), max(map(value, left))
        return 1.0 if high == low else (high - value(each)) / (high - low)

    return score


def _matching(plugin: Plugin, each: Candidate, left: Sequence[Candidate], context: Context) -> float:
    return each.matched / context.blocks if context.blocks else 0.0


def _coldest(plugin: Plugin, each: Candidate, left: Sequence[Candidate], context: Context) -> float:
    """Where nobody holds the prompt, the pod that took such a request longest ago."""
    if any(other.matched for other in left):
        return 0.5
    order = sorted(left, key=lambda other: context.cold.get(other.name, -1))
    return 1.0 if len(order) == 1 else 1 - order.index(each) / (len(order) - 1)


_SCORERS: Mapping[str, Callable[..., float]] = {
    "queue-scorer": _least(lambda each: each.queue),
    "running-requests-size-scorer": _least(lambda each: each.running),
    "kv-cache-utilization-scorer": lambda plugin, each, left, context: 1 - each.usage,
    "load-aware-scorer": lambda plugin, each, left, context: (
        0.5 * (1 - min(1.0, each.queue / (plugin.parameters.get("threshold") or 128)))
    ),
    "prefix-cache-scorer": _matching,
    "token-load-scorer": _token_load,
    "active-request-scorer": _active,
    "no-hit-lru-scorer": _coldest,
}
