"""Causes fit the deployment and what was seen: none is told that the evidence rules out."""

from __future__ import annotations

from pathlib import Path

import pytest

from mmdeploy.verify.verdicts import Verdict
from tests.verify.simulated import stage


def verdicts(bundle: str, fault: str, place: Path, *claims: str, repeat: int = 1) -> dict[str, Verdict]:
    outcome = stage(bundle, place, [fault]).verify(*claims, repeat=repeat)
    return {item.claim: item for item in outcome.verdicts}


def test_the_picker_names_the_role_that_it_lacks(tmp_path: Path) -> None:
    found = verdicts("e-p-d", "prefill-unready", tmp_path, "roles", "text")
    assert found["text"].causes[0].why.startswith("no prefill pod is ready in the pool")
    assert len(found["text"].causes) == 1  # decode and flow control are ruled out by the picker's own words
    # overlays/main/e-p-d/gpu/vllm/base has 4 prefill and 4 decode pods: the number alone does not tell them apart
    said = "counts 6 endpoints where 10 should be: it lacks the prefill pods, as it says itself"
    assert found["roles"].summary.endswith(said)
    assert found["roles"].causes[0].why == "some pods are not ready"


def test_the_number_tells_the_role_where_only_one_has_so_many(tmp_path: Path) -> None:
    found = verdicts("e-pd", "encode-unready", tmp_path, "roles")["roles"]
    assert found.summary.endswith("it lacks the encode pods, of which there are 2")
    assert found.causes[0].why == "some pods are not ready"


def test_vllm_is_not_told_of_flags_of_sglang(tmp_path: Path) -> None:
    for claim in verdicts("e-pd", "encode-unready", tmp_path, "stages", "spread", "embeddings").values():
        assert "SGLang" not in " ".join(cause.look for cause in claim.causes)


def test_without_prefill_no_cause_is_about_prefill(tmp_path: Path) -> None:
    causes = verdicts("sglang", "encode-unready", tmp_path, "image")["image"].causes
    assert causes
    assert "prefill" not in " ".join(cause.why for cause in causes)


@pytest.mark.parametrize(
    ("fault", "verdict"), [("metrics-401", "not observable"), ("pool-foreign-pods", "contradicted")]
)
def test_entry_is_not_proved_by_half(fault: str, verdict: str, tmp_path: Path) -> None:
    found = verdicts("sglang" if fault == "pool-foreign-pods" else "e-pd", fault, tmp_path, "image", "entry")["entry"]
    assert found.verdict == verdict, found.summary


def test_a_request_of_our_own_that_was_cut_is_no_request_of_others(tmp_path: Path) -> None:
    outcome = stage("aggregation", tmp_path, ["route-cut"]).verify("text", "affinity", "pricing", "entry")
    told = " ".join(line.text for item in outcome.verdicts for line in item.evidence)
    told += " ".join(item.summary + " ".join(item.observable) for item in outcome.verdicts)
    assert "foreign" not in told
    assert "others" not in told
    pricing = next(item for item in outcome.verdicts if item.claim == "pricing")
    assert "requests failed" in pricing.summary


def test_a_budget_that_is_enough_is_that_of_the_whole_run(tmp_path: Path) -> None:
    there = stage("aggregation", tmp_path)
    short = there.verify("text", "image", "affinity", budget=2)
    advice = next(item for item in short.verdicts if item.claim == "affinity").observable
    assert advice == (
        "--budget 5 or more",
    )  # text 1, image 1, affinity 3 (test_rehearsed: "affinity needs 3 requests")
    assert not there.verify("text", "image", "affinity", budget=5).unseen


def test_a_pod_that_does_not_answer_needs_no_other_metrics_address(tmp_path: Path) -> None:
    found = verdicts("e-pd", "encode-missing", tmp_path, "roles", "spread")["spread"]
    assert found.verdict == "not observable"
    assert found.observable == tuple(
        f"{pod} does not answer at all: the claim roles says more of it" for pod in ("encode-0", "encode-1")
    )
