"""``--wait``: attempts share what ``--budget`` allows, and what they spent is told as one sum."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from mmdeploy.cli.verify_attempts import Attempts, Budget
from mmdeploy.cli.verifying import Subject
from mmdeploy.verify import run
from mmdeploy.verify.run import Settings
from mmdeploy.verify.session import Clock
from tests.verify.simulated import stage


def test_attempts_stop_when_the_budget_is_too_small_for_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = stage("aggregation", tmp_path, ["empty-answers"])
    settings = Settings(60.0, Clock(there.clock.now, there.clock.sleep), Random(0))
    outcome, late = Attempts(
        lambda tell: Subject(there.facts, there.wire), ("text", "image"), 1, Budget(5, whole=True), settings, 3600.0
    ).run()
    assert late
    assert outcome.contradicted == ["text", "image"]
    document = run.document(outcome, False)
    assert document["spent"]["requests"] == 4  # two attempts of two requests; a third would make six
    said = capsys.readouterr().err
    assert "up to 2 small requests (--budget 5)" in said
    assert "up to 2 small requests (--budget 3)" in said
    assert "1 of --budget 5 are left: too few" in said


def test_without_a_budget_of_ones_own_each_attempt_has_the_usual_one(tmp_path: Path) -> None:
    there = stage("aggregation", tmp_path, ["empty-answers"])
    settings = Settings(60.0, Clock(there.clock.now, there.clock.sleep), Random(0))
    begun = there.clock.now()
    outcome, late = Attempts(
        lambda tell: Subject(there.facts, there.wire), ("text",), 1, Budget(1, whole=False), settings, 60.0
    ).run()
    assert late
    assert there.clock.now() - begun > 50  # until time runs out
    assert run.document(outcome, False)["spent"]["requests"] > 5


def test_no_more_is_announced_than_may_be_sent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = stage("aggregation", tmp_path)
    settings = Settings(60.0, Clock(there.clock.now, there.clock.sleep), Random(0))
    Attempts(lambda tell: Subject(there.facts, there.wire), ("text", "image"), 1, Budget(1, True), settings, None).run()
    assert "verify sends up to 1 small request (--budget 1)" in capsys.readouterr().err
