"""The ladder of the embeddings claim, and the KV claim, end to end against simulated deployments.

What each fault does to an engine is model-servers.md §3 ("Failure semantics"), as the simulation has it.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from mmdeploy.rehearse.settings import Traffic
from mmdeploy.verify import run
from mmdeploy.verify.run import Outcome, Settings
from mmdeploy.verify.session import Clock
from mmdeploy.verify.verdicts import Verdict
from tests.verify.simulated import Stage, stage


def verified(there: Stage, *claims: str, logs: bool = False, debug: bool = False) -> Outcome:
    pods = there.deployment.pods
    for pod in pods.values():
        pod.engine.settings.debug = debug
    plan = run.plan(there.facts, claims, 1)
    settings = Settings(
        60.0,
        Clock(there.clock.now, there.clock.sleep),
        Random(0),
        (lambda pod: list(pods[pod].engine.logs)) if logs else None,
    )
    evidence = run.collect(there.facts, plan, there.wire, 99, settings, lambda line: None)
    return run.judge(there.facts, evidence, plan.claims)


def claim(outcome: Outcome, name: str) -> Verdict:
    return next(item for item in outcome.verdicts if item.claim == name)


@pytest.mark.parametrize("topology", ["e-pd", "e-p-d"])
def test_at_debug_a_clean_deployment_is_proved_by_its_logs(topology: str, tmp_path: Path) -> None:
    found = claim(verified(stage(topology, tmp_path), "embeddings", logs=True, debug=True), "embeddings")
    assert (found.verdict, (found.rung or "")[:1]) == ("proved", "d"), found.summary
    said = " ".join(line.text for line in found.evidence)
    assert "serving NIXL READ" in said
    assert "starting NIXL xfer" in said


@pytest.mark.parametrize("topology", ["e-pd", "e-p-d"])
def test_without_logs_it_says_what_would_show_it(topology: str, tmp_path: Path) -> None:
    found = claim(verified(stage(topology, tmp_path), "embeddings"), "embeddings")
    assert (found.verdict, (found.rung or "")[:1]) == ("not observable", "c"), found.summary
    assert any("--debug-logs" in text for text in found.observable)


def test_the_logs_of_a_busy_deployment_still_tell_of_our_picture(tmp_path: Path) -> None:
    there = stage("e-pd", tmp_path, traffic=Traffic(rate=20))
    found = claim(verified(there, "embeddings", logs=True, debug=True), "embeddings")
    assert found.verdict == "proved", found.summary


def test_sglang_is_proved_by_its_counters(tmp_path: Path) -> None:
    found = claim(verified(stage("sglang", tmp_path), "embeddings"), "embeddings")
    assert (found.verdict, (found.rung or "")[:1]) == ("proved", "e"), found.summary


@pytest.mark.parametrize("topology", ["e-pd", "e-p-d"])
@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("encoder-silent", "the producer keeps its embeddings to itself, because ec_enable_nixl is off"),
        ("producer-local-only", "the producer keeps its embeddings to itself, because ec_enable_nixl is off"),
        ("side-channel-host", "VLLM_EC_SIDE_CHANNEL_HOST is not set on the encode pods, so they advertise localhost"),
        ("sidecar-without-ec", "the sidecar runs without --ec-connector, and drops what the picker decided"),
        ("other-release", "a rollout has not ended, or the roles were given different images"),
        ("encode-decider-missing", "requests pass the encode stage by"),
    ],
)
def test_a_fault_shows_without_any_logs(topology: str, fault: str, cause: str, tmp_path: Path) -> None:
    found = claim(verified(stage(topology, tmp_path, [fault]), "embeddings"), "embeddings")
    assert found.verdict == "contradicted", found.summary
    assert found.causes[0].why == cause


@pytest.mark.parametrize("topology", ["e-pd", "e-p-d"])
@pytest.mark.parametrize("debug", [True, False])
def test_a_consumer_that_encodes_anew_shows_in_its_log_at_any_level(topology: str, debug: bool, tmp_path: Path) -> None:
    there = stage(topology, tmp_path, ["consumer-reencodes"])
    found = claim(verified(there, "embeddings", logs=True, debug=debug), "embeddings")
    assert found.verdict == "contradicted", found.summary
    assert found.causes[0].why == "the consumer has no EC connector, so it encodes the picture itself"


def test_a_consumer_that_encodes_anew_does_not_show_without_logs(tmp_path: Path) -> None:
    """As no counter of vLLM tells, nothing may be proved."""
    found = claim(verified(stage("e-pd", tmp_path, ["consumer-reencodes"]), "embeddings"), "embeddings")
    assert found.verdict == "not observable", found.summary


def test_kv_of_a_clean_deployment_is_proved(tmp_path: Path) -> None:
    found = claim(verified(stage("e-p-d", tmp_path), "kv"), "kv")
    assert found.verdict == "proved", found.summary


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("kv-recomputed", "computed them again"),
        ("kv-side-channel-host", "that failed"),
    ],
)
def test_kv_that_does_not_move_is_contradicted(fault: str, says: str, tmp_path: Path) -> None:
    found = claim(verified(stage("e-p-d", tmp_path, [fault]), "kv"), "kv")
    assert found.verdict == "contradicted", found.summary
    assert says in found.summary


def test_kv_whose_requests_fail_is_not_observable_and_the_advice_is_about_their_answers(tmp_path: Path) -> None:
    found = claim(verified(stage("e-p-d", tmp_path, ["prefill-unready"]), "kv"), "kv")
    assert found.verdict == "not observable", found.summary
    assert "429" in found.summary
    assert found.observable == ("requests that succeed: the claims text, image, entry and roles say why these fail",)
