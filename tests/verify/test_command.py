"""``mmdeploy verify`` as people call it, against a rehearsal on loopback: a server that speaks the real protocol."""

from __future__ import annotations

import itertools
import json
import re
import socket
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from mmdeploy.rehearse.rehearsal import Rehearsal
from tests.cli.program import run
from tests.verify.simulated import CATALOG, bundle

TOKEN = "rehearsal"  # what a rehearsal's guarded picker takes (mmdeploy rehearse --list-faults)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The targets file of a deployment that does all it should."""
    with Rehearsal(bundle("e-pd"), CATALOG) as running:
        yield written(tmp_path_factory.mktemp("sound"), running)


def written(place: Path, running: Rehearsal) -> Path:
    file = place / "targets.yaml"
    document = {**running.targets(), "bundle": str(bundle("e-pd").origin)}
    file.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return file


def test_a_sound_deployment_is_proved(sound: Path) -> None:
    done = run("verify", "--targets", sound, "--only", "roles,text,image,affinity,stages,spread,entry")
    assert done.status == 0, done.stderr
    rows = [line.split(None, 2) for line in done.stdout.splitlines()[1:8]]
    assert [(row[0], row[1]) for row in rows] == [
        (claim, "proved") for claim in ("roles", "text", "image", "affinity", "stages", "spread", "entry")
    ]
    assert "verify sends up to 7 small requests" in done.stderr


def test_a_fault_is_contradicted_with_causes_and_exit_6(tmp_path: Path) -> None:
    with Rehearsal(bundle("e-pd"), CATALOG, faults=["sidecar-without-ec"]) as running:
        done = run("verify", "--targets", written(tmp_path, running), "--only", "stages")
    assert done.status == 6
    assert "encode pods counted 0 of 5 pictures" in done.stdout
    assert "1. the sidecar runs without --ec-connector" in done.stdout
    assert "mmdeploy explain MMD416" in done.stdout


def test_json_is_one_document(sound: Path) -> None:
    done = run("verify", "--targets", sound, "--only", "text,stages", "-o", "json")
    document = json.loads(done.stdout)
    assert (document["schemaVersion"], document["kind"]) == (1, "Verdicts")
    said = {item["claim"]: item["verdict"] for item in document["verdicts"]}
    assert said == {"text": "proved", "stages": "proved"}
    assert document["spent"]["requests"] == 6  # text, image, the long prompt twice, its picture again, two pictures


def test_junit_counts_what_is_unseen_as_skipped_or_failed(tmp_path: Path) -> None:
    with Rehearsal(bundle("e-pd"), CATALOG, faults=["metrics-401"]) as running:
        file = written(tmp_path, running)
        lenient = run("verify", "--targets", file, "--only", "roles,text", "-o", "junit")
        strict = run("verify", "--targets", file, "--only", "roles,text", "-o", "junit", "--strict")
    assert (lenient.status, strict.status) == (0, 6)
    for done, failures, skipped in ((lenient, "0", "1"), (strict, "1", "0")):
        suite = ElementTree.fromstring(done.stdout).find("testsuite")
        assert suite is not None
        assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("2", failures, skipped)


def test_markdown_is_a_table(sound: Path) -> None:
    lines = run("verify", "--targets", sound, "--only", "text,entry", "-o", "markdown").stdout.splitlines()
    assert lines[2] == "| | claim | verdict | summary |"
    assert [line.split(" | ")[1:3] for line in lines[4:6]] == [["text", "proved"], ["entry", "proved"]]


def test_saved_evidence_gives_the_same_verdicts_offline(tmp_path: Path) -> None:
    saved = tmp_path / "evidence.json"
    with Rehearsal(bundle("e-pd"), CATALOG, faults=["encode-unlabelled"]) as running:
        file = written(tmp_path, running)
        live = run("verify", "--targets", file, "--skip", "embeddings,pricing", "--save", saved, "-o", "json")
    again = run("verify", "--evidence", saved, "-o", "json")
    assert (live.status, again.status) == (6, 6)
    assert json.loads(again.stdout) == json.loads(live.stdout)


def test_a_token_opens_the_metrics_and_is_written_nowhere(tmp_path: Path) -> None:
    saved = tmp_path / "evidence.json"
    with Rehearsal(bundle("e-pd"), CATALOG, faults=["metrics-token"]) as running:
        file = written(tmp_path, running)
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
        document["picker"][0]["token"] = "env:PICKER_TOKEN"
        file.write_text(yaml.safe_dump(document), encoding="utf-8")
        done = run("verify", "--targets", file, "--only", "roles", "--save", saved, env={"PICKER_TOKEN": TOKEN})
        printed = run("verify", "--targets", file, "--only", "roles", "--print-commands", env={"PICKER_TOKEN": TOKEN})
    assert (done.status, done.stdout.splitlines()[1].split()[:2]) == (0, ["roles", "proved"]), done.stdout
    assert "bearer" not in saved.read_text(encoding="utf-8").lower()
    assert json.loads(saved.read_text(encoding="utf-8"))["targets"]["pickers"][0]["token"] == "env:PICKER_TOKEN"
    assert '-H "authorization: Bearer $PICKER_TOKEN"' in printed.stdout


def test_the_printed_commands_do_what_verify_does(sound: Path) -> None:
    printed = run("verify", "--targets", sound, "--only", "text,image", "--print-commands")
    assert printed.status == 0
    ran = subprocess.run(["sh"], input=printed.stdout, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    answers = re.findall(r'"content":"([^"]*)"', ran.stdout)
    assert re.fullmatch(r"\d+", answers[0])
    assert re.fullmatch(r"The picture is \w+\.", answers[1])
    counted = [int(float(value)) for value in re.findall(r'request_success_total\{.*"stop".*\} (\S+)', ran.stdout)]
    assert max(counted) >= 1


def test_time_runs_out_with_124(tmp_path: Path) -> None:
    with Rehearsal(bundle("e-pd"), CATALOG, faults=["empty-answers"]) as running:
        done = run("verify", "--targets", written(tmp_path, running), "--only", "text", "--wait", "1s")
    assert done.status == 124
    assert "HTTP 200 with an empty answer" in done.stdout


def test_a_budget_that_is_too_small_is_told(sound: Path) -> None:
    done = run("verify", "--targets", sound, "--only", "text,image", "--budget", "1")
    assert done.status == 0
    assert "image needs 1 request, 0 are left" in done.stdout


def test_nothing_that_answers_is_exit_5(tmp_path: Path, sound: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    file = tmp_path / "targets.yaml"
    hosts = itertools.count(2)  # of pods, no two have one address
    text = re.sub(r"127\.0\.0\.1:\d+", lambda _: f"127.0.0.{next(hosts)}:{port}", sound.read_text(encoding="utf-8"))
    file.write_text(text, encoding="utf-8")
    done = run("verify", "--targets", file)
    assert (done.status, done.stdout) == (5, "")
    assert "none of 10 pods answers" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--only", "stage"), "no claim is called 'stage'"),
        (("--timeout", "soon"), "'soon' is no duration"),
    ],
)
def test_mistakes_are_usage(words: tuple[str, str], said: str, sound: Path) -> None:
    done = run("verify", "--targets", sound, *words)
    assert (done.status, done.stdout) == (2, "")
    assert said in done.stderr


def test_a_file_that_is_no_evidence_is_usage(tmp_path: Path) -> None:
    assert "none.json: cannot be read" in run("verify", "--evidence", "none.json").stderr
    for content, said in (
        ("{}", "holds no evidence"),
        ("[", "is not JSON"),
        ('{"kind": "Evidence", "schemaVersion": 1}', "is not whole"),
    ):
        file = tmp_path / "evidence.json"
        file.write_text(content, encoding="utf-8")
        done = run("verify", "--evidence", file)
        assert done.status == 2
        assert said in done.stderr
