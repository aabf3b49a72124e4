"""Routes to the router and the Gateways they hang on, whether written out or left to the chart."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mmdeploy.documents import KeyPath
from mmdeploy.lint.source import Document, dig

if TYPE_CHECKING:
    from mmdeploy.lint.index import Deployment, Object

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s)")
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def seconds(text: Any) -> float | None:
    """A duration of the Gateway API (``300s``, ``1h30m``) in seconds; None for anything else."""
    if isinstance(text, int | float) and not isinstance(text, bool):
        return float(text) if text == 0 else None
    if not isinstance(text, str) or not re.fullmatch(rf"({_DURATION.pattern})+", text.strip()):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in _DURATION.findall(text))


@dataclass(frozen=True)
class Attachment:
    """A route that wants to hang on a Gateway."""

    document: Document
    path: KeyPath
    """Leads to what names the Gateway."""
    title: str
    namespace: str | None
    """The route's own."""
    gateway: str
    gateway_namespace: str | None
    """As the route says it; None where it leaves it to its own namespace."""
    section: str | None = None


def attachments(deployment: Deployment, default_gateway: str) -> Iterator[Attachment]:
    """Every wish of a route to the router to hang on a Gateway: from HTTPRoutes, and from values of the chart."""
    for route in routes(deployment):
        parents = route.get("spec", "parentRefs")
        for index, parent in enumerate(parents if isinstance(parents, list) else ()):
            if isinstance(parent, Mapping) and parent.get("kind") in (None, "Gateway"):
                yield Attachment(
                    route.document, ("spec", "parentRefs", index), route.title, route.namespace,
                    str(parent.get("name") or ""), _text(parent.get("namespace")), _text(parent.get("sectionName")),
                )  # fmt: skip
    for values in deployment.router.values:
        block = values.get("httpRoute")
        if isinstance(block, Mapping) and block.get("create") is True:
            name = block.get("inferenceGatewayName")
            path: KeyPath = ("httpRoute", "inferenceGatewayName") if name else ("httpRoute",)
            yield Attachment(
                values.document, path, "httpRoute", release_namespace(deployment), str(name or default_gateway),
                _text(block.get("inferenceGatewayNamespace")),
            )  # fmt: skip


def _text(value: Any) -> str | None:
    return str(value) if value else None


def routes(deployment: Deployment) -> Iterator[Object]:
    """HTTPRoutes that lead to an InferencePool or to an endpoint picker's Service."""
    for route in deployment.kind("HTTPRoute"):
        if any(_to_router(backend) for _, backend in backends(route)):
            yield route


def _to_router(backend: Mapping[str, Any]) -> bool:
    return backend.get("kind") == "InferencePool" or str(backend.get("name", "")).endswith("-epp")


def rules(route: Object) -> Iterator[tuple[KeyPath, Mapping[str, Any]]]:
    """Rules of a route, with their paths."""
    listed = route.get("spec", "rules")
    for index, item in enumerate(listed if isinstance(listed, list) else ()):
        if isinstance(item, Mapping):
            yield ("spec", "rules", index), item


def backends(route: Object) -> Iterator[tuple[KeyPath, Mapping[str, Any]]]:
    """Backends of all rules, with their paths."""
    for path, rule in rules(route):
        listed = rule.get("backendRefs")
        for index, item in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(item, Mapping):
                yield (*path, "backendRefs", index), item


def release_namespace(deployment: Deployment) -> str | None:
    """Where the router is installed: as a spec of ours says, else where all model servers are; None if unknown."""
    for document in deployment.documents:
        value = document.value
        if isinstance(value, Mapping) and "schemaVersion" in value and value.get("namespace"):
            return str(value["namespace"])
    places = {engine.pod.namespace for engine in deployment.engines}
    return places.pop() if len(places) == 1 else None


@dataclass(frozen=True)
class Listener:
    """A listener of a Gateway."""

    name: str
    spec: Mapping[str, Any]
    path: KeyPath

    @property
    def admits(self) -> str:
        """``Same``, ``All`` or ``Selector``; Same where nothing is said."""
        return str(dig(self.spec, ("allowedRoutes", "namespaces", "from")) or "Same")

    @property
    def admits_http(self) -> bool:
        """Whether HTTPRoutes may hang on it."""
        kinds = dig(self.spec, ("allowedRoutes", "kinds"))
        by_kind = not isinstance(kinds, list) or any(dig(item, ("kind",)) == "HTTPRoute" for item in kinds)
        return by_kind and self.spec.get("protocol") in (None, "HTTP", "HTTPS")


def listeners(gateway: Object) -> Iterator[Listener]:
    """Listeners of a Gateway."""
    listed = gateway.get("spec", "listeners")
    for index, item in enumerate(listed if isinstance(listed, list) else ()):
        if isinstance(item, Mapping):
            yield Listener(str(item.get("name", "")), item, ("spec", "listeners", index))
