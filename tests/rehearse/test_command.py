"""``mmdeploy rehearse`` as a person runs it: a real process, real sockets, real signals."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.rehearse.conftest import ROOT

BUNDLE = str(ROOT / "overlays/main/e-pd/gpu/vllm/base")
MMDEPLOY = [sys.executable, "-m", "mmdeploy"]
ASK = """
import os, sys, urllib.request, yaml
targets = yaml.safe_load(open(os.environ["MMDEPLOY_TARGETS"]))
pods = [pod for role in targets["roles"].values() for pod in role]
urls = [targets["entry"]["url"] + "/v1/models", targets["picker"][0]["metrics"]]
urls += [pod["metrics"] for pod in pods] + [pod["engine"] + "/health" for pod in pods if "engine" in pod]
print(targets["topology"], len(pods), {urllib.request.urlopen(url).status for url in urls})
sys.exit(7)
"""


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}


def run(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MMDEPLOY, "rehearse", *words], capture_output=True, text=True, env=environment(), timeout=120, cwd=cwd
    )


def test_a_command_finds_the_targets_and_its_exit_code_is_returned() -> None:
    done = run(BUNDLE, "--", sys.executable, "-c", ASK)
    assert done.stdout == "e-pd 10 {200}\n"
    assert done.returncode == 7
    assert "engines and router are simulated" in done.stderr


def test_a_command_that_a_signal_ends() -> None:
    assert run(BUNDLE, "--", "sh", "-c", "kill -9 $$").returncode == 128 + 9


def test_a_command_that_is_not_there() -> None:
    done = run(BUNDLE, "--", "no-such-program")
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot run no-such-program" in done.stderr


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_stopped(stop: signal.Signals) -> None:
    with subprocess.Popen(
        [*MMDEPLOY, "rehearse", BUNDLE], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stdout
        assert process.stderr
        said = ""
        for line in process.stderr:  # the targets are out before the last line here
            said += line
            if line.startswith("Ctrl-C"):
                break
        process.send_signal(stop)
        printed = yaml.safe_load(process.stdout.read())
        assert process.wait(20) == 0
    assert printed["kind"] == "Targets"
    assert Path(printed["bundle"]) == Path(BUNDLE)
    assert "Ctrl-C" in said


def test_written_targets_name_the_bundle_as_seen_from_there(tmp_path: Path) -> None:
    (tmp_path / "epd").symlink_to(BUNDLE)
    done = run("epd", "--write-targets", "targets.yaml", "--", "true", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    written = yaml.safe_load((tmp_path / "targets.yaml").read_text())
    assert (tmp_path / written["bundle"]).resolve() == Path(BUNDLE).resolve()
    assert set(written["roles"]["decode"][0]) == {"name", "url", "engine", "metrics", "address"}
    assert {file.name for file in tmp_path.iterdir()} == {"epd", "targets.yaml"}


def free_ports(count: int) -> int:
    """The first of so many ports in a row that nobody holds now."""
    for first in range(20_000, 30_000, count):
        held = [socket.socket() for _ in range(count)]
        try:
            for number, each in enumerate(held):
                each.bind(("127.0.0.1", first + number))
        except OSError:
            continue
        finally:
            for each in held:
                each.close()
        return first
    raise AssertionError("no ports are free")


def test_ports_follow_one_another(tmp_path: Path) -> None:
    first = free_ports(20)
    done = run(BUNDLE, "--port", str(first), "--write-targets", str(tmp_path / "t"), "--", "true")
    assert done.returncode == 0, done.stderr
    written: dict[str, Any] = yaml.safe_load((tmp_path / "t").read_text())
    assert written["entry"]["url"].endswith(f":{first}")
    assert written["picker"][0]["metrics"].endswith(f":{first + 1}/metrics")
    pods = [pod for role in written["roles"].values() for pod in role]
    ports = [int(pod[key].rpartition(":")[2]) for pod in pods for key in ("url", "engine") if key in pod]
    assert sorted(ports) == list(range(first + 2, first + 20))  # 2 encode pods, and 8 decode pods with two ports each


def test_a_taken_port_is_one_clear_error() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        done = run(BUNDLE, "--port", str(held.getsockname()[1]), "--", "true")
    assert done.returncode == 2
    assert "cannot listen on" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_gateway_has_an_address_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "deploy.yaml").write_text("topology: aggregation\nmode: gateway\n")
    done = run(str(tmp_path / "deploy.yaml"), "--write-targets", str(tmp_path / "t"), "--", "true")
    assert done.returncode == 0, done.stderr
    written = yaml.safe_load((tmp_path / "t").read_text())
    assert written["gateway"]["url"] != written["entry"]["url"]
    assert "bundle" not in written  # rendered in memory: there is no directory


def test_faults_are_listed_for_people_and_machines() -> None:
    told = run("--list-faults")
    assert told.stdout.splitlines()[0].split() == ["FAULT", "WHAT", "WAS", "DONE", "FITS"]
    listed = json.loads(run("--list-faults", "-o", "json").stdout)
    assert (listed["schemaVersion"], listed["kind"]) == (1, "Faults")
    assert len(listed["faults"]) == len(told.stdout.splitlines()) - 1
    assert all(fault["done"].endswith(".") for fault in listed["faults"])
    assert [fault["fault"] for fault in listed["faults"] if fault["loaded"]] == ["producer-order"]
    assert "producer-order: only under the load of others" in told.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "nothing to rehearse"),
        ((BUNDLE, "--fault", "encode-missin"), "encode-missing"),
        (
            (str(ROOT / "overlays/main/aggregation/gpu/vllm/base"), "--fault", "encode-missing"),
            "fits bundles with encode",
        ),
        ((str(ROOT / "guides"),), "not a bundle"),
        (("/no/such/place",), "no such file"),
        ((BUNDLE, "--epp", "/bin/true"), "work together"),
    ],
)
def test_what_cannot_be_rehearsed_is_one_error(words: tuple[str, ...], told: str) -> None:
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_a_fault_is_named_in_the_talk() -> None:
    done = run(BUNDLE, "--fault", "producer-local-only", "--", "true")
    assert "fault      producer-local-only: ec_enable_nixl was lost" in done.stderr


def test_memory_stays_flat(tmp_path: Path) -> None:
    """1,000 different requests on 10 pods leave the process about as large as the first 200 did."""
    with subprocess.Popen(
        [*MMDEPLOY, "rehearse", BUNDLE, "--write-targets", str(tmp_path / "t"), "--traffic", "400"],
        stderr=subprocess.PIPE, text=True, env=environment(),
    ) as process:  # fmt: skip
        assert process.stderr
        for line in process.stderr:
            if line.startswith("Ctrl-C"):
                break
        entry = yaml.safe_load((tmp_path / "t").read_text())["picker"][0]["metrics"]
        sizes = []
        for goal in (200, 1000):
            while _requests(entry) < goal:
                time.sleep(0.05)
            sizes.append(_resident(process.pid))
        process.terminate()
    assert sizes[1] < sizes[0] + 12 * 1024


def _requests(url: str) -> float:
    from tests.rehearse.client import samples

    with urllib.request.urlopen(url) as reply:
        page = reply.read().decode()
    return sum(value for name, _, value in samples(page) if name == "llm_d_epp_request_total")


def _resident(process: int) -> int:
    """Kilobytes."""
    status = Path(f"/proc/{process}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))


@pytest.mark.parametrize(
    ("place", "said"),
    [("none/targets.yaml", "cannot be written"), ("there", "is a directory"), (".", "is a directory")],
)
def test_targets_that_cannot_be_written_leave_nothing(place: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    done = run(BUNDLE, "--write-targets", place, "--", "true", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert [item.name for item in tmp_path.iterdir()] == ["there"]


def test_ports_past_the_last_are_told() -> None:
    done = run(BUNDLE, "--port", "65530", "--", "true")  # 65535 is the last, and ten pods and the router want more
    assert (done.returncode, done.stdout) == (2, "")
    assert "--port" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_command_too(stop: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(60)"]
    words = [*MMDEPLOY, "rehearse", BUNDLE, "--", *command]
    around = {**environment(), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=around) as process:
        assert process.stdout
        child = int(process.stdout.readline())
        process.send_signal(stop)
        assert process.wait(20) == 128 + stop
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    assert list(tmp_path.iterdir()) == []
