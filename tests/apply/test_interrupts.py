"""The first signal asks to stop, the second ends at once; real signals to this process."""

from __future__ import annotations

import os
import pty
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from mmdeploy.apply.interrupts import SIGNALS, Stop, heeded
from mmdeploy.errors import StoppedError


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_asks_and_the_second_ends(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    stop, notices = Stop(), []
    with heeded(stop, lambda: notices.append("stopping")):
        stop.check()
        os.kill(os.getpid(), number)
        assert stop.asked
        with pytest.raises(StoppedError):
            stop.check()
        assert notices == ["stopping"]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_a_closed_terminal_asks_however_often_it_is_said() -> None:
    assert signal.SIGHUP in SIGNALS
    before = signal.getsignal(signal.SIGHUP)
    stop, notices = Stop(), []

    def notice() -> None:
        notices.append("stopping")
        raise OSError(5, "Input/output error")  # what printing to a terminal that is gone is answered with

    with heeded(stop, notice):
        for _ in range(3):  # the terminal's, then the shell's
            os.kill(os.getpid(), signal.SIGHUP)
        assert stop.asked
        assert notices == ["stopping"]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGHUP) is before


def test_nohup_stays_in_force() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        stop = Stop()
        with heeded(stop, lambda: None):
            os.kill(os.getpid(), signal.SIGHUP)
            stop.check()
    finally:
        signal.signal(signal.SIGHUP, before)


PRINTING = """
import os, signal, sys, time
from mmdeploy.apply.interrupts import Stop, heeded
stop = Stop()
with heeded(stop, lambda: print("stopping", file=sys.stderr, flush=True)):
    print("ready", flush=True)
    while not stop.asked:
        time.sleep(0.05)
    print("printed", flush=True)
    with open(sys.argv[1], "w") as file:
        file.write("ended well")
"""


def test_printing_to_a_terminal_that_was_closed_is_no_error(tmp_path: Path) -> None:
    said = tmp_path / "said"
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", PRINTING, str(said)])
    shown = b""
    while b"ready" not in shown:
        shown += os.read(terminal, 1000)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert said.read_text() == "ended well"


def test_a_sleep_ends_when_somebody_asks() -> None:
    stop = Stop()
    threading.Timer(0.05, stop.ask).start()
    begun = time.monotonic()
    with pytest.raises(StoppedError):
        stop.sleep(60)
    assert time.monotonic() - begun < 10


def test_a_sleep_that_nobody_disturbs_just_ends() -> None:
    Stop().sleep(0.001)
