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


TARGETS = ("--targets", "t.yaml")
EVIDENCE = ("--evidence", "e.json")
IDLE = [
    # of a cluster, beside a list of addresses
    ((*TARGETS, "--namespace", "ns"), "--namespace", "--targets"),
    ((*TARGETS, "-n", "ns"), "--namespace", "--targets"),
    ((*TARGETS, "--name", "mm"), "--name", "--targets"),
    ((*TARGETS, "--via", "proxy"), "--via", "--targets"),
    ((*TARGETS, "--via", "http://x"), "--via", "--targets"),
    ((*TARGETS, "--kubeconfig", "k"), "--kubeconfig", "--targets"),
    ((*TARGETS, "--context", "c"), "--context", "--targets"),
    ((*TARGETS, "--metrics-token", "env:TOKEN"), "--metrics-token", "--targets"),
    ((*TARGETS, "--yes"), "--yes", "--targets"),
    # nothing is found, or sent, where evidence is judged again
    ((*TARGETS, *EVIDENCE), "--targets", "--evidence"),
    ((str(BUNDLE), *EVIDENCE), "BUNDLE", "--evidence"),
    *(((*EVIDENCE, *more), more[0], "--evidence") for more in (
        ("--namespace", "ns"), ("--name", "mm"), ("--via", "pod"), ("--kubeconfig", "k"), ("--context", "c"),
        ("--metrics-token", "env:TOKEN"), ("--print-commands",), ("--print-rbac",), ("--for", "jo"), ("--debug-logs",),
        ("--save", "x.json"), ("--wait", "1m"), ("--timeout", "5s"), ("--budget", "3"), ("--repeat", "1"),
        ("--hold", "1m"),
        ("--model", "m"), ("--yes",),
    )),
    # nothing is judged where rights, or commands, are printed
    *((("--print-rbac", *more), more[0], "--print-rbac") for more in (
        TARGETS, ("--print-commands",), ("--context", "c"), ("--kubeconfig", "k"), ("--only", "kv"), ("--skip", "kv"),
        ("--strict",), ("--save", "x.json"), ("--wait", "1m"), ("--budget", "3"), ("--timeout", "5s"),
        ("--metrics-token", "env:TOKEN"), ("--model", "m"),
    )),
    *((("--print-commands", *more), more[0], "--print-commands") for more in (
        ("--strict",), ("--save", "x.json"), ("--wait", "1m"), ("--timeout", "5s"), ("--debug-logs",), ("--yes",),
    )),
    ((*TARGETS, "--print-commands", "-o", "json"), "--output", "--print-commands"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "idle", "chosen"), IDLE, ids=[" ".join(map(str, words))[-60:] for words, *_ in IDLE])
def test_an_option_without_effect_is_refused_with_the_one_that_takes_it(
    words: tuple[str, ...], idle: str, chosen: str
) -> None:
    done = run("verify", *words)
    assert (done.status, done.stdout) == (2, "")
    assert f"error: {idle}: has no effect with {chosen}\n  next: " in done.stderr


def test_what_a_variable_says_gives_way_to_an_option(tmp_path: Path) -> None:
    said = {"MMDEPLOY_TARGETS": str(targets(tmp_path))}
    done = run("verify", "--namespace", "ns", env=said)
    assert (done.status, done.stdout) == (2, "")
    assert "error: --namespace: has no effect with MMDEPLOY_TARGETS" in done.stderr
    assert "none.json: cannot be read" in run("verify", "--evidence", "none.json", env=said).stderr
    rights = run("verify", "--print-rbac", "--namespace", "ns", env=said)
    assert (rights.status, "namespace: ns" in rights.stdout) == (0, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--metrics-token", "env:TOKEN"), "in the targets file, at the picker: token: env:NAME"),
        (("--debug-logs",), "name each engine's log in the targets file"),
        (("--for", "jo"), "--for: belongs to --print-rbac"),
    ],
)
def test_what_to_do_instead_is_said(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
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
        (("--hold", "0s"), "--hold: 0s is no time for a request"),
        (("--hold", "1m", "--only", "text"), "--hold: it serves the claim entry, which is not verified"),
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
