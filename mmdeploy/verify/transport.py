"""How requests travel. Probes know only `Transport`; what is behind it may be plain HTTP or a cluster's proxy."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from mmdeploy.verify.targets import Endpoint, token

if TYPE_CHECKING:
    from mmdeploy.verify.deadlines import Deadline

Trouble = Literal["", "unreachable", "timeout", "tls", "cut", "forbidden"]
"""No connection; no answer in time; TLS where plain HTTP was meant, or the other way round; an answer that broke off;
the way there is not allowed (not the endpoint's own 403)."""

LARGEST = 32 << 20
"""Bytes of an answer that are read; a metrics page of a thousand models is far smaller."""


@dataclass(frozen=True)
class Answer:
    """What came back, or why nothing did."""

    status: int | None
    headers: Mapping[str, str] = field(default_factory=dict)
    """By lower-case name."""
    pieces: tuple[tuple[float, bytes], ...] = ()
    """The body as it arrived: seconds since the request was sent, and bytes."""
    seconds: float = 0.0
    trouble: Trouble = ""
    detail: str = ""

    @property
    def body(self) -> bytes:
        """The whole body."""
        return b"".join(piece for _, piece in self.pieces)


@dataclass(frozen=True)
class Request:
    """One request, as it is to be sent."""

    endpoint: Endpoint
    timeout: float
    """Seconds for the whole: from the first look-up of a name to the last byte of the answer."""
    method: str = "GET"
    path: str = ""
    """Put behind the endpoint's own."""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None

    @classmethod
    def of_page(cls, endpoint: Endpoint, timeout: float) -> Request:
        """For a metrics page."""
        return cls(endpoint, timeout, headers={"accept": "text/plain"})


class Transport(Protocol):
    """Sends one request and waits for the whole answer; never raises for what the other side does."""

    def send(self, request: Request) -> Answer:
        """The answer."""
        ...


class HttpTransport:
    """Plain HTTP and HTTPS, from where mmdeploy runs. Safe to use from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` gives seconds."""
        import urllib3

        from mmdeploy.verify import deadlines

        self._pool = urllib3.PoolManager(
            num_pools=256, maxsize=8, retries=False, ca_certs=_certificates(), cert_reqs="CERT_REQUIRED"
        )
        self._pool.pool_classes_by_scheme = deadlines.POOLS
        self._clock = clock
        self._tokens: dict[str, str] = {}

    def send(self, request: Request) -> Answer:
        """See `Transport`. Raises `UsageError` for a token that cannot be read."""
        answer = self._once(request)
        if answer.trouble == "cut" and answer.status is None and request.method == "GET":
            # The server may have ended an idle connection at this very moment.
            answer = self._once(request)
        return answer

    def _once(self, request: Request) -> Answer:
        import urllib3

        from mmdeploy.verify.deadlines import Deadline

        endpoint, timeout = request.endpoint, request.timeout
        sent = dict(request.headers)
        secret = self._token(endpoint) if endpoint.token else ""
        if secret:
            sent["authorization"] = f"Bearer {secret}"
        start = self._clock()
        pieces: list[tuple[float, bytes]] = []
        status, received = None, {}
        with Deadline(timeout) as deadline:
            try:
                answer = self._pool.request(
                    request.method,
                    endpoint.url + request.path,
                    headers=sent,
                    body=request.body,
                    timeout=urllib3.Timeout(total=timeout),
                    preload_content=False,
                    redirect=False,
                    decode_content=True,
                )
                status, received = answer.status, {name.lower(): value for name, value in answer.headers.items()}
                self._drain(answer, start, deadline, pieces)
            except (urllib3.exceptions.HTTPError, OSError, ValueError) as problem:
                begun = bool(pieces) or status is not None
                trouble, detail = _trouble(problem, begun, timeout, late=deadline.late)
                detail = detail.replace(secret, "***") if secret else detail
                return Answer(status, received, tuple(pieces), self._clock() - start, trouble, detail)
        return Answer(status, received, tuple(pieces), self._clock() - start)

    def _drain(self, answer: Any, start: float, deadline: Deadline, pieces: list[tuple[float, bytes]]) -> None:
        size = 0
        try:
            while piece := answer.read1(1 << 16, decode_content=True):
                pieces.append((self._clock() - start, piece))
                size += len(piece)
                if size > LARGEST:
                    raise OSError(f"the answer is longer than {LARGEST >> 20} MiB")
                deadline.check()
            deadline.check()
        except BaseException:
            answer.close()
            raise
        answer.release_conn()

    def _token(self, endpoint: Endpoint) -> str:
        if endpoint.token not in self._tokens:
            self._tokens[endpoint.token] = token(endpoint)
        return self._tokens[endpoint.token]


def _certificates() -> str | None:
    import ssl

    return ssl.get_default_verify_paths().cafile


def _trouble(problem: Exception, begun: bool, timeout: float, *, late: bool) -> tuple[Trouble, str]:
    import urllib3

    if not isinstance(problem, (urllib3.exceptions.HTTPError, OSError)):
        # A ValueError of http.client quotes the header that it refuses, and that may be the token.
        return "unreachable", "the request cannot be written as HTTP: a header, or the address, holds what none may"
    text = str(getattr(problem, "reason", None) or problem)
    if isinstance(problem, (urllib3.exceptions.SSLError,)) and not late:
        return "tls", _short(text)
    timed_out = isinstance(problem, (urllib3.exceptions.TimeoutError, TimeoutError))
    if late or (timed_out and not isinstance(problem, urllib3.exceptions.NewConnectionError)):
        return "timeout", f"{'not all of it' if begun else 'nothing'} within {timeout:g} s"
    if begun or "Connection aborted" in text or "RemoteDisconnected" in text:
        return "cut", _short(text)
    return "unreachable", _short(text)


def _short(text: str) -> str:
    """What happened, without the names of Python objects that urllib3 puts around it."""
    words = text.rpartition(">: ")[2] or text
    found = re.search(r"\(\d+, '([^']+)'\)", words) or re.search(r"\w+\('([^']+)'\)", words)
    words = found[1] if found else words
    return words if len(words) <= 200 else f"{words[:197]}..."
