"""An end to everything that one HTTP request may take.

Timeouts of sockets are about a single read: a server that sends a header's byte now and then never meets one. Here a
timer shuts the connection when the time for the whole is up.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType

from urllib3 import HTTPConnectionPool, HTTPResponse, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

_HERE = threading.local()
"""The deadline of the request that a thread is sending."""


class Deadline:
    """``with Deadline(60) as end: ...; end.check()``: what the block receives ends after so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.late = False
        self._socket: socket.socket | None = None
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    def __enter__(self) -> Deadline:
        """Start the time."""
        _HERE.deadline = self
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it."""
        self._timer.cancel()
        _HERE.deadline = None

    def watch(self, connection: socket.socket | None) -> None:
        """What is shut when the time is up. Raises TimeoutError where it is."""
        self._socket = connection
        self.check()

    def check(self) -> None:
        """Raise TimeoutError where the time is up: what ends then looks like an answer that is whole."""
        if self.late:
            raise TimeoutError(f"the answer took longer than {self.seconds:g} s")

    def _end(self) -> None:
        self.late = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


def _watched(connection: HTTPConnection) -> Deadline | None:
    deadline: Deadline | None = getattr(_HERE, "deadline", None)
    if deadline is not None:
        deadline.watch(connection.sock)
    return deadline


def _in_time(answer: HTTPResponse, deadline: Deadline | None) -> HTTPResponse:
    """Headers that were shut off look like headers that are whole."""
    if deadline is not None and deadline.late:
        answer.close()
        deadline.check()
    return answer


class Plain(HTTPConnection):
    """HTTP."""

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]  # as urllib3 has it
        """As urllib3's, with an end."""
        deadline = _watched(self)
        return _in_time(super().getresponse(), deadline)


class Secure(HTTPSConnection):
    """HTTPS."""

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]  # as urllib3 has it
        """As urllib3's, with an end."""
        deadline = _watched(self)
        return _in_time(super().getresponse(), deadline)


class _PlainPool(HTTPConnectionPool):
    ConnectionCls = Plain


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = Secure


POOLS: dict[str, type[HTTPConnectionPool]] = {"http": _PlainPool, "https": _SecurePool}
"""For ``PoolManager.pool_classes_by_scheme``: connections that end in time."""
