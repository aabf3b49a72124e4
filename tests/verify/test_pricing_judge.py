"""What is said of prices and tokens that were seen: ``cases/pricing.yaml``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from mmdeploy.catalog import Catalog
from mmdeploy.verify.evidence import Evidence, Medium, Observation, Sent
from mmdeploy.verify.facts import Facts
from mmdeploy.verify.judges import pricing
from mmdeploy.verify.targets import Endpoint, Pod, Targets
from mmdeploy.verify.verdicts import NotApplicable

HERE = Path(__file__).parent
CATALOG = Catalog(HERE.parents[1] / "blueprints")
CASES: list[dict[str, Any]] = yaml.safe_load((HERE / "cases" / "pricing.yaml").read_text(encoding="utf-8"))
ALONE = 200
"""usage.prompt_tokens of the text without a picture."""


def size_of(name: str) -> tuple[int, int]:
    width, _, height = name.removesuffix("h").partition("x")
    return int(width), int(height)


def evidence_of(case: dict[str, Any]) -> Evidence:
    pod = Endpoint("decode-0", "http://127.0.0.1:1")
    producer: dict[str, Any] = {"type": "token-producer"}
    if "estimate" in case or "producer" in case:
        producer["parameters"] = case.get("producer") or {"estimate": {"image": case["estimate"]}}
    configured = "parameters" in producer
    targets = Targets(
        model=case["model"],
        topology="aggregation",
        server="vllm",
        release="main",
        entry=Endpoint("entry", "http://127.0.0.1:2"),
        pods=(Pod("decode-0", "decode", pod, pod),),
        pickers=(Endpoint("picker", "http://127.0.0.1:3/metrics"),),
        configuration={"picker": {"plugins": [producer, {"type": "prefix-cache-scorer"}]}} if configured else {},
    )
    evidence = Evidence("test", targets.as_data())
    evidence.requests.append(sent("pricing.text", None, ALONE))
    for name, extra in case["took"].items():
        evidence.requests.append(sent("pricing.count", size_of(name), ALONE + extra))
    for name, form, text, counted in case["saw"]:
        width, height = size_of(name)
        numbers = {"width": width, "height": height, "hidden": name.endswith("h"), "form": form, "text": text}
        evidence.observations.append(Observation("price", "", "", {**numbers, "counted": counted, "block": 64}))
    return evidence


def sent(purpose: str, size: tuple[int, int] | None, tokens: int) -> Sent:
    media = (Medium("image", "red", *size, 1, "0"),) if size else ()
    usage = {"prompt_tokens": tokens}
    return Sent(f"{purpose}/{size}", purpose, "entry", "POST", "/", {}, "", (), media, status=200, usage=usage)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_case(case: dict[str, Any]) -> None:
    evidence = evidence_of(case)
    found = pricing.judge(evidence, Facts.of(CATALOG, evidence))
    if "inapplicable" in case:
        assert isinstance(found, NotApplicable)
        assert case["inapplicable"] in found.reason
        return
    assert not isinstance(found, NotApplicable)
    assert found.verdict == case["verdict"], found.summary
    assert case.get("says", "") in found.summary
    assert case.get("observable", "") in " ".join(found.observable)
    assert bool(found.causes) == (found.verdict == "contradicted")
    if "cause" in case:
        assert found.causes[0].why == case["cause"]
    if "because" in case:
        assert found.causes[0].because == case["because"]


def test_a_run_without_its_requests_says_so() -> None:
    evidence = evidence_of(CASES[0])
    evidence.requests.clear()
    found = pricing.judge(evidence, Facts.of(CATALOG, evidence))
    assert not isinstance(found, NotApplicable)
    assert found.verdict == "not observable"


def test_what_is_not_answered_shows_no_price() -> None:
    evidence = evidence_of(CASES[0])
    evidence.requests = [Sent("pricing.text/0", "pricing.text", "entry", "POST", "/", {}, "", status=503)]
    found = pricing.judge(evidence, Facts.of(CATALOG, evidence))
    assert not isinstance(found, NotApplicable)
    assert found.verdict == "not observable"
    assert "503" in found.summary
