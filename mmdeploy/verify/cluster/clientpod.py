"""Requests from a pod inside the cluster, for those who may make pods but reach none.

The pod holds nothing but curl, has no service account and no rights, and ends by itself should mmdeploy be killed.
Requests and tokens go to curl by its standard input: neither stands in an argument or in an object.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mmdeploy.errors import ClusterError, ForbiddenError, NotFoundError
from mmdeploy.verify.cluster.looking import ready
from mmdeploy.verify.cluster.places import place
from mmdeploy.verify.targets import token
from mmdeploy.verify.transport import Answer, Request, Trouble

if TYPE_CHECKING:
    from mmdeploy.cluster.session import Session
    from mmdeploy.verify.cluster.backends import Backends
    from mmdeploy.verify.targets import Endpoint

CONTAINER = "curl"
LABEL = "app.kubernetes.io/managed-by"
_LOOK_SECONDS = 0.5
_SCRIPT = 'head -c "$1" | curl --silent --show-error --include --no-buffer --config -'
_TROUBLES: Mapping[int, Trouble] = {
    6: "unreachable", 7: "unreachable", 28: "timeout", 18: "cut", 52: "cut", 56: "cut", 35: "tls", 60: "tls",
}  # fmt: skip
"""curl's exit codes (its manual): no such host, refused, timed out, ended early, no answer, broken off, TLS."""


@dataclass
class ClientPod:
    """See the module. Safe to use from several threads."""

    session: Session
    namespace: str
    name: str
    backends: Backends
    clock: Callable[[], float] = time.monotonic
    _tokens: dict[str, str] = field(default_factory=dict)

    @classmethod
    def started(
        cls, session: Session, namespace: str, facts: Mapping[str, Any], backends: Backends,
        sleep: Callable[[float], None] = time.sleep,
    ) -> ClientPod:  # fmt: skip
        """Make the pod and wait until it runs; whatever goes wrong, it is taken away again.

        Raises `ClusterError` and its kin: a right is missing, a policy refuses it, or it does not start.
        """
        made = session.create(manifest(namespace, facts))
        pod = cls(session, namespace, made["metadata"]["name"], backends)
        try:
            pod.wait(float(facts["readySeconds"]), sleep)
        except BaseException:
            pod.close()
            raise
        return pod

    def wait(self, seconds: float, sleep: Callable[[float], None]) -> None:
        """Until it runs. Raises `ClusterError` where it does not within so many seconds."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"
        for _ in range(max(1, round(seconds / _LOOK_SECONDS))):
            item = self.session.get(path)
            if ready(item):
                return
            sleep(_LOOK_SECONDS)
        raise ClusterError(
            f"the pod that should send requests does not run after {seconds:g} s: {_state(item)}",
            origin=f"pod {self.name}", next_step="--via proxy or --via port-forward need no pod",
        )  # fmt: skip

    def close(self) -> None:
        """Take the pod away."""
        item = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": self.name, "namespace": self.namespace}}
        with contextlib.suppress(NotFoundError):
            self.session.request(
                "DELETE", self.session.path_of(item),
                body={"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0},
            )  # fmt: skip

    def send(self, request: Request) -> Answer:
        """See `mmdeploy.verify.transport.Transport`. Raises `UsageError` for a token that cannot be read."""
        from mmdeploy.cluster.channels import run

        endpoint = request.endpoint
        target = place(endpoint.url)
        url = self.backends.url(target) if target else None
        if url is None:
            return Answer(None, trouble="unreachable", detail=f"nothing is known to be at {endpoint.url}")
        sent = dict(request.headers) | ({"authorization": f"Bearer {self._token(endpoint)}"} if endpoint.token else {})
        said = _config(request, url, sent)
        start = self.clock()
        try:
            running = run(self.session, self.namespace, self.name, CONTAINER, words(len(said)), said)
        except ForbiddenError as problem:
            return Answer(None, trouble="forbidden", detail=problem.found)
        except ClusterError as problem:
            return Answer(None, trouble="unreachable", detail=f"the pod {self.name}: {problem.found}")
        try:
            return self._read(running, start, request.timeout)
        finally:
            running.close()

    def _read(self, running: Any, start: float, timeout: float) -> Answer:
        out: list[tuple[float, bytes]] = []
        errors = b""
        try:
            for piece in running.pieces(timeout + 5):
                if piece.stream == "out":
                    out.append((self.clock() - start, piece.data))
                else:
                    errors += piece.data
        except TimeoutError as problem:
            return Answer(None, seconds=self.clock() - start, trouble="timeout", detail=str(problem))
        seconds, code = self.clock() - start, running.code
        status, received, pieces = parsed(out)
        if code in (0, None) and status is not None:
            return Answer(status, received, pieces, seconds)
        detail = errors.decode("utf-8", "replace").strip() or f"curl ended with {code}"
        return Answer(status, received, pieces, seconds, _TROUBLES.get(code or 0, "unreachable"), detail[:200])

    def _token(self, endpoint: Endpoint) -> str:
        if endpoint.token not in self._tokens:
            self._tokens[endpoint.token] = token(endpoint)
        return self._tokens[endpoint.token]


def manifest(namespace: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The pod, as the strictest of Kubernetes' pod security standards wants it."""
    limits = {"cpu": facts["cpu"], "memory": facts["memory"]}
    container = {
        "name": CONTAINER,
        "image": facts["image"],
        "command": ["sleep", str(facts["seconds"])],
        "resources": {"requests": limits, "limits": limits},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "mmdeploy-verify-", "namespace": namespace, "labels": {LABEL: "mmdeploy"}},
        "spec": {
            "containers": [container],
            "restartPolicy": "Never",
            "activeDeadlineSeconds": facts["seconds"],
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": facts["user"],
                "seccompProfile": {"type": "RuntimeDefault"},
            },
        },
    }


def words(length: int) -> list[str]:
    """The command: curl, with what it is to do on its standard input, which is so many bytes long. The input is not
    closed at the end, which is why its length is said."""
    return ["sh", "-c", _SCRIPT, "sh", str(length)]


def _config(request: Request, url: str, headers: Mapping[str, str]) -> bytes:
    """curl's own file of options: one a line, values in quotes."""
    lines = [("url", url + request.path), ("request", request.method), ("max-time", f"{request.timeout:g}")]
    lines.append(("header", "expect:"))
    lines += [("header", f"{name}: {value}") for name, value in headers.items()]
    if request.body is not None:
        lines.append(("data-raw", request.body.decode()))
    return "".join(f"{name} = {_quoted(value)}\n" for name, value in lines).encode()


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def parsed(
    out: list[tuple[float, bytes]],
) -> tuple[int | None, dict[str, str], tuple[tuple[float, bytes], ...]]:  # fmt: skip
    """Status, headers and the body's pieces of what curl wrote."""
    text = b"".join(data for _, data in out)
    head, found, _ = text.partition(b"\r\n\r\n")
    if not found:
        return None, {}, ()
    first, *rest = head.decode("latin-1").split("\r\n")
    number = first.split()[1] if len(first.split()) > 1 else ""
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    return (int(number) if number.isdigit() else None), headers, tuple(_body(out, len(head) + 4))


def _body(out: list[tuple[float, bytes]], skip: int) -> Iterator[tuple[float, bytes]]:
    for at, data in out:
        rest = data[skip:]
        skip = max(0, skip - len(data))
        if rest:
            yield at, rest


def _state(pod: Mapping[str, Any]) -> str:
    """Why a pod does not run, as its status has it."""
    status = pod.get("status") or {}
    for item in status.get("containerStatuses") or ():
        waiting = (item.get("state") or {}).get("waiting")
        if waiting:
            return f"{waiting.get('reason', 'waiting')} {waiting.get('message', '')}".strip()
    told = [str(item.get("message", "")) for item in status.get("conditions") or () if item.get("status") == "False"]
    return next(filter(None, told), json.dumps(status.get("phase", "unknown")))
