"""4xx: the KV cache between prefill and decode."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from mmdeploy.documents import KeyPath
from mmdeploy.lint.connectors import KV, cache_names, caches, config_of, extra, place, readable
from mmdeploy.lint.engines import EngineFacts, facts_of, model_of
from mmdeploy.lint.findings import Found, Level, rule
from mmdeploy.lint.index import Deployment
from mmdeploy.lint.peers import (
    DECODE,
    ENCODE,
    PREFILL,
    arguments,
    cache_pairs,
    of_kind,
    opaque,
    peers,
    stage,
    subject,
)  # fmt: skip
from mmdeploy.lint.pods import Engine

_TENSOR = ("--tensor-parallel-size", "-tp", "--tp-size", "--tp")
_HYBRID = "--disable-hybrid-kv-cache-manager"


def _notes(deployment: Deployment) -> Mapping[str, Any]:
    notes: Mapping[str, Any] = deployment.tables.notes("transfer")
    return notes


@rule("MMD420", Level.error, "kserve/kserve#5987; ai-dynamo/dynamo#11467; kserve/kserve#6027")
def cache_on_one_side(deployment: Deployment) -> Iterator[Found]:
    """Prefill and decode of which one, or neither, can hand the KV cache over."""
    told: list[Engine] = []
    for prefill, decode in cache_pairs(deployment):
        for engine, other in ((prefill, decode), (decode, prefill)):
            if engine.kind != "vllm" or engine in told or config_of(engine, KV) is not None or not readable(engine, KV):
                continue
            told.append(engine)
            alone = config_of(other, KV) is not None
            effect = (
                "decode computes every prompt again" if stage(engine) == DECODE or not alone
                else "prefill's work never reaches decode"
            )  # fmt: skip
            yield Found(
                engine.pod.document, arguments(engine.container), subject(engine),
                f"this {stage(engine)} engine has no --kv-transfer-config"
                + (f", though {other.pod.title} has" if alone else f", and neither has {other.pod.title}")
                + f": {effect}, and requests succeed all the same",
                "give prefill and decode the same kv_connector",
            )  # fmt: skip


@rule("MMD421", Level.error, "model-servers.md §1.3; vllm-connectors.csv")
def cache_connectors_differ(deployment: Deployment) -> Iterator[Found]:
    """Prefill and decode with different KV connectors or swapped roles; a KV connector where there is no KV cache."""
    transfers, same = _notes(deployment)["cache"]["transfers"], _notes(deployment)["cache"]["same"]
    for prefill, decode in cache_pairs(deployment):
        mine, theirs = (
            {same.get(name, name) for name in cache_names(engine) if name in transfers} for engine in (prefill, decode)
        )
        if mine and theirs and not mine & theirs:
            yield Found(
                prefill.pod.document, place(prefill, KV, "kv_connector"), subject(prefill),
                f"{', '.join(sorted(mine))} here, {', '.join(sorted(theirs))} on {decode.pod.title}: they cannot "
                "exchange the KV cache",
                "give both the same kv_connector",
            )  # fmt: skip
    for engine in of_kind(deployment, "vllm", PREFILL, DECODE):
        role = (config_of(engine, KV) or {}).get("kv_role")
        wrong = {PREFILL: "kv_consumer", DECODE: "kv_producer"}[stage(engine)]
        if role == wrong and peers(deployment, engine, PREFILL, DECODE):
            right = "kv_producer" if stage(engine) == PREFILL else "kv_consumer"
            yield Found(
                engine.pod.document, place(engine, KV, "kv_role"), subject(engine),
                f"{role} on a {stage(engine)} engine: the two ends have changed places", f"write {right}",
                Level.warning,
            )  # fmt: skip
    for engine in of_kind(deployment, "vllm", ENCODE):
        if config_of(engine, KV) is not None:
            yield Found(
                engine.pod.document, place(engine, KV), subject(engine),
                "an encode engine has no KV cache to hand over", "remove --kv-transfer-config here", Level.warning,
            )  # fmt: skip


@rule("MMD422", Level.error, "ai-dynamo/dynamo#10027; model-servers.md §1.3")
def cache_layout_differs(deployment: Deployment) -> Iterator[Found]:
    """An option that changes the layout of the KV cache on one side of a transfer only."""
    keys = _notes(deployment)["cache"]["symmetric"]
    for prefill, decode in cache_pairs(deployment):
        if prefill.kind != "vllm" or opaque(prefill) or opaque(decode):
            continue
        mine, theirs = _extras(prefill), _extras(decode)
        for key, level in keys.items() if mine is not None and theirs is not None else ():
            default = _default(facts_of(deployment.tables, prefill), cache_names(prefill), key)
            here, there = (_plain((config or {}).get(key, default)) for config in (mine, theirs))
            if here == there:
                continue
            at_prefill = key in (mine or {})
            culprit, partner = (prefill, decode) if at_prefill else (decode, prefill)
            yield Found(
                culprit.pod.document, place(culprit, KV, "kv_connector_extra_config", key), subject(culprit),
                f"{key} is {here if at_prefill else there} here and {there if at_prefill else here} on "
                f"{partner.pod.title}: the two do not fit together, and the first transfer fails",
                f"give prefill and decode the same {key}", Level[level],
            )  # fmt: skip
        yield from _hybrid_differs(prefill, decode)


def _plain(value: Any) -> str:
    """A value as JSON, so that two spellings of one compare equal."""
    return json.dumps(value, sort_keys=True, default=str)


def _default(facts: EngineFacts, names: list[str], key: str) -> Any:
    """A key's default, from the first connector that has it."""
    for name in names:
        for row in facts.keys(KV, name):
            if row["key"] == key:
                words = {"True": True, "False": False, "None": None}
                try:
                    return words[row["default"]] if row["default"] in words else json.loads(row["default"])
                except ValueError:
                    return row["default"]
    return None


def _extras(engine: Engine) -> dict[str, Any] | None:
    if config_of(engine, KV) is None:
        return None
    merged: dict[str, Any] = {}
    for config in caches(engine):
        merged.update(extra(config, "kv"))
    return merged


def _hybrid_differs(prefill: Engine, decode: Engine) -> Iterator[Found]:
    names = (_HYBRID, "--no-" + _HYBRID.removeprefix("--"), "--enable-hybrid-kv-cache-manager")
    flags = [engine.command.last(*names) for engine in (prefill, decode)]
    states = [None if flag is None else flag.name == _HYBRID for flag in flags]
    if states[0] == states[1] or config_of(prefill, KV) is None or config_of(decode, KV) is None:
        return
    culprit, partner = (prefill, decode) if flags[0] is not None else (decode, prefill)
    flag = flags[0] or flags[1]
    if flag is not None:
        yield Found(
            culprit.pod.document, flag.path, subject(culprit),
            f"{flag.name} stands here and not on {partner.pod.title}: whether the hybrid KV cache manager is on is "
            "part of the compatibility hash, and the first transfer fails",
            f"give prefill and decode the same, or neither, {flag.name}",
        )  # fmt: skip


@rule("MMD423", Level.error, "llm-d-guides.md §19.7; vllm-project/vllm#50765; llm-d/llm-d#2442")
def parallel_sizes(deployment: Deployment) -> Iterator[Found]:
    """Tensor parallel sizes of prefill and decode between which the KV cache does not move."""
    cache = _notes(deployment)["cache"]
    for prefill, decode in cache_pairs(deployment):
        mine, theirs = prefill.tensor_parallel, decode.tensor_parallel
        if mine == theirs or opaque(prefill) or opaque(decode):
            continue
        family = model_of(deployment.tables, deployment.catalog.models, decode.model).family
        nixl = set(cache_names(prefill)) & set(cache["nixl"])
        level = None
        if decode.kind == "sglang":
            why, level = "transfers between unequal sizes failed in the guide's own setup", Level.warning
        elif nixl and (mine > theirs or theirs % mine):
            why = "NixlConnector does not move the KV cache to a smaller size, or one that does not divide"
        elif nixl and family in cache["equalParallel"]["families"]:
            why, level = "with this model the exchange of metadata fails, and decode crashes", Level.warning
        else:
            continue
        flag = prefill.command.last(*_TENSOR)
        yield Found(
            prefill.pod.document, (flag.value_path or flag.path) if flag else arguments(prefill.container),
            subject(prefill),
            f"tensor parallel size {mine} on prefill and {theirs} on {decode.pod.title}: {why}",
            "make the two equal, and change the replicas instead", level,
        )  # fmt: skip


@rule("MMD424", Level.warning, "router.md §5.1, §5.4")
def sidecar_protocol(deployment: Deployment) -> Iterator[Found]:
    """A sidecar that speaks another KV protocol than the engines behind it."""
    notes = _notes(deployment)
    kv = notes["sidecar"]["kv"]
    for engine in deployment.engines:
        sidecar = engine.pod.sidecar
        flag = sidecar.command.last(kv["flag"]) if sidecar is not None else None
        if sidecar is None or (flag is not None and "$" in (flag.value or "$")):
            continue
        value = flag.value if flag is not None and flag.value else kv["default"]
        path = (flag.value_path or flag.path) if flag is not None else arguments(sidecar)
        title = f"{engine.pod.title} container {sidecar.name}"
        wanted = _protocols(engine, notes) if peers(deployment, engine, PREFILL) and value in kv["values"] else set()
        if wanted and value not in wanted:
            yield Found(
                engine.pod.document, path, title,
                f"{kv['flag']} is {value}, but the {engine.kind} engine behind it speaks "
                f"{' or '.join(sorted(wanted))}: decode waits for a hand-off that never comes",
                f"write {sorted(wanted)[0]}",
            )  # fmt: skip


def _protocols(engine: Engine, notes: Mapping[str, Any]) -> set[str]:
    if engine.kind == "sglang":
        return {notes["cache"]["sglangProtocol"]}
    return {notes["cache"]["transfers"][name] for name in cache_names(engine) if name in notes["cache"]["transfers"]}


@rule("MMD425", Level.error, "model-servers.md §4; router.md §5.4; sglang-flags.csv")
def sglang_disaggregation(deployment: Deployment) -> Iterator[Found]:
    """SGLang prefill and decode that do not know their part, or do not share a transfer backend."""
    mode = "--disaggregation-mode"
    for engine in of_kind(deployment, "sglang", PREFILL, DECODE):
        others = peers(deployment, engine, DECODE if stage(engine) == PREFILL else PREFILL)
        if not others or opaque(engine):
            continue
        flag = engine.command.last(mode)
        value = flag.value if flag is not None else None
        if value != stage(engine) and (value is None or "$" not in value):
            yield Found(
                engine.pod.document, (flag.value_path or flag.path) if flag else arguments(engine.container),
                subject(engine),
                f"a {stage(engine)} engine with {mode} {value or 'unset'}: it does not take its part in the hand-off",
                f"write {mode}={stage(engine)}",
            )  # fmt: skip
    for prefill, decode in cache_pairs(deployment):
        name = "--disaggregation-transfer-backend"
        mine, theirs = prefill.command.value(name), decode.command.value(name)
        if prefill.kind == "sglang" and (mine or "mooncake") != (theirs or "mooncake"):
            culprit = prefill if mine else decode
            yield Found(
                culprit.pod.document, culprit.command.path_of(name), subject(culprit),
                f"{name} is {mine or 'mooncake'} on prefill and {theirs or 'mooncake'} on decode",
                "give both the same backend",
            )  # fmt: skip


@rule("MMD426", Level.warning, "router.md §5.1, §5.4; model-servers.md §1.3")
def bootstrap_port(deployment: Deployment) -> Iterator[Found]:
    """A bootstrap server of prefill on another port than the sidecar tells decode."""
    notes = _notes(deployment)["sidecar"]["bootstrap"]
    for prefill, decode in cache_pairs(deployment):
        entry, sidecar = notes[prefill.kind], decode.pod.sidecar
        if sidecar is None or (prefill.kind == "vllm" and entry["connector"] not in cache_names(prefill)):
            continue
        told = sidecar.command.integer(entry["flag"]) if "flag" in entry else None
        listens, path = _bootstrap(prefill, entry, notes["default"])
        if listens is not None and listens != (told or notes["default"]):
            yield Found(
                prefill.pod.document, path, subject(prefill),
                f"the bootstrap server listens on {listens}, but the sidecar of {decode.pod.title} tells decode "
                f"{told or notes['default']}",
                f"use {told or notes['default']} here" + (f", or set {entry['flag']}" if "flag" in entry else ""),
            )  # fmt: skip


def _bootstrap(prefill: Engine, entry: Mapping[str, Any], default: int) -> tuple[int | None, KeyPath]:
    if "option" in entry:
        return prefill.command.integer(entry["option"]) or default, prefill.command.path_of(entry["option"])
    item = prefill.container.variable(entry["variable"])
    path = prefill.container.variable_path(entry["variable"])
    text = str((item or {}).get("value", default))
    return (int(text) if text.isdigit() else None), path
