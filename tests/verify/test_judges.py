"""Judges are functions from evidence to verdict: the evidence of each case is in judges/*.yaml, with the verdict."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from mmdeploy.verify import evidence as evidences
from mmdeploy.verify.facts import Facts
from mmdeploy.verify.judges import CLAIMS
from mmdeploy.verify.verdicts import NotApplicable
from tests.verify.made import Maker, facts
from tests.verify.simulated import CATALOG


def cases() -> Iterator[Any]:
    for file in sorted((Path(__file__).parent / "judges").glob("*.yaml")):
        for case in yaml.safe_load(file.read_text(encoding="utf-8")):
            yield pytest.param(case, id=f"{file.stem}: {case['name']}")


@pytest.mark.parametrize("case", list(cases()))
def test_evidence_leads_to_the_verdict(case: dict[str, Any]) -> None:
    known = facts(case)
    evidence = Maker(case, known).make()
    for claim, wanted in case["verdicts"].items():
        found = CLAIMS[claim].judged(evidence, known)
        if isinstance(found, NotApplicable):
            assert wanted == "does not apply", found.reason
            continue
        told = [found.summary, *(line.text for line in found.evidence), *found.observable]
        assert found.verdict == wanted, told
        for words in case.get("says", {}).get(claim, ()):
            assert any(words in text for text in told), told
        if "cause" in case:
            assert found.causes[0].why.startswith(case["cause"]), [cause.why for cause in found.causes]
        assert bool(found.causes) == (wanted == "contradicted")


@pytest.mark.parametrize("case", list(cases()))
def test_saved_evidence_leads_to_the_same_verdict(case: dict[str, Any]) -> None:
    known = facts(case)
    evidence = Maker(case, known).make()
    again = evidences.load(json.loads(json.dumps(evidence.as_data())), "evidence.json")
    for claim in case["verdicts"]:
        assert CLAIMS[claim].judged(again, Facts.of(CATALOG, again)) == CLAIMS[claim].judged(evidence, known)
