"""2xx: the endpoint picker's data: producers and who reads them, metrics, flow control, caches of embeddings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mmdeploy.documents import KeyPath
from mmdeploy.lint.findings import Found, Level, rule
from mmdeploy.lint.index import Deployment
from mmdeploy.lint.router import PickerConfig, Plugin
from mmdeploy.lint.router_facts import RouterFacts, facts
from mmdeploy.lint.rules.picker_parameters import parameters
from mmdeploy.lint.rules.words import listed, suggestion
from mmdeploy.lint.source import dig

_CONSUMERS = ("approx-prefix-cache-producer", "mm-embeddings-cache-producer", "always-disagg-multimodal-decider")
"""Types that count media by what token-producer says."""

_DEFAULT_POLICIES = ("global-strict-fairness-policy", "fcfs-ordering-policy")
"""Policies that are there without being declared (router-config-fields.csv)."""


@rule("MMD210", Level.error, "router.md §1.2; router-config-fields.csv")
def feature_gates(deployment: Deployment) -> Iterator[Found]:
    """A feature gate that the router does not know, or spelled as it does not read it."""
    known = facts(deployment)
    names = {name.split(" ", 1)[1]: name for name in known.fields if name.startswith("featureGates[] ")}
    here = [name for name, field in names.items() if known.field(field, False).state == "known"]
    for config in deployment.configs:
        gates = dig(config.document.value, ("featureGates",))
        for index, gate in enumerate(gates if isinstance(gates, list) else ()):
            name, equals, value = str(gate).partition("=")
            message = ""
            if name not in here:
                message = f"router {known.version} has no feature gate {name}{suggestion(name, here)}"
            elif equals and not known.has("featureGateValues"):
                message = f"router {known.version} knows gates by their bare name, not as {gate}"
            elif equals and value.lower() not in ("true", "false"):
                message = f"feature gate {gate} is neither true nor false"
            if message:
                yield Found(config.document, ("featureGates", index), config.title,
                            f"{message}: the endpoint picker exits at start", f"use one of {listed(here)}")  # fmt: skip


def gate_on(config: PickerConfig, name: str) -> bool:
    """Whether a feature gate is switched on."""
    gates = dig(config.document.value, ("featureGates",))
    wanted = (name.lower(), f"{name.lower()}=true")
    return any(str(gate).lower() in wanted for gate in (gates if isinstance(gates, list) else ()))


@rule("MMD211", Level.warning, "router.md §1.2; router-config-fields.csv")
def flow_control(deployment: Deployment) -> Iterator[Found]:
    """A flowControl section without its gate (inert), or with policies that nothing declares."""
    for config in deployment.configs:
        section = dig(config.document.value, ("flowControl",))
        if not isinstance(section, Mapping):
            continue
        keys = [str(key) for key in section if key != "saturationDetector"]
        if not gate_on(config, "flowControl"):
            if keys:
                yield Found(config.document, ("flowControl",), config.title,
                            f"flowControl sets {listed(keys)}, but the feature gate is off: nothing of it takes effect",
                            "add featureGates: [flowControl]")  # fmt: skip
            continue
        names = {plugin.name for plugin in config.plugins} | set(_DEFAULT_POLICIES)
        for path in _bands(section):
            for key in ("fairnessPolicyRef", "orderingPolicyRef"):
                ref = dig(section, (*path, key))
                if ref and str(ref) not in names:
                    yield Found(config.document, ("flowControl", *path, key), config.title,
                                f"{key} names {ref}, which no plugin is called: the endpoint picker exits at start",
                                "declare the plugin", Level.error)  # fmt: skip


def _bands(section: Mapping[str, Any]) -> Iterator[KeyPath]:
    yield ("defaultPriorityBand",)
    yield ("defaultNegativePriorityBand",)
    bands = section.get("priorityBands")
    for index in range(len(bands) if isinstance(bands, list) else 0):
        yield ("priorityBands", index)


@rule("MMD221", Level.error, "router.md §1.3 (the naming trap); router-observed.md (26 of 26 starts)")
def producer_renamed(deployment: Deployment) -> Iterator[Found]:
    """A producer under a name of its own, which consumers do not ask for: a second one with defaults is made."""
    known = facts(deployment)
    for kind, about in (known.fact("plugins", "producers") or {}).items():
        key = about.get("consumerKey") if isinstance(about, Mapping) else None
        for config in deployment.configs:
            found = config.of_type(kind)
            if any(plugin.name == kind for plugin in found) and key is not None:
                continue
            for plugin in found:
                asked = plugin.name == kind or (key is not None and _asks(config, known, key, plugin.name))
                if not asked:
                    yield Found(
                        config.document, (*plugin.path, "name"), f"{config.title}, {plugin.name}",
                        f"{kind} is called {plugin.name}, and "
                        + ("consumers ask for the name token-producer" if key is None else f"no consumer names it as "
                            f"{key}")
                        + f": a second {kind} with default parameters is made, and its data are used",
                        "remove the name" if key is None else f"remove the name, or set {key}: {plugin.name} on each "
                                                              f"consumer",
                    )  # fmt: skip


def _asks(config: PickerConfig, known: RouterFacts, key: str, name: str) -> bool:
    return any(
        item.dotted.rpartition(".")[2] == key and item.value == name
        for plugin in config.plugins
        for item in parameters(config, plugin, known)
    )


@rule("MMD222", Level.error, "router-tables.md (surprises 1 and 3)")
def producer_missing(deployment: Deployment) -> Iterator[Found]:
    """A consumer whose producer is not declared, and which the endpoint picker does not make by itself."""
    known = facts(deployment)
    must = known.fact("plugins", "mustDeclare") or {}
    unchecked = known.fact("plugins", "uncheckedProducerName") or ()
    for config in deployment.configs:
        names = {plugin.name for plugin in config.plugins}
        for plugin in config.plugins:
            subject = f"{config.title}, {plugin.name}"
            wanted = must.get(plugin.type)
            if wanted and not config.of_type(wanted):
                yield Found(config.document, plugin.path, subject,
                            f"{plugin.type} needs an {wanted}, which is not made by itself for it: the endpoint picker "
                            "exits at start", f"declare a plugin of type {wanted}")  # fmt: skip
            for item in parameters(config, plugin, known):
                key = item.dotted.rpartition(".")[2]
                scorer = (plugin.type, key) == ("mm-embeddings-cache-scorer", "producerName")
                if not key.endswith("ProducerName") and not scorer:
                    continue
                if not isinstance(item.value, str) or not item.value or item.value in names or _made(known, item.value):
                    continue
                silent = plugin.type in unchecked
                yield Found(
                    config.document, item.path, subject,
                    f"{key} names {item.value}, which no plugin is called: "
                    + ("its data are silently not read" if silent else "the endpoint picker exits at start"),
                    f"declare the plugin, or correct the name{suggestion(item.value, names)}",
                    Level.warning if silent else None,
                )  # fmt: skip


def _made(known: RouterFacts, name: str) -> bool:
    """Whether a producer of that name is made by itself."""
    row = known.plugin(name).row
    return row is not None and row["auto_created"] == "yes"


@rule("MMD223", Level.warning, "router.md §1.3; field.md §4.3.5")
def token_producer_forgotten(deployment: Deployment) -> Iterator[Found]:
    """Media are counted, and nothing says how: a default estimator is made without a word."""
    models = deployment.catalog.models
    multimodal = any(engine.model in models for engine in deployment.engines)
    for config in deployment.configs:
        readers = config.of_type(*_CONSUMERS)
        if config.of_type("token-producer", "tokenizer") or not readers:
            continue
        if multimodal or config.of_type("always-disagg-multimodal-decider", "mm-embeddings-cache-producer"):
            yield Found(
                config.document, ("plugins",), config.title,
                f"no token-producer is declared, and {readers[0].name} reads its counts: one with defaults is made, "
                "which takes every picture behind a URL for 640x360 (225 tokens)",
                "declare token-producer with the estimate of the served model (mmdeploy render writes it)",
            )  # fmt: skip


@rule("MMD224", Level.warning, "router.md §1.3")
def metrics_source_renamed(deployment: Deployment) -> Iterator[Found]:
    """A metrics source under another name: the default one goes on scraping beside it."""
    for config in deployment.configs:
        if dig(config.document.value, ("dataLayer", "injectDefaults")) is False:
            continue
        used = _sources(config)
        for plugin in config.of_type("metrics-data-source"):
            if plugin.name in used and "metrics-data-source" not in used:
                yield Found(
                    config.document, (*plugin.path, "name"), f"{config.title}, {plugin.name}",
                    f"the metrics source is called {plugin.name}: only the name metrics-data-source replaces the "
                    "default one, so pods are scraped twice and the default's settings stay in effect",
                    "remove the name and refer to metrics-data-source, or set dataLayer.injectDefaults: false",
                )  # fmt: skip


def _sources(config: PickerConfig) -> dict[str, list[str]]:
    """Names of data sources, each with its extractors."""
    found: dict[str, list[str]] = {}
    items = dig(config.document.value, ("dataLayer", "sources"))
    for item in items if isinstance(items, list) else ():
        if isinstance(item, Mapping):
            inner = item.get("extractors")
            names = [str(entry.get("pluginRef")) for entry in (inner if isinstance(inner, list) else ())
                     if isinstance(entry, Mapping)]  # fmt: skip
            found.setdefault(str(item.get("pluginRef")), []).extend(names)
    return found


@rule("MMD225", Level.error, "router-tables.md (surprise 4); router-config-fields.csv")
def metrics_unread(deployment: Deployment) -> Iterator[Found]:
    """Scorers that read engine metrics, and nothing that fetches them."""
    known = facts(deployment)
    scorers = ("queue-scorer", "kv-cache-utilization-scorer", "running-requests-size-scorer", "lora-affinity-scorer")
    for config in deployment.configs:
        if dig(config.document.value, ("dataLayer", "injectDefaults")) is not False:
            continue
        sources = _sources(config)
        path = ("dataLayer", "injectDefaults")
        if not sources:
            yield Found(config.document, path, config.title,
                        "injectDefaults is false and no source is given: the endpoint picker exits without an error "
                        "line",
                        "list the sources, or remove injectDefaults")  # fmt: skip
            continue
        extractors = {_type(config, name) for names in sources.values() for name in names}
        readers = config.of_type(*scorers)
        if readers and not any("metrics-extractor" in kind for kind in extractors):
            end = "the endpoint picker exits at start" if known.has("metricsMustBeWired") else "the scorers see no data"
            yield Found(config.document, path, config.title,
                        f"{listed(plugin.name for plugin in readers)} read engine metrics, and no "
                        f"core-metrics-extractor is wired to a source: {end}",
                        "add metrics-data-source with core-metrics-extractor to dataLayer.sources")  # fmt: skip


def _type(config: PickerConfig, name: str) -> str:
    plugin = config.named(name)
    return plugin.type if plugin else ""


@rule("MMD226", Level.error, "router.md §2.4 (#2626)")
def embeddings_cache(deployment: Deployment) -> Iterator[Found]:
    """Affinity to pods that hold a picture's embeddings, where another pod than the encoder is remembered."""
    for config in deployment.configs:
        if config.handler is None or not config.decider("encode"):
            continue
        profile = config.profile(config.stage_profile("encode"))
        scorers: list[Plugin] = config.of_type("mm-embeddings-cache-scorer")
        at = next((path for name, _, path in (profile.entries if profile else ())
                   if name in {plugin.name for plugin in scorers}), None)  # fmt: skip
        told = any("encodeProfile" in plugin.parameters for plugin in config.of_type("mm-embeddings-cache-producer"))
        if at is not None and not told:
            yield Found(
                config.document, at, config.title,
                "mm-embeddings-cache-scorer in the encode profile always scores 0: its producer remembers the decode "
                "pod of a request, not the pod that encoded",
                "remove it from the encode profile (it is consistent only where one pod does everything)",
            )  # fmt: skip
