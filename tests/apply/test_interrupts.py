"""The first signal asks to stop, the second ends at once; real signals to this process."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from mmdeploy.apply.interrupts import SIGNALS, Stop, heeded
from mmdeploy.errors import StoppedError


@pytest.mark.parametrize("number", SIGNALS)
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


def test_a_sleep_ends_when_somebody_asks() -> None:
    stop = Stop()
    threading.Timer(0.05, stop.ask).start()
    begun = time.monotonic()
    with pytest.raises(StoppedError):
        stop.sleep(60)
    assert time.monotonic() - begun < 10


def test_a_sleep_that_nobody_disturbs_just_ends() -> None:
    Stop().sleep(0.001)
