"""Nodes as a scheduler sees them: labels, taints, what they have and what is taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mmdeploy.preflight.amounts import Amounts, amounts
from mmdeploy.preflight.demand import Demand, device, special
from mmdeploy.preflight.facts import Facts
from mmdeploy.preflight.pods import requests

Taint = Mapping[str, Any]
_BARRING = ("NoSchedule", "NoExecute")


@dataclass
class Machine:
    """One node. ``has`` is what pods may take in all; ``taken`` what others' pods take; ``fixed`` the part of it that
    never goes away (its own daemons). All in thousandths."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    ready: bool
    cordoned: bool
    has: Amounts
    taken: Amounts = field(default_factory=dict)
    fixed: Amounts = field(default_factory=dict)

    @property
    def usable(self) -> bool:
        """Whether the scheduler gives it pods today."""
        return self.ready and not self.cordoned

    def free(self) -> Amounts:
        """What is free now."""
        return {name: amount - self.taken.get(name, 0) for name, amount in self.has.items()}

    def whole(self) -> Amounts:
        """What would be free if everything but its own daemons went away."""
        return {name: amount - self.fixed.get(name, 0) for name, amount in self.has.items()}


@dataclass(frozen=True)
class Occupant:
    """A pod that takes something of a node."""

    namespace: str
    name: str
    node: str
    labels: Mapping[str, str]
    owner: tuple[str, str]
    """Kind and name of what controls it."""
    takes: Mapping[str, int]
    spec: Mapping[str, Any] | None = None
    """Kept for pods of the deployment's own namespace alone."""


def machine(node: Mapping[str, Any], facts: Facts) -> Machine:
    """A Node object."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    ready = any(item["type"] == "Ready" and item["status"] == "True" for item in status.get("conditions") or ())
    taints = tuple(
        taint
        for taint in spec.get("taints") or ()
        if taint.get("effect") in _BARRING and taint["key"] not in facts["machines"]["unready"]
    )
    metadata = node["metadata"]
    labels = metadata.get("labels") or {}
    has = amounts(status.get("allocatable"))
    return Machine(metadata["name"], labels, taints, ready, bool(spec.get("unschedulable")), has)


def occupant(pod: Mapping[str, Any], namespace: str) -> Occupant:
    """A Pod object; ``namespace`` is the deployment's own."""
    metadata, spec = pod["metadata"], pod["spec"]
    owners = [item for item in metadata.get("ownerReferences") or () if item.get("controller")]
    owner: Mapping[str, str] = owners[0] if owners else {}
    return Occupant(
        metadata["namespace"], metadata["name"], spec.get("nodeName", ""), metadata.get("labels") or {},
        (owner.get("kind", ""), owner.get("name", "")), {**requests(spec), "pods": 1000},
        spec if metadata["namespace"] == namespace else None,
    )  # fmt: skip


def ours(pod: Occupant, found: Iterable[Demand], namespace: str, facts: Facts) -> bool:
    """Whether a pod is of this very deployment, so that applying it again needs no room for it."""
    return pod.namespace == namespace and any(made_by(pod, demand.workload, facts) for demand in found)


def made_by(pod: Occupant, workload: tuple[str, str], facts: Facts) -> bool:
    """Whether a pod is of a workload, given as its kind and name."""
    kind, name = workload
    if kind == "DisaggregatedSet":
        return pod.labels.get(facts["sets"]["nameLabel"]) == name
    if kind == "LeaderWorkerSet":
        return pod.labels.get(facts["sets"]["groupLabel"]) == name
    if kind == "StatefulSet":
        return pod.owner == ("StatefulSet", name)
    return pod.owner[0] == "ReplicaSet" and pod.owner[1].rpartition("-")[0] == name


def occupy(machines: Iterable[Machine], pods: Iterable[Occupant]) -> None:
    """Take what the pods take."""
    by_name = {item.name: item for item in machines}
    for pod in pods:
        place = by_name.get(pod.node)
        if place is None:
            continue
        for name, amount in pod.takes.items():
            place.taken[name] = place.taken.get(name, 0) + amount
            if pod.owner[0] in ("DaemonSet", "Node"):
                place.fixed[name] = place.fixed.get(name, 0) + amount


# ------------------------------------------------------------------------------------------------------------ devices


def equip(
    machines: Iterable[Machine], slices: Iterable[Mapping[str, Any]], drivers: Mapping[str, str],
    claims: Iterable[Mapping[str, Any]], own: frozenset[str],
) -> None:  # fmt: skip
    """Give nodes the devices that drivers publish, and take those that claims hold.

    ``drivers`` maps a device class to the driver whose devices it takes; ``own`` names pods whose claims are ours.
    Devices that belong to no single node are left out: never more room than there is.
    """
    by_name = {item.name: item for item in machines}
    published = [item["spec"] for item in slices]
    newest: dict[tuple[str, str], int] = {}
    for spec in published:
        key = (spec["driver"], spec["pool"]["name"])
        newest[key] = max(newest.get(key, 0), int(spec["pool"].get("generation", 0)))
    where: dict[tuple[str, str], str] = {}
    for spec in published:
        key = (spec["driver"], spec["pool"]["name"])
        place = by_name.get(spec.get("nodeName", ""))
        if place is None or int(spec["pool"].get("generation", 0)) < newest[key]:
            continue
        where[key] = place.name
        _give(place.has, spec["driver"], drivers, len(spec.get("devices") or ()))
    for claim in claims:
        status = claim.get("status") or {}
        if own and {item.get("name") for item in status.get("reservedFor") or ()} & own:
            continue
        results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
        for (driver, pool), count in Counter((item["driver"], item["pool"]) for item in results).items():
            place = by_name.get(where.get((driver, pool), ""))
            if place is not None:
                _give(place.taken, driver, drivers, count)


def _give(into: Amounts, driver: str, drivers: Mapping[str, str], count: int) -> None:
    for name, by in drivers.items():
        if by == driver:
            into[device(name)] = into.get(device(name), 0) + 1000 * count


# --------------------------------------------------------------------------------------------------- where a pod may go


def barred(demand: Demand, place: Machine, facts: Facts) -> str:
    """Why a pod may never go to a node, as far as labels and taints say; empty where it may."""
    spec = demand.spec
    for key, value in (spec.get("nodeSelector") or {}).items():
        if place.labels.get(key) != value:
            return f"not labelled {key}={value}"
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if affinity and not any(_term(term, place) for term in affinity.get("nodeSelectorTerms") or ()):
        return "not what nodeAffinity asks for"
    for taint in place.taints:
        if not (tolerated(taint, spec.get("tolerations") or ()) or _of_the_platform(taint, demand, place, facts)):
            return f"tainted {described(taint)}"
    return ""


def tolerated(taint: Taint, tolerations: Iterable[Mapping[str, Any]]) -> bool:
    """Whether one of a pod's tolerations covers a taint (Kubernetes, taints and tolerations)."""
    for item in tolerations:
        if item.get("effect") and item["effect"] != taint["effect"]:
            continue
        exists = item.get("operator", "Equal") == "Exists"
        if not item.get("key"):
            if exists:
                return True
        elif item["key"] == taint["key"] and (exists or (item.get("value") or "") == (taint.get("value") or "")):
            return True
    return False


def described(taint: Taint) -> str:
    """A taint as kubectl writes it."""
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint['key']}{value}:{taint['effect']}"


def _of_the_platform(taint: Taint, demand: Demand, place: Machine, facts: Facts) -> bool:
    """Whether the platform adds a toleration to pods that ask for the resource that the taint is named after."""
    key = taint["key"]
    return facts["machines"]["tolerating"]["label"] in place.labels and special(key) and bool(demand.asks.get(key))


def _term(term: Mapping[str, Any], place: Machine) -> bool:
    expressions = [(place.labels, item) for item in term.get("matchExpressions") or ()]
    expressions += [({"metadata.name": place.name}, item) for item in term.get("matchFields") or ()]
    return bool(expressions) and all(_expression(labels, item) for labels, item in expressions)


def _expression(labels: Mapping[str, str], item: Mapping[str, Any]) -> bool:
    found, values = labels.get(item["key"]), item.get("values") or []
    match item["operator"]:
        case "In":
            return found in values
        case "NotIn":
            return found not in values
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
        case "Gt" | "Lt" if found is not None and found.lstrip("-").isdigit() and values:
            return int(found) > int(values[0]) if item["operator"] == "Gt" else int(found) < int(values[0])
    return False


__all__ = ["Machine", "Occupant", "barred", "described", "equip", "machine", "occupant", "occupy", "ours", "tolerated"]
