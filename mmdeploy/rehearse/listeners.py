"""Sockets in front of handlers: one process that answers for every pod, each on a port, or an address, of its own.

One thread waits for connections on all ports; a connection has a thread of its own while it lasts.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from io import BufferedIOBase
from typing import Any

from mmdeploy.errors import UsageError
from mmdeploy.rehearse.messages import Handler, Message, Reply, UnreachableError

IDLE_SECONDS = 5.0
"""A connection that says nothing for so long is closed (VLLM_HTTP_TIMEOUT_KEEP_ALIVE)."""

LAST_PORT = 65535

BODY_LIMIT = 64 << 20
"""Bytes of a request."""

Doors = Callable[[str, int], Handler | None]
"""Who answers at the local address and port of a connection; None for nobody."""


class Listeners:
    """Listening sockets, and who is behind them."""

    def __init__(self, doors: Doors) -> None:
        self._doors = doors
        self._selector = selectors.DefaultSelector()
        self._waker, self._wake = socket.socketpair()
        self._selector.register(self._waker, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._accept, name="listeners", daemon=True)
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._closing = False

    def open(self, host: str, port: int = 0) -> int:
        """Listen; the port that it is. Raises `UsageError` for one that is taken, or past the last."""
        if port > LAST_PORT:
            raise UsageError(
                f"the ports from there do not suffice: the last is {LAST_PORT}",
                origin="--port",
                next_step="begin lower, or leave --port out, and free ports are taken",
            )
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((host, port))
            listening.listen(256)
        except OSError as problem:
            listening.close()
            raise UsageError(
                f"cannot listen on {host}:{port}: {problem.strerror}",
                origin="--port",
                next_step="leave --port out, and free ports are taken",
            ) from None
        listening.setblocking(False)
        self._selector.register(listening, selectors.EVENT_READ)
        return int(listening.getsockname()[1])

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def close(self) -> None:
        """Stop, and close every connection."""
        self._closing = True
        self._wake.send(b".")
        if self._thread.is_alive():
            self._thread.join()
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()
        self._wake.close()
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while not self._closing:
            for key, _ in self._selector.select():
                listening = key.fileobj
                if listening is self._waker or not isinstance(listening, socket.socket):
                    continue
                with contextlib.suppress(OSError):
                    connection, peer = listening.accept()
                    threading.Thread(target=self._serve, args=(connection, peer), daemon=True).start()

    def _serve(self, connection: socket.socket, peer: Any) -> None:
        with self._lock:
            self._open.add(connection)
        try:
            host, port = connection.getsockname()[:2]
            handler = self._doors(host, port)
            if handler is None:
                _reset(connection)
                return
            connection.setblocking(True)
            connection.settimeout(IDLE_SECONDS)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _Connection(connection, peer, handler)
        except (OSError, ValueError):
            pass  # the other side went away
        finally:
            with self._lock:
                self._open.discard(connection)
            connection.close()


def _chunks(source: BufferedIOBase) -> Iterator[bytes]:
    """The body of a request that was sent in pieces. Raises ValueError for one that is not well formed, or too long."""
    total = 0
    while size := int(source.readline(64).partition(b";")[0], 16):
        total += size
        if size < 0 or total > BODY_LIMIT:
            raise ValueError("no size that can be")
        yield source.read(size)
        source.readline(64)
    source.readline(64)


def _reset(connection: socket.socket) -> None:
    """As near to a refused connection as an accepted one gets."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class _Connection(BaseHTTPRequestHandler):
    """HTTP/1.1 on one connection."""

    protocol_version = "HTTP/1.1"
    server_version = "rehearsal"
    sys_version = ""

    def __init__(self, connection: socket.socket, peer: Any, handler: Handler) -> None:
        self._handler = handler
        super().__init__(connection, peer, None)  # type: ignore[arg-type]  # the server is only for its subclasses

    def _answer(self) -> None:
        chunked = self.headers.get("transfer-encoding", "").lower() == "chunked"
        length = self.headers.get("content-length", "0")
        if not length.isdigit() or int(length) > BODY_LIMIT:
            self.send_error(413 if length.isdigit() else 400)
            self.close_connection = True
            return
        body = b"".join(_chunks(self.rfile)) if chunked else self.rfile.read(int(length))
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            reply = self._handler(Message(self.command, self.path, headers, body))
        except UnreachableError:
            _reset(self.connection)
            self.close_connection = True
            return
        self._send(reply)

    do_GET = do_POST = do_HEAD = do_PUT = do_DELETE = _answer  # noqa: N815

    def _send(self, reply: Reply) -> None:
        self.send_response(reply.status)
        self.send_header("content-type", reply.kind)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if reply.chunks is None:
            body = reply.encoded()
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else body)
            return
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for chunk in reply.chunks:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: engines keep logs of their own."""
