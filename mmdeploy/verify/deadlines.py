"""An end to everything that one HTTP request may take.

Timeouts of sockets are about a single read: a server that sends a byte of a header, or of TLS, now and then never meets
one; and the look-up of a name has none. Here a timer shuts the connection when the time for the whole is up.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import threading
import time
from collections.abc import Callable
from ipaddress import ip_address
from types import TracebackType

from urllib3 import HTTPConnectionPool, HTTPResponse, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import NameResolutionError, NewConnectionError

_HERE = threading.local()
"""The deadline of the request that a thread is sending."""


class Deadline:
    """``with Deadline(60) as end: ...; end.check()``: what the block receives ends after so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.late = False
        self._until = time.monotonic() + seconds
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
        self._forget()

    @property
    def left(self) -> float:
        """Seconds until the time is up. Raises TimeoutError where it is."""
        found = self._until - time.monotonic()
        if self.late or found <= 0:
            self.late = True
            self.check()
        return found

    def watch(self, connection: socket.socket | None) -> None:
        """What is shut when the time is up. Raises TimeoutError where it is.

        Kept as a handle of its own: one that is wrapped for TLS loses its number before the first byte of TLS.
        """
        self._forget()
        self._socket = socket.socket(fileno=os.dup(connection.fileno())) if connection is not None else None
        self.check()

    def check(self) -> None:
        """Raise TimeoutError where the time is up: what ends then looks like an answer that is whole."""
        if self.late:
            raise TimeoutError(f"the answer took longer than {self.seconds:g} s")

    def _end(self) -> None:
        self.late = True
        if (watched := self._socket) is not None:
            with contextlib.suppress(OSError):
                watched.shutdown(socket.SHUT_RDWR)

    def _forget(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def addresses(host: str, port: int, seconds: float) -> list[str]:
    """The addresses of a name, in the order in which they are to be tried.

    Raises TimeoutError where they take longer, and `socket.gaierror` where there is none. A look-up cannot be broken
    off: it is left to itself.
    """
    with contextlib.suppress(ValueError):
        return [str(ip_address(host.strip("[]")))]
    found: queue.SimpleQueue[list[str] | OSError] = queue.SimpleQueue()

    def look_up() -> None:
        try:
            every = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found.put(list(dict.fromkeys(str(each[4][0]) for each in every)))
        except (OSError, UnicodeError) as problem:
            found.put(problem if isinstance(problem, OSError) else socket.gaierror(str(problem)))

    threading.Thread(target=look_up, name=f"address of {host}", daemon=True).start()
    try:
        said = found.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"no address of {host} within {seconds:g} s") from None
    if isinstance(said, OSError):
        raise said
    return said


def _deadline() -> Deadline | None:
    found: Deadline | None = getattr(_HERE, "deadline", None)
    return found


def _connected(connection: HTTPConnection, connect: Callable[[], socket.socket]) -> socket.socket:
    """A connection to the first address that takes it, all of them together in time. Raises what urllib3 does."""
    deadline = _deadline()
    if deadline is None:
        return connect()
    name, problem = connection._dns_host, None
    try:
        found = addresses(name, connection.port, deadline.left)
    except socket.gaierror as error:
        raise NameResolutionError(name, connection, error) from error
    except TimeoutError:
        deadline.late = True
        raise
    for address in found:
        try:
            connection._dns_host, connection.timeout = address, deadline.left
            made = connect()
        except NewConnectionError as error:
            problem = error
        else:
            deadline.watch(made)
            return made
        finally:
            connection._dns_host = name
    raise problem or NewConnectionError(connection, f"{name} has no address")


def _watched(connection: HTTPConnection) -> Deadline | None:
    deadline = _deadline()
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

    def _new_conn(self) -> socket.socket:
        return _connected(self, super()._new_conn)

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]  # as urllib3 has it
        """As urllib3's, with an end."""
        deadline = _watched(self)
        return _in_time(super().getresponse(), deadline)


class Secure(HTTPSConnection):
    """HTTPS."""

    def _new_conn(self) -> socket.socket:
        return _connected(self, super()._new_conn)

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
