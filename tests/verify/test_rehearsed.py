"""Whole runs against simulated deployments: clean ones prove every claim, each fault has its verdicts, and the traffic
of others never makes a sound deployment look broken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from mmdeploy.rehearse.faults import FAULTS
from mmdeploy.rehearse.settings import Timings, Traffic
from mmdeploy.verify import evidence as evidences
from mmdeploy.verify import run
from mmdeploy.verify.facts import Facts
from mmdeploy.verify.run import Outcome
from mmdeploy.verify.verdicts import PROVED
from tests.verify.simulated import CATALOG, stage

CASES = yaml.safe_load((Path(__file__).parent / "rehearsed.yaml").read_text(encoding="utf-8"))
CLAIMS = ("roles", "text", "image", "affinity", "stages", "spread", "entry")
SIGNS = {"contradicted": "!", "not observable": "?"}
TRAFFIC = {name for name in FAULTS if name.startswith("traffic-")}
REPETITIONS = 100
"""Of runs under load, each with its own lot, every claim judged."""


def told(outcome: Outcome) -> list[str]:
    return [item.claim + SIGNS[item.verdict] for item in outcome.verdicts if item.verdict != PROVED]


@pytest.mark.parametrize("case", CASES, ids=[f"{case['bundle']} {case['fault']}" for case in CASES])
def test_each_fault_has_its_verdicts(case: dict[str, Any], tmp_path: Path) -> None:
    faults = [] if case["fault"] == "none" else [case["fault"]]
    outcome = stage(case["bundle"], tmp_path, faults).verify(*CLAIMS)
    assert told(outcome) == case.get("says", "").split(), [item.summary for item in outcome.verdicts]
    wrong = [item for item in outcome.verdicts if item.causes]
    if "cause" in case:
        assert wrong[0].causes[0].why.startswith(case["cause"]), [cause.why for cause in wrong[0].causes]
    assert len(outcome.evidence.requests) < 60


def test_every_fault_has_a_case() -> None:
    assert set(FAULTS) - TRAFFIC == {case["fault"] for case in CASES} - {"none"}


@pytest.mark.parametrize("seed", range(REPETITIONS))
def test_traffic_of_others_contradicts_nothing(seed: int, tmp_path: Path) -> None:
    bundle = ("aggregation", "e-pd", "e-p-d", "sglang")[seed % 4]
    rate = (2.0, 20.0, 5.0)[seed // 4 % 3]
    timings = Timings(lag=(0.0, 0.3)[seed // 3 % 2])
    built = stage(bundle, tmp_path, timings=timings, traffic=Traffic(rate=rate), seed=seed)
    outcome = built.verify(*run.CLAIMS, seed=seed, repeat=1 + seed % 2)
    assert not outcome.contradicted, [item.summary for item in outcome.verdicts]


def test_a_quiet_moment_is_found_with_more_rounds(tmp_path: Path) -> None:
    outcome = stage("e-pd", tmp_path, traffic=Traffic(rate=5), seed=3).verify("affinity", "stages", repeat=8)
    assert told(outcome) == []


def test_saved_evidence_is_judged_the_same(tmp_path: Path) -> None:
    outcome = stage("e-pd", tmp_path, ["sidecar-without-ec"]).verify(*CLAIMS)
    saved = json.loads(json.dumps(outcome.evidence.as_data()))
    again = evidences.load(saved, "evidence.json")
    assert run.judge(Facts.of(CATALOG, again), again, CLAIMS).verdicts == outcome.verdicts


def test_a_budget_that_is_too_small_leaves_claims_unseen_and_says_so(tmp_path: Path) -> None:
    outcome = stage("aggregation", tmp_path).verify(*CLAIMS, budget=2)
    assert told(outcome) == ["affinity?"]
    unseen = next(item for item in outcome.verdicts if item.claim == "affinity")
    assert "affinity needs 3 requests, 0 are left" in unseen.summary
    assert sum(sent.method == "POST" for sent in outcome.evidence.requests) == 2
