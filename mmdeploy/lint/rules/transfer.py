"""4xx: the connector configuration of one engine: names, keys, sizes, and what its release makes of them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from mmdeploy.lint.connectors import EC, KV, caches, config_of, extra, name_of, place, readable
from mmdeploy.lint.engines import EngineFacts, Knowledge, at_least, before, facts_of
from mmdeploy.lint.findings import Found, Level, rule
from mmdeploy.lint.index import Deployment
from mmdeploy.lint.peers import DECODE, PREFILL, of_kind, peers, set_in_script, stage, subject, together
from mmdeploy.lint.pods import Engine
from mmdeploy.lint.tables import version

_ONE_WAY = ("ec_producer", "ec_consumer")


def _notes(deployment: Deployment) -> Mapping[str, Any]:
    notes: Mapping[str, Any] = deployment.tables.notes("transfer")["encoder"]
    return notes


def _is_on(value: object) -> bool:
    """Whether the connector takes a value of ``ec_enable_nixl`` as on: true, "true", "1", "yes"."""
    return str(value).strip().lower() in ("true", "1", "yes")


def _near(wanted: str, keys: Mapping[str, Any]) -> str | None:
    """A key that was probably meant to be ``wanted``: its letters changed, or its words in another order."""
    words = sorted(wanted.split("_"))
    for key in keys:
        if key != wanted and (sorted(str(key).lower().replace("-", "_").split("_")) == words):
            return str(key)
    return next(iter(difflib.get_close_matches(wanted, [str(key) for key in keys if key != wanted], 1, 0.75)), None)


@rule("MMD401", Level.error, "model-servers.md §0.2, §1.2, §1.4")
def stays_in_the_pod(deployment: Deployment) -> Iterator[Found]:
    """ECCPUConnector between pods without the key that lets encodings leave one."""
    notes = _notes(deployment)["nixl"]
    for engine in of_kind(deployment, "vllm"):
        config = config_of(engine, EC)
        if name_of(config, "ec") != notes["connector"] or engine.ec_role not in _ONE_WAY or engine.forked:
            continue
        keys, key = extra(config, "ec"), notes["key"]
        if not readable(engine, EC) or before(engine, notes["since"]) or _is_on(keys.get(key)):
            continue
        near = _near(key, keys) if key not in keys else None
        what = (
            f"{key} is {keys[key]!r}" if key in keys else f"{key} is misspelt {near!r}, which is ignored" if near
            else f"{key} is missing"
        )  # fmt: skip
        producer = engine.ec_role == "ec_producer"
        effect = "its encodings stay in its own pod" if producer else "it never asks the producer"
        yield Found(
            engine.pod.document, place(engine, EC, "ec_connector_extra_config", near or key), subject(engine),
            f"{what}: {effect}, and every image is encoded again with nothing but 200s to be seen",
            f'write "{key}": true in ec_connector_extra_config',
        )  # fmt: skip


@rule("MMD402", Level.error, "model-servers.md §0.1, §1.2; vllm-config-keys.csv; llm-d/llm-d#2435")
def missing_key(deployment: Deployment) -> Iterator[Found]:
    """A key without which the connector stops the engine, or a size that it cannot read."""
    for engine in of_kind(deployment, "vllm"):
        facts = facts_of(deployment.tables, engine)
        if engine.forked:
            yield from _fork_keys(engine, _notes(deployment))
        elif readable(engine, EC):
            yield from _required(engine, facts, EC, "ec", config_of(engine, EC), _notes(deployment))
        for config in caches(engine) if readable(engine, KV) else ():
            yield from _required(engine, facts, KV, "kv", config, {})
        if not engine.forked:
            yield from _cache_size(engine, _notes(deployment)["nixl"])


def _required(
    engine: Engine, facts: EngineFacts, flag: str, kind: str, config: Mapping[str, Any] | None, notes: Mapping[str, Any]
) -> Iterator[Found]:
    name, keys = name_of(config, kind), extra(config, kind)
    if name is None or (config or {}).get(f"{kind}_connector_module_path") or keys.get("spec_name"):
        return
    for row in facts.keys(flag, name):
        key = row["key"]
        wanted = facts.default_at(row, engine.version) == "required" if engine.version else row["default"] == "required"
        if not wanted or key in keys or facts.key(flag, key, engine.version, name).state != "known":
            continue
        old = notes.get("forkKey") if notes.get("forkKey") in keys else _near(key, keys)
        instead = f"; {old} is read by a fork only" if old and old == notes.get("forkKey") else ""
        yield Found(
            engine.pod.document, place(engine, flag, f"{kind}_connector_extra_config", old or key), subject(engine),
            f"{name} needs {key} in {kind}_connector_extra_config{instead}: the engine stops after it has loaded the "
            "weights",
            f'write "{key}"' + (f" instead of {old}" if old else ""),
            Level.warning if instead and engine.version is None else None,
        )  # fmt: skip


def _cache_size(engine: Engine, notes: Mapping[str, Any]) -> Iterator[Found]:
    config = config_of(engine, EC)
    value = extra(config, "ec").get(notes["size"])
    if name_of(config, "ec") != notes["connector"] or value is None or "$" in str(value):
        return
    text = str(value).strip()
    number = None if isinstance(value, bool) or not re.fullmatch(r"\d{1,30}(\.\d*)?", text) else float(text)
    if number is not None and number >= notes["least"]:
        return
    if number:
        what, level = "holds not even one picture: the consumer encodes everything again", Level.warning
    elif number == 0:
        what, level = "is refused like a missing one: the engine stops after it has loaded the weights", None
    else:
        what, level = "is not a number of bytes: the engine stops after it has loaded the weights", None
    yield Found(
        engine.pod.document, place(engine, EC, "ec_connector_extra_config", notes["size"]), subject(engine),
        f"{notes['size']} is {value!r}, which {what}", "write the number of bytes, such as 4294967296 for 4 GiB",
        level,
    )  # fmt: skip


def _fork_keys(engine: Engine, notes: Mapping[str, Any]) -> Iterator[Found]:
    keys, size = extra(config_of(engine, EC), "ec"), notes["nixl"]["size"]
    if size in keys and notes["forkKey"] not in keys:
        yield Found(
            engine.pod.document, place(engine, EC, "ec_connector_extra_config", size), subject(engine),
            f"this image is a fork that ignores {size} and falls back to 100,000 blocks",
            f"write {notes['forkKey']}, or use a released image of {notes['nixl']['since']} or newer", Level.warning,
        )  # fmt: skip


@rule("MMD403", Level.error, "vllm-connectors.csv; model-servers.md §1.2, §1.3")
def unknown_connector(deployment: Deployment) -> Iterator[Found]:
    """A connector that the engine's release does not register, or one without a role."""
    for engine in of_kind(deployment, "vllm"):
        facts = facts_of(deployment.tables, engine)
        for flag, kind in ((EC, "ec"), (KV, "kv")):
            config = config_of(engine, flag)
            if config is None or not readable(engine, flag):
                continue
            yield from _half_config(engine, flag, kind, config)
            members = list(caches(engine)) if kind == "kv" else [config]
            for member in members:
                name = name_of(member, kind)
                if name is None or member.get(f"{kind}_connector_module_path") or engine.forked:
                    continue
                found = facts.connector(kind, name, engine.version)
                if found.state != "known":
                    yield _not_registered(engine, facts, flag, kind, name, found)


def _half_config(engine: Engine, flag: str, kind: str, config: Mapping[str, Any]) -> Iterator[Found]:
    name, role = config.get(f"{kind}_connector"), config.get(f"{kind}_role")
    if (name is None) == (role is None):
        return
    missing = f"{kind}_role" if role is None else f"{kind}_connector"
    effect = "the engine refuses a connector without a role" if role is None else "nothing is transferred"
    yield Found(
        engine.pod.document, place(engine, flag), subject(engine), f"{flag} has no {missing}: {effect}",
        f"add {missing}",
    )  # fmt: skip


def _not_registered(engine: Engine, facts: EngineFacts, flag: str, kind: str, name: str, found: Knowledge) -> Found:
    there = facts.connectors(kind, engine.version)
    near = difflib.get_close_matches(name, there, n=1, cutoff=0.6)
    release = f"vLLM {engine.version}"
    what = {
        "removed": f"{release} does not have {name} any more (last in {found.last})",
        "later": f"{release} does not have {name} yet (from {found.first} on)",
        "unknown": f"{release} has no {kind.upper()} connector {name}",
    }[found.state]
    if engine.version is None:
        what = f"no release of vLLM that the catalog knows has {name}"
    return Found(
        engine.pod.document, place(engine, flag, f"{kind}_connector"), subject(engine),
        f"{what}; an engine without it stops after it has loaded the weights",
        f"write {near[0]}" if near and kind == "kv" else f"this release has {', '.join(there)}",
        None if engine.version else Level.info,
    )  # fmt: skip


@rule("MMD404", Level.error, "model-servers.md §0.2, §1.2, §1.5; llm-d/llm-d#2535")
def release_without_transfer(deployment: Deployment) -> Iterator[Found]:
    """ECCPUConnector between pods on a release where it is a local tier only."""
    notes = _notes(deployment)["nixl"]
    for engine in of_kind(deployment, "vllm"):
        connector = name_of(config_of(engine, EC), "ec")
        known = facts_of(deployment.tables, engine).connector("ec", connector or "", engine.version).state == "known"
        if connector != notes["connector"] or not known or not before(engine, notes["since"]):
            continue
        if engine.ec_role in _ONE_WAY:
            yield Found(
                engine.pod.document, place(engine, EC, "ec_connector"), subject(engine),
                f"{connector} of vLLM {engine.version} moves nothing between pods and ignores {notes['key']}: "
                "requests succeed, and no encoding ever crosses",
                f"pin vLLM {notes['since']} or newer, or use ECExampleConnector on a shared volume",
            )  # fmt: skip


@rule("MMD405", Level.error, "model-servers.md §0.3, §1.5; vllm-env.csv")
def wrong_runner(deployment: Deployment) -> Iterator[Found]:
    """A model runner that the EC connector of this release does not run on."""
    notes = _notes(deployment)
    runner = notes["runner"]
    for engine in of_kind(deployment, "vllm"):
        connector = name_of(config_of(engine, EC), "ec")
        if connector is None or engine.forked or set_in_script(engine.container, runner["variable"]):
            continue
        item = engine.container.variable(runner["variable"])
        value = str(item.get("value", "")).lower() if item is not None and "valueFrom" not in item else None
        path, title = engine.container.variable_path(runner["variable"]), subject(engine)
        if connector == notes["nixl"]["connector"] and not before(engine, runner["required"]):
            if value in ("0", "false"):
                yield Found(
                    engine.pod.document, path, title,
                    f"{connector} needs the V2 model runner, but {runner['variable']} is {value}: the engine stops",
                    f"set {runner['variable']} to '1'",
                )  # fmt: skip
            elif item is None and at_least(engine, runner["required"]) and _has_a_part(deployment, engine):
                yield Found(
                    engine.pod.document, path, title,
                    f"{connector} needs the V2 model runner, and the engine may choose the other one by itself",
                    f"set {runner['variable']} to '1'", Level.warning,
                )  # fmt: skip
        elif value in ("1", "true") and _refuses(engine, runner):
            yield Found(
                engine.pod.document, path, title,
                f"vLLM {engine.version} refuses EC transfer on the V2 model runner, which {runner['variable']} forces",
                f"remove {runner['variable']}, or pin {runner['required']} or newer",
            )  # fmt: skip


def _has_a_part(deployment: Deployment, engine: Engine) -> bool:
    """Whether an engine is one end of a transfer, on a stage where its configuration belongs."""
    misplaced = stage(engine) == DECODE and bool(peers(deployment, engine, PREFILL))
    return engine.ec_role in _ONE_WAY and not misplaced


def _refuses(engine: Engine, runner: Mapping[str, Any]) -> bool:
    until = version(runner["refusedUntil"])
    return at_least(engine, runner["refusedFrom"]) and version(engine.version or "")[: len(until)] <= until


@rule("MMD406", Level.warning, "vllm-config-keys.csv; model-servers.md §1.4; engine-tables.md, surprise 4")
def ignored_key(deployment: Deployment) -> Iterator[Found]:
    """A free-form key that the connector never reads: nothing checks these keys."""
    cache = deployment.tables.notes("transfer")["cache"]
    for engine in of_kind(deployment, "vllm"):
        if engine.forked:
            continue
        facts = facts_of(deployment.tables, engine)
        configs = [(EC, "ec", config_of(engine, EC)), *((KV, "kv", config) for config in caches(engine))]
        for flag, kind, config in configs:
            name = name_of(config, kind)
            if name is None or (config or {}).get(f"{kind}_connector_module_path"):
                continue
            names = (name, cache["nixl"][0]) if name in cache["nixl"] else (name,)
            yield from _ignored(engine, facts, flag, kind, names, extra(config, kind), _notes(deployment))


def _ignored(
    engine: Engine, facts: EngineFacts, flag: str, kind: str, names: tuple[str, ...], keys: Mapping[str, Any],
    notes: Mapping[str, Any],
) -> Iterator[Found]:  # fmt: skip
    known = {row["key"] for name in names for row in facts.keys(flag, name)}
    said = (notes["nixl"]["key"], notes["nixl"]["size"])  # their own codes speak of these
    for key in keys if known else ():
        states = [facts.key(flag, str(key), engine.version, name) for name in names]
        if any(state.state in ("known", "removed") for state in states) or key in (*said, notes["forkKey"]):
            continue
        later = next((state for state in states if state.state == "later"), None)
        near = _near_known(str(key), known)
        if near in said and near not in keys:
            continue
        if later is not None:
            message, fix = f"{key} is read from vLLM {later.first} on; {engine.version} ignores it", f"remove {key}"
        elif near is not None and near not in keys:
            message, fix = f"{names[0]} never reads {key!r}, and nothing says so", f"write {near}"
        elif kind == "ec":
            message, fix = f"{names[0]} reads no {key!r} in any release that the catalog knows", f"remove {key}"
        else:
            continue
        yield Found(
            engine.pod.document, place(engine, flag, f"{kind}_connector_extra_config", str(key)), subject(engine),
            message, fix, Level.info if later is None and near is None else None,
        )  # fmt: skip


def _near_known(key: str, known: set[str]) -> str | None:
    words = sorted(key.lower().replace("-", "_").split("_"))
    turned = [name for name in sorted(known) if sorted(name.split("_")) == words]
    return next(iter(turned or difflib.get_close_matches(key, sorted(known), n=1, cutoff=0.75)), None)


@rule("MMD407", Level.warning, "model-servers.md §1.2")
def shared_identity(deployment: Deployment) -> Iterator[Found]:
    """A constant engine_id: every replica, and every engine that repeats it, names its agent alike."""
    seen: list[tuple[str, str, Engine]] = []
    for engine in of_kind(deployment, "vllm"):
        for flag in (EC, KV):
            value = (config_of(engine, flag) or {}).get("engine_id")
            if not isinstance(value, str) or not value or "$" in value:
                continue
            same = (other for of, text, other in seen if (of, text) == (flag, value))
            twin = next((other for other in same if together(deployment, engine, other)), None)
            seen.append((flag, value, engine))
            if (engine.pod.replicas or 1) > 1 or twin is not None:
                who = f"all {engine.pod.replicas} replicas" if twin is None else f"{twin.pod.title} too"
                yield Found(
                    engine.pod.document, place(engine, flag, "engine_id"), subject(engine),
                    f"engine_id is the constant {value!r}: {who} name their agent so, and peers mix them up",
                    "leave engine_id out; each process then takes an id of its own",
                )  # fmt: skip
