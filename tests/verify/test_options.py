"""Options of ``mmdeploy verify`` that are refused, or print instead of verifying; none of these sends anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.program import run
from tests.verify.simulated import ROOT

BUNDLE = ROOT / "overlays/main/e-pd/gpu/vllm/gke"


def targets(place: Path, **pod: str) -> Path:
    file = place / "targets.yaml"
    content: dict[str, Any] = {
        "schemaVersion": 1, "kind": "Targets", "model": "m", "topology": "aggregation", "server": "vllm",
        "release": "main", "entry": {"url": "http://127.0.0.1:9"},
        "roles": {"decode": [{"name": "decode-0", "url": "http://127.0.0.1:9", **pod}]},
    }  # fmt: skip
    file.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("pod", "said"),
    [
        ({"log": "decode-0.log"}, "decode-0.log is no file"),
        ({"token": "env:NO_SUCH_VARIABLE"}, "the variable NO_SUCH_VARIABLE is not set"),
        ({"token": "file:none"}, "none is no file"),
    ],
)
def test_what_is_named_and_not_there_is_told_with_its_place_first(
    pod: dict[str, str], said: str, tmp_path: Path
) -> None:  # fmt: skip
    file = targets(tmp_path, **pod)
    line = file.read_text(encoding="utf-8").splitlines().index(f"    {next(iter(pod))}: {next(iter(pod.values()))}") + 1
    done = run("verify", "--targets", file)
    assert done.status == 2  # not 5: nothing listens at port 9, and nobody asked
    told = " ".join(done.stderr.split()).replace("- ", "-")
    assert said in told
    assert f"targets.yaml:{line}:" in told


def test_printed_commands_need_no_token(tmp_path: Path) -> None:
    done = run("verify", "--targets", targets(tmp_path, token="env:NO_SUCH_VARIABLE"), "--print-commands")
    assert done.status == 0, done.stderr
    assert "$NO_SUCH_VARIABLE" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--metrics-token", "env:TOKEN"), "--metrics-token: is for a cluster"),
        (("--debug-logs",), "name each engine's log in the targets file"),
        (("--for", "jo"), "--for: belongs to --print-rbac"),
        (("--evidence", "e.json", "--print-commands"), "--print-commands: has no effect with --evidence"),
        ((str(BUNDLE), "--evidence", "e.json"), "BUNDLE: has no effect with --evidence"),
        (("--evidence", "e.json", "--repeat", "3"), "--repeat: has no effect with --evidence"),
        (("--evidence", "e.json", "--model", "m"), "--model: has no effect with --evidence"),
    ],
)
def test_what_has_no_effect_is_refused(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = run("verify", "--targets", targets(tmp_path), *words)
    assert (done.status, done.stdout) == (2, "")
    assert said in " ".join(done.stderr.split())


def rules(*words: str) -> dict[str, set[str]]:
    done = run("verify", str(BUNDLE), "--print-rbac", "-o", "json", *words)
    assert done.status == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["apiVersion"], document["kind"]) == ("v1", "List")
    role = next(item for item in document["items"] if item["kind"] == "Role")
    return {resource: set(rule["verbs"]) for rule in role["rules"] for resource in rule["resources"]}


def test_rights_to_debug_are_those_that_it_uses() -> None:
    """DebugLogs reads each workload (get), writes it whole (PUT is update), and finds it from its pods (get)."""
    usual, debug = rules(), rules("--debug-logs")
    for resource in ("deployments", "statefulsets", "disaggregatedsets"):
        assert resource not in usual
        assert debug[resource] == {"get", "update"}
    assert "get" in debug["pods"]
    assert "get" not in usual["pods"]


def test_yaml_and_json_hold_the_same_rights() -> None:
    text = run("verify", str(BUNDLE), "--print-rbac", "--debug-logs")
    document = run("verify", str(BUNDLE), "--print-rbac", "--debug-logs", "-o", "json")
    assert list(yaml.safe_load_all(text.stdout)) == json.loads(document.stdout)["items"]
    assert text.stdout.startswith("# Rights to verify ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--only", ""), "--only: names no claim"),
        (("--only", ","), "--only: names no claim"),
        (("--skip", " , "), "--skip: names no claim"),
        (("--timeout", "0"), "--timeout: 0 is no time for a request"),
        (("--timeout", "9" * 30), "is no time for a request"),
        (("--timeout", "25h"), "is no time for a request"),
        (("--save", "/nowhere/at/all/e.json"), "/nowhere/at/all/e.json: cannot be written: its directory is not there"),
        (("--save", "/"), "cannot be written: it is a directory"),
    ],
)
def test_words_that_mean_nothing_are_told_before_anything_is_sent(
    words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    done = run("verify", "--targets", targets(tmp_path), *words)
    assert (done.status, done.stdout) == (2, "")  # not 5: nothing listens at port 9, and nobody asked
    assert said in " ".join(done.stderr.split())


def test_a_token_that_a_shell_would_run_is_refused() -> None:
    done = run("verify", "--metrics-token", "env:X$(touch owned)", "--print-commands")
    assert (done.status, done.stdout) == (2, "")
    assert "is no name of a variable" in done.stderr


def test_commands_end_where_the_budget_does(tmp_path: Path) -> None:
    done = run("verify", "--targets", targets(tmp_path), "--print-commands", "--budget", "1")
    assert done.status == 0, done.stderr
    posts = [line for line in done.stdout.splitlines() if "-X POST" in line]
    assert len(posts) == 1
    assert "the budget of 1 is spent" in done.stdout.splitlines()[-1]
