"""The benchmark harness, on commands that stand in for the real ones."""

from __future__ import annotations

import sys

import pytest

from benchmarks.run import Command, Row, main

NOTHING: Command = (sys.executable, "-c", "pass")
WRITE_BUNDLE: Command = (sys.executable, "-c", "import pathlib, sys; pathlib.Path(sys.argv[1]).mkdir()")
QUICK = ["--rounds", "1"]


def test_a_ratio_within_its_target_is_ok(capsys: pytest.CaptureFixture[str]) -> None:
    row = Row("same / same", NOTHING, NOTHING, target=1.0)
    assert main([*QUICK, "--strict"], rows=[row]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["same", "/", "same", "1.00", "1.00", "ok"]


@pytest.mark.parametrize(("options", "status"), [([], 0), (["--strict"], 1)])
def test_a_ratio_over_its_target_fails_only_when_strict(
    options: list[str], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    row = Row("too slow", (sys.executable, "-c", "import time; time.sleep(0.1)"), NOTHING, target=0.01)
    assert main(QUICK + options, rows=[row]) == status
    assert capsys.readouterr().out.rstrip().endswith("over")


def test_rows_whose_program_is_absent_are_named_and_skipped(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        Row("has it", NOTHING, NOTHING, target=1.0),
        Row("lacks it", NOTHING, ("no-such-program", "kustomize", "{bundle}"), target=1.0),
    ]
    assert main([*QUICK, "--strict"], rows=rows) == 0
    assert capsys.readouterr().out.rstrip().endswith("skipped: no-such-program not found")


def test_commands_find_the_rendered_bundle_and_a_new_path_each_time() -> None:
    read_bundle = (sys.executable, "-c", "import os, sys; os.listdir(sys.argv[1])", "{bundle}")
    row = Row("new / bundle", (*WRITE_BUNDLE, "{new}"), read_bundle, target=1000.0)
    assert main(["--rounds", "2"], rows=[row], example=WRITE_BUNDLE) == 0


def test_a_command_that_fails_stops_the_benchmark_with_its_words(capsys: pytest.CaptureFixture[str]) -> None:
    row = Row("fails", (sys.executable, "-c", "raise SystemExit('no such option')"), NOTHING, target=1.0)
    assert main(QUICK, rows=[row]) == 1
    assert "no such option" in capsys.readouterr().err
