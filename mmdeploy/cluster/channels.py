"""Connections into a pod that stay open: a forwarded port, and a command that runs in a container."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlencode

from mmdeploy.cluster.failures import from_response, from_transport

if TYPE_CHECKING:
    from mmdeploy.cluster.session import Session

_STDOUT, _STDERR = 1, 2
_PROTOCOL = "v4.channel.k8s.io"
"""Spoken by every kubelet and API server since Kubernetes 1.4."""
FRAME = 1 << 15
"""Bytes of input that are sent at a time."""


class Forwarded:
    """One connection to a port of a pod."""

    def __init__(self, forward: Any, port: int) -> None:
        self._forward, self._port = forward, port

    @property
    def socket(self) -> Any:
        """What to read and write: a socket in all but its family."""
        return self._forward.socket(self._port)

    @property
    def error(self) -> str:
        """What the node said of the connection; empty while it stands."""
        return str(self._forward.error(self._port) or "").strip()

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(OSError):
            self._forward.close()


@dataclass(frozen=True)
class Piece:
    """Something that a command wrote."""

    stream: Literal["out", "err"]
    data: bytes


class Running:
    """A command that runs in a container."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def pieces(self, seconds: float) -> Iterator[Piece]:
        """What it writes, as it comes, until it ends. Raises `TimeoutError` when that takes longer than ``seconds``."""
        deadline = time.monotonic() + seconds
        while True:
            open_still = self._client.is_open()
            if open_still:
                self._client.update(timeout=max(0.0, deadline - time.monotonic()))
            for channel, stream in ((_STDOUT, "out"), (_STDERR, "err")):
                data = self._client.read_channel(channel) if self._client.peek_channel(channel) else b""
                if data:
                    yield Piece(stream, data)  # type: ignore[arg-type]
            if not open_still:
                return
            if time.monotonic() >= deadline:
                raise TimeoutError(f"no end within {seconds:g} s")

    @property
    def code(self) -> int | None:
        """Its exit code, once it has ended; None where nobody said it."""
        try:
            return int(self._client.returncode)
        except (TypeError, KeyError, ValueError, IndexError):
            return None

    def close(self) -> None:
        """Let go of it."""
        with contextlib.suppress(Exception):  # the other side may have gone already, in any of many ways
            self._client.close()


def forward(session: Session, namespace: str, pod: str, port: int) -> Forwarded:
    """Open a connection to a port of a pod. Raises `ClusterError` and its kin where the API server says no."""
    from kubernetes.stream.ws_client import PortForward, create_websocket

    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/portforward"
    with _opening(session, path) as headers:
        url = _url(session, path, [("ports", str(port))])
        client = session.connection.client()
        return Forwarded(PortForward(create_websocket(client.configuration, url, headers), [port]), port)


def run(
    session: Session, namespace: str, pod: str, container: str, command: Sequence[str], stdin: bytes = b""
) -> Running:  # fmt: skip
    """Start a command in a container and write ``stdin`` to it; its input stays open. Raises as `forward`."""
    from kubernetes.stream.ws_client import WSClient

    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/exec"
    query = [("container", container), ("stdin", "true"), ("stdout", "true"), ("stderr", "true")]
    query += [("command", word) for word in command]
    with _opening(session, path) as headers:
        url = _url(session, path, query)
        client = WSClient(session.connection.client().configuration, url, headers, capture_all=False, binary=True)
        for start in range(0, len(stdin), FRAME):
            client.write_stdin(stdin[start : start + FRAME])
    return Running(client)


@contextlib.contextmanager
def _opening(session: Session, path: str) -> Iterator[dict[str, str]]:
    """Headers for a websocket; what goes wrong with it becomes one sentence.

    (`kubernetes.stream.stream` and `portforward` are not for several threads, and take Ctrl-C for a failed request.)
    """
    from websocket import WebSocketBadStatusException, WebSocketException

    headers: dict[str, str] = {"sec-websocket-protocol": _PROTOCOL, **session.connection.credentials()}
    try:
        yield headers
    except WebSocketBadStatusException as problem:
        raise from_response(problem.status_code, problem.resp_body or b"", "GET", path) from None
    except (WebSocketException, OSError) as problem:
        raise from_transport(problem, session.where.server) from None


def _url(session: Session, path: str, query: list[tuple[str, str]]) -> str:
    host = session.where.server.replace("http", "ws", 1)
    return f"{host}{path}?{urlencode(query)}"


__all__ = ["Forwarded", "Piece", "Running", "forward", "run"]
