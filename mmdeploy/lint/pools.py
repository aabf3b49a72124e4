"""The router's pools: which pods each selects, the ports it calls, and the configuration that schedules over them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mmdeploy.documents import KeyPath
from mmdeploy.lint.pods import Container, Pod
from mmdeploy.lint.router import PickerConfig, Values
from mmdeploy.lint.router_facts import facts
from mmdeploy.lint.source import Document, dig

if TYPE_CHECKING:
    from mmdeploy.lint.index import Deployment

_SELECTOR = ("router", "modelServers", "matchLabels")
_PORTS = ("router", "modelServers", "targetPorts")
DEFAULT_PORT = 8000
"""What the charts call where values leave the target port to them (router-chart-values.csv)."""


@dataclass
class Pool:
    """One pool, as values, an InferencePool, or an endpoint picker's own flags describe it."""

    title: str
    document: Document
    path: KeyPath
    """Leads to the selector."""
    labels: dict[str, str]
    namespace: str | None = None
    ports: list[tuple[int, Document, KeyPath]] = field(default_factory=list)
    """Target ports that are written down, with their places."""
    configs: Sequence[PickerConfig] = ()
    """Configurations that schedule over it; empty where nobody knows."""
    pods: list[Pod] = field(default_factory=list)
    """Pods of model servers that it selects."""
    selected: list[Pod] = field(default_factory=list)
    """All pods that it selects, whatever they run."""

    @property
    def config(self) -> PickerConfig | None:
        """The configuration, where there is exactly one."""
        return self.configs[0] if len(self.configs) == 1 else None

    @property
    def port_numbers(self) -> list[int]:
        """Target ports; the chart's default where none is written down."""
        return [number for number, _, _ in self.ports] or [DEFAULT_PORT]


def pools_of(deployment: Deployment) -> list[Pool]:
    """Every pool of a deployment, with the pods it selects."""
    pools = [*_of_values(deployment), *_of_objects(deployment), *_of_flags(deployment)]
    servers = {id(pod) for pod in servers_of(deployment)}
    for pool in pools:
        pool.selected = [pod for pod in deployment.pods if selects(deployment, pool, pod)]
        pool.pods = [pod for pod in pool.selected if id(pod) in servers]
    return pools


def servers_of(deployment: Deployment) -> list[Pod]:
    """Pods that serve a model, or stand in front of one."""
    return [pod for pod in deployment.pods if pod.engine is not None or pod.sidecar is not None]


def selects(deployment: Deployment, pool: Pool, pod: Pod) -> bool:
    """Whether a pool selects a pod, given that controllers add labels which no template holds."""
    if pool.namespace and pod.namespace and pool.namespace != pod.namespace:
        return False
    return not missing_labels(deployment, pool.labels, pod)


def missing_labels(deployment: Deployment, labels: Mapping[str, str], pod: Pod) -> list[str]:
    """Keys of a selector that a pod does not carry with the wanted value."""
    made = made_by_controllers(deployment)
    index = facts(deployment).fact("pool", "workerIndex")
    missing = []
    for key, value in labels.items():
        if key == index and pod.kind in ("LeaderWorkerSet", "DisaggregatedSet"):
            if (value == "0") != leads(pod):
                missing.append(key)
        elif pod.labels.get(key) != value and not (key not in pod.labels and key.startswith(made)):
            missing.append(key)
    return missing


def made_by_controllers(deployment: Deployment) -> tuple[str, ...]:
    """Beginnings of label keys that controllers add."""
    return tuple(facts(deployment).fact("pool", "controllerLabels") or ())


def leads(pod: Pod) -> bool:
    """Whether a template of a group makes its leader: the leader's own, or the only one."""
    below = dig(pod.document.value, pod.path[:-1])
    return pod.leader or not isinstance(below, Mapping) or "leaderTemplate" not in below


def group_size(pod: Pod) -> int:
    """Pods of a LeaderWorkerSet's group; 1 for everything else."""
    size = dig(pod.document.value, (*pod.path[:-1], "size")) if pod.path else None
    return size if isinstance(size, int) and pod.kind in ("LeaderWorkerSet", "DisaggregatedSet") else 1


def _of_values(deployment: Deployment) -> Iterator[Pool]:
    """Values files that are layered on each other make one pool; each that names pods of its own makes one more."""
    selecting = [values for values in deployment.router.values if isinstance(values.get(*_SELECTOR), Mapping)]
    alone = len(selecting) == 1
    for values in selecting:
        labels = _texts(values.get(*_SELECTOR))
        if not labels:
            continue
        near = deployment.router.values if alone else [values]
        configs = [
            item
            for item in deployment.configs
            if alone or (item.values is not None and item.values.document is values.document)
        ]
        yield Pool(
            ".".join(_SELECTOR), values.document, _SELECTOR, labels,
            ports=_ports(near), configs=configs,
        )  # fmt: skip


def _ports(values: Sequence[Values]) -> list[tuple[int, Document, KeyPath]]:
    for item in reversed(values):
        ports = item.get(*_PORTS)
        if isinstance(ports, list):
            return list(_numbers(item.document, _PORTS, ports))
    return []


def _numbers(document: Document, path: KeyPath, ports: Any) -> Iterator[tuple[int, Document, KeyPath]]:
    for index, item in enumerate(ports if isinstance(ports, list) else ()):
        number = item.get("number") if isinstance(item, Mapping) else None
        if isinstance(number, int) and not isinstance(number, bool):
            yield number, document, (*path, index, "number")


def _of_objects(deployment: Deployment) -> Iterator[Pool]:
    for item in deployment.kind("InferencePool"):
        nested = isinstance(item.get("spec", "selector", "matchLabels"), Mapping)
        path: KeyPath = ("spec", "selector", "matchLabels") if nested else ("spec", "selector")
        labels = item.get(*path)
        if isinstance(labels, Mapping) and labels:
            ports = list(_numbers(item.document, ("spec", "targetPorts"), item.get("spec", "targetPorts")))
            old = item.get("spec", "targetPortNumber")
            if not ports and isinstance(old, int):
                ports = [(old, item.document, ("spec", "targetPortNumber"))]
            yield Pool(item.title, item.document, path, _texts(labels), item.namespace, ports, deployment.configs)


def _of_flags(deployment: Deployment) -> Iterator[Pool]:
    """A picker without an InferencePool is told its pods by ``--endpoint-selector``."""
    for container in pickers_of(deployment):
        selector = container.command.value("--endpoint-selector")
        pairs = [part.split("=", 1) for part in (selector or "").split(",") if "=" in part]
        labels = {key.strip(): value.strip("= ") for key, value in pairs if not key.endswith("!")}
        if not labels:
            continue
        at = container.command.path_of("--endpoint-target-ports")
        numbers = (container.command.value("--endpoint-target-ports") or "").split(",")
        document = container.pod.document
        ports = [(int(number), document, at) for number in numbers if number.strip().isdigit()]
        yield Pool(
            f"{container.pod.title} --endpoint-selector", document, container.command.path_of("--endpoint-selector"),
            labels, container.pod.namespace, ports, deployment.configs,
        )  # fmt: skip


def pickers_of(deployment: Deployment) -> Iterator[Container]:
    """Containers that run the endpoint picker."""
    for pod in deployment.pods:
        for container in pod.containers:
            if container.program == "epp":
                yield container


def _texts(labels: Mapping[Any, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in labels.items()}
