"""3xx: what engines that hand work to each other must have in common (model, names, how media are read), and where
others reach them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from mmdeploy.documents import KeyPath
from mmdeploy.lint.commands import NotJsonError
from mmdeploy.lint.engines import facts_of
from mmdeploy.lint.findings import Found, Level, rule
from mmdeploy.lint.index import Deployment
from mmdeploy.lint.peers import arguments, cache_pairs, encoder_pairs, opaque, stage, subject
from mmdeploy.lint.pods import Engine

_UNREADABLE = object()
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@rule("MMD310", Level.error, "model-servers.md §0.8, §1.1, §1.3, §1.4")
def unequal_settings(deployment: Deployment) -> Iterator[Found]:
    """A setting that producer and consumer must share, and do not."""
    equal = deployment.tables.notes("engine")["equal"]
    for kind, pairs in (("encoder", encoder_pairs(deployment)), ("cache", cache_pairs(deployment))):
        for one, other in pairs:
            for flag, entry in equal[kind].items() if one.kind == "vllm" and not _hidden(one, other) else ():
                mine, theirs = _setting(one, flag, entry), _setting(other, flag, entry)
                if mine == theirs or _UNREADABLE in (mine, theirs) or {mine, theirs} == set(entry.get("same", ())):
                    continue
                culprit, partner = _odd_one(one, other, flag, entry)
                yield Found(
                    culprit.pod.document, _place(culprit, flag, entry), subject(culprit),
                    f"{flag} is {_said(culprit, flag, entry)} here and {_said(partner, flag, entry)} on the "
                    f"{stage(partner)} engines of {partner.pod.title}: {entry['why']}",
                    f"give both the same {flag}", Level[entry["level"]],
                )  # fmt: skip


def _hidden(*engines: Engine) -> bool:
    return any(opaque(engine) for engine in engines)


def _setting(engine: Engine, flag: str, entry: Mapping[str, Any]) -> Any:
    """The value in a form that compares: JSON without regard to order, defaults filled in."""
    if entry.get("json"):
        try:
            tree = engine.command.json(flag)
        except NotJsonError:
            return _UNREADABLE
        return json.dumps(tree, sort_keys=True, default=str) if tree else ""
    value = engine.command.value(flag)
    if value is None and entry.get("variable"):
        item = engine.container.variable(entry["variable"])
        value = str(item["value"]) if item is not None and "value" in item else None
    if value is not None and "$" in value:
        return _UNREADABLE
    return value or entry.get("default", "")


def _odd_one(one: Engine, other: Engine, flag: str, entry: Mapping[str, Any]) -> tuple[Engine, Engine]:
    """The engine to point at: the one that sets the flag."""
    return (one, other) if _is_set(one, flag, entry) or not _is_set(other, flag, entry) else (other, one)


def _is_set(engine: Engine, flag: str, entry: Mapping[str, Any]) -> bool:
    dotted = any(item.name.startswith(flag + ".") for item in engine.command.flags)
    variable = bool(entry.get("variable")) and engine.container.variable(entry["variable"]) is not None
    return engine.command.last(flag) is not None or dotted or variable


def _said(engine: Engine, flag: str, entry: Mapping[str, Any]) -> str:
    if not _is_set(engine, flag, entry):
        return f"unset ({entry.get('default', 'the default')})"
    return str(_setting(engine, flag, entry))


def _place(engine: Engine, flag: str, entry: Mapping[str, Any]) -> KeyPath:
    found = engine.command.last(flag)
    if found is not None:
        return found.value_path or found.path
    if entry.get("variable") and engine.container.variable(entry["variable"]):
        return engine.container.variable_path(entry["variable"])
    return engine.command.path_of(flag)


@rule("MMD311", Level.error, "model-servers.md §0.8, §1.3")
def different_models(deployment: Deployment) -> Iterator[Found]:
    """Engines that hand work to each other, but load models under different names."""
    pairs = (*encoder_pairs(deployment), *encoder_pairs(deployment, "sglang"), *cache_pairs(deployment))
    for one, other in pairs:
        mine, theirs = one.model, other.model
        if not mine or not theirs or mine == theirs or "$" in mine + theirs or _hidden(one, other):
            continue
        why = (
            "the name is part of what the two compare before a transfer, so every one is refused"
            if one.kind == "vllm"
            else "one cannot use what the other makes"
        )
        yield Found(
            one.pod.document, _model_path(one), subject(one),
            f"the model is {mine} here and {theirs} on {other.pod.title}: {why}",
            "give both the same model argument, letter by letter",
        )  # fmt: skip


def _model_path(engine: Engine) -> KeyPath:
    flag = engine.command.last("--model", "--model-path")
    if flag is not None:
        return flag.value_path or flag.path
    for word, path in engine.command.words:
        if word == engine.model:
            return path
    return arguments(engine.container)


@rule("MMD312", Level.warning, "router.md §5.3; model-servers.md §3")
def different_names(deployment: Deployment) -> Iterator[Found]:
    """A stage that does not know the name that the request carries."""
    for one, other in (*encoder_pairs(deployment), *cache_pairs(deployment)):
        if one.kind != "vllm" or _hidden(one, other) or one.model != other.model:
            continue
        mine, theirs = _names(one), _names(other)
        unknown = [name for name in theirs if name not in mine]
        if not unknown or any("$" in name for name in (*mine, *theirs)):
            continue
        culprit = other if other.command.last("--served-model-name") is not None else one
        flag = culprit.command.last("--served-model-name")
        yield Found(
            culprit.pod.document, (flag.value_path or flag.path) if flag else _model_path(culprit), subject(culprit),
            f"{other.pod.title} serves {', '.join(theirs)}, {one.pod.title} only {', '.join(mine)}: the sidecar copies "
            f"the request, the {stage(one)} engine answers 404, and the client gets an error",
            "give both the same --served-model-name",
        )  # fmt: skip


def _names(engine: Engine) -> tuple[str, ...]:
    flag = engine.command.last("--served-model-name")
    return (flag.values if flag is not None else ()) or ((engine.model,) if engine.model else ())


@rule("MMD327", Level.error, "vllm-flags.csv, sglang-flags.csv (--host)")
def listens_to_itself(deployment: Deployment) -> Iterator[Found]:
    """An engine that only its own pod can reach."""
    for engine in deployment.engines:
        flag = engine.command.last("--host")
        facts = facts_of(deployment.tables, engine)
        row = facts.flag("--host", engine.version).row
        default = "" if row is None else facts.default_at(row, engine.version) if engine.version else row["default"]
        host = flag.value if flag is not None else default if not opaque(engine) else ""
        if host not in _LOOPBACK:
            continue
        said = f"--host={host}" if flag is not None else f"without --host the engine takes {host}, so it"
        yield Found(
            engine.pod.document, (flag.value_path or flag.path) if flag else arguments(engine.container),
            subject(engine), f"{said} listens to its own pod only: neither the pool nor the probes reach it",
            "write --host=0.0.0.0", Level.warning if engine.pod.sidecar is not None else None,
        )  # fmt: skip
