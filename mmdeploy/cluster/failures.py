"""What goes wrong between here and the API server, as one sentence each."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from mmdeploy.errors import ClusterError, ConflictError, ForbiddenError, NotFoundError, RejectedError

_WEBHOOK = {
    True: "change the object as the webhook wants it, or ask whoever runs the webhook",
    False: "whoever runs the webhook must bring it back: until then the cluster refuses such objects",
}
"""By whether the webhook answered."""


def from_config(found: str, contexts: Sequence[str] = ()) -> ClusterError:
    """A kubeconfig that cannot be used."""
    return ClusterError(
        found,
        origin="kubeconfig",
        nearest=list(contexts)[:5],
        next_step="set KUBECONFIG or --kubeconfig, or choose a --context",
    )


def from_transport(problem: Exception, server: str) -> ClusterError:
    """A request that got no answer: name resolution, refused connection, TLS, proxy, time."""
    text = str(problem)
    reasons = (
        (
            r"Unable to connect to proxy|ProxyError|Tunnel connection failed",
            "the proxy does not let the request through",
        ),
        (r"CERTIFICATE_VERIFY_FAILED", "its certificate is not trusted by the kubeconfig's certificate authority"),
        (r"hostname .* doesn't match|IP address mismatch|Hostname mismatch", "its certificate is for another name"),
        (r"WRONG_VERSION_NUMBER|record layer", "it does not speak TLS on that port"),
        (r"Name or service not known|nodename nor servname|getaddrinfo|Failed to resolve", "its name does not resolve"),
        (r"Connection refused|Errno 111", "nothing listens there"),
        (r"No route to host|Network is unreachable", "there is no route to it"),
        (r"timed out|Timeout", "it does not answer in time"),
        (r"reset by peer|RemoteDisconnected|Connection aborted", "it closed the connection"),
    )
    why = next((said for pattern, said in reasons if re.search(pattern, text)), type(problem).__name__)
    return ClusterError(
        f"the API server {server} cannot be reached: {why}",
        origin="kubeconfig",
        next_step="kubectl version shows whether kubectl reaches it; --context chooses another cluster",
    )


def from_response(status: int, data: bytes, method: str, path: str) -> ClusterError:
    """An answer that says no."""
    message = _message(data)
    if status == 401:
        return ClusterError(
            "the credentials are not accepted: they are missing, wrong or expired", origin="kubeconfig",
            next_step="log in to the cluster again",
        )  # fmt: skip
    denied = re.search(r'admission webhook "([^"]+)" denied|failed calling webhook "([^"]+)"', message)
    if denied:
        return RejectedError(message, origin=f"webhook {denied[1] or denied[2]}", next_step=_WEBHOOK[bool(denied[1])])
    if status == 403 and "exceeded quota" in message:
        return RejectedError(
            message, next_step="kubectl describe quota --namespace NAMESPACE; an administrator can raise it"
        )
    if status == 403:
        return ForbiddenError(
            message or f"{method} {path} is forbidden",
            next_step="mmdeploy check BUNDLE --print-rbac --for USER prints the rights it takes",
        )
    # A 404 in other words is the API server's, too: of a group that nobody serves.
    if status == 400 and not _from_api_server(data):
        return ClusterError(
            f"what the kubeconfig calls the API server is none: it answers {status} {message}".rstrip(),
            origin="kubeconfig", next_step="kubectl cluster-info shows its address; --context chooses another cluster",
        )  # fmt: skip
    if status == 404:
        return NotFoundError(message or f"{path} does not exist")
    if status == 409:
        return _conflict(message)
    # Server-side apply of a field that the schema lacks, or of another type, is answered with 500.
    if status in (400, 422) or re.search(r"field not declared in schema|failed to create typed patch object", message):
        return RejectedError(
            message, next_step="mmdeploy lint, or the message's own path, shows where the object is wrong"
        )
    return ClusterError(
        f"the API server answers {status}: {message or 'no reason given'}",
        next_step="run the command again; its administrator finds the reason in its log",
    )


def _from_api_server(data: bytes) -> bool:
    """Whether an answer has the form of the API server's, which is a Status or another object."""
    try:
        return isinstance(json.loads(data), dict)
    except ValueError:
        return False


def _conflict(message: str) -> ConflictError:
    managers = tuple(dict.fromkeys(re.findall(r'conflicts? with "([^"]+)"', message)))
    problem = ConflictError(
        message,
        next_step="--force-conflicts takes the fields over; the other manager may take them back" if managers else None,
    )
    problem.managers = managers
    return problem


def _message(data: bytes) -> str:
    try:
        status = json.loads(data)
    except ValueError:
        return data.decode("utf-8", "replace").strip()[:300]
    return str(status.get("message", "")) if isinstance(status, dict) else str(status)[:300]
