"""4xx: the network under a transfer: side channels, ports, devices, idle connections, Mooncake's addresses."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from mmdeploy.documents import KeyPath
from mmdeploy.lint.commands import NotJsonError
from mmdeploy.lint.connectors import EC, cache_names, config_of, extra, name_of, place
from mmdeploy.lint.engines import before
from mmdeploy.lint.findings import Found, Level, rule
from mmdeploy.lint.index import Deployment
from mmdeploy.lint.peers import DECODE, ENCODE, PREFILL, cache_pairs, of_kind, peers, set_in_script, stage, subject
from mmdeploy.lint.pods import Engine
from mmdeploy.lint.source import dig

_EVERYWHERE = re.compile(r"^(0\.0\.0\.0|localhost|127\.\d+\.\d+\.\d+|::1?|\[::1?\]|\*)$", re.IGNORECASE)


def _notes(deployment: Deployment) -> Mapping[str, Any]:
    notes: Mapping[str, Any] = deployment.tables.notes("transfer")
    return notes


def _serves_encodings(deployment: Deployment, engine: Engine) -> bool:
    """Whether an engine offers encodings over NIXL."""
    nixl = _notes(deployment)["encoder"]["nixl"]
    config = config_of(engine, EC)
    on = str(extra(config, "ec").get(nixl["key"])).lower() in ("true", "1", "yes")
    produces = engine.ec_role == "ec_producer" and stage(engine) == ENCODE and not engine.forked
    return name_of(config, "ec") == nixl["connector"] and on and produces


def _uses_nixl(deployment: Deployment, engine: Engine) -> bool:
    return bool(set(cache_names(engine)) & set(_notes(deployment)["cache"]["nixl"]))


@rule("MMD430", Level.error, "model-servers.md §1.3; vllm-project/vllm#27083; volcano-sh/kthena#1781")
def side_channel_host(deployment: Deployment) -> Iterator[Found]:
    """A side channel that other pods are told to reach under an address of their own."""
    channels = _notes(deployment)["channels"]
    for engine in of_kind(deployment, "vllm"):
        if _serves_encodings(deployment, engine):
            yield from _host(engine, channels["encoder"]["host"], "consumers in other pods dial themselves", None)
        others = peers(deployment, engine, PREFILL, DECODE)
        if _uses_nixl(deployment, engine) and any(stage(other) != stage(engine) for other in others):
            level = None if stage(engine) == PREFILL else Level.warning
            yield from _host(engine, channels["cache"]["host"], "the other side dials itself", level)


def _host(engine: Engine, name: str, who: str, level: Level | None) -> Iterator[Found]:
    item = engine.container.variable(name)
    path, title = engine.container.variable_path(name), subject(engine)
    fix = f"set {name} with valueFrom.fieldRef.fieldPath status.podIP"
    if item is None:
        if not set_in_script(engine.container, name):
            yield Found(
                engine.pod.document, path, title,
                f"{name} is not set: the engine tells others localhost, so {who}",
                fix, level,
            )  # fmt: skip
        return
    field = dig(item, ("valueFrom", "fieldRef", "fieldPath"))
    value = item.get("value")
    if field is not None:
        yield from _field(engine, name, str(field), path)
    elif isinstance(value, str) or (value is None and "valueFrom" not in item):
        yield from _literal(engine, name, str(value or ""), who, path)


def _field(engine: Engine, name: str, field: str, path: KeyPath) -> Iterator[Found]:
    if field == "status.podIP" or (field == "status.hostIP" and engine.pod.spec.get("hostNetwork") is True):
        return
    yield Found(
        engine.pod.document, (*path, "valueFrom", "fieldRef", "fieldPath"), subject(engine),
        f"{name} comes from {field}, but the engine binds and announces this very text: it must be the pod's own "
        "address",
        "write status.podIP", Level.warning,
    )  # fmt: skip


def _literal(engine: Engine, name: str, value: str, who: str, path: KeyPath) -> Iterator[Found]:
    source = re.fullmatch(r"\$\(([A-Za-z_]\w*)\)", value)
    if source is not None or "$" in value:
        return
    if not value or _EVERYWHERE.match(value):
        yield Found(
            engine.pod.document, (*path, "value"), subject(engine),
            f"{name} is {value or 'empty'}: what the engine binds is also what it announces, so {who}",
            "take the address from the pod: valueFrom.fieldRef.fieldPath status.podIP",
        )  # fmt: skip
    elif (engine.pod.replicas or 1) > 1 or not re.fullmatch(r"[\d.:a-fA-F]+", value):
        yield Found(
            engine.pod.document, (*path, "value"), subject(engine),
            f"{name} is the constant {value}: the engine binds and announces this very text in every replica",
            "take the address from the pod: valueFrom.fieldRef.fieldPath status.podIP", Level.warning,
        )  # fmt: skip


@rule("MMD431", Level.error, "model-servers.md §1.3")
def ports_collide(deployment: Deployment) -> Iterator[Found]:
    """Two listeners of a pod on one port."""
    for engine in of_kind(deployment, "vllm"):
        taken: dict[int, str] = {engine.port: "the API"}
        sidecar = engine.pod.sidecar
        if sidecar is not None:
            default = deployment.catalog.ports["modelServer"]
            taken.setdefault(sidecar.command.integer("--port") or default, "the sidecar")
        for what, number, path in _listeners(deployment, engine):
            if number in taken:
                yield Found(
                    engine.pod.document, path, subject(engine),
                    f"{what} is to listen on {number}, where {taken[number]} listens: address already in use",
                    "give one of them another port",
                )  # fmt: skip
            taken.setdefault(number, what)


def _listeners(deployment: Deployment, engine: Engine) -> Iterator[tuple[str, int, KeyPath]]:
    channels = _notes(deployment)["channels"]
    used = (
        ("the KV side channel", channels["cache"], _uses_nixl(deployment, engine)),
        ("the encoder side channel", channels["encoder"], _serves_encodings(deployment, engine)),
    )
    for what, channel, on in used:
        item = engine.container.variable(channel["port"])
        text = str((item or {}).get("value", channel["default"]))
        if on and text.isdigit():
            yield what, int(text), engine.container.variable_path(channel["port"])
    events = channels["events"]
    try:
        config = engine.command.json(events["flag"]) or {}
    except NotJsonError:
        return
    if config.get("enable_kv_cache_events") is True:
        match = re.search(r":(\d+)$", str(config.get(events["key"], f":{events['default']}")))
        bound = "*" in str(config.get(events["key"], "*")) or "0.0.0.0" in str(config.get(events["key"], ""))
        if match is not None and bound:
            yield "the publisher of KV cache events", int(match[1]), engine.command.path_of(events["flag"])


def _has_rdma(engine: Engine, notes: Mapping[str, Any]) -> bool:
    """Whether a container is given an RDMA device, or may be given one by claims, host network or annotations."""
    for kind in ("limits", "requests"):
        named = dig(engine.container.spec, ("resources", kind))
        for name in named if isinstance(named, Mapping) else ():
            if any(part in str(name).lower() for part in notes["resources"]):
                return True
    annotations = dig(engine.pod.template, ("metadata", "annotations"))
    attached = any("networks" in str(key) for key in annotations) if isinstance(annotations, Mapping) else False
    context = dig(engine.container.spec, ("securityContext", "privileged")) is True
    claims = dig(engine.container.spec, ("resources", "claims"))
    return bool(claims) or attached or context or engine.pod.spec.get("hostNetwork") is True


def _transfers_over_ucx(deployment: Deployment, engine: Engine) -> bool:
    nixl = _notes(deployment)["encoder"]["nixl"]
    encodings = name_of(config_of(engine, EC), "ec") == nixl["connector"] and nixl["key"] in extra(
        config_of(engine, EC), "ec"
    )
    return (
        encodings
        or _uses_nixl(deployment, engine)
        or engine.command.value("--disaggregation-transfer-backend") == "nixl"
    )


@rule("MMD432", Level.error, "ai-dynamo/dynamo#3724; llm-d-guides.md §12")
def no_transport(deployment: Deployment) -> Iterator[Found]:
    """UCX limited to RDMA transports in a container that has no RDMA device."""
    networks = _notes(deployment)["networks"]
    transports = networks["transports"]
    for engine in deployment.engines:
        item = engine.container.variable(transports["variable"])
        words = [word.strip() for word in str((item or {}).get("value") or "").split(",") if word.strip()]
        if not words or words[0].startswith("^") or "$" in "".join(words) or _has_rdma(engine, networks):
            continue
        if not _transfers_over_ucx(deployment, engine):
            continue
        rdma = [word for word in words if word in transports["rdma"]]
        if rdma and not set(words) & set(transports["free"]):
            path = (*engine.container.variable_path(transports["variable"]), "value")
            yield Found(
                engine.pod.document, path, subject(engine),
                f"{transports['variable']} allows only {', '.join(words)} between nodes, but this container asks for "
                "no RDMA device: the transfer agent finds no transport",
                f"add tcp to {transports['variable']}, or ask for the device (such as rdma/ib) in the resources",
            )  # fmt: skip
    yield from _absent_devices(deployment)


def _absent_devices(deployment: Deployment) -> Iterator[Found]:
    networks = _notes(deployment)["networks"]
    name, prefixes = networks["onlyRdma"]["variable"], tuple(networks["onlyRdma"]["prefixes"])
    for engine in deployment.engines:
        words = [word.strip() for word in str((engine.container.variable(name) or {}).get("value") or "").split(",")]
        named = [word for word in words if word]
        if not named or not all(word.startswith(prefixes) for word in named) or _has_rdma(engine, networks):
            continue
        if _transfers_over_ucx(deployment, engine):
            yield Found(
                engine.pod.document, (*engine.container.variable_path(name), "value"), subject(engine),
                f"{name} names only {', '.join(named)}, but this container asks for no RDMA device",
                "ask for the device (such as rdma/ib) in the resources, or name the network interface",
                Level.warning,
            )  # fmt: skip


@rule("MMD433", Level.warning, "llm-d/llm-d-benchmark#1849")
def misspelt_device(deployment: Deployment) -> Iterator[Found]:
    """The name of a network device that looks like a misspelling: unknown names in these lists draw no error."""
    networks = _notes(deployment)["networks"]
    for engine in deployment.engines:
        for name in networks["devices"]:
            item = engine.container.variable(name)
            for word in str((item or {}).get("value") or "").split(","):
                near = _near_device(word, networks["deviceNames"])
                if near is not None:
                    yield Found(
                        engine.pod.document, (*engine.container.variable_path(name), "value"), subject(engine),
                        f"{name} names {word.strip()}, which looks like {near}: a name that no device has is passed "
                        "over without a word",
                        f"write {near}",
                    )  # fmt: skip


def _near_device(word: str, prefixes: list[str]) -> str | None:
    device = word.strip().lstrip("^=").partition(":")[0]
    match = re.fullmatch(r"([A-Za-z_]+?\d*_?)(\d*)", device)
    if match is None or not match[2] or any(device.startswith(prefix) for prefix in prefixes):
        return None
    heads = [prefix for prefix in prefixes if prefix.endswith("_")]
    near = difflib.get_close_matches(device.removesuffix(match[2]), heads, n=1, cutoff=0.75)
    return f"{near[0]}{match[2]}" if near else None


@rule("MMD434", Level.info, "llm-d-guides.md §11.2; model-servers.md §1.1")
def idle_connections(deployment: Deployment) -> Iterator[Found]:
    """An engine that closes idle connections before the sidecar that pools them."""
    keep = _notes(deployment)["sidecar"]["keepAlive"]
    sidecars = any(pod.sidecar is not None for pod in deployment.pods)
    for engine in of_kind(deployment, "vllm"):
        item = engine.container.variable(keep["variable"])
        text = str((item or {}).get("value", ""))
        called = engine.pod.sidecar is not None or (sidecars and stage(engine) in (PREFILL, ENCODE))
        if called and text.isdigit() and int(text) < keep["seconds"]:
            yield Found(
                engine.pod.document, (*engine.container.variable_path(keep["variable"]), "value"), subject(engine),
                f"{keep['variable']} is {text} s, but the sidecar keeps idle connections for {keep['seconds']} s: "
                "requests fail now and then after quiet periods",
                f"set it to {keep['recommended']}",
            )  # fmt: skip


@rule("MMD435", Level.error, "model-servers.md §1.2")
def mooncake_limits(deployment: Deployment) -> Iterator[Found]:
    """What ECMooncakeConnector refuses, and addresses under which nobody finds it."""
    notes = _notes(deployment)["encoder"]["mooncake"]
    for engine in of_kind(deployment, "vllm"):
        config = config_of(engine, EC)
        if config is None or name_of(config, "ec") != notes["connector"]:
            continue
        for message, fix, path, level in _mooncake(engine, config, notes):
            yield Found(engine.pod.document, path, subject(engine), message, fix, level)


def _mooncake(
    engine: Engine, config: Mapping[str, Any], notes: Mapping[str, Any]
) -> Iterator[tuple[str, str, KeyPath, Level | None]]:
    producer, keys = engine.ec_role == "ec_producer", extra(config, "ec")
    sizes = {
        "--tensor-parallel-size": ("--tensor-parallel-size", "-tp"),
        "--pipeline-parallel-size": ("--pipeline-parallel-size", "-pp"),
        "--data-parallel-size": ("--data-parallel-size", "-dp"),
    }
    for name, spellings in sizes.items():
        flag = engine.command.last(*spellings)
        if producer and flag is not None and (engine.command.integer(*spellings) or 1) > 1:
            yield (
                f"{notes['connector']} refuses a producer with {name}={flag.value}", f"set {name}=1",
                flag.value_path or flag.path, None,
            )  # fmt: skip
    address = str(config.get(notes["address"], "127.0.0.1"))
    if _EVERYWHERE.match(address):
        said = notes["address"] in config
        yield (
            f"{notes['address']} is {address if said else 'left at 127.0.0.1'}: it is both bound and announced, so the "
            "other side dials itself",
            f'write "{notes["address"]}": "$(POD_IP)", with POD_IP from status.podIP in env',
            place(engine, EC, notes["address"]), None,
        )  # fmt: skip
    port = config.get(notes["port"])
    if isinstance(port, int) and not 1 <= port <= 65535:
        yield f"{notes['port']} is {port}", "write a port from 1 to 65535", place(engine, EC, notes["port"]), None
    yield from _cross_cache(engine, keys, notes)


def _cross_cache(
    engine: Engine, keys: Mapping[str, Any], notes: Mapping[str, Any]
) -> Iterator[tuple[str, str, KeyPath, Level | None]]:
    key = notes["crossCache"]
    value = keys.get(key)
    path = place(engine, EC, "ec_connector_extra_config", key)
    if value is None:
        return
    if not isinstance(value, bool):
        yield f"{key} is {value!r}, but must be a JSON true or false", f'write "{key}": true', path, None
    elif value and engine.ec_role != "ec_producer":
        yield f"{key} is refused on an engine that is not only an encoder", f"remove {key} here", path, None
    elif value and before(engine, notes["crossSince"]):
        yield f"vLLM {engine.version} does not read {key}", f"pin {notes['crossSince']} or newer", path, Level.warning
    elif value and engine.command.value("--mm-processor-cache-gb") in ("0", "0.0"):
        yield f"{key} needs --mm-processor-cache-gb above 0", "give the processor cache some memory", path, None
    elif value and engine.command.on("--enable-lora"):
        yield f"{key} does not go with --enable-lora", f"remove {key}", path, None


@rule("MMD436", Level.warning, "llm-d/llm-d#2442")
def memory_not_pinned(deployment: Deployment) -> Iterator[Found]:
    """IPC_LOCK on one side of an RDMA transfer only: the other cannot pin the memory that the network reads."""
    wanted = _notes(deployment)["networks"]["capability"]
    for prefill, decode in cache_pairs(deployment):
        for engine, other in ((prefill, decode), (decode, prefill)):
            if wanted in _capabilities(other) and wanted not in _capabilities(engine) and not _privileged(engine):
                yield Found(
                    engine.pod.document, _capabilities_path(engine), subject(engine),
                    f"{other.pod.title} has the capability {wanted} and this {stage(engine)} engine has not: it cannot "
                    "pin memory for RDMA, and transfers fail",
                    f"add {wanted} to securityContext.capabilities.add",
                )  # fmt: skip


def _capabilities(engine: Engine) -> list[str]:
    added = dig(engine.container.spec, ("securityContext", "capabilities", "add"))
    return [str(name).removeprefix("CAP_") for name in added] if isinstance(added, list) else []


def _privileged(engine: Engine) -> bool:
    return dig(engine.container.spec, ("securityContext", "privileged")) is True or "ALL" in _capabilities(engine)


def _capabilities_path(engine: Engine) -> KeyPath:
    for path in (("securityContext", "capabilities", "add"), ("securityContext", "capabilities"), ("securityContext",)):
        if dig(engine.container.spec, path) is not None:
            return (*engine.container.path, *path)
    return (*engine.container.path, "name")
