"""The rights that putting a bundle on a cluster takes: exactly those, worked out from the bundle alone.

``apply`` needs the rights marked so; ``look`` are those without which a check sees less and apply works all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from mmdeploy.preflight.demand import demands, device_classes
from mmdeploy.preflight.facts import Facts
from mmdeploy.preflight.kinds import monitored, required, routed

if TYPE_CHECKING:
    from mmdeploy.intended import Intended

READ: Final = ("get", "list")
WRITE: Final = ("get", "list", "create", "patch", "delete")
"""Server-side apply is a patch that also needs create; helm patches too."""
REPLACE: Final = ("get", "list", "create", "update", "patch", "delete")


@dataclass(frozen=True)
class Right:
    """Verbs on a resource (``pods/log`` with its subresource), or on addresses that are no resource."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    why: str
    wide: bool = False
    """For the whole cluster rather than for the namespace."""
    names: tuple[str, ...] = ()
    need: Literal["apply", "look"] = "apply"

    @property
    def title(self) -> str:
        """``deployments.apps``."""
        return f"{self.resource}.{self.group}" if self.group else self.resource


def rights(intended: Intended, facts: Facts) -> list[Right]:
    """Everything that apply does for this bundle, then what a check looks at."""
    return merged([*_of_the_engine(intended), *_of_the_router(intended, facts), *_of_objects(intended),
                   *_of_waiting(intended), *_wide(intended, facts), *_looking(intended, facts)])  # fmt: skip


def _of_the_engine(intended: Intended) -> Iterator[Right]:
    yield Right("", "configmaps", REPLACE, "the list of what was applied, and the router's configuration")
    yield Right("", "secrets", REPLACE, "helm keeps its releases in Secrets, and the token is one")
    yield Right("coordination.k8s.io", "leases", ("get", "create", "update", "patch", "delete"),
                "the lock against two applies")  # fmt: skip


def _of_the_router(intended: Intended, facts: Facts) -> Iterator[Right]:
    why = "the router's chart"
    for resource in ("services", "serviceaccounts"):
        yield Right("", resource, WRITE, why)
    yield Right("apps", "deployments", WRITE, why)
    for resource in ("roles", "rolebindings"):
        yield Right("rbac.authorization.k8s.io", resource, WRITE, why)
    if ("inference.networking.k8s.io/v1", "InferencePool") in required(intended, facts):
        yield Right("inference.networking.k8s.io", "inferencepools", WRITE, why)
    if (intended.values.get("router") or {}).get("inferenceObjectives"):
        yield Right("llm-d.ai", "inferenceobjectives", WRITE, why)
    if routed(intended):
        yield Right("gateway.networking.k8s.io", "httproutes", WRITE, why)
        yield Right("gateway.networking.k8s.io", "gateways", READ, "whether the gateway is there and takes requests")
    if monitored(intended):
        yield Right("monitoring.coreos.com", "servicemonitors", WRITE, why)
    provider = str((intended.values.get("provider") or {}).get("name", "none"))
    for rule in facts["router"]["providers"].get(provider, ()):
        for group, resource in _each(rule):
            yield Right(group, resource, WRITE, f"{why} for {provider}")
    yield from held(intended, facts)


def held(intended: Intended, facts: Facts) -> Iterator[Right]:
    """What the router's Roles grant: the API server lets nobody grant what they do not hold."""
    rules = facts["router"]
    granted = list(rules["picker"])
    if ((intended.values.get("router") or {}).get("inferencePool") or {}).get("create", True):
        granted += rules["pickerOfPool"]
    for rule in granted:
        for group, resource in _each(rule):
            why = "the router's Role grants it, and nobody may grant what they do not hold"
            yield Right(group, resource, tuple(rules["pickerVerbs"]), why)


def _of_objects(intended: Intended) -> Iterator[Right]:
    for item in intended.objects:
        group = str(item["apiVersion"]).rpartition("/")[0]
        yield Right(group, plural(str(item["kind"])), WRITE, f"{item['kind']} {item['metadata']['name']}")


def _of_waiting(intended: Intended) -> Iterator[Right]:
    why = "waiting until it serves"
    yield Right("", "pods", READ, why)
    yield Right("", "pods/log", ("get",), "the end of the log of a pod that fails")
    yield Right("", "events", ("list",), why)
    yield Right("", "services/proxy", ("get",), "asking the router which models it serves")
    yield Right("", "pods/proxy", ("get",), "asking a pod which models it serves")
    yield Right("apps", "replicasets", READ, why)
    kinds = {item["kind"] for item in intended.workloads}
    if "DisaggregatedSet" in kinds:
        yield Right("leaderworkerset.x-k8s.io", "leaderworkersets", READ, why)
    if kinds & {"DisaggregatedSet", "LeaderWorkerSet"}:
        yield Right("apps", "statefulsets", READ, why)


def _wide(intended: Intended, facts: Facts) -> Iterator[Right]:
    if not monitored(intended):
        return
    name = f"{intended.name}-{intended.namespace}-epp"
    why = "the router's chart, for checking the token of a scrape"
    for resource in ("clusterroles", "clusterrolebindings"):
        yield Right("rbac.authorization.k8s.io", resource, ("create",), why, wide=True)
        yield Right("rbac.authorization.k8s.io", resource, ("get", "patch", "delete"), why, True, (name,))
    for rule in facts["router"]["wide"]:
        if "urls" in rule:
            yield Right("", "", tuple(rule["verbs"]), "the router's ClusterRole grants it", True, tuple(rule["urls"]))
            continue
        for group, resource in _each(rule):
            yield Right(group, resource, tuple(rule["verbs"]), "the router's ClusterRole grants it", wide=True)


def _looking(intended: Intended, facts: Facts) -> Iterator[Right]:
    def look(group: str, resource: str, verbs: tuple[str, ...], why: str, *names: str, wide: bool = True) -> Right:
        return Right(group, resource, verbs, why, wide, tuple(names), "look")

    found = demands(intended, facts)
    yield look("", "resourcequotas", ("list",), "quota", wide=False)
    yield look("", "limitranges", ("list",), "limits", wide=False)
    if any("persistentVolumeClaim" in volume for item in found for volume in item.spec.get("volumes") or ()):
        yield look("", "persistentvolumeclaims", ("get",), "volumes", wide=False)
        yield look("storage.k8s.io", "storageclasses", ("get",), "volumes")
    yield look("", "namespaces", ("get",), "the namespace's labels", intended.namespace, wide=False)
    yield look("", "nodes", ("list",), "room for the pods")
    yield look("", "pods", ("list",), "what is free on nodes")
    classes = sorted({str(item.spec["priorityClassName"]) for item in found if item.spec.get("priorityClassName")})
    if classes:
        yield look("scheduling.k8s.io", "priorityclasses", ("get",), "the pods' priority class", *classes)
    devices = device_classes(found)
    if devices:
        yield look("resource.k8s.io", "deviceclasses", ("get",), "devices", *devices)
        yield look("resource.k8s.io", "resourceslices", ("list",), "devices")
        yield look("resource.k8s.io", "resourceclaims", ("list",), "devices that are taken")
    chosen = str((intended.spec.get("gateway") or {}).get("gatewayClass", "none"))
    if intended.mode == "gateway" and chosen in facts["gateways"]["classes"]:
        name = facts["gateways"]["classes"][chosen]
        yield look("gateway.networking.k8s.io", "gatewayclasses", ("get",), "the gateway's class", name)
        if chosen == "istio":
            yield look("apps", "deployments", ("list",), "whether istiod understands pools")


def _each(rule: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for group in rule["groups"]:
        for resource in rule["resources"]:
            yield group, resource


def merged(found: list[Right]) -> list[Right]:
    """One right a resource, scope, names and need: verbs together, the first reason kept."""
    result: dict[tuple[object, ...], Right] = {}
    for right in found:
        key = (right.group, right.resource, right.wide, right.names, right.need)
        before = result.get(key)
        if before is None:
            result[key] = right
        else:
            verbs = tuple(dict.fromkeys((*before.verbs, *right.verbs)))
            result[key] = Right(right.group, right.resource, verbs, before.why, right.wide, right.names, right.need)
    return list(result.values())


def plural(kind: str) -> str:
    """The resource of a kind, as Kubernetes forms its plurals."""
    word = kind.lower()
    if word.endswith(("s", "x", "ch")):
        return f"{word}es"
    return f"{word[:-1]}ies" if word.endswith("y") and word[-2:-1] not in "aeiou" else f"{word}s"


__all__ = ["Right", "held", "merged", "plural", "rights"]
