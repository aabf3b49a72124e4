"""The pods that a deployment is going to have: how many, what each asks for, and where it may run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mmdeploy.errors import UsageError
from mmdeploy.intended import Intended, Object, role_of
from mmdeploy.preflight import pods
from mmdeploy.preflight.amounts import amounts, total
from mmdeploy.preflight.facts import Facts

ROUTER = "router"
_DEVICES = " devices"


@dataclass(frozen=True)
class Demand:
    """Pods of one shape."""

    role: str
    count: int
    labels: Mapping[str, str]
    spec: Mapping[str, Any]
    asks: Mapping[str, int]
    """What must be free on its node, in thousandths, a pod among it; devices under ``CLASS devices``."""
    workload: tuple[str, str]
    """Kind and name of the object that makes them."""

    @property
    def accelerators(self) -> Mapping[str, int]:
        """What it asks for beside cores, memory, storage and the pod itself."""
        return {name: amount for name, amount in self.asks.items() if special(name) and amount}


def special(resource: str) -> bool:
    """Whether a resource is a device rather than something that every node has."""
    return resource not in ("cpu", "memory", "ephemeral-storage", "pods") and not resource.startswith("hugepages-")


def device(name: str) -> str:
    """The key of a device class among amounts."""
    return f"{name}{_DEVICES}"


def is_device(resource: str) -> bool:
    """Whether an amount's key is a device class."""
    return resource.endswith(_DEVICES)


def device_classes(found: Iterable[Demand]) -> list[str]:
    """The device classes that pods claim devices of."""
    return sorted({key.removesuffix(_DEVICES) for item in found for key in item.asks if is_device(key)})


def demands(intended: Intended, facts: Facts) -> list[Demand]:
    """Every kind of pod of the deployment: the model servers', then the router's.

    Raises `UsageError` for a workload that somebody edited out of shape.
    """
    templates = {item["metadata"]["name"]: item for item in intended.objects if item["kind"] == "ResourceClaimTemplate"}
    found: list[Demand] = []
    for item in intended.workloads:
        try:
            found += [_demand(*each, templates) for each in _pods(item)]
        except (AttributeError, KeyError, TypeError, ValueError):
            raise UsageError(
                f"{item['kind']} {item['metadata']['name']} has not the shape of one", origin=intended.origin,
                next_step="render the bundle again; kubectl apply --dry-run=server -k modelserver/ says what is wrong",
            ) from None  # fmt: skip
    return [demand for demand in [*found, _router(intended, facts)] if demand.count]


def _pods(item: Object) -> Iterator[tuple[str, int, Mapping[str, Any], tuple[str, str]]]:
    """Role, number, template and workload. A group of a LeaderWorkerSet has one leader and the rest are workers."""
    name = (str(item["kind"]), str(item["metadata"]["name"]))
    spec = item["spec"]
    if item["kind"] == "DisaggregatedSet":
        for role in spec["roles"]:
            for count, template in _group(role["spec"]):
                yield str(role["name"]), count * int(spec.get("slices", 1)), template, name
    elif item["kind"] == "LeaderWorkerSet":
        for count, template in _group(spec):
            yield role_of({**item, "spec": {"template": template}}) or "decode", count, template, name
    else:
        yield role_of(item) or "decode", int(spec.get("replicas", 1)), spec["template"], name


def _group(spec: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    inner, replicas = spec["leaderWorkerTemplate"], int(spec.get("replicas", 1))
    yield replicas, inner.get("leaderTemplate") or inner["workerTemplate"]
    yield replicas * (int(inner.get("size", 1)) - 1), inner["workerTemplate"]


def pod_templates(workloads: Iterable[Object]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Whose they are, and the pod templates of sets, which the API server stores without looking into them."""
    for item in workloads:
        name, spec = f"{item['kind']} {item['metadata']['name']}", item["spec"]
        if item["kind"] == "DisaggregatedSet":
            for role in spec["roles"]:
                yield from _templates(f"{name}, role {role['name']}", role["spec"])
        elif item["kind"] == "LeaderWorkerSet":
            yield from _templates(name, spec)


def _templates(owner: str, spec: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    inner = spec["leaderWorkerTemplate"]
    if inner.get("leaderTemplate"):
        yield f"{owner}, leaders", inner["leaderTemplate"]
    yield owner, inner["workerTemplate"]


def _demand(
    role: str, count: int, template: Mapping[str, Any], workload: tuple[str, str], templates: Mapping[str, Any]
) -> Demand:
    spec = template["spec"]
    asks = pods.requests(spec) | {device(name): count for name, count in pods.claims(spec, templates).items()}
    labels = (template.get("metadata") or {}).get("labels") or {}
    return Demand(role, count, labels, spec, {**asks, "pods": 1000}, workload)


def _router(intended: Intended, facts: Facts) -> Demand:
    """The endpoint picker's pod and the proxy in it, by the values that the chart is given."""
    router = intended.values.get("router") or {}
    picker, proxy = router.get("epp") or {}, router.get("proxy") or {}
    parts = [picker, *([proxy] if intended.mode == "standalone" else [])]
    asks = total(amounts((part.get("resources") or {}).get("requests")) for part in parts)
    spec = {
        "containers": [{"name": name, "resources": part.get("resources") or {}} for name, part in
                       zip(("epp", "envoy-proxy"), parts, strict=False)],
        **{key: picker[key] for key in ("affinity", "tolerations", "nodeSelector") if picker.get(key)},
    }  # fmt: skip
    name = router_name(intended.name, facts)
    return Demand(ROUTER, _count(picker.get("replicas")), {}, spec, {**asks, "pods": 1000}, ("Deployment", name))


def _count(said: int | str | None) -> int:
    """Replicas of the values, where null leaves the chart's own."""
    return 1 if said is None else int(said)


def router_name(release: str, facts: Facts) -> str:
    """The name that the chart gives to the router's objects."""
    rules = facts["router"]
    return f"{release.lower()[: rules['longestName']]}{rules['suffix']}"


__all__ = [
    "ROUTER",
    "Demand",
    "demands",
    "device",
    "device_classes",
    "is_device",
    "pod_templates",
    "router_name",
    "special",
]
