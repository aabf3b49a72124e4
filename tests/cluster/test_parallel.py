"""Calls at the same time: their order, their number, their errors, and that nobody waits for what is not wanted."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from mmdeploy.cluster.parallel import begin, together


def test_results_come_in_the_order_of_the_calls() -> None:
    first, last = threading.Event(), threading.Event()

    def slow() -> str:
        assert last.wait(10)
        return "slow"

    def quick() -> str:
        last.set()
        first.set()
        return "quick"

    assert together([slow, quick], 2) == ["slow", "quick"]
    assert first.is_set()


def test_no_more_than_so_many_run_at_a_time() -> None:
    inside, most, lock = 0, 0, threading.Lock()

    def call() -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        time.sleep(0.01)
        with lock:
            inside -= 1

    assert len(together([call] * 12, 3)) == 12
    assert most == 3


def test_nothing_to_do() -> None:
    assert together([], 3) == []


def test_the_first_error_is_raised_and_the_rest_never_begins() -> None:
    begun = []

    def fails() -> None:
        raise LookupError("first")

    def later() -> None:
        begun.append(1)
        time.sleep(0.05)

    with pytest.raises(LookupError, match="first"):
        together([fails, *[later] * 50], 1)
    time.sleep(0.2)
    assert len(begun) <= 2


def test_what_a_call_raises_comes_with_its_result() -> None:
    def fails() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        begin(fails).result()


HANGS = """
import threading, time
from mmdeploy.cluster.parallel import begin, together
begin(lambda: time.sleep(60))
def fails(): raise SystemExit(7)
together([fails, lambda: time.sleep(60)], 2)
"""


def test_the_program_ends_though_calls_still_run() -> None:
    begun = time.monotonic()
    assert subprocess.run([sys.executable, "-c", HANGS], check=False, timeout=50).returncode == 7
    assert time.monotonic() - begun < 30
