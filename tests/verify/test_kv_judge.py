"""What is said of KV transfers that were counted: ``cases/kv.yaml``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from mmdeploy.catalog import Catalog
from mmdeploy.verify.facts import Facts
from mmdeploy.verify.judges import kv
from mmdeploy.verify.verdicts import NotApplicable
from tests.verify.staged import Story

HERE = Path(__file__).parent
CATALOG = Catalog(HERE.parents[1] / "blueprints")
CASES: list[dict[str, Any]] = yaml.safe_load((HERE / "cases" / "kv.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_case(case: dict[str, Any]) -> None:
    evidence = Story({"topology": "e-p-d", **case}).told()
    found = kv.judge(evidence, Facts.of(CATALOG, evidence))
    assert not isinstance(found, NotApplicable)
    assert found.verdict == case["verdict"], found.summary
    assert case.get("says", "") in found.summary
    assert case.get("observable", "") in " ".join(found.observable)
    assert bool(found.causes) == (found.verdict == "contradicted")
    if "cause" in case:
        assert found.causes[0].why == case["cause"]
    if "because" in case:
        assert found.causes[0].because == case["because"]


def test_a_topology_without_prefill_makes_no_such_claim() -> None:
    evidence = Story({"topology": "e-pd", "steps": [{"name": "text"}]}).told()
    assert isinstance(kv.judge(evidence, Facts.of(CATALOG, evidence)), NotApplicable)


def test_a_run_without_its_requests_says_so() -> None:
    evidence = Story({"topology": "e-p-d", "steps": []}).told()
    found = kv.judge(evidence, Facts.of(CATALOG, evidence))
    assert not isinstance(found, NotApplicable)
    assert found.verdict == "not observable"
