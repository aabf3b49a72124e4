"""Filters, scorers and pickers by themselves, with the formulas of router.md §2.1 to §2.3 written out."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from mmdeploy.rehearse.configuration import Plugin, Profile
from mmdeploy.rehearse.profiles import Candidate, Context, choose
from tests.rehearse.client import Start, chat, text

NAMES = ("a", "b", "c")


@pytest.fixture
def context(start: Start) -> Context:
    return Context(start("aggregation").settings.facts["picking"], False, 10, 64, random.Random(0))


def plugin(kind: str, **parameters: Any) -> Plugin:
    return Plugin(kind, kind, parameters)


def profile(*plugins: Plugin, weight: float = 1, picker: Plugin | None = None) -> Profile:
    filters = tuple(each for each in plugins if each.kind.endswith("-filter") or each.kind.startswith("by-label"))
    scorers = tuple((each, weight) for each in plugins if each not in filters)
    return Profile("p", filters, scorers, picker or plugin("max-score-picker"))


def pods(**attribute: list[Any]) -> list[Candidate]:
    """Three pods that differ in one attribute."""
    ((name, values),) = attribute.items()
    return [
        Candidate(pod, f"{pod}:8000", **{"labels": {}, name: value}) for pod, value in zip(NAMES, values, strict=True)
    ]


def best(profile: Profile, candidates: list[Candidate], context: Context) -> str:
    return choose(profile, candidates, context)[0].name


@pytest.mark.parametrize(
    ("kind", "attribute", "values"),
    [
        ("queue-scorer", "queue", [5, 0, 9]),
        ("running-requests-size-scorer", "running", [5, 0, 9]),
        ("kv-cache-utilization-scorer", "usage", [0.5, 0.1, 0.9]),
        ("load-aware-scorer", "queue", [5, 0, 9]),
        ("active-request-scorer", "inflight_requests", [5, 1, 9]),
        ("token-load-scorer", "inflight_tokens", [5000, 0, 9000]),
        ("prefix-cache-scorer", "matched", [1, 9, 3]),
    ],
)
def test_a_scorer_prefers(context: Context, kind: str, attribute: str, values: list[Any]) -> None:
    for _ in range(5):
        assert best(profile(plugin(kind)), pods(**{attribute: values}), context) == "b"


def test_the_coldest_pod_takes_what_nobody_holds(context: Context) -> None:
    context.cold = {"a": 3, "b": 1, "c": 2}
    assert best(profile(plugin("no-hit-lru-scorer")), pods(matched=[0, 0, 0]), context) == "b"


def test_weights_decide_between_scorers(context: Context) -> None:
    """Queue says b, the cache says c; the heavier one wins."""
    candidates = [Candidate("b", "b:1", {}, queue=0, matched=0), Candidate("c", "c:1", {}, queue=9, matched=10)]
    queue, prefix = plugin("queue-scorer"), plugin("prefix-cache-scorer")
    for weights, expected in (((2.0, 3.0), "c"), ((3.0, 2.0), "b")):
        both = Profile("p", (), ((queue, weights[0]), (prefix, weights[1])), plugin("max-score-picker"))
        assert best(both, candidates, context) == expected


def test_unknown_scorers_decide_nothing(context: Context) -> None:
    seen = {best(profile(plugin("latency-scorer")), pods(queue=[1, 2, 3]), context) for _ in range(50)}
    assert seen == set(NAMES)


@pytest.mark.parametrize(("count", "expected"), [(1, 1), (2, 2), (9, 3), (0, 1), ("two", 1)])
def test_a_picker_takes_as_many_as_it_says(context: Context, count: Any, expected: int) -> None:
    picker = plugin("max-score-picker", maxNumOfEndpoints=count)
    assert len(choose(profile(picker=picker), pods(queue=[1, 2, 3]), context)) == expected


def test_a_weighted_picker_follows_the_scores_and_a_random_one_does_not(context: Context) -> None:
    counted = {}
    for kind in ("weighted-random-picker", "random-picker"):
        picked = (best(profile(plugin("prefix-cache-scorer"), picker=plugin(kind)), pods(matched=[1, 8, 1]), context)
                  for _ in range(600))  # fmt: skip
        counted[kind] = Counter(picked)
    assert counted["weighted-random-picker"]["b"] > 400  # 0.8 of 600 is 480
    assert 150 < counted["random-picker"]["b"] < 250  # a third


ROLES = {
    "encode-filter": {"encode", "encode-prefill", "encode-prefill-decode"},
    "prefill-filter": {"prefill", "encode-prefill", "prefill-decode", "encode-prefill-decode"},
    "decode-filter": {"decode", "prefill-decode", "encode-prefill-decode", ""},
}
EVERY_ROLE = ["encode", "prefill", "decode", "encode-prefill", "prefill-decode", "encode-prefill-decode", "encode-decode", "both", ""]  # fmt: skip # noqa: E501


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("kind", ROLES)
def test_role_filters_take(context: Context, kind: str, both: bool) -> None:
    """`both` up to v0.10; no filter takes encode-decode; a pod without the label passes for a decode pod."""
    context.role_both = both
    named = [Candidate(role, "x:1", {"llm-d.ai/role": role} if role else {}) for role in EVERY_ROLE]
    picker = plugin("max-score-picker", maxNumOfEndpoints=99)
    taken = {each.name for each in choose(profile(plugin(kind), picker=picker), named, context)}
    assert taken == ROLES[kind] | ({"both"} if both and kind != "encode-filter" else set())


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"matchLabels": {"zone": "x"}}, {"a"}),
        ({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["x", "y"]}]}, {"a", "b"}),
        ({"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["x"]}]}, {"b", "c"}),
        ({"matchExpressions": [{"key": "zone", "operator": "Exists"}]}, {"a", "b"}),
        ({"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]}, {"c"}),
    ],
)
def test_label_filters_take(context: Context, parameters: dict[str, Any], expected: set[str]) -> None:
    candidates = pods(labels=[{"zone": "x"}, {"zone": "y"}, {}])
    picker = plugin("max-score-picker", maxNumOfEndpoints=99)
    chosen = choose(profile(plugin("label-selector-filter", **parameters), picker=picker), candidates, context)
    assert {each.name for each in chosen} == expected


@pytest.mark.parametrize(
    ("threshold", "matched", "expected"),
    [(0.8, [7, 8, 0], {"b"}), (0.8, [7, 7, 0], {"a", "b", "c"}), (0, [0, 10, 0], {"a", "b", "c"})],
)
def test_the_affinity_filter_keeps_warm_pods(
    context: Context, threshold: float, matched: list[int], expected: set[str]
) -> None:
    """Of 10 blocks, 8 are 0.8; below the threshold on every pod all stay; 0 turns the filter off."""
    picker = plugin("max-score-picker", maxNumOfEndpoints=99)
    given = plugin("prefix-cache-affinity-filter", affinityThreshold=threshold)
    assert {each.name for each in choose(profile(given, picker=picker), pods(matched=matched), context)} == expected


def test_precise_routing_charges_what_the_model_takes(start: Start, tmp_path: Any) -> None:
    (tmp_path / "deploy.yaml").write_text("topology: aggregation\nrouting: precise\n")
    deployment = start(str(tmp_path / "deploy.yaml"))
    assert deployment.picker.configuration.estimator is None
    assert chat(deployment.entry, deployment.settings.model, text("hello")).status == 200
