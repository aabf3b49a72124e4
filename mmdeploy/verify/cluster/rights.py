"""The rights that verifying a deployment takes: no more than these, and what is lost without each.

None of them reaches Secrets. Only two change anything: ``--via pod`` makes a pod, and takes it away again;
``--debug-logs`` sets a variable on workloads, and puts it back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from mmdeploy.errors import ClusterError
from mmdeploy.preflight.rights import Right
from mmdeploy.verify.cluster.looking import facts_of

if TYPE_CHECKING:
    from mmdeploy.catalog import Catalog
    from mmdeploy.cluster.session import Session

PROXY, FORWARD, POD = "proxy", "port-forward", "pod"
WAYS: Final = (PROXY, FORWARD, POD)
"""Ways into a cluster, in the order in which they are tried."""


def wanted(catalog: Catalog, name: str, way: str = PROXY, gateway: bool = True) -> list[Right]:
    """The rights for one deployment and way; ``gateway``: also those that find a Gateway in front of it."""
    return [*looking(catalog, name, gateway), *travelling(way)]


def looking(catalog: Catalog, name: str, gateway: bool = True) -> list[Right]:
    """Rights that finding the deployment takes."""
    facts = facts_of(catalog)
    pools = facts["kinds"]["pools"]
    configurations = (f"mmdeploy-{name}", f"{name}{facts['router']['serviceSuffix']}")
    found = [
        Right("", "pods", ("list",), "which pods there are"),
        Right("", "services", ("list",), "the entry point"),
        Right(_group(pools), "inferencepools", ("list",), "which pods the pool selects"),
        *reading(),
        Right("", "configmaps", ("get",), "what was deployed, and the picker's configuration", names=configurations),
    ]
    if gateway:
        for key, resource in (("routes", "httproutes"), ("gateways", "gateways")):
            found.append(Right(_group(facts["kinds"][key]), resource, ("list",), "the Gateway in front"))
    return found


def reading() -> list[Right]:
    """The right that reading engines' logs takes."""
    return [Right("", "pods/log", ("get",), "what engines log of the embeddings")]


def changing() -> list[Right]:
    """Rights that ``--debug-logs`` takes: to find what makes a pod, owner by owner, and to set a variable on it."""
    why = "the log level of engines, raised and put back"
    between = "what makes a pod"
    return [
        Right("", "pods", ("get", "list"), between),
        Right("apps", "replicasets", ("get",), between),
        Right("leaderworkerset.x-k8s.io", "leaderworkersets", ("get",), between),
        Right("apps", "deployments", ("get", "update"), why),
        Right("apps", "statefulsets", ("get", "update"), why),
        Right("disaggregatedset.x-k8s.io", "disaggregatedsets", ("get", "update"), why),
    ]


def travelling(way: str) -> list[Right]:
    """Rights that getting requests there takes."""
    if way == FORWARD:
        return [Right("", "pods/portforward", ("get", "create"), "requests to pods, and to the router's pod")]
    if way == POD:
        return [
            Right("", "pods", ("get", "create", "delete"), "the pod that sends the requests"),
            Right("", "pods/exec", ("get", "create"), "requests from that pod"),
        ]
    return [
        Right("", "pods/proxy", ("get", "create"), "metrics of pods, and requests to them"),
        Right("", "services/proxy", ("create",), "requests through the entry point"),
    ]


def lacking(session: Session, namespace: str, rights: Iterable[Right]) -> list[str]:
    """What of these rights the person lacks, as ``create services/proxy``; the questions are asked at the same time.

    A cluster that does not answer such questions is taken to grant everything: what it refuses will show.
    """
    asked = [(right, verb, name) for right in rights for verb in right.verbs for name in right.names or ("",)]
    answers = session.all([_question(session, namespace, *item) for item in asked])
    return [_said(right, verb, name) for (right, verb, name), may in zip(asked, answers, strict=True) if not may]


def manifests(
    catalog: Catalog, name: str, namespace: str, ways: Sequence[str], who: str | None, debug: bool = False
) -> list[dict[str, Any]]:
    """Role and binding for an administrator to apply; ``debug``: also to change log levels. Raises `UsageError` for a
    ``who`` that names nobody."""
    from mmdeploy.preflight.rbac import manifests as written
    from mmdeploy.preflight.rights import merged

    every = [*looking(catalog, name), *(right for way in ways for right in travelling(way))]
    every += changing() if debug else []
    return written(merged(every), f"{name}-verify", namespace, who)


def _question(session: Session, namespace: str, right: Right, verb: str, name: str) -> Any:
    resource, _, part = right.resource.partition("/")
    attributes = {"verb": verb, "group": right.group, "resource": resource, "namespace": namespace}
    attributes |= ({"subresource": part} if part else {}) | ({"name": name} if name else {})

    def ask() -> bool:
        try:
            return session.review(attributes)
        except ClusterError:
            return True

    return ask


def _said(right: Right, verb: str, name: str) -> str:
    return f"{verb} {right.title}" + (f" {name}" if name else "")


def _group(kind: dict[str, str]) -> str:
    return kind["apiVersion"].partition("/")[0]
