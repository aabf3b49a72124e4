"""How verdicts are put: one of a thing is no plural, and what to look at follows its cause in every form."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mmdeploy.report import verdicts
from mmdeploy.verify import run
from mmdeploy.verify.verdicts import amount
from tests.verify.simulated import stage


@pytest.mark.parametrize(
    ("count", "noun", "said"),
    [(1, "request", "1 request"), (0, "request", "0 requests"), (2, "request of text", "2 requests of text")],
)
def test_an_amount(count: int, noun: str, said: str) -> None:
    assert amount(count, noun) == said


def test_one_request_is_no_plural_anywhere(tmp_path: Path) -> None:
    outcome = stage("e-pd", tmp_path, ["sidecar-without-ec"]).verify("text", "stages")
    document = run.document(outcome, False)
    told = verdicts.table(document, evidence=True)
    assert not re.findall(r"(?<!of )\b1 (?:requests|times|pictures|transfers)\b", told)
    assert "1 request of text" in told


def test_junit_names_what_to_look_at(tmp_path: Path) -> None:
    outcome = stage("e-pd", tmp_path, ["sidecar-without-ec"]).verify("stages")
    suites = verdicts.suites(run.document(outcome, False))
    assert "; look: args of the sidecar" in suites
    assert "look at" not in suites


def test_the_next_rung_is_named_with_what_it_needs(tmp_path: Path) -> None:
    """The ladder of guides/verifying.md: vLLM's next rung above c is d, SGLang counts transfers instead."""
    found = stage("e-pd", tmp_path).verify("embeddings").verdicts[0]
    assert "seen up to rung c" in found.summary
    assert "the next rung (d) needs DEBUG lines" in found.summary
    advice = found.observable[-1]
    for words in ("VLLM_LOGGING_LEVEL=DEBUG", "log: FILE or address", "mmdeploy rehearse --debug-logs"):
        assert words in advice
