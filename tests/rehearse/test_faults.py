"""Every fault leaves the traces that it left on the real systems, and no request tells of a silent one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from mmdeploy.errors import UnsupportedError, UsageError
from mmdeploy.rehearse.faults import FAULTS, find
from mmdeploy.rehearse.messages import Message
from mmdeploy.rehearse.settings import Timings
from tests.rehearse import footprint
from tests.rehearse.client import Start, chat, image, samples, text, total
from tests.rehearse.test_prices import price, within

CASES = yaml.safe_load((Path(__file__).parent / "faults.yaml").read_text())
ELSEWHERE = {"producer-order", "producer-renamed", "clock-skew"}
"""Faults that a footprint does not show; each has a test of its own here."""

Clean = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def footprints() -> dict[str, dict[str, Any]]:
    return {}


@pytest.fixture
def clean(start: Start, footprints: dict[str, dict[str, Any]]) -> Clean:
    """The footprint of a bundle without a fault, taken once."""

    def of(bundle: str) -> dict[str, Any]:
        if bundle not in footprints:
            footprints[bundle] = footprint.of(start(bundle))
        return footprints[bundle]

    return of


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['fault']}, {case['bundle']}")
def test_a_fault_changes_what_it_should(start: Start, clean: Clean, case: dict[str, Any]) -> None:
    changed = footprint.changed(clean(case["bundle"]), footprint.of(start(case["bundle"], [case["fault"]])))
    assert changed, "a fault that changes nothing cannot be found"
    assert {key: changed.get(key, "unchanged") for key in case["changes"]} == case["changes"]
    told = [key for key in changed if key.endswith((": status", ": answer"))]
    assert bool(told) != case.get("silent", False) or case["fault"] in (
        "other-model",
        "pool-foreign-pods",
        "encode-unlabelled",
    )


def test_every_fault_has_a_case() -> None:
    assert {case["fault"] for case in CASES} | ELSEWHERE == set(FAULTS)


def test_every_fault_says_in_one_sentence_what_was_done() -> None:
    for fault in FAULTS.values():
        assert fault.done.endswith(".")
        assert len(fault.done) < 120


def test_there_are_at_least_thirty() -> None:
    assert len(FAULTS) >= 30


@pytest.mark.parametrize("bundle", ["aggregation", "e-pd", "e-p-d", "sglang"])
def test_a_fault_that_does_not_fit_is_refused(start: Start, bundle: str) -> None:
    refused = set()
    settings = start(bundle).settings
    for name, fault in FAULTS.items():
        fits = all(map(settings.of, fault.roles)) and fault.server in ("", settings.server)
        if not fits:
            with pytest.raises(UnsupportedError) as caught:
                start(bundle, [name])
            assert caught.value.nearest
            refused.add(name)
    assert ("kv-recomputed" in refused) == (bundle != "e-p-d")
    assert ("encode-missing" in refused) == (bundle == "aggregation")
    assert ("encoder-urls" in refused) == (bundle != "sglang")


def test_an_unknown_fault_gets_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        find("producer-local")
    assert caught.value.nearest[0] == "producer-local-only"


def test_two_faults_at_once(start: Start, clean: Clean) -> None:
    both = footprint.of(start("e-pd", ["producer-local-only", "prefix-cache-off"]))
    changed = footprint.changed(clean("e-pd"), both)
    assert changed["encode: hands over"] is None
    assert changed["decode: prefix hits"] is None


def test_a_renamed_producer_prices_unseen_pictures_by_the_defaults(start: Start) -> None:
    """640x360 at 1024 is 225, where the bundle says 1280x720: 900."""
    unseen = {"type": "image_url", "image_url": {"url": "https://example.com/picture.png"}}
    prices = []
    for faults in ([], ["producer-renamed"]):
        deployment = start("aggregation", faults)
        send, page = within(deployment)

        def forgiving(request: dict[str, Any], to: Any = deployment) -> None:
            to.entry(Message("POST", "/v1/chat/completions", {}, json.dumps(request).encode()))

        prices.append(price(forgiving, page, deployment.settings.model, 64, unseen))
    assert prices == [900, 225]


def test_a_producer_out_of_order_counts_cached_prompts_as_load(start: Start) -> None:
    seen: list[list[float]] = []
    for faults in ([], ["producer-order"]):
        deployment = start("aggregation", faults, Timings(first_token=1.0))
        loads: list[float] = []

        def look(seconds: float, to: Any = deployment, into: list[float] = loads) -> None:
            page = str(to.picker_metrics(Message("GET", "/metrics")).content)
            into.append(total(page, "llm_d_epp_inflight_tokens"))

        object.__setattr__(deployment.clock, "sleep", look)
        for _ in range(2):
            chat(deployment.entry, deployment.settings.model, text("x" * 2000), image())
        seen.append(loads)
    # 501 tokens of role and text and 4 of the picture fill 8 blocks of 64, the last one in part.
    assert seen == [[512, 0], [512, 512]]


def test_skewed_clocks_show_in_created_series(start: Start) -> None:
    deployment = start("aggregation", ["clock-skew"])
    created = set()
    for pod in deployment.pods.values():
        page = str(pod.engine(Message("GET", "/metrics")).content)
        created |= {value for name, _, value in samples(page) if name == "vllm:prompt_tokens_created"}
    assert created == {1_000_000.0 - 3600, 1_000_000.0 + 3600}
