"""What a process that was killed left behind is found, and nothing else is."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from mmdeploy.cluster.processes import gone, left_behind, process

pytestmark = pytest.mark.skipif(not process(os.getpid()), reason="this system does not tell processes apart")

STARTER = """
import os, subprocess, sys
from mmdeploy.cluster.processes import mark
child = subprocess.Popen(["sleep", "60"], env={**os.environ, **mark(sys.argv[1])}, start_new_session=True)
print(child.pid, flush=True)
sys.stdin.read()
"""


def test_what_is_left_behind_is_found_once_its_starter_is_gone() -> None:
    name = f"serving/mm-{os.getpid()}"
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with starter:
        assert starter.stdout
        pid = int(starter.stdout.readline())
        said = process(starter.pid)
        assert not gone(said)
        assert left_behind(name) == [], "its starter watches over it"
        starter.kill()
        starter.wait()
        assert gone(said)
        assert left_behind(name) == [pid]
        assert left_behind(f"{name}-other") == []
        os.kill(pid, 9)
        ends = time.monotonic() + 10
        while left_behind(name) and time.monotonic() < ends:
            time.sleep(0.05)
        assert left_behind(name) == []


def test_of_another_machine_nothing_is_known() -> None:
    assert not gone("another-boot " + process(os.getpid()).partition(" ")[2])
    assert not gone("")
