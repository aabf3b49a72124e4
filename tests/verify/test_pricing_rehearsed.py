"""The live proof of the estimator, end to end against simulated deployments.

Prices are those of router-observed.md and router.md §3.3, true counts those of visual-token-truth.csv and
model-servers.md §5; what a fault does is told in its own description.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from mmdeploy.rehearse.settings import Timings, Traffic
from mmdeploy.verify.run import Outcome
from mmdeploy.verify.verdicts import CONTRADICTED, PROVED, NotApplicable, Verdict
from tests.verify.simulated import HeldClock, Stage, stage

FIRST_TOKEN = 0.25


def verdict(outcome: Outcome) -> Verdict:
    (found,) = outcome.verdicts
    assert found.claim == "pricing"
    return found


def numbers(found: Verdict, size: str) -> Any:
    return next(line.numbers for line in found.evidence if line.numbers.get("size") == size)


@pytest.mark.parametrize("topology", ["aggregation", "e-pd", "e-p-d"])
def test_a_clean_deployment_is_proved_to_the_token(topology: str, tmp_path: Path) -> None:
    outcome = stage(topology, tmp_path).verify("pricing")
    found = verdict(outcome)
    assert found.verdict == PROVED, found.summary
    for size, price, taken in (("640x480", 300, 300), ("1280x720", 900, 880)):
        said = numbers(found, size)
        assert said["lowestPrice"] <= price <= said["highestPrice"] < price + 64
        assert said["taken"] == taken
    assert numbers(found, "64x64")["taken"] == 64
    assert numbers(found, "1920x1080")["taken"] == 2040


def test_where_repeats_find_their_pod_ten_requests_or_so_do(tmp_path: Path) -> None:
    """One text, four pictures, two steps for each of two prices, and two for the hidden one."""
    outcome = stage("aggregation", tmp_path).verify("pricing")
    found = verdict(outcome)
    assert numbers(found, "1280x720")["lowestPrice"] == numbers(found, "1280x720")["highestPrice"] == 900
    assert len(list(outcome.evidence.of("pricing.text", "pricing.count", "pricing.step"))) <= 11


@pytest.mark.parametrize("topology", ["aggregation", "e-pd", "e-p-d"])
@pytest.mark.parametrize(
    ("fault", "because"),
    [
        ("estimator-other-model", "these are the prices of the estimate for Gemma 4"),
        ("processor-limits", "a 1920x1080 picture takes 252 tokens, Qwen3-VL takes 2040"),
        ("producer-renamed", "every price is that of the router's built-in defaults"),
        ("wrong-weights", "these are the counts of Qwen2-VL or Qwen2.5-VL"),
    ],
)
def test_a_fault_is_told_with_its_own_cause(topology: str, fault: str, because: str, tmp_path: Path) -> None:
    found = verdict(stage(topology, tmp_path, [fault]).verify("pricing"))
    assert found.verdict == CONTRADICTED, found.summary
    assert found.causes[0].because == because


def test_the_wrong_estimator_is_told_with_both_numbers(tmp_path: Path) -> None:
    """Gemma's static 280 where Qwen3-VL takes 880 tokens: -68 %."""
    found = verdict(stage("aggregation", tmp_path, ["estimator-other-model"]).verify("pricing"))
    assert "the bundle configures 900" in found.summary
    assert "takes 880 (-68 %)" in found.summary


def test_the_renamed_producer_shows_only_in_pictures_that_the_router_does_not_read(tmp_path: Path) -> None:
    """Its built-in factor is 1024 too; only defaultResolution differs: 640x360 is 225, the bundle's 1280x720 is 900."""
    found = verdict(stage("aggregation", tmp_path, ["producer-renamed"]).verify("pricing"))
    assert numbers(found, "1280x720")["lowestPrice"] == 900
    hidden = found.evidence[-1].numbers
    assert hidden["lowestPrice"] <= 225 <= hidden["highestPrice"]
    assert hidden["configuredPrice"] == 900


def test_a_model_with_a_fixed_budget(tmp_path: Path) -> None:
    """Gemma 4: static 280 charged, 266 taken at 16:9 (model-servers.md §5)."""
    found = verdict(stage("main/aggregation/tpu/v7/vllm-gemma-4-31b-it/gke", tmp_path).verify("pricing"))
    assert found.verdict == PROVED
    assert numbers(found, "1280x720")["lowestPrice"] == 280
    assert numbers(found, "1280x720")["taken"] == 266


def test_a_router_that_weighs_no_tokens_makes_no_such_claim(tmp_path: Path) -> None:
    outcome = stage("sglang", tmp_path).verify("pricing")
    assert outcome.inapplicable == (NotApplicable("pricing", "no plugin of this picker's configuration weighs tokens"),)
    assert not list(outcome.evidence.of("pricing.text"))


def test_without_the_pickers_metrics_the_models_own_tokens_are_still_seen(tmp_path: Path) -> None:
    found = verdict(stage("aggregation", tmp_path, ["metrics-401"]).verify("pricing"))
    assert found.verdict == "not observable"
    assert numbers(found, "1280x720")["taken"] == 880
    assert "token" in found.observable[0]


def test_never_more_requests_than_the_plan_says(tmp_path: Path) -> None:
    for seed in range(5):
        outcome = stage("e-p-d", tmp_path, ["estimator-other-model"], seed=seed).verify("pricing", seed=seed)
        assert len(list(outcome.evidence.of("pricing.text", "pricing.count", "pricing.step"))) <= 20


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("topology", ["aggregation", "e-p-d"])
def test_requests_of_others_do_not_make_a_clean_deployment_contradicted(
    topology: str, seed: int, tmp_path: Path
) -> None:
    there = stage(topology, tmp_path, traffic=Traffic(rate=20), seed=seed)
    assert verdict(there.verify("pricing", seed=seed)).verdict != CONTRADICTED


class Patient(HeldClock):
    """A first token takes until somebody has read the picker's page twice meanwhile, as in real time it would."""

    def __init__(self) -> None:
        super().__init__()
        self.read = threading.Semaphore(0)

    def sleep(self, seconds: float) -> None:
        if seconds == FIRST_TOKEN and any(thread.name == "in flight" for thread in threading.enumerate()):
            while self.read.acquire(blocking=False):
                pass
            for _ in range(2):
                self.read.acquire(timeout=5)
        super().sleep(seconds)


def watched(there: Stage) -> None:
    """Every reading of a picker's page lets a first token come nearer."""
    page = there.deployment.scrape_picker
    clock = there.clock
    assert isinstance(clock, Patient)

    def read(message: Any) -> Any:
        reply = page(message)
        clock.read.release()
        return reply

    port = next(port for port, handler in there.wire.handlers.items() if handler == page)
    there.wire.handlers = {**there.wire.handlers, port: read}


def test_tokens_under_way_show_the_price_whatever_pod_takes_the_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second way of router-observed.md, in E/P/D, where each repeat may go to another decode pod."""
    monkeypatch.setattr("tests.verify.simulated.HeldClock", Patient)
    there = stage("e-p-d", tmp_path, timings=Timings(first_token=FIRST_TOKEN))
    watched(there)
    outcome = there.verify("pricing")
    found = verdict(outcome)
    assert found.verdict == PROVED
    assert {item.numbers["form"] for item in outcome.evidence.observed("price")} == {"sent"}
    assert numbers(found, "640x480")["lowestPrice"] == numbers(found, "640x480")["highestPrice"] == 300
    assert len(list(outcome.evidence.of("pricing.text", "pricing.count", "pricing.step"))) <= 11
