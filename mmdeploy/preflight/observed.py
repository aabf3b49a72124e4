"""Everything that the checks look at, read at once: each list and object a single time, independent reads in parallel.

Nothing here judges. What cannot be read is kept as the reason why (`Reading`), so that a check can say what it did not
see instead of passing.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mmdeploy.errors import ForbiddenError, NotFoundError, UsageError
from mmdeploy.preflight import hub, secrets
from mmdeploy.preflight.check import Options
from mmdeploy.preflight.demand import demands, device_classes, router_name
from mmdeploy.preflight.facts import Facts
from mmdeploy.preflight.kinds import required
from mmdeploy.preflight.machines import Machine, Occupant, machine, occupant
from mmdeploy.preflight.reading import Reading, attempt

if TYPE_CHECKING:
    from mmdeploy.cluster.releases import Stored
    from mmdeploy.cluster.session import Session
    from mmdeploy.intended import Intended, Object

Items = list[dict[str, Any]]
_BUSY = "status.phase!=Succeeded,status.phase!=Failed"
"""Pods that have ended take nothing."""
_OURS = "app.kubernetes.io/managed-by=mmdeploy"


@dataclass(frozen=True)
class Observed:
    """What was read."""

    groups: Reading[dict[str, list[str]]]
    """API groups and their served versions."""
    served: Mapping[tuple[str, str], Reading[bool]]
    """Whether a kind is served, by apiVersion and kind."""
    namespace: Reading[dict[str, Any]]
    secrets: Mapping[str, Reading[frozenset[str]]]
    """Keys of the Secrets that pods refer to; never their values."""
    nodes: Reading[list[Machine]]
    pods: Reading[list[Occupant]]
    """Of the whole cluster where ``everywhere``, else of the namespace."""
    everywhere: bool
    quotas: Reading[Items]
    ranges: Reading[Items]
    workloads: Reading[Items]
    """Deployments of the namespace."""
    pools: Reading[Items]
    routes: Reading[Items]
    live: Mapping[tuple[str, str], Reading[dict[str, Any] | None]]
    """Objects by kind and name that are there already; None for one that is not."""
    priorities: Mapping[str, Reading[dict[str, Any]]]
    device_classes: Mapping[str, Reading[dict[str, Any]]]
    slices: Reading[Items]
    claims: Reading[Items]
    gateway_class: Reading[dict[str, Any]]
    istiod: Reading[Items]
    helm: Reading[str]
    kubectl: Reading[str]
    release: Reading[Stored | None]
    inventories: Reading[Items]
    """What mmdeploy has noted in the namespace: a ConfigMap a deployment."""
    schema: Reading[frozenset[str]]
    """Names of all fields of a DisaggregatedSet that the server knows; empty where no field was in question."""
    rules: Reading[dict[str, Any]]
    """The person's rights in the namespace, as a SelfSubjectRulesReview lists them."""
    hub: Reading[int]
    """The hub's status for the model's files."""


@dataclass
class _Reads:
    """What is to be read: named calls, run together."""

    calls: dict[str, Callable[[], Any]] = field(default_factory=dict)

    def ask(self, name: str, call: Callable[[], Any]) -> None:
        self.calls[name] = call

    def run(self, session: Session) -> dict[str, Reading[Any]]:
        results = session.all([_attempting(call) for call in self.calls.values()])
        return dict(zip(self.calls, results, strict=True))


def _attempting(call: Callable[[], Any]) -> Callable[[], Reading[Any]]:
    return lambda: attempt(call)


def observe(session: Session, intended: Intended, facts: Facts, options: Options) -> Observed:
    """Read it all. Raises `ClusterError` where the connection or the login breaks."""
    reads = _Reads()
    _ask_for_machines(reads, session, intended, facts)  # the longest first
    _ask_for_programs(reads, session, intended, options)
    _ask_for_the_namespace(reads, session, intended)
    _ask_for_kinds(reads, session, intended, facts)
    _ask_for_cluster_objects(reads, session, intended, facts)
    _ask_for_live_objects(reads, session, intended, facts)
    if options.hub and intended.spec.get("model"):
        reads.ask("hub", lambda: hub.ask(str(intended.spec["model"]), options.token, facts))
    got = reads.run(session)
    pods, everywhere = got["pods"].value or ([], False)
    single = {name: got.get(name, Reading()) for name in _SINGLE}
    return Observed(
        pods=Reading(pods, got["pods"].problem) if got["pods"].value else Reading(problem=got["pods"].problem),
        everywhere=everywhere,
        served=_named(got, "served"),
        secrets=_named(got, "secret"),
        live=_named(got, "live"),
        priorities=_named(got, "priority"),
        device_classes=_named(got, "device"),
        **single,
    )


_SINGLE = (
    "groups", "namespace", "nodes", "quotas", "ranges", "workloads", "pools", "routes", "slices", "claims",
    "gateway_class", "istiod", "helm", "kubectl", "release", "inventories", "schema", "rules", "hub",
)  # fmt: skip


def _named(got: Mapping[str, Reading[Any]], kind: str) -> dict[Any, Reading[Any]]:
    """Readings that were asked under ``kind|name`` or ``kind|one|two``."""
    found = {}
    for key, reading in got.items():
        word, *names = key.split("|")
        if word == kind:
            found[names[0] if len(names) == 1 else tuple(names)] = reading
    return found


# -------------------------------------------------------------------------------------------------------------- what


def _ask_for_machines(reads: _Reads, session: Session, intended: Intended, facts: Facts) -> None:
    reads.ask("pods", lambda: _pods(session, intended.namespace))
    reads.ask("nodes", lambda: [machine(item, facts) for item in session.items("/api/v1/nodes")])


def _pods(session: Session, namespace: str) -> tuple[list[Occupant], bool]:
    try:
        return [occupant(pod, namespace) for pod in session.items("/api/v1/pods", fieldSelector=_BUSY)], True
    except ForbiddenError:
        path = f"/api/v1/namespaces/{namespace}/pods"
        return [occupant(pod, namespace) for pod in session.items(path, fieldSelector=_BUSY)], False


def _ask_for_programs(reads: _Reads, session: Session, intended: Intended, options: Options) -> None:
    from mmdeploy.cluster.helm import Helm

    helm = Helm(session.access, intended.namespace)
    reads.ask("helm", lambda: ".".join(map(str, helm.version())))
    if options.kubectl:
        reads.ask("kubectl", lambda: _kubectl(session))


def _kubectl(session: Session) -> str:
    try:
        done = subprocess.run(
            ["kubectl", "version", "--client"], capture_output=True, text=True, timeout=20, check=False,
            env=session.access.environment(),
        )  # fmt: skip
    except (FileNotFoundError, subprocess.TimeoutExpired):
        raise UsageError("kubectl is not here") from None
    match = re.search(r"Client Version: v?(\S+)", done.stdout)
    if match is None:
        raise UsageError("kubectl does not say its version")
    return match[1]


def _ask_for_the_namespace(reads: _Reads, session: Session, intended: Intended) -> None:
    from mmdeploy.cluster.releases import stored

    namespace = intended.namespace
    where = f"/api/v1/namespaces/{namespace}"
    reads.ask("namespace", lambda: session.get(where))
    reads.ask("quotas", lambda: list(session.items(f"{where}/resourcequotas")))
    reads.ask("ranges", lambda: list(session.items(f"{where}/limitranges")))
    reads.ask("release", lambda: stored(session, namespace, intended.name))
    reads.ask("inventories", lambda: list(session.items(f"{where}/configmaps", labelSelector=_OURS)))
    reads.ask("workloads", lambda: list(session.items(f"/apis/apps/v1/namespaces/{namespace}/deployments")))
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    reads.ask("rules", lambda: session.request("POST", path, body=review)["status"])
    for name in secrets.referred(intended):
        reads.ask(f"secret|{name}", _keys(session, f"{where}/secrets/{name}"))


def _keys(session: Session, path: str) -> Callable[[], frozenset[str]]:
    """The values go no further than this."""
    return lambda: frozenset(session.get(path).get("data") or {})


def _ask_for_kinds(reads: _Reads, session: Session, intended: Intended, facts: Facts) -> None:
    def served(api_version: str, kind: str) -> Callable[[], bool]:
        return lambda: session.resource(api_version, kind) is not None

    reads.ask("groups", lambda: _groups(session))
    for api_version, kind in [*required(intended, facts), facts.kind("gatewayClass")]:
        reads.ask(f"served|{api_version}|{kind}", served(api_version, kind))
    field_name = facts["sets"]["field"]
    in_question = any(
        field_name in role["spec"]
        for item in intended.workloads if item["kind"] == "DisaggregatedSet"
        for role in item["spec"]["roles"]
    )  # fmt: skip
    if in_question:
        api_version, kind = facts.kind("set")
        reads.ask("schema", lambda: _fields(session, api_version, kind))


def _groups(session: Session) -> dict[str, list[str]]:
    found = session.get("/apis")["groups"]
    return {group["name"]: [version["version"] for version in group["versions"]] for group in found}


def _fields(session: Session, api_version: str, kind: str) -> frozenset[str]:
    """Names of the fields of a role's ``spec``, from the schema that the server publishes to everybody."""
    found = session.get(f"/openapi/v3/apis/{api_version}")
    schemas = [item for name, item in found["components"]["schemas"].items() if name.endswith(f".{kind}")]
    try:
        roles = schemas[0]["properties"]["spec"]["properties"]["roles"]["items"]["properties"]
        return frozenset(roles["spec"]["properties"])
    except (IndexError, KeyError, TypeError):
        raise NotFoundError(f"the server publishes no schema of {kind}") from None


def _ask_for_cluster_objects(reads: _Reads, session: Session, intended: Intended, facts: Facts) -> None:
    def get(path: str) -> Callable[[], Any]:
        return lambda: session.get(path)

    found = demands(intended, facts)
    for name in sorted({str(item.spec["priorityClassName"]) for item in found if item.spec.get("priorityClassName")}):
        reads.ask(f"priority|{name}", get(f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}"))
    classes = device_classes(found)
    for name in classes:
        reads.ask(f"device|{name}", get(f"/apis/resource.k8s.io/v1/deviceclasses/{name}"))
    if classes:
        reads.ask("slices", lambda: list(session.items("/apis/resource.k8s.io/v1/resourceslices")))
        reads.ask("claims", lambda: list(session.items("/apis/resource.k8s.io/v1/resourceclaims")))
    chosen = str((intended.spec.get("gateway") or {}).get("gatewayClass", "none"))
    if intended.mode == "gateway" and chosen in facts["gateways"]["classes"]:
        name = facts["gateways"]["classes"][chosen]
        reads.ask("gateway_class", get(f"/apis/gateway.networking.k8s.io/v1/gatewayclasses/{name}"))
        if chosen == "istio":
            selector = facts["gateways"]["istio"]["selector"]
            reads.ask("istiod", lambda: list(session.items("/apis/apps/v1/deployments", labelSelector=selector)))


def _ask_for_live_objects(reads: _Reads, session: Session, intended: Intended, facts: Facts) -> None:
    def live(item: Object) -> Callable[[], Any]:
        return lambda: session.live(item)

    for item in looked_for(intended, facts):
        reads.ask(f"live|{item['kind']}|{item['metadata']['name']}", live(item))
    for name, key in (("pools", "pool"), ("routes", "route")):
        api_version, kind = facts.kind(key)
        if (api_version, kind) in required(intended, facts):
            reads.ask(name, _list(session, api_version, kind, intended.namespace))


def _list(session: Session, api_version: str, kind: str, namespace: str) -> Callable[[], Items]:
    return lambda: list(session.items(session.collection(api_version, kind, namespace)))


def looked_for(intended: Intended, facts: Facts) -> Iterator[Object]:
    """Objects whose presence matters: the bundle's own, the router's with fixed names and claims."""
    namespace = intended.namespace

    def named(api_version: str, kind: str, name: str) -> Object:
        return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": namespace}}

    yield from intended.objects
    for item in facts["router"]["fixed"]:
        if item["kind"] != "Secret":  # only its presence would matter, and reading it would read a token
            yield named(item["apiVersion"], item["kind"], item["name"])
    yield named("v1", "ConfigMap", router_name(intended.name, facts))
    if intended.mode == "gateway":
        yield named(*facts.kind("gateway"), str(intended.spec["gateway"]["name"]))
    for demand in demands(intended, facts):
        for volume in demand.spec.get("volumes") or ():
            if "persistentVolumeClaim" in volume:
                yield named("v1", "PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"])


__all__ = ["Observed", "looked_for", "observe"]
