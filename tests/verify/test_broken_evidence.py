"""Evidence files that somebody, or something, has broken: exit 2 with what is wrong, and never a traceback."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mmdeploy.rehearse.rehearsal import Rehearsal
from tests.cli.program import run
from tests.verify.simulated import CATALOG, bundle
from tests.verify.test_command import written


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one short run leaves."""
    place = tmp_path_factory.mktemp("evidence")
    with Rehearsal(bundle("e-pd"), CATALOG) as running:
        run("verify", "--targets", written(place, running), "--only", "roles,text", "--save", place / "e.json")
    found: dict[str, Any] = json.loads((place / "e.json").read_text(encoding="utf-8"))
    return found


def put(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        place: Any = data
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

    return change


def take(*path: Any) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        place: Any = data
        for key in path[:-1]:
            place = place[key]
        del place[path[-1]]

    return change


BROKEN = {
    "no plan": (take("plan"), "lacks plan"),
    "an empty plan": (put("plan", value=[]), "plan is empty"),
    "a plan without claims": (take("plan", 0, "claims"), "plan[0].claims"),
    "a plan of text": (put("plan", value=["roles"]), "plan"),
    "a status of text": (put("requests", 0, "status", value="200"), "status must be a whole number"),
    "seconds that are none": (put("requests", 0, "seconds", value=True), "seconds must be a number"),
    "usage that is a list": (put("requests", 0, "usage", value=[]), "usage must be a mapping"),
    "tokens past all counting": (put("requests", 0, "usage", value={"prompt_tokens": float("inf")}), "number"),
    "a sample that is no number": (put("scrapes", 0, "samples", 0, 2, value="4"), "value must be a number"),
    "a sample of NaN": (put("scrapes", 0, "samples", 0, 2, value=float("nan")), "number"),
    "labels that are no text": (put("scrapes", 0, "samples", 0, 1, value={"a": 1}), "must be text"),
    "samples that are no triples": (put("scrapes", 0, "samples", value=[["a"]]), "no triples"),
    "requests that are a mapping": (put("requests", value={}), "requests must be a list"),
    "an unknown key": (put("requests", 0, "colour", value="red"), "unknown key"),
    "no targets": (put("targets", value={}), "lacks model"),
    "pods of text": (put("targets", "pods", value=["a"]), "must be a mapping"),
    "no pods": (put("targets", "pods", value=[]), "lists nothing"),
    "another topology": (put("targets", "topology", value="pd"), "topology 'pd'"),
    "another server": (put("targets", "server", value="triton"), "server 'triton'"),
    "another role": (put("targets", "pods", 0, "role", value="prefill"), "role 'prefill'"),
    "a step of absent requests": (put("steps", -1, "requests", value=["gone"]), "'gone' that is not there"),
    "a configuration of other kinds": (put("targets", "configuration", value={"replicas": 3}), "no evidence that"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_does_not_fit_is_told(case: str, whole: dict[str, Any], tmp_path: Path) -> None:
    change, said = BROKEN[case]
    data = copy.deepcopy(whole)
    change(data)
    file = tmp_path / "e.json"
    file.write_text(json.dumps(data), encoding="utf-8")
    done = run("verify", "--evidence", file)
    assert (done.status, done.stdout) == (2, ""), done.stdout
    assert said in " ".join(done.stderr.split())


def test_a_request_that_is_there_twice(whole: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "e.json"
    file.write_text(json.dumps({**whole, "requests": [*whole["requests"], whole["requests"][0]]}), encoding="utf-8")
    done = run("verify", "--evidence", file)
    assert (done.status, done.stdout) == (2, "")
    assert "two requests are called" in done.stderr


@pytest.mark.parametrize("levels", [300, 100_000])
def test_levels_without_end(levels: int, whole: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "e.json"
    deep = "[" * levels + "]" * levels
    text = json.dumps({**whole, "observations": [{"kind": "a", "about": "b", "detail": "c", "numbers": {"x": "HERE"}}]})
    file.write_text(text.replace('"HERE"', deep), encoding="utf-8")
    done = run("verify", "--evidence", file)
    assert (done.status, done.stdout) == (2, "")


def test_a_claim_whose_requests_were_not_sent_is_not_observable(whole: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "e.json"
    file.write_text(json.dumps(whole), encoding="utf-8")
    done = run("verify", "--evidence", file, "--only", "stages,kv", "--strict", "-o", "json")
    document = json.loads(done.stdout)
    assert done.status == 6
    assert [(item["claim"], item["verdict"], item["summary"]) for item in document["verdicts"]] == [
        ("stages", "not observable", "its requests are not in the evidence")
    ]
    assert [item["claim"] for item in document["notApplicable"]] == ["kv"]  # e-pd has no prefill pods


def test_nothing_judged_is_said_and_fails_a_strict_run(whole: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "e.json"
    file.write_text(json.dumps(whole), encoding="utf-8")
    plain = run("verify", "--evidence", file, "--only", "kv")
    assert plain.status == 0
    assert "nothing was judged" in plain.stderr
    assert run("verify", "--evidence", file, "--only", "kv", "--strict").status == 6
    assert run("verify", "--evidence", file, "--skip", "roles,text").status == 2
