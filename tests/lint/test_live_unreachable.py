"""``lint --live`` without a cluster that answers: one sentence, exit 5, nothing on stdout; Ctrl-C ends it at once."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.program import environment, run


def kubeconfig(directory: Path, server: str) -> Path:
    path = directory / "kubeconfig"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "some", "cluster": {"server": server}}],
        "users": [{"name": "me", "user": {"token": "a-token-of-nobody"}}],
        "contexts": [{"name": "here", "context": {"cluster": "some", "user": "me"}}],
        "current-context": "here",
    }
    path.write_text(json.dumps(content))
    return path


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """Accepts connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        yield server


def address(server: socket.socket) -> str:
    return f"http://127.0.0.1:{server.getsockname()[1]}"


def test_nothing_listens_there(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = address(server)
    done = run("lint", "--live", "--kubeconfig", kubeconfig(tmp_path, place))
    assert (done.status, done.stdout) == (5, "")
    assert "cannot be reached: nothing listens there" in done.stderr
    assert "a-token-of-nobody" not in done.stderr


def test_a_context_that_is_not_there(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, "http://127.0.0.1:1")
    done = run("lint", "--live", "--kubeconfig", path, "--context", "hear")
    assert (done.status, done.stdout) == (5, "")
    assert "here" in done.stderr


def test_a_kubeconfig_that_is_not_there(tmp_path: Path) -> None:
    done = run("lint", "--live", "--kubeconfig", tmp_path / "absent")
    assert (done.status, done.stdout) == (5, "")


def test_what_is_wrong_with_the_files_comes_first(tmp_path: Path) -> None:
    """No cluster is asked for files that are not there."""
    done = run("lint", "--live", tmp_path / "absent.yaml", "--kubeconfig", kubeconfig(tmp_path, "http://127.0.0.1:1"))
    assert (done.status, "no such file" in done.stderr) == (2, True)


def test_files_for_several_namespaces_ask_which(tmp_path: Path) -> None:
    for name in ("one", "two"):
        metadata = f"{{name: some, namespace: {name}}}"
        (tmp_path / f"{name}.yaml").write_text(f"apiVersion: v1\nkind: ConfigMap\nmetadata: {metadata}\n")
    done = run("lint", "--live", tmp_path / "one.yaml", tmp_path / "two.yaml")
    assert (done.status, "choose one with --namespace" in done.stderr) == (2, True)


def test_ctrl_c_while_a_cluster_does_not_answer(tmp_path: Path, silent: socket.socket) -> None:
    """Its requests would wait for 30 seconds each."""
    words = [
        sys.executable,
        "-m",
        "mmdeploy",
        "lint",
        "--live",
        "--kubeconfig",
        str(kubeconfig(tmp_path, address(silent))),
    ]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        connection, _ = silent.accept()
        with connection:
            connection.recv(1)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
