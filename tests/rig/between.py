"""Something between a client and the API server that answers for it now and then: busy, away, or nothing at all."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import random
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.rig import tls, users
from tests.rig.controlplane import ControlPlane

TROUBLES = ("busy", "away", "reset", "lost")
"""429 and 503, both with Retry-After, before the server was asked; no answer, before it was asked, and after."""
_STATUS = {"busy": 429, "away": 503}
_HOPPING = {"connection", "transfer-encoding", "content-length", "keep-alive"}


@dataclass
class Between:
    """What happens to the requests."""

    plane: ControlPlane
    trouble: str
    share: float
    """Of the requests, that meet with it."""
    seed: int
    folder: Path
    met: Counter[str] = field(default_factory=Counter)
    """Methods of requests that met with it."""
    asked: int = 0
    _draw: random.Random = field(init=False)
    _locked: threading.Lock = field(default_factory=threading.Lock)
    _port: int = 0

    def __post_init__(self) -> None:
        self._draw = random.Random(self.seed)

    @property
    def kubeconfig(self) -> Path:
        """The administrator's, with this in the place of the server."""
        content = json.loads(self.plane.kubeconfig(users.ADMIN).read_text())
        content["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{self._port}"
        path = self.folder / "between.kubeconfig"
        path.write_text(json.dumps(content))
        path.chmod(0o600)
        return path

    @contextlib.contextmanager
    def running(self) -> Iterator[Between]:
        """Serve, with the server's own certificate."""
        with tls.serving(self.plane, _handler(self)) as self._port:
            yield self

    def draw(self, method: str) -> str:
        """What happens to the next request; empty for nothing. The first is spared: a server that never answered is not
        waited for, so nothing would follow."""
        with self._locked:
            self.asked += 1
            if self._draw.random() >= self.share or self.asked == 1:
                return ""
            self.met[method] += 1
            return self.trouble


def _handler(between: Between) -> type[http.server.BaseHTTPRequestHandler]:
    server = between.plane.server.removeprefix("https://")
    trusted = ssl.create_default_context(cafile=str(between.plane.authority))

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            trouble = between.draw(self.command)
            if trouble in _STATUS:
                self._answer(_STATUS[trouble], {"Retry-After": "1"}, b"not now")
            elif trouble == "reset":
                self._hang_up()
            else:
                status, headers, answer = self._forward(body)
                self._hang_up() if trouble else self._answer(status, headers, answer)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 - the names are the standard library's

        def _forward(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
            with contextlib.closing(http.client.HTTPSConnection(server, timeout=30, context=trusted)) as connection:
                connection.request(self.command, self.path, body, dict(self.headers))
                answer = connection.getresponse()
                return answer.status, dict(answer.headers), answer.read()

        def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                if name.lower() not in _HOPPING:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _hang_up(self) -> None:
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    return Handler
