"""2xx: Helm values that the router charts' templates refuse, or turn into objects that the API server refuses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mmdeploy.documents import KeyPath
from mmdeploy.lint.findings import Found, Level, rule
from mmdeploy.lint.index import Deployment
from mmdeploy.lint.router import Values
from mmdeploy.lint.router_facts import RouterFacts, facts
from mmdeploy.lint.rules.words import listed, short
from mmdeploy.lint.source import dig

EPP: KeyPath = ("router", "epp")
SERVERS: KeyPath = ("router", "modelServers")
Refusal = tuple[KeyPath, str, str]
_UNSET = object()


@rule("MMD245", Level.error, "router.md §4.2 (template failures); router-chart-values.csv; crds/inferencepools.yaml")
def refused(deployment: Deployment) -> Iterator[Found]:
    """Values that make the template fail, or render what the API server rejects."""
    known = facts(deployment)
    for values in deployment.router.values:
        for path, message, fix in (*_null(values), *_shapes(values, known), *_ports(values, known), *_pairs(values)):
            yield Found(values.document, path, "Helm values", message, fix)
    yield from _no_selector(deployment)


def _said(values: Values, *path: str | int) -> Any:
    """A value, or `_UNSET` for a key that is not there: null is something that was said."""
    parent = dig(values.document.value, path[:-1])
    return parent[path[-1]] if isinstance(parent, Mapping) and path[-1] in parent else _UNSET


def _null(values: Values) -> Iterator[Refusal]:
    for path in (
        (*EPP, "resources"), (*EPP, "resources", "requests"), (*EPP, "resources", "requests", "cpu"),
        (*EPP, "resources", "requests", "memory"), (*EPP, "image", "tag"), (*EPP, "metricsDataSource"),
        ("provider", "name"),
    ):  # fmt: skip
        if _said(values, *path) is None:
            yield path, f"{_dotted(path)} is null: the chart's template fails", "write a value, or leave it out"


def _dotted(path: KeyPath) -> str:
    return ".".join(map(str, path))


def _shapes(values: Values, known: RouterFacts) -> Iterator[Refusal]:
    if isinstance(values.get("router", "epp", "env"), Mapping):
        yield (
            (*EPP, "env"),
            "env is a mapping (as the chart's own comment shows it), and the template takes a list: it fails",
            "write a list of {name, value}",
        )
    flags = values.get("router", "epp", "flags")
    if flags is not None and not isinstance(flags, Mapping):
        why = f"flags is {short(flags)}, not a mapping: the template cannot render it"
        yield (*EPP, "flags"), why, "write flag: value"
    modes = known.fact("chart", "failureModes") or ()
    choices: tuple[tuple[tuple[str, ...], tuple[Any, ...], str], ...] = (
        (("router", "inferencePool", "failureMode"), tuple(modes), "it renders, and the API server rejects the pool"),
        (("router", "proxy", "proxyType"), ("envoy", "agentgateway"), "the template fails"),
        (("router", "proxy", "mode"), ("sidecar", "service"), "the template fails"),
        (("router", "proxy", "failOpen"), (True, False), "the template fails"),
    )
    for path, allowed, effect in choices:
        value = values.get(*path)
        if value is not None and (value not in allowed or isinstance(value, bool) != isinstance(allowed[0], bool)):
            choice = listed(str(item).lower() if isinstance(item, bool) else item for item in allowed)
            yield path, f"{_dotted(path[1:])} is {short(value)}: {effect}", f"write one of {choice}"


def _ports(values: Values, known: RouterFacts) -> Iterator[Refusal]:
    ports = values.get("router", "modelServers", "targetPorts")
    top: KeyPath = (*SERVERS, "targetPorts")
    if ports is not None and not isinstance(ports, list):
        yield top, f"targetPorts is {short(ports)}, not a list: the template fails", "write a list of {number: N}"
        return
    numbers: list[Any] = []
    for index, item in enumerate(ports or ()):
        number = item.get("number") if isinstance(item, Mapping) else None
        if not isinstance(item, Mapping) or "number" not in item:
            why = f"a target port is {short(item)}, not {{number: N}}: the template fails"
            yield (*top, index), why, "write {number: N}"
        elif isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= 65535:
            why = f"target port {short(number)} is not a port number: the API server rejects the pool"
            yield (*top, index, "number"), why, "write a number from 1 to 65535"
        elif number in numbers:
            yield (*top, index, "number"), f"target port {number} is given twice", "remove one"
        numbers.append(number)
    limit = known.fact("chart", "targetPortLimit")
    if isinstance(ports, list) and not 1 <= len(ports) <= limit:
        why = f"{len(ports)} target ports: an InferencePool takes 1 to {limit}"
        yield top, why, "write the port that the model servers are called on"


def _pairs(values: Values) -> Iterator[Refusal]:
    create = values.get("router", "inferencePool", "create")
    enabled = values.get("router", "tokenizer", "enabled") is True
    if enabled and _said(values, "router", "tokenizer", "modelName") == "":
        yield (
            ("router", "tokenizer", "modelName"),
            "router.tokenizer is enabled with an empty modelName: the template fails", "write the served model",
        )  # fmt: skip
    if values.get("router", "inferenceObjectives") and create is False:
        yield (
            ("router", "inferenceObjectives"),
            "inferenceObjectives with inferencePool.create: false: the template fails", "remove one of the two",
        )  # fmt: skip
    if values.gateway and create is False:
        yield (
            ("router", "inferencePool", "create"),
            "the gateway chart renders no InferencePool with create: false: the HTTPRoute leads to nothing",
            "remove create: false; it is for the standalone chart",
        )
    if values.gateway and values.get("router", "proxy", "enabled") is True:
        yield (
            ("router", "proxy", "enabled"),
            "proxy.enabled in the gateway chart adds a container without name and image: the API server rejects it",
            "remove it; the Gateway is the proxy",
        )


def _no_selector(deployment: Deployment) -> Iterator[Found]:
    """No pod labels at all. Values that look like a layer of a stack are left alone."""
    router = deployment.router
    tokenizer = router.value("router", "tokenizer", "enabled")
    if tokenizer and tokenizer[0] is True and not router.value("router", "tokenizer", "modelName"):
        yield Found(tokenizer[1].document, ("router", "tokenizer", "enabled"), "Helm values",
                    "router.tokenizer is enabled without modelName: the chart's template fails", "write "
                        "modelName")  # fmt: skip
    for values in router.values:
        labels = _said(values, *SERVERS, "matchLabels")
        if labels is not _UNSET and not (isinstance(labels, Mapping) and labels):
            yield Found(
                values.document, (*SERVERS, "matchLabels"), "Helm values",
                f"matchLabels is {short(labels) if labels else 'empty'}: the template fails, or the endpoint picker "
                "exits",
                "write the labels that all model-server pods carry",
            )  # fmt: skip
        elif isinstance(labels, Mapping):
            for key, value in labels.items():
                if not isinstance(value, str):
                    yield Found(values.document, (*SERVERS, "matchLabels", str(key)), "Helm values",
                                f"the label value {short(value)} is not a text: the API server rejects the pool",
                                f'quote it: {key}: "{str(value).lower()}"')  # fmt: skip
    written = [values for values in router.values if values.get("router", "epp", "pluginsCustomConfig")]
    if written and not any(_said(values, *SERVERS, "matchLabels") is not _UNSET for values in router.values):
        at = SERVERS if written[0].get("router", "modelServers") is not None else ("router",)
        yield Found(written[0].document, at, "Helm values",
                    "router.modelServers.matchLabels is not set: the chart's template fails in every mode",
                    "write the labels that all model-server pods carry")  # fmt: skip


@rule("MMD246", Level.error, "router.md §4.2; router-chart-values.csv (router.proxy)")
def agentgateway(deployment: Deployment) -> Iterator[Found]:
    """agentgateway as the standalone proxy: what it must be combined with."""
    router, known = deployment.router, facts(deployment)
    kind = router.value("router", "proxy", "proxyType")
    secure = router.value("router", "epp", "flags", "secure-serving")
    plain = secure is not None and str(secure[0]).lower() == "false"
    if kind is None or kind[0] != "agentgateway":
        if plain and secure is not None and known.has("envoyAlwaysTls") and kind is not None:
            yield Found(secure[1].document, (*EPP, "flags", "secure-serving"), "Helm values",
                        f"on chart {known.version} secure-serving: false leaves Envoy on TLS: every ext_proc "
                        "connection fails",
                        f"remove it, or use chart {known.routers.gate('envoyAlwaysTls').ended}")  # fmt: skip
        return
    create = router.value("router", "inferencePool", "create")
    at: KeyPath = ("router", "proxy", "proxyType")
    if create is None or create[0] is not False:
        where = (create[1].document, ("router", "inferencePool", "create")) if create else (kind[1].document, at)
        yield Found(*where, "Helm values", "agentgateway needs inferencePool.create: false (the default is true): "
                                           "the template fails",
                    "set router.inferencePool.create: false")  # fmt: skip
    if not plain:
        where = (secure[1].document, (*EPP, "flags", "secure-serving")) if secure else (kind[1].document, at)
        yield Found(*where, "Helm values",
                    "agentgateway speaks plaintext to the endpoint picker, whose default is TLS: the template fails",
                    "set router.epp.flags.secure-serving: false")  # fmt: skip
    block = router.value("router", "proxy", "agentgateway")
    if block is not None and known.has("agentgatewayBlockRefused"):
        yield Found(block[1].document, ("router", "proxy", "agentgateway"), "Helm values",
                    "the block proxy.agentgateway is refused from chart "
                    f"{known.routers.gate('agentgatewayBlockRefused').since} on: the template fails",
                    "remove it")  # fmt: skip
