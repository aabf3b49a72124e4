"""What is said of embeddings, and the rung that was reached: ``cases/embeddings.yaml``."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from mmdeploy.catalog import Catalog
from mmdeploy.verify.facts import Facts
from mmdeploy.verify.judges import embeddings
from mmdeploy.verify.verdicts import NotApplicable
from tests.verify.staged import Story

HERE = Path(__file__).parent
CATALOG = Catalog(HERE.parents[1] / "blueprints")
CASES: list[dict[str, Any]] = yaml.safe_load((HERE / "cases" / "embeddings.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_case(case: dict[str, Any]) -> None:
    evidence = Story(copy.deepcopy(case)).told()
    found = embeddings.judge(evidence, Facts.of(CATALOG, evidence))
    assert not isinstance(found, NotApplicable)
    assert found.verdict == case["verdict"], found.summary
    assert case.get("says", "") in found.summary
    assert case.get("observable", "") in " ".join(found.observable)
    assert bool(found.causes) == (found.verdict == "contradicted")
    if "rung" in case:
        assert found.rung is not None
        assert found.rung.partition(":")[0] == case["rung"]
    if "cause" in case:
        assert found.causes[0].why == case["cause"]


def test_both_times_to_the_first_token_are_told() -> None:
    evidence = Story(copy.deepcopy(CASES[0])).told()
    found = embeddings.judge(evidence, Facts.of(CATALOG, evidence))
    assert not isinstance(found, NotApplicable)
    told = [line for line in found.evidence if "control" in line.numbers]
    assert [line.numbers for line in told] == [{"routed": 0.21, "control": 0.34}]


def test_aggregation_makes_no_such_claim(tmp_path: Path) -> None:
    from tests.verify.simulated import stage

    outcome = stage("aggregation", tmp_path).verify("embeddings")
    assert [item.claim for item in outcome.inapplicable] == ["embeddings"]
    assert not list(outcome.evidence.of("embeddings", "embeddings.direct", "embeddings.control"))
