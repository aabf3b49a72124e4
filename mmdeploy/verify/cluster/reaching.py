"""Chooses the way into a cluster: the one that was asked for, or the first that is allowed and gets to a pod."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mmdeploy.errors import ClusterError, MmdeployError
from mmdeploy.verify.cluster import rights
from mmdeploy.verify.cluster.backends import Backends
from mmdeploy.verify.cluster.looking import Seen, facts_of
from mmdeploy.verify.cluster.ways import Ways

if TYPE_CHECKING:
    from mmdeploy.catalog import Catalog
    from mmdeploy.cluster.session import Session
    from mmdeploy.verify.targets import Pod
    from mmdeploy.verify.transport import Answer, Transport

TRIED = 3
"""Pods by which a way is tried."""
TRIAL_SECONDS = 5.0
_REACHED = ("refused", "reset by peer", "no longer", "any more")
"""Words of a failure that came from the pod's own network: the way leads there."""


@dataclass
class Way:
    """A way into the cluster."""

    name: str
    """``proxy``, ``port-forward`` or ``pod``."""
    transport: Transport
    barred: Mapping[str, str] = field(default_factory=dict)
    """As `mmdeploy.verify.session.Session` takes it."""
    close: Callable[[], None] = lambda: None
    """Takes away what the way left on the cluster."""


def choose(
    session: Session, seen: Seen, catalog: Catalog, pods: Sequence[Pod], tell: Callable[[str], None],
    said: str | None = None,
) -> Way:  # fmt: skip
    """The way that was ``said``, or the first that works; each that does not is told in a line.

    Raises `ClusterError` where none does.
    """
    if said is not None:
        return opened(session, seen, catalog, said)
    reasons: list[str] = []
    for name in rights.WAYS:
        way, why_not = _tried(session, seen, catalog, name, pods)
        if way is not None:
            if reasons:
                tell(f"requests go by {name}")
            return way
        reasons.append(f"{name}: {why_not}")
        tell(f"{reasons[-1]}; trying another way")
    raise ClusterError(
        f"no way leads to the pods: {'; '.join(reasons)}",
        origin=f"namespace {seen.namespace}",
        next_step="run it from where pods can be reached, with --targets; or get the rights that --print-rbac prints",
    )


def _tried(
    session: Session, seen: Seen, catalog: Catalog, name: str, pods: Sequence[Pod]
) -> tuple[Way | None, str]:  # fmt: skip
    """A way that works; or None, and why it does not.

    The proxy is taken with fewer rights than it wants, unless another way may be gone in full.
    """
    lacking = rights.lacking(session, seen.namespace, rights.travelling(name))
    if lacking and (name != rights.PROXY or _granted_elsewhere(session, seen.namespace)):
        return None, f"no right to {', '.join(lacking)}"
    try:
        way = opened(session, seen, catalog, name, lacking)
    except MmdeployError as problem:
        return None, problem.found
    why_not = "" if "pods" in way.barred else _failure(way.transport, pods)
    if why_not:
        way.close()
        return None, f"does not get to the pods ({why_not})"
    return way, ""


def opened(
    session: Session, seen: Seen, catalog: Catalog, name: str, lacking: Sequence[str] | None = None
) -> Way:  # fmt: skip
    """A way by its name; ``lacking`` is what the person has no right to. Raises `ClusterError` where it is closed."""
    from mmdeploy.verify.transport import HttpTransport

    facts, namespace = facts_of(catalog), seen.namespace
    missing = rights.lacking(session, namespace, rights.travelling(name)) if lacking is None else lacking
    if name == rights.PROXY:
        from mmdeploy.verify.cluster.proxying import ProxyTransport

        transport = Ways(ProxyTransport(session, facts["proxy"]), HttpTransport())
        return Way(name, transport, _barred(missing, namespace))
    if missing:
        raise ClusterError(
            f"no right to {', '.join(missing)} in namespace {namespace}", origin=f"--via {name}",
            next_step=f"mmdeploy verify --print-rbac --via {name} prints the rights for an administrator",
        )  # fmt: skip
    backends = Backends(seen, {catalog.ports["client"]: catalog.ports["proxy"]})
    if name == rights.FORWARD:
        from mmdeploy.verify.cluster.forwarding import ForwardTransport

        forward = ForwardTransport(session, backends)
        return Way(name, Ways(forward, HttpTransport()), close=forward.close)
    from mmdeploy.verify.cluster.clientpod import ClientPod

    pod = ClientPod.started(session, namespace, facts["clientPod"], backends)
    return Way(name, Ways(pod, HttpTransport()), close=pod.close)


def _barred(missing: Sequence[str], namespace: str) -> dict[str, str]:
    kinds = {"create services/proxy": "entry", "get pods/proxy": "pods", "create pods/proxy": "direct"}
    return {kinds[right]: f"{right} in namespace {namespace}" for right in missing if right in kinds}


def _granted_elsewhere(session: Session, namespace: str) -> bool:
    """Whether another way is allowed in full."""
    return any(not rights.lacking(session, namespace, rights.travelling(name)) for name in rights.WAYS[1:])


def _failure(transport: Transport, pods: Sequence[Pod]) -> str:
    """Why no pod can be reached; empty where one can, or where there is none to try."""
    tried = [pod for pod in pods if pod.ready][:TRIED]
    if not tried:
        return ""

    from mmdeploy.verify.transport import Request

    def ask(pod: Pod) -> Answer:
        return transport.send(Request(pod.api, TRIAL_SECONDS, path="/health"))

    with ThreadPoolExecutor(TRIED) as threads:
        answers = list(threads.map(ask, tried))
    if any(_arrived(answer) for answer in answers):
        return ""
    return f"{answers[0].trouble}: {answers[0].detail}"


def _arrived(answer: Answer) -> bool:
    return answer.status is not None or any(word in answer.detail for word in _REACHED)
