"""Events as lines for people."""

from __future__ import annotations

from typing import Any

import pytest

from mmdeploy.apply import events
from mmdeploy.report.applied import Lines


def lines(*happened: events.Event, **how: Any) -> list[str]:
    shown = Lines(**how)
    return [line for event in happened for line in shown.of(dict(events.as_data(event)))]


def test_the_target_comes_first() -> None:
    said = lines(events.Target("apply", "mm", "production", "https://10.0.0.1", "ns1"))
    assert said == ["apply mm", "  context    production", "  server     https://10.0.0.1", "  namespace  ns1", ""]


def test_a_stage_s_name_stands_on_its_first_line_only() -> None:
    said = lines(
        events.StageStarted("model-servers"),
        events.Applied("model-servers", "ServiceAccount", "mm-sa", "created"),
        events.Applied("model-servers", "Deployment", "mm-decode", "unchanged"),
        events.StageDone("model-servers", 0.2),
    )
    assert said == [
        "model-servers created     ServiceAccount/mm-sa",
        "              unchanged   Deployment/mm-decode",
    ]


def test_checks_that_are_well_are_only_counted() -> None:
    happened = (
        events.Checked("c", "one", "ok"),
        events.Checked("c", "two", "warning", "half full", "buy more"),
        events.StageDone("preflight", 0.5),
    )
    assert lines(*happened) == [
        "preflight     warning     two: half full",
        "                          buy more",
        "              1 ok, 1 warning (0.5 s)",
    ]
    assert "ok          one" in lines(*happened, verbose=True)[0]


def test_an_interrupt_says_what_is_done_and_how_to_go_on() -> None:
    happened = events.Interrupted(
        "wait", ("router",), ("Pod/a: loading", "Pod/b: pulling"), "mmdeploy apply x", "mmdeploy delete x"
    )
    assert lines(happened) == [
        "",
        "interrupted in stage wait",
        "  done:          router",
        "  still starts:  Pod/a: loading",
        "                 Pod/b: pulling",
        "  to go on:      mmdeploy apply x",
        "  to take away:  mmdeploy delete x",
    ]


def test_a_failure_while_waiting_shows_the_end_of_its_log() -> None:
    said = lines(events.Failed("wait", "decode", "exits with 1", ("one", "two"), "look at the flags"))
    assert said == [
        "wait          failed      decode: exits with 1",
        "                | one",
        "                | two",
        "                          look at the flags",
    ]
    assert lines(events.Failed("router", "", "helm says no")) == [], "the error itself says it"


def test_what_a_cluster_says_does_not_write_on_the_terminal() -> None:
    (said,) = lines(events.Warned("a\x1b[2Jb"))
    assert "\x1b" not in said


def test_a_dry_run_says_what_would_be_done() -> None:
    said = lines(
        events.Applied("secret", "Secret", "token", "would-be-created"),
        events.Applied("model-servers", "Deployment", "mm-decode", "unchanged"),
        events.Finished(1, 1, 0.5),
    )
    assert said == [
        "secret        to create   Secret/token",
        "model-servers unchanged   Deployment/mm-decode",
        "",
        "done  1 would change, 1 unchanged (0.5 s)",
    ]


def test_long_lines_are_folded_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mmdeploy.report.differences.width", lambda: 80)
    said = lines(events.Warned(" ".join(["word"] * 40)))
    assert max(len(line) for each in said for line in each.splitlines()) <= 80
    assert sum(each.count("word") for each in said) == 40
