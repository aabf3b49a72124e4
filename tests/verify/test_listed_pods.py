"""A list of pods that is short of one, or has a wrong address: the list is the first thing to look at."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from mmdeploy.verify.run import Outcome
from mmdeploy.verify.targets import Endpoint, Pod, Targets
from mmdeploy.verify.verdicts import Verdict
from tests.verify.simulated import Stage, stage

FORGOTTEN = "the targets file does not list every pod"


def listing(there: Stage, pods: tuple[Pod, ...], **more: object) -> Stage:
    """The same deployment, seen through another list."""
    targets: Targets = dataclasses.replace(there.facts.targets, pods=pods, **more)  # type: ignore[arg-type]
    there.facts = dataclasses.replace(there.facts, targets=targets)
    return there


def claim(outcome: Outcome, name: str) -> Verdict:
    return next(item for item in outcome.verdicts if item.claim == name)


@pytest.mark.parametrize("bundled", [True, False])
def test_a_pod_that_was_forgotten_is_the_first_cause(bundled: bool, tmp_path: Path) -> None:
    there = stage("e-pd", tmp_path)
    pods = tuple(pod for pod in there.facts.targets.pods if pod.name != "encode-1")
    more = {} if bundled else {"configuration": {}}
    outcome = listing(there, pods, **more).verify("roles", "stages", repeat=3)
    for name in ("roles", "stages"):
        found = claim(outcome, name)
        assert found.verdict == "contradicted", found.summary
        assert found.causes[0].why == FORGOTTEN, [cause.why for cause in found.causes]
    assert ("lists 1 of 2 encode pods of the bundle" in claim(outcome, "roles").summary) == bundled


def test_what_was_not_looked_at_is_not_proved(tmp_path: Path) -> None:
    """The picker is not listed either: nothing contradicts the list, and most pods were never asked."""
    there = stage("e-pd", tmp_path)
    kept = ("encode-0", "decode-0", "decode-1")
    pods = tuple(pod for pod in there.facts.targets.pods if pod.name in kept)
    found = claim(listing(there, pods, pickers=()).verify("roles"), "roles")
    assert found.verdict == "not observable"
    # overlays/main/e-pd/gpu/vllm/base has 2 encode and 8 decode pods: 10 less 3
    assert "1 of 2 encode, 2 of 8 decode: each answers" in found.summary
    assert "7 of the bundle's encode/decode pods are not listed" in found.summary
    assert found.observable[-1].startswith("list every pod in ")


def test_a_pod_that_only_the_picker_reaches_has_a_wrong_address(tmp_path: Path) -> None:
    there = stage("e-pd", tmp_path)
    there.wire.handlers = {**there.wire.handlers, 9: there.deployment.at("10.9.9.9", 9)}
    pods = tuple(
        dataclasses.replace(pod, api=Endpoint(pod.name, "http://127.0.0.1:9")) if pod.name == "decode-3" else pod
        for pod in there.facts.targets.pods
    )
    found = claim(listing(there, pods).verify("roles"), "roles")
    assert found.verdict == "contradicted"
    assert "decode-3 does not answer" in found.summary
    assert found.causes[0].why == "the address in the targets file is wrong"
    assert "counts all 10 endpoints, decode-3 among them" in found.causes[0].because


def test_a_list_that_is_whole_is_no_cause(tmp_path: Path) -> None:
    found = claim(stage("sglang", tmp_path, ["pool-foreign-pods"]).verify("roles"), "roles")
    assert FORGOTTEN not in [cause.why for cause in found.causes]
