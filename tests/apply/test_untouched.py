"""Ctrl-C before anything was changed: said in one line, told to programs, and 130."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import typer

from mmdeploy.cli.performing import Form, Show, beginning

SAID = "interrupted: nothing was changed\n"


def stopped(work: Callable[[], None]) -> int:
    with pytest.raises(typer.Exit) as ended:
        work()
    return int(ended.value.exit_code)


@pytest.mark.parametrize("form", [Form.text, Form.jsonl])
def test_while_the_bundle_is_read(form: Form, capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        with beginning(form):
            raise KeyboardInterrupt

    assert stopped(work) == 130  # 128 + SIGINT
    said = capsys.readouterr()
    assert said.err == SAID
    assert [json.loads(line)["event"] for line in said.out.splitlines()] == ["interrupted"] * (form is Form.jsonl)


@pytest.mark.parametrize("form", list(Form))
def test_while_the_cluster_is_looked_at(form: Form, capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        show = Show(form, verbose=False, name="mm", namespace="serving")
        with show.whole(), show.untouched("mmdeploy apply deploy"):
            raise KeyboardInterrupt

    assert stopped(work) == 130
    said = capsys.readouterr()
    assert said.err == SAID
    if form is Form.text:
        assert said.out == ""
        return
    document = json.loads(said.out)
    (event,) = document["events"] if form is Form.json else [document]
    assert (event["event"], event["done"], event["resume"]) == ("interrupted", [], "mmdeploy apply deploy")
    assert form is Form.jsonl or document["result"] == "interrupted"
