"""Ctrl-C and SIGTERM: the first asks to stop at the next safe place, the second ends at once."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from mmdeploy.errors import StoppedError

SIGNALS = (signal.SIGINT, signal.SIGTERM)


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

    Only for the main thread. What was done on a signal before is done again afterwards.
    """

    def heed(number: int, frame: FrameType | None) -> None:
        if stop.asked:
            raise KeyboardInterrupt
        stop.ask()
        notice()

    before = {number: signal.signal(number, heed) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


__all__ = ["SIGNALS", "Stop", "heeded"]
