"""Requests to one API server.

Objects are plain dictionaries, because the models of `kubernetes` are slow for long lists. Reads that depend on nothing
run in parallel (`Session.all`).
"""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import Any, TypeVar
from urllib.parse import urlencode

from mmdeploy.cluster.access import Access, Connection
from mmdeploy.cluster.failures import from_response, from_transport
from mmdeploy.cluster.parallel import together
from mmdeploy.errors import ClusterError, NotFoundError

FIELD_MANAGER = "mmdeploy"
PAGE = 500
"""Items a page of a list: what kubectl asks for."""
ATTEMPTS = 7
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 10.0
PARALLEL = 8
"""Requests at a time; the API server's own priority levels give a user about as many seats."""

PIECE = 1 << 16
"""Bytes of an answer that are taken at a time."""

T = TypeVar("T")

Trace = Callable[[str], None]
"""Is told each request as a line, for ``-v``: method, path, status and milliseconds, never headers or bodies."""


@dataclass(frozen=True)
class Answer:
    """What a request got, whatever its status."""

    status: int
    headers: Mapping[str, str]
    data: bytes


@dataclass(frozen=True)
class Opened:
    """The beginning of an answer whose body is still on its way."""

    status: int
    headers: Mapping[str, str]
    """By lower-case name."""
    pieces: Iterator[bytes]
    """The body as it arrives. Raises `TimeoutError` and `ConnectionError`."""


class Session:
    """A connection that everything on the live side shares; safe for use by several threads."""

    def __init__(
        self, connection: Connection, access: Access, sleep: Callable[[float], None] = time.sleep,
        trace: Trace | None = None,
    ) -> None:  # fmt: skip
        self.connection = connection
        """What carries the requests, for what this room needs beside them."""
        self.where = connection.where
        self.access = access
        self._sleep = sleep
        self._trace = trace
        self._resources: dict[str, dict[str, dict[str, Any]]] = {}
        self._discovering = threading.Lock()
        self._answered = False
        self._ahead = timedelta(0)

    @classmethod
    def connect(
        cls, access: Access | None = None, trace: Trace | None = None, sleep: Callable[[float], None] = time.sleep
    ) -> Session:
        """A session for a kubeconfig's context (default: the current one, or the pod's own account).

        ``sleep`` pauses before a request is tried again; it may raise, to give up. Raises `ClusterError` in one
        sentence for a missing or broken kubeconfig, an unknown context, or a login program that fails.
        """
        access = access or Access()
        return cls(access.connection(), access, sleep, trace)

    # --------------------------------------------------------------------------------------------------- one request

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        timeout: float = 30,
    ) -> Any:
        """One request; the answer as plain JSON (or text, where it is not JSON).

        429, 5xx and broken connections are tried again with growing pauses, where that cannot do a thing twice: reads,
        server-side apply and deletion may be repeated, a creation only when the server says that it did nothing. A
        server that has never answered is not waited for: it is the wrong one, or away. Raises `ClusterError` and kin.
        """
        text = None if body is None else json.dumps(body)
        pause = FIRST_PAUSE_SECONDS
        for attempt in range(1, ATTEMPTS + 1):
            problem: ClusterError
            wait: float | None = None
            try:
                answer = self.once(method, path, query, text, content_type, timeout)
            except _TransportError as broken:
                problem, again = broken.problem, self._answered and broken.transient and method != "POST"
            else:
                if answer.status < 400:
                    return _decoded(answer.data)
                problem = from_response(answer.status, answer.data, method, path)
                again = _repeatable(answer, method)
                wait = _retry_after(answer.headers)
            if not again or attempt == ATTEMPTS:
                raise problem from None
            self._sleep(wait or pause * random.uniform(0.8, 1.2))
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
        raise AssertionError("the loop returns or raises")

    def once(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        text: str | bytes | None = None,
        content_type: str = "application/json",
        timeout: float = 30,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request, tried once; any status is an answer. Raises `ClusterError` where there is none."""
        import urllib3

        url = self.where.server + path + (f"?{urlencode(query, doseq=True)}" if query else "")
        sent = {"Accept": "application/json", "Content-Type": content_type, "User-Agent": FIELD_MANAGER}
        sent |= {**(headers or {}), **self.connection.credentials()}
        begun = time.monotonic()
        try:
            answer = self.connection.pool.request(
                method, url, body=text, headers=sent, timeout=timeout, retries=False, redirect=False
            )
        except urllib3.exceptions.HTTPError as problem:
            transient = isinstance(problem, urllib3.exceptions.ProtocolError | urllib3.exceptions.NewConnectionError)
            raise _TransportError(from_transport(problem, self.where.server), transient) from None
        self._answered = True
        if self._trace:
            asked = path + (f"?{urlencode(query, doseq=True)}" if query else "")
            self._trace(f"{method} {asked} {answer.status} {(time.monotonic() - begun) * 1000:.0f} ms")
        with contextlib.suppress(KeyError, ValueError, TypeError):
            self._ahead = parsedate_to_datetime(answer.headers["Date"]) - datetime.now(UTC)
        return Answer(answer.status, answer.headers, answer.data)

    @contextlib.contextmanager
    def opened(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 30,
    ) -> Iterator[Opened]:
        """One request, tried once, whose answer is read as it arrives; any status is an answer.

        ``path`` is sent as it is, query included; ``timeout`` is seconds between two signs of life. Raises
        `TimeoutError` for silence, `ConnectionError` for a connection that broke off, and `ClusterError` where the API
        server cannot be reached.
        """
        import urllib3

        sent = {"User-Agent": FIELD_MANAGER, **(headers or {}), **self.connection.credentials()}
        try:
            answer = self.connection.pool.request(
                method, self.where.server + path, body=body, headers=sent, timeout=timeout, retries=False,
                redirect=False, preload_content=False,
            )  # fmt: skip
        except urllib3.exceptions.ReadTimeoutError:
            raise TimeoutError(f"no answer within {timeout:g} s") from None
        except urllib3.exceptions.ProtocolError as problem:
            raise ConnectionError(str(problem)) from None
        except urllib3.exceptions.HTTPError as problem:
            raise from_transport(problem, self.where.server) from None
        whole = False
        try:
            received = {name.lower(): value for name, value in answer.headers.items()}
            yield Opened(answer.status, received, _pieces(answer, timeout))
            whole = answer.closed or answer.isclosed()
        finally:
            answer.release_conn() if whole else answer.close()
        if self._trace:
            self._trace(f"{method} {path} {answer.status}")

    def now(self) -> datetime:
        """The time by the API server's clock, to a second: what others wrote is compared with it."""
        return datetime.now(UTC) + self._ahead

    # ------------------------------------------------------------------------------------------------------- reading

    def get(self, path: str, **query: Any) -> Any:
        """One object, or whatever a path answers."""
        return self.request("GET", path, query)

    def find(self, path: str) -> Any | None:
        """One object; None where it does not exist."""
        try:
            return self.get(path)
        except NotFoundError:
            return None

    def live(self, item: Mapping[str, Any]) -> Any | None:
        """The object of the same kind and name as ``item``; None where it does not exist, or its kind is not
        served."""
        path = self.place(item)
        return None if path is None else self.find(path)

    def items(self, path: str, **query: Any) -> Iterator[dict[str, Any]]:
        """Every item of a list, page by page. ``kind`` and ``apiVersion`` are filled in, which lists leave out."""
        cursor: dict[str, Any] = {}
        while True:
            page = self.get(path, limit=PAGE, **query, **cursor)
            kind = {"apiVersion": page.get("apiVersion"), "kind": str(page.get("kind", "")).removesuffix("List")}
            for item in page.get("items") or ():
                yield {**kind, **item}
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return
            cursor = {"continue": token}

    def all(self, calls: Iterable[Callable[[], T]]) -> list[T]:
        """Results of independent calls, in order; they run in parallel. The first exception is raised."""
        return together(calls, PARALLEL)

    # ------------------------------------------------------------------------------------------------------- writing

    def apply(self, item: Mapping[str, Any], *, force: bool = False, dry_run: bool = False) -> Any:
        """Server-side apply under mmdeploy's field manager, with unknown fields refused; the object as it became.

        Raises `ConflictError` that names the other managers, unless ``force``; `RejectedError` for an object that the
        server refuses.
        """
        query: dict[str, Any] = {
            "fieldManager": FIELD_MANAGER,
            "fieldValidation": "Strict",
            "force": str(force).lower(),
        }
        if dry_run:
            query["dryRun"] = "All"
        return self.request("PATCH", self.path_of(item), query, dict(item), "application/apply-patch+yaml", timeout=60)

    def create(self, item: Mapping[str, Any], *, dry_run: bool = False) -> Any:
        """Create an object. Raises `ConflictError` where one of that name exists."""
        metadata = item["metadata"]
        path = self.collection(item["apiVersion"], item["kind"], metadata.get("namespace"))
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"} | ({"dryRun": "All"} if dry_run else {})
        return self.request("POST", path, query, dict(item))

    def replace(self, item: Mapping[str, Any]) -> Any:
        """Write an object back; with its resourceVersion, `ConflictError` where somebody was faster."""
        return self.request("PUT", self.path_of(item), {"fieldManager": FIELD_MANAGER}, dict(item))

    def patch(self, item: Mapping[str, Any], change: Any) -> Any:
        """Merge ``change`` into an object (RFC 7386)."""
        query = {"fieldManager": FIELD_MANAGER}
        return self.request("PATCH", self.path_of(item), query, change, "application/merge-patch+json")

    def delete(self, item: Mapping[str, Any], policy: str = "Foreground", uid: str | None = None) -> None:
        """Delete an object, and with ``uid`` only that very one; one that is gone already is no error."""
        options: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy}
        if uid:
            options["preconditions"] = {"uid": uid}
        with contextlib.suppress(NotFoundError):
            path = self.place(item)
            if path is not None:
                self.request("DELETE", path, body=options)

    def review(self, attributes: Mapping[str, str]) -> bool:
        """Whether the person may do something (``verb``, ``group``, ``resource``, ``subresource``, ``namespace``,
        ``name``)."""
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": dict(attributes)},
        }
        answer = self.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body=body)
        return bool(answer["status"].get("allowed"))

    # ----------------------------------------------------------------------------------------------------- discovery

    @cached_property
    def version(self) -> str:
        """The API server's version (``v1.35.4``)."""
        return str(self.get("/version")["gitVersion"])

    def resource(self, api_version: str, kind: str) -> Mapping[str, Any] | None:
        """How the server serves a kind (``name``, ``namespaced``, ``verbs``); None where it does not."""
        with self._discovering:
            if api_version not in self._resources:
                try:
                    served = self.get(_base(api_version))["resources"]
                except NotFoundError:
                    served = []
                self._resources[api_version] = {item["kind"]: item for item in served if "/" not in item["name"]}
            return self._resources[api_version].get(kind)

    def forget_kinds(self) -> None:
        """Ask the server again which kinds it serves: something was installed."""
        with self._discovering:
            self._resources.clear()

    def place(self, item: Mapping[str, Any]) -> str | None:
        """The path of an object; None for a kind that the server does not serve."""
        if self.resource(item["apiVersion"], item["kind"]) is None:
            return None
        return self.path_of(item)

    def path_of(self, item: Mapping[str, Any]) -> str:
        """The path of an object. Raises `NotFoundError` for a kind that the server does not serve."""
        metadata = item["metadata"]
        return f"{self.collection(item['apiVersion'], item['kind'], metadata.get('namespace'))}/{metadata['name']}"

    def collection(self, api_version: str, kind: str, namespace: str | None = None) -> str:
        """The path of a kind's list, in a namespace or (None) everywhere. Raises `NotFoundError` as `path_of`."""
        served = self.resource(api_version, kind)
        if served is None:
            raise NotFoundError(
                f"the cluster does not serve {kind} ({api_version})", next_step="mmdeploy check says what is missing"
            )
        inside = f"/namespaces/{namespace}" if served["namespaced"] and namespace else ""
        return f"{_base(api_version)}{inside}/{served['name']}"


class _TransportError(ClusterError):
    """No answer; carries the sentence for a person, and whether trying again may help."""

    def __init__(self, problem: ClusterError, transient: bool) -> None:
        super().__init__(problem.found, origin=problem.origin, next_step=problem.next_step)
        self.problem = problem
        self.transient = transient


def _pieces(answer: Any, timeout: float) -> Iterator[bytes]:
    import urllib3

    try:
        while piece := answer.read1(PIECE, decode_content=True):
            yield piece
    except urllib3.exceptions.ReadTimeoutError:
        raise TimeoutError(f"nothing more within {timeout:g} s") from None
    except (urllib3.exceptions.HTTPError, OSError) as problem:
        raise ConnectionError(str(problem)) from None


def _base(api_version: str) -> str:
    return "/api/v1" if api_version == "v1" else f"/apis/{api_version}"


def _repeatable(answer: Answer, method: str) -> bool:
    """Whether the same request may be sent again.

    429 means that nothing was done. A 5xx of a creation may come after the work; a webhook that cannot be reached is
    a 500 that waiting may mend, but whose sentence a person should see soon.
    """
    if answer.status == 429:
        return True
    if answer.status < 500 or method == "POST":
        return False
    return answer.status in (502, 503, 504) or (method == "GET" and answer.status == 500)


def _decoded(data: bytes) -> Any:
    text = data.decode("utf-8", "replace")
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _retry_after(headers: Mapping[str, str]) -> float | None:
    value = headers.get("Retry-After")
    return min(float(value), LONGEST_PAUSE_SECONDS) if value is not None and value.isdigit() else None


__all__ = ["FIELD_MANAGER", "Answer", "Opened", "Session"]
