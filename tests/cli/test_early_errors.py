"""A parser behind ``apply`` and ``delete`` gets a document, or a last event, also where nothing had begun yet."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.program import run

WAYS = {
    "no bundle": (["apply", "{place}/none", "-y"], 2, "no such file"),
    "no bundle to delete": (["delete", "{place}/none", "-y"], 2, "no such file"),
    "no cluster": (["apply", "{place}/bundle", "-y", "--kubeconfig", "/absent"], 5, "no kubeconfig"),
    "nowhere to delete from": (["delete", "--name", "x", "-n", "y", "-y", "--kubeconfig", "/absent"], 5, "no kube"),
}  # fmt: skip


@pytest.mark.parametrize("form", ["json", "jsonl"])
@pytest.mark.parametrize("way", WAYS)
def test_the_end_is_told(way: str, form: str, tmp_path: Path) -> None:
    assert run("render", "-q", "-t", "aggregation", "-d", tmp_path / "bundle").status == 0
    words, status, said = WAYS[way]
    done = run(*(word.format(place=tmp_path) for word in words), "-o", form)
    assert done.status == status
    document = json.loads(done.stdout)  # one document, and of lines there is one
    assert document["schemaVersion"] == 1
    event = document if form == "jsonl" else document["events"][-1]
    assert (event["event"], document.get("result", "failed")) == ("failed", "failed")
    assert said in event["reason"]
    assert said in done.stderr
