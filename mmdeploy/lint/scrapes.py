"""What Prometheus is told to scrape: PodMonitor, ServiceMonitor and Google's PodMonitoring, read alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mmdeploy.documents import KeyPath
from mmdeploy.lint.pods import Pod
from mmdeploy.lint.source import dig

if TYPE_CHECKING:
    from mmdeploy.lint.index import Deployment, Object

_ENDPOINTS = {"PodMonitor": "podMetricsEndpoints", "ServiceMonitor": "endpoints", "PodMonitoring": "endpoints",
              "ClusterPodMonitoring": "endpoints"}  # fmt: skip


@dataclass(frozen=True)
class Endpoint:
    """One thing that is scraped of each target."""

    spec: Mapping[str, Any]
    path: KeyPath

    @property
    def port(self) -> tuple[int | str | None, str]:
        """The port (a name or a number) and the key that says it."""
        for key in ("port", "portNumber", "targetPort"):
            value = self.spec.get(key)
            if isinstance(value, str | int) and not isinstance(value, bool):
                return (int(value) if str(value).isdigit() else value), key
        return None, "port"

    @property
    def authorised(self) -> bool:
        """Whether it sends credentials."""
        keys = ("authorization", "bearerTokenSecret", "bearerTokenFile", "basicAuth", "oauth2", "tlsConfig")
        return any(self.spec.get(key) for key in keys)


@dataclass(frozen=True)
class Monitor:
    """An object that chooses targets and says what to scrape of them."""

    object: Object
    endpoints: Sequence[Endpoint]

    @property
    def of_pods(self) -> bool:
        """Whether it chooses pods; otherwise Services."""
        return self.object.kind != "ServiceMonitor"

    def selects(self, labels: Mapping[str, str], namespace: str | None) -> bool:
        """Whether labels and namespace of a target are those that it wants."""
        return self.in_reach(namespace) and matches(self.object.get("spec", "selector"), labels)

    def in_reach(self, namespace: str | None) -> bool:
        """Whether it looks into a namespace; unknown namespaces are assumed to be right."""
        wanted = self.object.get("spec", "namespaceSelector")
        if isinstance(wanted, Mapping) and wanted.get("any") is True:
            return True
        names = wanted.get("matchNames") if isinstance(wanted, Mapping) else None
        if not isinstance(names, list) or not names:
            names = [self.object.namespace]
            if self.object.kind == "ClusterPodMonitoring":
                return True
        return namespace is None or None in names or namespace in names


def matches(selector: Any, labels: Mapping[str, str]) -> bool:
    """Whether labels satisfy a LabelSelector (an empty one takes everything)."""
    if not isinstance(selector, Mapping):
        return True
    wanted = selector.get("matchLabels")
    for key, value in wanted.items() if isinstance(wanted, Mapping) else ():
        if labels.get(str(key)) != str(value):
            return False
    expressions = selector.get("matchExpressions")
    return all(
        _satisfied(item, labels)
        for item in (expressions if isinstance(expressions, list) else ())
        if isinstance(item, Mapping)
    )


def _satisfied(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, operator = str(expression.get("key")), expression.get("operator")
    given = expression.get("values")
    values = [str(value) for value in given] if isinstance(given, list) else []
    if operator == "In":
        return labels.get(key) in values
    if operator == "NotIn":
        return labels.get(key) not in values
    if operator == "DoesNotExist":
        return key not in labels
    return key in labels or operator != "Exists"


def monitors(deployment: Deployment) -> Iterator[Monitor]:
    """Every monitor of a deployment."""
    for item in deployment.kind(*_ENDPOINTS):
        key = _ENDPOINTS[item.kind]
        listed = item.get("spec", key)
        endpoints = [
            Endpoint(value, ("spec", key, index))
            for index, value in enumerate(listed if isinstance(listed, list) else ())
            if isinstance(value, Mapping)
        ]
        yield Monitor(item, endpoints)


def has_port(pod: Pod, port: int | str) -> bool:
    """Whether a pod declares a port of this name or number: what is not declared is no target. Sidecars count too."""
    for container in pod.containers:
        for name, number, _ in container.ports():
            if port in (name, number):
                return True
    return False


def port_names(pods: Sequence[Pod]) -> list[str]:
    """Names of the ports of some pods, in order, each once."""
    names = (name for pod in pods for container in pod.containers for name, _, _ in container.ports())
    return list(dict.fromkeys(str(name) for name in names if name))


def service_ports(service: Object) -> set[int | str]:
    """Names and numbers of a Service's ports."""
    found: set[int | str] = set()
    listed = service.get("spec", "ports")
    for item in listed if isinstance(listed, list) else ():
        for key in ("name", "port"):
            value = dig(item, (key,))
            if isinstance(value, str | int):
                found.add(value)
    return found
