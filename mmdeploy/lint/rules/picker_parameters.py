"""2xx: parameters of the endpoint picker's plugins, each key and value against the tables of the router in use."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mmdeploy.documents import KeyPath
from mmdeploy.lint.findings import Found, Level, rule
from mmdeploy.lint.index import Deployment
from mmdeploy.lint.router import PickerConfig, Plugin
from mmdeploy.lint.router_facts import LISTED, RouterFacts, children, facts
from mmdeploy.lint.rules.words import listed, short
from mmdeploy.lint.source import dig
from mmdeploy.lint.tables import Row
from mmdeploy.lint.value_ranges import out_of_range, wrong_type
from mmdeploy.words import nearest


@dataclass(frozen=True)
class Parameter:
    """One key under a plugin's parameters, with the table's spelling of its dotted path."""

    config: PickerConfig
    plugin: Plugin
    path: KeyPath
    dotted: str
    value: Any
    row: Row | None
    """Of whatever version; None for a key that no version has."""


def parameters(config: PickerConfig, plugin: Plugin, known: RouterFacts) -> Iterator[Parameter]:
    """Every key under a plugin's parameters, outermost first. Names match without regard to case, as Go's do."""
    table = known.parameters(plugin.type)
    yield from _below(config, plugin, table, plugin.parameters, (*plugin.path, "parameters"), "")


def _below(
    config: PickerConfig, plugin: Plugin, table: Mapping[str, Row], value: Mapping[Any, Any], path: KeyPath, parent: str
) -> Iterator[Parameter]:
    names = {name.rpartition(".")[2].lower(): name for name in children(table, parent)}
    for key, item in value.items():
        dotted = names.get(str(key).lower())
        at = (*path, str(key))
        if dotted is None:
            name = f"{parent}.{key}" if parent else str(key)
            yield Parameter(config, plugin, at, name, item, None)
            continue
        yield Parameter(config, plugin, at, dotted, item, table[dotted])
        if isinstance(item, Mapping) and any(children(table, dotted)):
            yield from _below(config, plugin, table, item, at, dotted)
        elif isinstance(item, list):
            for index, entry in enumerate(item):
                if isinstance(entry, Mapping) and any(children(table, dotted + LISTED)):
                    yield from _below(config, plugin, table, entry, (*at, index), dotted + LISTED)


def strict(deployment: Deployment) -> Iterator[tuple[RouterFacts, PickerConfig, Plugin]]:
    """Plugins that the router in use registers and whose parameters it reads."""
    known = facts(deployment)
    for config, plugin in deployment.plugins:
        answer = known.plugin(plugin.type)
        if answer.state == "known" and answer.row is not None and answer.row["ignores_parameters"] != "yes":
            yield known, config, plugin


@rule("MMD205", Level.error, "router.md §1.1; router-plugin-parameters.csv")
def parameter_names(deployment: Deployment) -> Iterator[Found]:
    """A parameter that its plugin does not have: decoding is strict, and the endpoint picker exits."""
    for known, config, plugin in strict(deployment):
        for item in parameters(config, plugin, known):
            found = _misnamed(known, item)
            if found is not None:
                message, fix, level = found
                yield Found(config.document, item.path, f"{config.title}, {plugin.name}", message, fix, level)


def _misnamed(known: RouterFacts, item: Parameter) -> tuple[str, str, Level | None] | None:
    answer = known.parameter(item.plugin.type, item.dotted)
    where, end = f"{item.plugin.type} on router {known.version}", "and the endpoint picker exits at start"
    if answer.state in ("known", "pending"):
        return None
    if answer.state == "removed":
        fix = f"write {answer.instead}" if answer.instead else "remove it"
        return f"{where} no longer has the parameter {item.dotted}, {end}", fix, None
    if answer.state == "later":
        return f"{where} does not yet have the parameter {item.dotted}, {end}", "remove it, or use a newer router", None
    if _under_unknown(known, item):
        return None
    parent, _, key = item.dotted.rpartition(".")
    siblings = [name.rpartition(".")[2] for name in children(known.parameters(item.plugin.type), parent)]
    near = nearest(key, siblings)
    fix = f"write {near[0]}" if near else f"remove it; known here: {listed(siblings)}" if siblings else "remove it"
    if known.main and not near:
        # A rolling build may have gained parameters since the tables were made.
        message = f"{where} had no parameter {item.dotted} when it was read; if it still has none, {end[4:]}"
        return message, fix, Level.info
    return f"{where} has no parameter {item.dotted}: decoding is strict, {end}", fix, None


def _under_unknown(known: RouterFacts, item: Parameter) -> bool:
    """Whether a parent of the key is unknown itself and already reported."""
    parent = item.dotted.rpartition(".")[0]
    return bool(parent) and parent.removesuffix(LISTED) not in known.parameters(item.plugin.type)


@rule("MMD219", Level.warning, "router.md §1.1, §1.6; router-plugins.csv")
def swallowed(deployment: Deployment) -> Iterator[Found]:
    """Parameters of a plugin that reads none: accepted and without effect."""
    known = facts(deployment)
    for config, plugin in deployment.plugins:
        answer = known.plugin(plugin.type)
        if answer.state == "known" and answer.row and answer.row["ignores_parameters"] == "yes" and plugin.parameters:
            yield Found(
                config.document, (*plugin.path, "parameters", str(next(iter(plugin.parameters)))),
                f"{config.title}, {plugin.name}",
                f"{plugin.type} reads no parameters: {listed(map(str, plugin.parameters))} is accepted and has no "
                "effect",
                "remove the parameters",
            )  # fmt: skip


@rule("MMD206", Level.error, "router-plugin-parameters.csv (every value tried on running routers)")
def parameter_values(deployment: Deployment) -> Iterator[Found]:
    """A value of the wrong type or out of range: an error at start, or silently another value."""
    for known, config, plugin in strict(deployment):
        subject = f"{config.title}, {plugin.name}"
        raw = dig(config.document.value, (*plugin.path, "parameters"))
        if raw is not None and not isinstance(raw, Mapping):
            yield Found(config.document, (*plugin.path, "parameters"), subject,
                        f"parameters of {plugin.name} is {short(raw)}, not a mapping: the endpoint picker exits at "
                        "start",
                        "write a mapping")  # fmt: skip
        for item in parameters(config, plugin, known):
            if item.row is None or known.parameter(plugin.type, item.dotted).state != "known":
                continue
            wanted = wrong_type(item.row, item.value)
            if wanted is not None:
                yield Found(config.document, item.path, subject,
                            f"{item.dotted} is {short(item.value)}, where {plugin.type} takes a{_n(wanted)} {wanted}: "
                            "the endpoint picker exits at start", f"write a{_n(wanted)} {wanted}")  # fmt: skip
                continue
            outside = out_of_range(item.row, item.value)
            if outside is not None:
                level, allowed, effect = outside
                yield Found(config.document, item.path, subject,
                            f"{item.dotted} is {short(item.value)}, outside {allowed}: {effect}",
                            f"write a value within {allowed} (default {item.row['default']})", level)  # fmt: skip


def _n(word: str) -> str:
    return "n" if word[0] in "aeiou" else ""


@rule("MMD207", Level.error, "router.md §1.5, §2.4; router-plugins.csv; router-plugin-parameters.csv")
def parameters_together(deployment: Deployment) -> Iterator[Found]:
    """Parameters that are required, exclude each other, or do nothing without another."""
    for known, config, plugin in strict(deployment):
        subject = f"{config.title}, {plugin.name}"
        for path, message, fix in (
            *_required(known, plugin),
            *_exactly_one(known, plugin),
            *(_modes(plugin) if plugin.type in ("token-producer", "tokenizer") else ()),
            *(_handler(plugin) if plugin.type == "disagg-profile-handler" else ()),
            *(_engines(known, plugin) if plugin.type == "core-metrics-extractor" else ()),
        ):
            yield Found(config.document, (*plugin.path, *path), subject, message, fix)


def _required(known: RouterFacts, plugin: Plugin) -> Iterator[tuple[KeyPath, str, str]]:
    """Required keys whose parent is there (the plugin itself for keys at the top)."""
    for name, row in known.parameters(plugin.type).items():
        parent, _, key = name.rpartition(".")
        if not row["default"].startswith("none (required") or LISTED in name:
            continue
        if known.parameter(plugin.type, name).state != "known":
            continue
        holder = _dig_folded(plugin.parameters, parent)
        if isinstance(holder, Mapping) and _folded(holder, key) is None:
            where = tuple(parent.split(".")) if parent else ()
            yield (
                ("parameters", *where) if plugin.parameters else (),
                f"{plugin.type} needs {name}: without it the endpoint picker exits at start",
                f"write {name}: {row['valid']}",
            )


def _exactly_one(known: RouterFacts, plugin: Plugin) -> Iterator[tuple[KeyPath, str, str]]:
    pairs = {match.groups() for row in known.parameters(plugin.type).values() if LISTED not in row["parameter"]
             and (match := re.match(r"exactly one of (\w+) and (\w+)", row["valid"]))}  # fmt: skip
    for one, other in pairs:
        given = [key for key in (one, other) if _folded(plugin.parameters, key)]
        if len(given) != 1:
            yield (
                ("parameters",) if plugin.parameters else (),
                f"{plugin.type} takes exactly one of {one} and {other}, and {len(given) or 'none'} is given: the "
                "endpoint picker exits at start",
                f"write one of {one} and {other}",
            )


def _modes(plugin: Plugin) -> Iterator[tuple[KeyPath, str, str]]:
    """token-producer counts in one way: by estimate, or by vLLM's renderer."""
    given = {key: _folded(plugin.parameters, key) for key in ("estimate", "vllm", "modelName", "udsTokenizerConfig")}
    estimate, vllm, model, uds = given.values()
    end = "the endpoint picker exits at start"
    if estimate is not None and (model or vllm is not None):
        other = "modelName (which selects the vllm mode)" if vllm is None else "vllm"
        yield ("parameters", "estimate"), f"{plugin.name} has both estimate and {other}: {end}", "keep one of the two"
    elif vllm is not None and not model:
        fix = "write modelName: and the served model"
        yield ("parameters", "vllm"), f"{plugin.name} has vllm without modelName: {end}", fix
    if isinstance(uds, Mapping) and uds.get("socketFile"):
        yield (
            ("parameters", "udsTokenizerConfig"),
            f"udsTokenizerConfig cannot be used: it asks for modelName, which selects the vllm mode, and {end}",
            "use vllm with a render server",
        )


def _handler(plugin: Plugin) -> Iterator[tuple[KeyPath, str, str]]:
    flat = [key for key in plugin.parameters if str(key).endswith(("Profile", "DeciderPluginName")) or
            key == "deciderPluginName"]  # fmt: skip
    nested = [key for key in ("profiles", "deciders") if plugin.parameters.get(key)]
    if flat and nested:
        yield (
            ("parameters", str(flat[0])),
            f"{plugin.type} mixes the flat {listed(map(str, flat))} with the nested {listed(nested)}: the endpoint "
            "picker exits at start",
            "write only the nested form (profiles, deciders)",
        )
    order = str(plugin.parameters.get("stageOrder", "")).lower().replace("-", "").replace("_", "")
    if order.startswith("prefill") and dig(plugin.parameters, ("deciders", "prefill")):
        yield (
            ("parameters", "stageOrder"), "stageOrder prefill-first excludes deciders.prefill: the endpoint picker "
                                          "exits",
            "remove one of the two",
        )  # fmt: skip


def _engines(known: RouterFacts, plugin: Plugin) -> Iterator[tuple[KeyPath, str, str]]:
    """The default engine must be built in, or described in engineConfigs."""
    row = known.parameters(plugin.type).get("defaultEngine")
    said = _folded(plugin.parameters, "defaultEngine")
    own = _folded(plugin.parameters, "engineConfigs")
    names = row["valid"].split(" or ")[0].split("|") if row is not None else []
    names += [str(item.get("name")) for item in (own if isinstance(own, list) else ()) if isinstance(item, Mapping)]
    if isinstance(said, str) and said and names and said not in names:
        yield (
            ("parameters", "defaultEngine"),
            f"defaultEngine {said} is neither built in nor in engineConfigs: the endpoint picker exits at start",
            f"write one of {listed(names)}",
        )


def _folded(value: Any, key: str) -> Any:
    """A value by its key, without regard to case."""
    if not isinstance(value, Mapping):
        return None
    return next((item for name, item in value.items() if str(name).lower() == key.lower()), None)


def _dig_folded(value: Any, dotted: str) -> Any:
    for key in dotted.split(".") if dotted else ():
        value = _folded(value, key)
    return value
