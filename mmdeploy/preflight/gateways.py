"""Gateway mode: the class, the gateway, which namespaces it takes routes from, and what Istio makes of it all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from mmdeploy.preflight.check import Check
from mmdeploy.preflight.kinds import routed
from mmdeploy.preflight.subject import Subject

CATEGORY: Final = "gateway"
_NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""Every namespace carries it, set by the API server."""


def checks(subject: Subject) -> Iterator[Check]:
    """Nothing where no gateway stands in front."""
    if not routed(subject.intended):
        return
    yield from _class(subject)
    yield from _gateway(subject)
    yield from _istiod(subject)
    yield from _injection(subject)
    yield from _route(subject)


def _class(subject: Subject) -> Iterator[Check]:
    chosen = str((subject.intended.spec.get("gateway") or {}).get("gatewayClass", "none"))
    name = subject.facts["gateways"]["classes"].get(chosen)
    seen = subject.seen.gateway_class
    if not name or not subject.seen.served[subject.facts.kind("gateway")].value:
        return
    title = f"GatewayClass {name} exists"
    if seen.value is not None:
        accepted = [i for i in (seen.value.get("status") or {}).get("conditions") or () if i["type"] == "Accepted"]
        if any(item["status"] == "False" for item in accepted):
            yield Check(CATEGORY, title, "error", f"its controller refuses it: {accepted[0].get('message', '')}",
                        "look after the gateway's controller")  # fmt: skip
        elif not accepted or accepted[0]["status"] != "True":
            yield Check(CATEGORY, title, "warning", "no controller has accepted it (yet)",
                        f"look whether the controller of {chosen} runs")  # fmt: skip
        else:
            yield Check(CATEGORY, title, "ok")
    elif seen.absent and not subject.seen.served[subject.facts.kind("gatewayClass")].value:
        yield Check(CATEGORY, title, "skipped", "the cluster does not know GatewayClass")
    elif seen.absent:
        hint = f"install {chosen}, or choose another class (--gateway-class)"
        yield Check(CATEGORY, title, "error", "nobody would serve the Gateway", hint)
    else:
        yield Check(CATEGORY, title, "skipped", seen.why)


def _gateway(subject: Subject) -> Iterator[Check]:
    """The gateway is the bundle's own, or somebody else's that must be there."""
    _, kind = subject.facts.kind("gateway")
    route = subject.intended.values.get("httpRoute") or {}
    said = str((subject.intended.spec.get("gateway") or {}).get("name", ""))
    name = str(route.get("inferenceGatewayName") or said)
    elsewhere = str(route.get("inferenceGatewayNamespace") or "")
    own = [i for i in subject.intended.parts.get("gateway", ()) if i["kind"] == kind and i["metadata"]["name"] == name]
    seen = subject.seen.live.get((kind, name))
    item = own[0] if own else (seen.value if seen else None)
    title = f"Gateway {name} takes routes from namespace {subject.namespace}"
    if elsewhere and elsewhere != subject.namespace:
        yield Check(CATEGORY, title, "skipped", f"it is in namespace {elsewhere}")
        return
    if item is None:
        if seen is None or seen.problem is not None:
            yield Check(CATEGORY, title, "skipped", seen.why if seen else "")
        else:
            yield Check(CATEGORY, title, "error", "the namespace has no such Gateway, and the bundle makes none",
                        "have it created, or choose a class that brings one (--gateway-class)")  # fmt: skip
        return
    closed = closed_listeners(item, _labels(subject))
    listeners = (item.get("spec") or {}).get("listeners") or ()
    if closed and len(closed) == len(listeners):
        hint = f"kubectl label namespace {subject.namespace} {closed[0][1]}" if closed[0][1] else "open a listener"
        yield Check(CATEGORY, title, "error", f"no listener selects the namespace: {closed[0][0]}. The route would be "
                    "left out, and nothing served", hint, (hint,) if closed[0][1] else ())  # fmt: skip
    else:
        yield Check(CATEGORY, title, "ok")


def _labels(subject: Subject) -> dict[str, str]:
    metadata = (subject.seen.namespace.value or {}).get("metadata") or {}
    return {_NAME_LABEL: subject.namespace, **(metadata.get("labels") or {})}


def closed_listeners(gateway: Mapping[str, Any], labels: Mapping[str, str]) -> list[tuple[str, str]]:
    """Listeners whose selector does not take a namespace with these labels: why, and the labels that it lacks."""
    found = []
    for listener in (gateway.get("spec") or {}).get("listeners") or ():
        namespaces = ((listener.get("allowedRoutes") or {}).get("namespaces")) or {}
        if namespaces.get("from") != "Selector":
            continue
        selector = namespaces.get("selector") or {}
        wanted = selector.get("matchLabels") or {}
        lacking = [f"{key}={value}" for key, value in wanted.items() if labels.get(key) != value]
        others = [item for item in selector.get("matchExpressions") or () if not _expression(item, labels)]
        if lacking or others:
            reasons = lacking + [f"{item['key']} {item['operator']} {' '.join(item.get('values') or [])}".strip()
                                 for item in others]  # fmt: skip
            found.append((f"listener {listener.get('name')} wants {', '.join(reasons)}", " ".join(lacking)))
    return found


def _expression(item: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    found, values = labels.get(item["key"]), item.get("values") or []
    match item["operator"]:
        case "In":
            return found in values
        case "NotIn":
            return found not in values
        case "Exists":
            return found is not None
    return found is None


def _is_istio(subject: Subject) -> bool:
    chosen = (subject.intended.spec.get("gateway") or {}).get("gatewayClass")
    provider = (subject.intended.values.get("provider") or {}).get("name")
    return "istio" in (chosen, provider)


def _istiod(subject: Subject) -> Iterator[Check]:
    """Without its switch istiod does not know what an InferencePool is, and leaves the route unresolved."""
    if not _is_istio(subject):
        return
    switch, seen = subject.facts["gateways"]["istio"]["switch"], subject.seen.istiod
    title = "istiod understands InferencePools"
    if seen.value is None:
        yield Check(CATEGORY, title, "skipped", seen.why)
    elif not seen.value:
        yield Check(CATEGORY, title, "warning", "no istiod was found", "install Istio, or choose another class")
    else:
        off = [item for item in seen.value if not _switched(item, switch)]
        if len(off) < len(seen.value):
            yield Check(CATEGORY, title, "ok")
            return
        metadata = off[0]["metadata"]
        command = f"kubectl set env deployment/{metadata['name']} --namespace {metadata['namespace']} {switch}=true"
        detail = f"{switch} is not true on {metadata['namespace']}/{metadata['name']}: the route would stay unresolved"
        yield Check(CATEGORY, title, "error", detail, "set it, best in Istio's own values", (command,))


def _switched(item: Mapping[str, Any], switch: str) -> bool:
    boxes: Sequence[Mapping[str, Any]] = item["spec"]["template"]["spec"]["containers"]
    return any(
        variable["name"] == switch and str(variable.get("value", "")).lower() in ("true", "1", "t")
        for box in boxes
        for variable in box.get("env") or ()
    )


def _injection(subject: Subject) -> Iterator[Check]:
    """A proxy in the endpoint picker's pod takes its port for HTTP/2 and refuses what the gateway sends it."""
    rules = subject.facts["gateways"]["istio"]
    labels = ((subject.seen.namespace.value or {}).get("metadata") or {}).get("labels") or {}
    on = [key for key, values in rules["namespaceLabels"].items() if key in labels
          and (not values or labels[key] in values)]  # fmt: skip
    if not on:
        return
    title = "Istio puts no proxy into the endpoint picker's pod"
    epp = (subject.intended.values.get("router") or {}).get("epp") or {}
    kept_out = {**(epp.get("podAnnotations") or {}), **(epp.get("podLabels") or {})}.get(rules["podKey"])
    if str(kept_out).lower() == "false":
        yield Check(CATEGORY, title, "ok", f"{rules['podKey']}: false")
        return
    detail = f"the namespace is labelled {on[0]}={labels[on[0]]}: everything would be Ready and every request a 500"
    hint = f'set router.epp.podAnnotations {{{rules["podKey"]}: "false"}} in router/values.yaml, or take the label away'
    yield Check(CATEGORY, title, "error", detail, hint)


def _route(subject: Subject) -> Iterator[Check]:
    """A route that came before its pool: some controllers look once and never again."""
    release = subject.intended.name
    pools = {item["metadata"]["name"]: item for item in subject.seen.pools.value or ()}
    for route in subject.seen.routes.value or ():
        backends = {
            ref.get("name")
            for rule in (route.get("spec") or {}).get("rules") or ()
            for ref in rule.get("backendRefs") or ()
            if ref.get("kind") == "InferencePool"
        }
        if release not in backends:
            continue
        name = route["metadata"]["name"]
        title = f"HTTPRoute {name} comes after its pool"
        touch = f"kubectl annotate httproute {name} --namespace {subject.namespace} touched=again --overwrite"
        if release not in pools:
            yield Check(CATEGORY, title, "warning", f"it is there already, and InferencePool {release} is not: some "
                        "controllers look for a pool once", f"after apply: {touch}")  # fmt: skip
        elif _unresolved(route):
            yield Check(CATEGORY, title, "warning", "its status says BackendNotFound although the pool is there", touch)


def _unresolved(route: Mapping[str, Any]) -> bool:
    return any(
        condition.get("reason") == "BackendNotFound"
        for parent in (route.get("status") or {}).get("parents") or ()
        for condition in parent.get("conditions") or ()
    )


__all__ = ["checks", "closed_listeners"]
