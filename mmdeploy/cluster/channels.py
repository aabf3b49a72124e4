"""Connections into a pod that stay open: a forwarded port, and a command that runs in a container."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from mmdeploy.cluster.failures import from_response, from_transport
from mmdeploy.errors import ClusterError

if TYPE_CHECKING:
    from mmdeploy.cluster.session import Session

_STDOUT, _STDERR = 1, 2
_HANDSHAKE = re.compile(r"Handshake status (\d+) .*?-\+-\+- b'(.*)'\s*$", re.DOTALL)
"""How websocket-client words a refusal: status, headers, body."""


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
    from kubernetes.stream import ws_client

    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/portforward"
    query = [("ports", str(port))]
    return Forwarded(_opened(session, ws_client.portforward_call, path, query, protocol="v4.channel.k8s.io"), port)


def run(
    session: Session, namespace: str, pod: str, container: str, command: Sequence[str], stdin: bytes = b""
) -> Running:  # fmt: skip
    """Start a command in a container and write ``stdin`` to it; its input stays open. Raises as `forward`."""
    from kubernetes.stream import ws_client

    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/exec"
    query = [("container", container), ("stdin", "true"), ("stdout", "true"), ("stderr", "true")]
    query += [("command", word) for word in command]
    client = _opened(
        session, ws_client.websocket_call, path, query, protocol="v4.channel.k8s.io", _preload_content=False,
        binary=True, capture_all=False,
    )  # fmt: skip
    for start in range(0, len(stdin), 1 << 15):
        client.write_stdin(stdin[start : start + (1 << 15)])
    return Running(client)


def _opened(
    session: Session, call: Any, path: str, query: list[tuple[str, str]], protocol: str, **more: Any
) -> Any:  # fmt: skip
    """A websocket at the API server, by the library's own functions, which are safe to use from several threads."""
    from kubernetes.client import ApiException

    api = session._api
    headers: dict[str, str] = {"sec-websocket-protocol": protocol}
    api.update_params_for_auth(headers, [], ["BearerToken"], path, "GET", None)
    try:
        return call(
            api.configuration, "GET", api.configuration.host + path, query_params=query, headers=headers, **more
        )
    except ApiException as problem:
        raise _refusal(str(problem.reason), path, session) from None


def _refusal(reason: str, path: str, session: Session) -> ClusterError:
    match = _HANDSHAKE.search(reason)
    if match is None:
        return from_transport(ConnectionError(reason), session.where.server)
    return from_response(int(match[1]), match[2].encode().decode("unicode_escape").encode("latin-1"), "GET", path)


__all__ = ["Forwarded", "Piece", "Running", "forward", "run"]
