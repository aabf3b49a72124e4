"""``--print-commands``: a script that any shell takes, by a file or pasted into a terminal, and that asks the same."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import subprocess
import time
from pathlib import Path
from random import Random

import pytest
import yaml

from mmdeploy.rehearse.rehearsal import Rehearsal
from mmdeploy.verify import commands, run
from mmdeploy.verify.cluster.places import service_url
from mmdeploy.verify.cluster.spelling import speller
from mmdeploy.verify.targets import Endpoint
from mmdeploy.verify.transport import Request
from tests.cli import program
from tests.verify.simulated import BUNDLES, CATALOG, bundle, stage

LONGEST = 4000  # a terminal's line: 4,096 bytes with its end (Linux, include/linux/tty.h, N_TTY_BUF_SIZE)
SHELLS = [name for name in ("sh", "dash", "bash") if shutil.which(name)]
CURL = pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")


@pytest.mark.parametrize("name", sorted(BUNDLES))
def test_every_script_is_one_for_a_shell_and_for_a_terminal(name: str, tmp_path: Path) -> None:
    facts = stage(name, tmp_path).facts
    plan = run.plan(facts, run.chosen((), ()), repeat=2)
    script = "\n".join(commands.lines(facts, plan, 999, Random(1)))
    assert max(map(len, script.splitlines())) <= LONGEST
    assert len(re.findall(r"-X POST", script)) > 5
    for shell in SHELLS:
        checked = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, ""), shell


@pytest.mark.parametrize("length", [10, 999, 1000, 1001, 70_000])
def test_a_body_arrives_as_it_is(length: int, tmp_path: Path) -> None:
    """kubectl is a program that writes down what it is given: what counts is the shell between."""
    body = json.dumps({"text": ('it\'s "$HOME" \\ `date` %s END\n' * (length // 20 + 1))[:length]}).encode()
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(f'#!/bin/sh\necho "$*" > {tmp_path}/words\ncat > {tmp_path}/body\n', encoding="utf-8")
    kubectl.chmod(0o755)
    asked = Request(Endpoint("entry", service_url("ns", "mm-epp", 80)), 5, "POST", "/v1/x", body=body)
    script = speller(["--context", "c"])(asked)
    assert max(map(len, script.splitlines())) <= LONGEST
    for shell in SHELLS:
        path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        subprocess.run([shell], input=script, env=path, text=True, check=True)
        assert (tmp_path / "body").read_bytes() == body
        words = (tmp_path / "words").read_text(encoding="utf-8").strip()
        assert words == "--context c create --raw /api/v1/namespaces/ns/services/mm-epp:80/proxy/v1/x -f -"


def printed(running: Rehearsal, place: Path, *words: str) -> str:
    file = place / "targets.yaml"
    document = {**running.targets(), "bundle": str(bundle("e-pd").origin)}
    file.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    done = program.run("verify", "--targets", file, "--print-commands", *words)
    assert done.status == 0, done.stderr
    return done.stdout


def counted(said: str) -> int:
    """Requests that the pickers had counted when they were last asked."""
    last = said.rpartition("(picker)")[2]
    return sum(int(float(number)) for number in re.findall(r"^llm_d_epp_request_total\{.*\} (\S+)", last, re.MULTILINE))


@CURL
@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_sends_what_verify_would(shell: str, tmp_path: Path) -> None:
    with Rehearsal(bundle("e-pd"), CATALOG) as running:
        script = printed(running, tmp_path)
        ran = subprocess.run([shell], input=script, capture_output=True, text=True, timeout=120, check=False)
        assert (ran.returncode, ran.stderr) == (0, "")
        entry = running.targets()["entry"]["url"]
    # A colour, a number or a word for every chat request: an error has none of them.
    assert len(re.findall(r'"choices":\[', ran.stdout)) >= script.count("-X POST") - 2  # streamed ones have more
    assert '"error":' not in ran.stdout
    assert counted(ran.stdout) == script.count(f"-X POST {entry}/")


@CURL
@pytest.mark.skipif(not shutil.which("dash"), reason="needs dash, which reads a terminal's lines as they are")
def test_the_script_can_be_pasted_into_a_terminal(tmp_path: Path) -> None:
    with Rehearsal(bundle("e-pd"), CATALOG) as running:
        script = printed(running, tmp_path, "--only", "text,image,pricing")
        said = pasted(f"{script}\nexit\n")
        entry = running.targets()["entry"]["url"]
    assert '"error":' not in said
    assert counted(said) == script.count(f"-X POST {entry}/") > 5


def pasted(text: str, seconds: float = 120) -> str:
    """All that a shell shows on its terminal when ``text`` is typed there at once."""
    child, terminal = pty.fork()
    if child == 0:
        os.execvpe("dash", ["dash", "-i"], {"PATH": os.environ["PATH"], "PS1": "", "PS2": ""})
    os.set_blocking(terminal, False)
    left, shown, deadline = text.encode(), b"", time.monotonic() + seconds
    try:
        while time.monotonic() < deadline:
            readable, writable, _ = select.select([terminal], [terminal] if left else [], [], 1)
            if writable:
                left = left[os.write(terminal, left[:512]) :]
            if readable:
                try:
                    shown += os.read(terminal, 65536)
                except OSError:
                    break  # the shell has ended
    finally:
        os.close(terminal)
        os.waitpid(child, 0)
    return shown.decode("utf-8", "replace").replace("\r\n", "\n")
