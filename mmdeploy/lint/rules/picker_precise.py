"""2xx: precise prefix routing: real tokens, KV events and block sizes on both sides."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from mmdeploy.lint.commands import NotJsonError
from mmdeploy.lint.findings import Found, Level, rule
from mmdeploy.lint.index import Deployment
from mmdeploy.lint.pods import Engine, Pod
from mmdeploy.lint.router import PickerConfig, Plugin
from mmdeploy.lint.router_facts import facts
from mmdeploy.lint.source import dig
from mmdeploy.lint.tables import version

PRODUCERS = ("precise-prefix-cache-producer", "precise-prefix-cache-scorer")
_NOT_CUDA = re.compile(r"xpu|tpu|cpu|rocm|hpu|neuron|gaudi|ascend")


def precise(deployment: Deployment) -> Iterator[tuple[PickerConfig, Plugin]]:
    """Precise producers of every configuration."""
    for config, plugin in deployment.plugins:
        if plugin.type in PRODUCERS:
            yield config, plugin


@rule("MMD227", Level.error, "router.md §2.4")
def estimated_tokens(deployment: Deployment) -> Iterator[Found]:
    """A precise index over estimated tokens: they never hash to an engine's blocks."""
    for config, plugin in precise(deployment):
        producers = config.of_type("token-producer", "tokenizer")
        real = any(renderer(item) is not None for item in producers)
        if not real and not dig(plugin.parameters, ("indexerConfig", "tokenizersPoolConfig")):
            at = producers[0] if producers else plugin
            counts = f"{at.name} estimates" if producers else "the token-producer that is made by default estimates"
            yield Found(
                config.document, at.path, config.title,
                f"{plugin.name} looks up the engines' own blocks, but {counts}: not one request ever matches",
                "give token-producer modelName and vllm.url of a render server",
            )  # fmt: skip


@rule("MMD228", Level.error, "kserve/kserve#5011; router.md §2.4")
def block_size(deployment: Deployment) -> Iterator[Found]:
    """The router cuts prompts into blocks of another size than the engines."""
    default = facts(deployment).fact("precise", "engineBlockSize", "nvidia")
    for pool in deployment.pools:
        for config, plugin in precise(deployment):
            if config not in list(pool.configs):
                continue
            tokens = dig(plugin.parameters, ("tokenProcessorConfig", "blockSizeTokens"))
            tokens = tokens or dig(plugin.parameters, ("tokenProcessorConfig", "blockSize")) or 16
            for engine in _cached(pool.pods):
                size = _size(engine, default)
                if size is not None and size != tokens:
                    yield Found(
                        engine.pod.document, engine.command.path_of("--block-size"), engine.pod.title,
                        f"{plugin.name} hashes blocks of {tokens} tokens, while {engine.pod.title} "
                        f"{'has' if engine.command.last('--block-size', '--page-size') else 'uses the default of'} "
                        f"{size}: the index never matches the engine's events",
                        f"set --block-size={tokens} on the engine, or blockSizeTokens: {size}",
                    )  # fmt: skip


def _cached(pods: list[Pod]) -> Iterator[Engine]:
    """Engines that hold a KV cache."""
    for pod in pods:
        if pod.engine is not None and not pod.engine.encodes_only:
            yield pod.engine


def _size(engine: Engine, default: Any) -> int | None:
    """Tokens a block; None where nobody can know without the engine."""
    name = "--block-size" if engine.kind == "vllm" else "--page-size"
    if engine.command.last(name) is not None:
        return engine.command.integer(name)
    known = engine.kind == "vllm" and engine.command.last("--config") is None
    return default if known and not _NOT_CUDA.search(engine.container.image.split("@")[0]) else None


@rule("MMD229", Level.error, "router.md §2.4; model-servers.md §1.3 (--kv-events-config)")
def events(deployment: Deployment) -> Iterator[Found]:
    """A precise index that hears of no blocks."""
    for config, plugin in precise(deployment):
        shared = dig(plugin.parameters, ("kvEventsConfig", "zmqEndpoint"))
        sources = dig(config.document.value, ("dataLayer", "sources"))
        names = {str(item.get("pluginRef")): item for item in (sources if isinstance(sources, list) else ())
                 if isinstance(item, Mapping)}  # fmt: skip
        notified = [item for name, item in names.items() if _type(config, name) == "endpoint-notification-source"]
        if plugin.type == PRODUCERS[0] and not shared and not any(_extracts(item, plugin.name) for item in notified):
            yield Found(
                config.document, plugin.path, config.title,
                f"no endpoint-notification-source in dataLayer.sources names {plugin.name} as its extractor, and no "
                "zmqEndpoint is set: the index hears of no pod and stays empty",
                f"add a source {{pluginRef: endpoint-notification-source, extractors: [{{pluginRef: {plugin.name}}}]}}",
            )  # fmt: skip
        for pool in deployment.pools:
            if config in list(pool.configs):
                for engine in _cached(pool.pods):
                    yield from _publishes(plugin, engine, bool(shared))


def _extracts(source: Mapping[str, Any], name: str) -> bool:
    inner = source.get("extractors")
    return any(isinstance(item, Mapping) and item.get("pluginRef") == name for item in
               (inner if isinstance(inner, list) else ()))  # fmt: skip


def _publishes(plugin: Plugin, engine: Engine, shared: bool) -> Iterator[Found]:
    if engine.kind != "vllm" or engine.command.last("--config") is not None:
        return
    try:
        said = engine.command.json("--kv-events-config")
    except NotJsonError:
        return
    path, title = engine.command.path_of("--kv-events-config"), engine.pod.title
    if not said or not said.get("enable_kv_cache_events"):
        yield Found(engine.pod.document, path, title,
                    f"{plugin.name} waits for KV cache events, and {title} publishes none: its index stays empty",
                    'add --kv-events-config {"enable_kv_cache_events": true, "publisher": "zmq", …}')  # fmt: skip
        return
    wanted = dig(plugin.parameters, ("kvEventsConfig", "podDiscoveryConfig", "socketPort")) or 5557
    port = re.search(r":(\d+)$", str(said.get("endpoint", "tcp://*:5557")))
    if port and int(port[1]) != wanted and not shared:
        yield Found(engine.pod.document, path, title,
                    f"{title} publishes KV events on port {port[1]}, while {plugin.name} listens to {wanted}",
                    f"use port {wanted} in endpoint, or set podDiscoveryConfig.socketPort: {port[1]}")  # fmt: skip
    prefix = str(dig(plugin.parameters, ("kvEventsConfig", "topicFilter")) or "kv@")
    topic = str(said.get("topic", ""))
    if not topic.startswith(prefix) and not topic.startswith("$"):
        yield Found(engine.pod.document, path, title,
                    f"{title} publishes under the topic {topic!r}, while {plugin.name} reads topics that begin with "
                    f"{prefix}",
                    f"begin the topic with {prefix}")  # fmt: skip


def _type(config: PickerConfig, name: str) -> str:
    plugin = config.named(name)
    return plugin.type if plugin else ""


@rule("MMD230", Level.error, "model-servers.md §1.1, §6 (--enable-scale-out); router.md §2.4")
def render_server(deployment: Deployment) -> Iterator[Found]:
    """The router asks an engine to render prompts, and the engine refuses: scale-out endpoints are off."""
    since = version(str(facts(deployment).fact("precise", "scaleOutFrom")))
    for config, plugin in deployment.plugins:
        url = renderer(plugin)
        if url is None:
            continue
        yield from _local(deployment, config, plugin, url)
        for engine in _behind(deployment, url):
            old = engine.version is not None and version(engine.version) < since
            if engine.kind != "vllm" or old or engine.command.on("--enable-scale-out"):
                continue
            yield Found(
                config.document, (*plugin.path, "parameters", "vllm", "url"), config.title,
                f"{url} leads to {engine.pod.title}, whose render endpoint answers 403 without --enable-scale-out: "
                "prompts are not tokenised, and only the log says so",
                "point it at a vllm launch render server, or add --enable-scale-out to that engine",
            )  # fmt: skip


def renderer(plugin: Plugin) -> str | None:
    """The render server of a token-producer; None for one that estimates."""
    if plugin.type not in ("token-producer", "tokenizer"):
        return None
    block, model = plugin.parameters.get("vllm"), plugin.parameters.get("modelName")
    url = block.get("url") if isinstance(block, Mapping) else None
    return str(url) if url else "http://localhost:8000" if model or isinstance(block, Mapping) else None


def _local(deployment: Deployment, config: PickerConfig, plugin: Plugin, url: str) -> Iterator[Found]:
    """A render server in the router's own pod must be switched on in the values."""
    host = _host(url)
    both = plugin.parameters.get("estimate") is not None  # refused at start: MMD207
    if host not in ("localhost", "127.0.0.1") or config.values is None or both:
        return
    enabled = deployment.router.value("router", "tokenizer", "enabled")
    if enabled is None or not enabled[0]:
        yield Found(
            config.document, plugin.path, config.title,
            f"{plugin.name} asks {url} to render prompts, and router.tokenizer is not enabled: nothing listens there, "
            "and only the log says so",
            "set router.tokenizer.enabled: true and router.tokenizer.modelName, or name a render server",
        )  # fmt: skip


@rule("MMD231", Level.error, "router.md §2.4, §4.2 (tokenizer)")
def rendered_model(deployment: Deployment) -> Iterator[Found]:
    """Prompts are tokenised for a model that no pod of the pool serves."""
    tokenizer = deployment.router.value("router", "tokenizer", "modelName")
    for config, plugin in deployment.plugins:
        name, url = plugin.parameters.get("modelName"), renderer(plugin)
        if not name or url is None:
            continue
        path = (*plugin.path, "parameters", "modelName")
        if tokenizer and tokenizer[0] and _host(url) == "localhost" and tokenizer[0] != name:
            yield Found(config.document, path, config.title,
                        f"{plugin.name} asks for {name}, while router.tokenizer serves {tokenizer[0]}: every render "
                        "request is refused, and only the log says so", f"write modelName: {tokenizer[0]}")  # fmt: skip
            continue
        served = _served(deployment, config)
        if served and str(name) not in served:
            yield Found(config.document, path, config.title,
                        f"{plugin.name} tokenises for {name}, while the pool's pods serve {', '.join(sorted(served))}",
                        "write the model that the pods serve")  # fmt: skip


def _served(deployment: Deployment, config: PickerConfig) -> set[str]:
    """Names and paths of the models of the pools' pods; empty where one is not known."""
    names: set[str] = set()
    for pool in deployment.pools:
        for pod in pool.pods if config in list(pool.configs) else ():
            engine = pod.engine
            if engine is None or not engine.model or "$" in engine.model:
                return set()
            flag = engine.command.last("--served-model-name")
            names |= {engine.model, *(flag.values if flag else ())}
    return names


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _behind(deployment: Deployment, url: str) -> Iterator[Engine]:
    """Engines of pods behind a URL's host: by a Service that selects them, or by the workload's own name."""
    name = _host(url).split(".")[0]
    selectors = [item.get("spec", "selector") for item in deployment.kind("Service") if item.name == name]
    for engine in deployment.engines:
        chosen = any(
            isinstance(selector, Mapping) and selector and {str(k): str(v) for k, v in selector.items()}.items()
            <= engine.pod.labels.items() for selector in selectors
        )  # fmt: skip
        if chosen or (not selectors and name == engine.pod.name):
            yield engine
