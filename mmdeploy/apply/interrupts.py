"""Ctrl-C, SIGTERM and a terminal that is closed: the first asks to stop at the next safe place, the second ends at
once."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from mmdeploy.errors import StoppedError

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """Whether somebody asked to stop. Safe to ask from a signal handler or another thread."""

    def __init__(self) -> None:
        self._asked = threading.Event()

    @property
    def asked(self) -> bool:
        """Whether to start nothing new."""
        return self._asked.is_set()

    def ask(self) -> None:
        """Stop at the next safe place."""
        self._asked.set()

    def check(self) -> None:
        """Raise `StoppedError` where it was asked for: this is a safe place."""
        if self.asked:
            raise StoppedError("interrupted")

    def sleep(self, seconds: float) -> None:
        """Sleep, but no longer than until somebody asks to stop; raises `StoppedError` then."""
        self._asked.wait(max(0.0, seconds))
        self.check()


@contextlib.contextmanager
def heeded(stop: Stop, notice: Callable[[], None]) -> Iterator[None]:
    """While inside, the first signal asks ``stop`` and calls ``notice``; the second raises KeyboardInterrupt.

    A SIGHUP is never the second: a shell that ends sends another than the terminal that goes away. Where it is
    ignored, as ``nohup`` has it, it stays so. Only for the main thread. What was done on a signal before is done again
    afterwards.
    """

    def heed(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            _leave_terminal()
            if stop.asked:
                return
        if stop.asked:
            raise KeyboardInterrupt
        stop.ask()
        with contextlib.suppress(OSError, RuntimeError):  # a stream that is gone, or is being written to just now
            notice()

    heard = [number for number in SIGNALS if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, heed) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave_terminal() -> None:
    """What is printed to a terminal that is gone leads nowhere from now on, instead of being an error."""
    for number in (0, 1, 2):
        with contextlib.suppress(OSError):
            if stat.S_ISCHR(os.fstat(number).st_mode) and not os.isatty(number):
                nowhere = os.open(os.devnull, os.O_RDWR)
                os.dup2(nowhere, number)
                os.close(nowhere)


__all__ = ["SIGNALS", "Stop", "heeded"]
