"""Requests through the API server's proxy of pods and Services: no agent in the cluster, no port-forward.

The API server holds no such request to its own time limit; a load balancer in front of it may. Answers stream through.
It takes the Authorization header for itself, so that no token can reach a pod this way.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from mmdeploy.errors import ClusterError
from mmdeploy.verify.cluster.places import Place, place
from mmdeploy.verify.transport import LARGEST, Answer, Request, Trouble

if TYPE_CHECKING:
    from mmdeploy.cluster.session import Opened, Session

NO_TOKEN = "the API server's proxy passes no token on; --via port-forward does"


class ProxyTransport:
    """See the module. Safe to use from several threads."""

    def __init__(
        self, session: Session, facts: Mapping[str, Any], clock: Callable[[], float] = time.monotonic
    ) -> None:  # fmt: skip
        """``facts`` is ``proxy`` of ``catalog/discovery.yaml``; ``clock`` gives seconds."""
        self._session, self._facts, self._clock = session, facts, clock

    def send(self, request: Request) -> Answer:
        """See `mmdeploy.verify.transport.Transport`."""
        endpoint, timeout = request.endpoint, request.timeout
        target = place(endpoint.url)
        if target is None:
            return Answer(None, trouble="unreachable", detail=f"{endpoint.url} is no address of a cluster")
        if endpoint.token:
            return Answer(None, trouble="forbidden", detail=NO_TOKEN)
        start = self._clock()
        pieces: list[tuple[float, bytes]] = []
        status, received = None, {}
        try:
            with self._opened(request, target) as opened:
                status, received = opened.status, dict(opened.headers)
                self._drain(opened, start, timeout, pieces)
        except TimeoutError as problem:
            return Answer(status, received, tuple(pieces), self._clock() - start, "timeout", str(problem))
        except ConnectionError as problem:
            return Answer(status, received, tuple(pieces), self._clock() - start, "cut", _short(str(problem)))
        except ClusterError as problem:
            return Answer(None, {}, (), self._clock() - start, "unreachable", problem.found)
        return self._read(Answer(status, received, tuple(pieces), self._clock() - start), target, request.method)

    def _opened(self, request: Request, target: Place) -> AbstractContextManager[Opened]:
        path = target.proxied(request.path)
        return self._session.opened(request.method, path, request.body, request.headers, request.timeout)

    def _drain(self, opened: Opened, start: float, timeout: float, pieces: list[tuple[float, bytes]]) -> None:
        size = 0
        for piece in opened.pieces:
            pieces.append((self._clock() - start, piece))
            size += len(piece)
            if size > LARGEST:
                raise ConnectionError(f"the answer is longer than {LARGEST >> 20} MiB")
            if self._clock() - start > timeout:
                raise TimeoutError(f"the answer took longer than {timeout:g} s")

    def _read(self, answer: Answer, target: Place, method: str) -> Answer:
        """The pod's answer as it is; what the API server says instead of it, as trouble."""
        if answer.status is None or answer.status < 400:
            return answer
        said = own_words(answer)
        if said is None and self._facts["unreached"] in _start(answer):
            said = _start(answer)
        if said is None:
            return answer
        trouble, detail = self._trouble(answer.status, said, target, method)
        return Answer(None, answer.headers, (), answer.seconds, trouble, detail)

    def _trouble(self, status: int, said: str, target: Place, method: str) -> tuple[Trouble, str]:
        if status in (401, 403):
            verb = "create" if method == "POST" else "get"
            if status == 401:
                return "forbidden", "the API server does not accept the credentials any more"
            return "forbidden", f"no right to {verb} {target.kind}s/proxy in namespace {target.namespace}"
        if status == 404:
            return "unreachable", f"there is no {target.kind} {target.name} any more"
        _, found, rest = said.partition(f"{self._facts['unreached']}: ")
        return "unreachable", _short(rest if found else said)


def own_words(answer: Answer) -> str | None:
    """The message of an answer that the API server gave itself; None for one that came from behind it."""
    try:
        document = json.loads(answer.body)
    except ValueError:
        return None
    if not isinstance(document, dict) or document.get("kind") != "Status" or document.get("apiVersion") != "v1":
        return None
    return str(document.get("message") or document.get("reason") or "")


def _start(answer: Answer) -> str:
    return " ".join(answer.body[:400].decode("utf-8", "replace").split())


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:197]}..."
