"""9xx: routes and Gateways in front of the router."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mmdeploy.documents import KeyPath
from mmdeploy.lint.findings import Found, Level, rule
from mmdeploy.lint.gateways import (
    Attachment,
    Listener,
    attachments,
    backends,
    listeners,
    release_namespace,
    routes,
    rules,
    seconds,
)
from mmdeploy.lint.index import Deployment, Object
from mmdeploy.lint.router import Values
from mmdeploy.lint.scrapes import matches
from mmdeploy.lint.source import dig
from mmdeploy.words import nearest


def _notes(deployment: Deployment) -> Mapping[str, Any]:
    found: Mapping[str, Any] = deployment.tables.notes("platform")["gateway"]
    return found


def _on_gke(deployment: Deployment) -> bool:
    """Whether the gateway is Google's, which has no timeout to lift and whose chart omits the block on purpose."""
    provider = deployment.router.value("provider", "name")
    if provider is not None and str(provider[0]).lower() == "gke":
        return True
    prefixes = tuple(_notes(deployment)["withoutTimeout"])
    classes = [str(item.get("spec", "gatewayClassName")) for item in deployment.kind("Gateway")]
    policies = any(True for _ in deployment.kind("HealthCheckPolicy", "GCPBackendPolicy", "GCPGatewayPolicy"))
    return policies or any(name.startswith(prefixes) for name in classes)


@rule("MMD910", Level.error, "router.md §4.2; llm-d-guides.md §15; modelplaneai/modelplane#174")
def route_timeout(deployment: Deployment) -> Iterator[Found]:
    """A gateway cuts answers that take longer than the route's timeout, or than its own where the route has none."""
    if _on_gke(deployment):
        return
    for route in routes(deployment):
        for path, item in rules(route):
            yield from _of_rule(deployment, route, path, item)
    for values in deployment.router.values:
        yield from _of_values(deployment, values)


def _of_rule(deployment: Deployment, route: Object, path: KeyPath, item: Mapping[str, Any]) -> Iterator[Found]:
    timeouts = item.get("timeouts")
    if not isinstance(timeouts, Mapping) or not timeouts:
        yield Found(
            route.document, path, route.title,
            "the rule has no timeouts, so the gateway's own applies (15 s on Envoy Gateway): streams are cut",
            "add timeouts: {request: 0s}",
        )  # fmt: skip
        return
    for key in ("request", "backendRequest"):
        given = seconds(timeouts.get(key))
        if given is not None and 0 < given <= _notes(deployment)["shortTimeout"]:
            yield Found(
                route.document, (*path, "timeouts", key), route.title,
                f"requests that take longer than {timeouts.get(key)} are cut: long generations and videos do",
                f"write {key}: 0s, or the longest request to be waited for", Level.warning,
            )  # fmt: skip


def _of_values(deployment: Deployment, values: Values) -> Iterator[Found]:
    block = values.get("httpRoute")
    if not isinstance(block, Mapping) or block.get("create") is not True:
        return
    said = deployment.router.value("httpRoute", "requestTimeout")
    given = seconds(said[0]) if said is not None else None
    short = _notes(deployment)["shortTimeout"]
    if said is not None and (given is None or not 0 < given <= short):
        return
    text = f"requestTimeout is {said[0]}" if said is not None else f"without requestTimeout the chart writes {short}s"
    document, path = (said[1].document, ("httpRoute", "requestTimeout")) if said else (values.document, ("httpRoute",))
    yield Found(
        document, path, "Helm values", f"{text}: longer generations and video requests are cut",
        "set httpRoute.requestTimeout: 0s", Level.warning,
    )  # fmt: skip


@rule("MMD911", Level.error, "envoyproxy/ai-gateway#2230; field.md §4.1.11")
def route_backend(deployment: Deployment) -> Iterator[Found]:
    """A route that leads to a pool it cannot reach: another namespace, another name, another API group."""
    pools = list(deployment.kind("InferencePool"))
    for route in routes(deployment):
        for path, backend in backends(route):
            if backend.get("kind") != _notes(deployment)["poolKind"]:
                continue
            own = route.namespace or release_namespace(deployment)
            elsewhere = backend.get("namespace")
            if elsewhere and own and elsewhere != own:
                yield Found(
                    route.document, (*path, "namespace"), route.title,
                    f"the pool is looked for in namespace {elsewhere}, and the route is in {own}: gateway controllers "
                    "look beside the route, even with a ReferenceGrant",
                    "put the route beside the pool, and name the Gateway's namespace in parentRefs",
                )  # fmt: skip
            elif pools:
                yield from _pool_named(route, path, backend, pools)


def _pool_named(
    route: Object, path: KeyPath, backend: Mapping[str, Any], pools: list[Object]
) -> Iterator[Found]:  # fmt: skip
    name = str(backend.get("name"))
    named = [pool for pool in pools if pool.name == name]
    if not named:
        yield Found(
            route.document, (*path, "name"), route.title,
            f"there is no InferencePool {name} here, only {', '.join(sorted(pool.name for pool in pools))}",
            f"write name: {(nearest(name, [pool.name for pool in pools]) or [pools[0].name])[0]}",
            None if nearest(name, [pool.name for pool in pools]) else Level.warning,
        )  # fmt: skip
        return
    groups = {str(pool.document.value.get("apiVersion", "")).partition("/")[0] for pool in named}
    group = backend.get("group")
    if group not in groups:
        yield Found(
            route.document, (*path, "group") if group is not None else path, route.title,
            f"the backend's group is {group or 'not given'}, and that of InferencePool {name} is "
            f"{', '.join(sorted(groups))}: the backend is not found",
            f"write group: {sorted(groups)[0]}",
        )  # fmt: skip


@rule("MMD912", Level.error, "Gateway API v1 (NotAllowedByListeners); vdupain/gitops-k8s#53")
def route_admitted(deployment: Deployment) -> Iterator[Found]:
    """A Gateway that does not admit the route, or that the route looks for in the wrong place."""
    gateways = list(deployment.kind("Gateway"))
    for wish in attachments(deployment, _notes(deployment)["defaultGateway"]):
        named = [item for item in gateways if item.name == wish.gateway]
        if named:
            yield from _place(deployment, wish, named)
            continue
        # Another name altogether may well be that of a Gateway which is not among the files.
        near = nearest(wish.gateway, [item.name for item in gateways])
        if near:
            yield Found(
                wish.document, wish.path, wish.title,
                f"it hangs on the Gateway {wish.gateway}, and the one here is {near[0]}: the route is not accepted",
                f"name {near[0]}",
            )  # fmt: skip


def _place(deployment: Deployment, wish: Attachment, named: list[Object]) -> Iterator[Found]:
    wanted = wish.gateway_namespace or wish.namespace
    here = [item for item in named if item.namespace is None or wanted is None or item.namespace == wanted]
    if not here:
        said = f"in {wanted}" if wish.gateway_namespace else f"in its own namespace {wanted}"
        yield Found(
            wish.document, wish.path, wish.title,
            f"it looks for the Gateway {wish.gateway} {said}, and it is in {named[0].namespace}",
            "name the Gateway's namespace in parentRefs (values: httpRoute.inferenceGatewayNamespace)",
        )  # fmt: skip
        return
    for gateway in here:
        offered = [item for item in listeners(gateway) if wish.section in (None, item.name)]
        if not offered and wish.section:
            names = ", ".join(item.name for item in listeners(gateway))
            yield Found(
                wish.document, (*wish.path, "sectionName"), wish.title,
                f"Gateway {gateway.name} has no listener {wish.section} (it has {names})", "name one of its listeners",
            )  # fmt: skip
        elif offered:
            yield from _admission(deployment, wish, gateway, offered)


def _admission(
    deployment: Deployment, wish: Attachment, gateway: Object, offered: list[Listener]
) -> Iterator[Found]:  # fmt: skip
    place = gateway.namespace or (wish.gateway_namespace if wish.gateway_namespace != wish.namespace else None)
    apart = bool(place and wish.namespace and place != wish.namespace)
    answers = [_refuses(deployment, wish, item, apart) for item in offered]
    if None in answers:
        return
    listener, reason = offered[0], answers[0] or ""
    path: KeyPath = (*listener.path, "allowedRoutes")
    at = (*path, "namespaces", "from") if dig(listener.spec, ("allowedRoutes", "namespaces", "from")) else path
    yield Found(
        gateway.document, at if listener.spec.get("allowedRoutes") else listener.path, gateway.title,
        f"listener {listener.name} does not admit {wish.title}: {reason}; requests get 404",
        "write allowedRoutes: {namespaces: {from: All}}, or a Selector that the route's namespace satisfies",
    )  # fmt: skip


def _refuses(deployment: Deployment, wish: Attachment, listener: Listener, apart: bool) -> str | None:
    """Why a listener refuses a route; None where it admits it, or where that cannot be known."""
    if not listener.admits_http:
        return "it takes no HTTPRoutes"
    if listener.admits == "Same" and apart:
        return f"it takes routes of its own namespace only, and the route is in {wish.namespace}"
    if listener.admits == "Selector":
        selector = dig(listener.spec, ("allowedRoutes", "namespaces", "selector"))
        for space in deployment.kind("Namespace"):
            labels = space.get("metadata", "labels")
            texts = {str(key): str(value) for key, value in labels.items()} if isinstance(labels, Mapping) else {}
            texts["kubernetes.io/metadata.name"] = space.name
            if space.name == wish.namespace and not matches(selector, texts):
                return f"namespace {space.name} lacks the labels that its selector wants"
    return None
