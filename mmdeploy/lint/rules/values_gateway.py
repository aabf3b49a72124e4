"""2xx: what the router's values make of ports, TLS and gateways."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mmdeploy.documents import KeyPath
from mmdeploy.lint.findings import Found, Level, rule
from mmdeploy.lint.index import Deployment, Object
from mmdeploy.lint.pods import Engine
from mmdeploy.lint.router import Values
from mmdeploy.lint.router_facts import RouterFacts, facts
from mmdeploy.lint.source import dig
from mmdeploy.words import nearest

EPP: KeyPath = ("router", "epp")


@rule("MMD247", Level.error, "llm-d/llm-d-router v0.10.0 routerlib (Service without targetPort); router.md §4.2")
def ext_proc_port(deployment: Deployment) -> Iterator[Found]:
    """The Service and the pool move to another port, and the endpoint picker stays."""
    default = facts(deployment).fact("chart", "grpcPort")
    moved = deployment.router.value("router", "epp", "extProcPort")
    flag = deployment.router.value("router", "epp", "flags", "grpc-port")
    service = moved[0] if moved else default
    picker = flag[0] if flag else default
    if str(service) != str(picker):
        values, path = (moved[1], (*EPP, "extProcPort")) if moved else (flag[1], (*EPP, "flags", "grpc-port"))  # type: ignore[index]
        yield Found(
            values.document, path, "Helm values",
            f"Service and InferencePool lead to port {service}, while the endpoint picker listens on {picker}: "
            "ext_proc is refused, and with FailOpen requests go unscheduled",
            f"set router.epp.flags.grpc-port: {service}" if moved else f"set router.epp.extProcPort: {picker}",
        )  # fmt: skip


@rule("MMD249", Level.warning, "llm-d-guides.md §10.2")
def client_port(deployment: Deployment) -> Iterator[Found]:
    """Values made after the guide without its Service port: its clients call 80, the chart's default is 8081."""
    known = facts(deployment)
    guide = deployment.catalog.labels["guide"]
    for values in deployment.router.values:
        labels = values.get("router", "modelServers", "matchLabels")
        if not isinstance(labels, Mapping) or guide not in labels:
            continue
        if values.gateway or any(item.gateway for item in deployment.router.values) or list(deployment.kind("Gateway")):
            continue
        if any(item.get("router", "extraServicePorts") is not None for item in deployment.router.values):
            continue
        if deployment.router.value("router", "proxy") is None or _mentions(deployment, known):
            continue
        yield Found(
            values.document, ("router",), "Helm values",
            f"no extraServicePorts: the Service listens on the chart's {known.fact('chart', 'chartClientPort')}, and "
            f"the guide's clients, which call port {known.fact('chart', 'clientPort')}, are refused",
            "add router.extraServicePorts: [{name: http, port: 80, protocol: TCP, targetPort: 8081}]",
        )  # fmt: skip


def _mentions(deployment: Deployment, known: RouterFacts) -> bool:
    """Whether some object calls the chart's own port."""
    port = f":{known.fact('chart', 'chartClientPort')}"
    return any(port in item.document.text for item in deployment.objects)


@rule("MMD251", Level.error, "llm-d/llm-d-router v0.10.0 gateway/istio.yaml; kaito-project/kaito#1983")
def provider(deployment: Deployment) -> Iterator[Found]:
    """The provider of the values does not render what the Gateway's class needs."""
    known = facts(deployment)
    names = known.fact("chart", "providers") or ()
    for values in deployment.router.values:
        name = values.get("provider", "name")
        if isinstance(name, str) and name not in names and name.lower() != "gke":
            near = [word for word in names if word == name.strip().lower()] or nearest(name, list(names))[:1]
            if near:
                yield Found(
                    values.document, ("provider", "name"), "Helm values",
                    f"provider.name {name} renders no provider objects: the template compares it letter by letter with "
                    f"{near[0]}", f"write {near[0]}", None if near[0] == name.strip().lower() else Level.warning,
                )  # fmt: skip
                continue
        if name in (None, "none") and values.get("httpRoute") is not None and not _plaintext(deployment):
            gateway = _gateway(deployment, values)
            own_rule = any(deployment.kind("DestinationRule"))
            if gateway is not None and _class(known, gateway) == "istio" and not own_rule:
                path: KeyPath = ("provider", "name") if name else ("httpRoute",)
                yield Found(
                    values.document, path, "Helm values",
                    f"{gateway.title} is of class {gateway.get('spec', 'gatewayClassName')}, and provider.name is "
                    f"{name or 'not set'}: no DestinationRule lets it accept the endpoint picker's own certificate, "
                    "and every request ends in 500",
                    "set provider.name: istio",
                )  # fmt: skip


@rule("MMD252", Level.error, "kserve/kserve#5716; router.md §4.2")
def plaintext(deployment: Deployment) -> Iterator[Found]:
    """A gateway that speaks plaintext to an endpoint picker that waits for TLS."""
    known = facts(deployment)
    if _plaintext(deployment):
        return
    for values in deployment.router.values:
        name = values.get("provider", "name")
        gateway = _gateway(deployment, values)
        if values.get("httpRoute") is None and name is None:
            continue
        by_class = _class(known, gateway) if gateway is not None else None
        if name == "agentgateway" or by_class == "agentgateway":
            path: KeyPath = (*EPP, "flags") if values.get(*map(str, EPP), "flags") else EPP
            flag = values.get("router", "epp", "flags", "secure-serving")
            yield Found(
                values.document, (*EPP, "flags", "secure-serving") if flag is not None else path, "Helm values",
                "agentgateway speaks plaintext to the endpoint picker, whose default is TLS: connections are reset "
                "before any header, and no cause is visible",
                "set router.epp.flags.secure-serving: false",
            )  # fmt: skip


def _plaintext(deployment: Deployment) -> bool:
    said = deployment.router.value("router", "epp", "flags", "secure-serving")
    return said is not None and str(said[0]).lower() == "false"


def _gateway(deployment: Deployment, values: Values) -> Object | None:
    """The Gateway that the values' route hangs on: the one of that name, or the only one."""
    gateways = list(deployment.kind("Gateway"))
    wanted = values.get("httpRoute", "inferenceGatewayName")
    named = [item for item in gateways if item.name == wanted or (wanted and item.name.endswith(f"-{wanted}"))]
    return named[0] if named else gateways[0] if len(gateways) == 1 else None


def _class(known: RouterFacts, gateway: Object) -> str | None:
    """The kind of gateway, from its class's name."""
    name = str(gateway.get("spec", "gatewayClassName") or "").lower()
    kinds: Mapping[str, Any] = known.fact("chart", "gatewayClasses") or {}
    return next((kind for kind in kinds if kind in name), None)


@rule("MMD253", Level.error, "llm-d/llm-d-router v0.10.0 routerlib/_inferencepool.yaml; router-chart-values.csv")
def protocol(deployment: Deployment) -> Iterator[Found]:
    """The pool announces gRPC, and the servers speak HTTP."""
    for pool in deployment.pools:
        for document, path in _grpc(deployment, pool.document):
            for engine in (pod.engine for pod in pool.pods if pod.engine is not None and not _speaks_grpc(pod.engine)):
                yield Found(
                    document, path, pool.title,
                    f"the pool announces gRPC (h2c), while {engine.pod.title} serves HTTP: upstream protocol errors",
                    "remove the protocol, or write http",
                )  # fmt: skip
                break


def _grpc(deployment: Deployment, document: Any) -> Iterator[tuple[Any, KeyPath]]:
    said = deployment.router.value("router", "modelServers", "protocol")
    here = any(values.document is document for values in deployment.router.values)
    if said is not None and str(said[0]).lower() == "grpc" and here:
        yield said[1].document, ("router", "modelServers", "protocol")
    if dig(document.value, ("spec", "appProtocol")) == "kubernetes.io/h2c":
        yield document, ("spec", "appProtocol")


def _speaks_grpc(engine: Engine) -> bool:
    words = " ".join(word for word, _ in engine.command.words) + (engine.command.value("-m") or "")
    return "grpc" in words or any(flag.name.startswith(("--grpc", "--smg-grpc")) for flag in engine.command.flags)
