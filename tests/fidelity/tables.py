"""Rendered texts held against the tables of facts: each function returns what it found wrong, one line each.

The tables say what each version of a program knows; the functions know how to read the rendered side. They import
nothing of mmdeploy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from packaging.version import Version

from tests.fidelity import facts

ROUTERS = ("v0.9.0", "v0.10.0", "main")
"""Versions of the router tables, oldest first (router-tables.md)."""

# ---------------------------------------------------------------------------------------------------- reading tables


def _knows(row: Mapping[str, str], version: str) -> bool:
    """Whether a row of a router table covers a version; ``none`` covers none."""
    if row["first"] not in ROUTERS:
        return False
    return ROUTERS.index(row["first"]) <= ROUTERS.index(version) <= ROUTERS.index(row["last"])


def _ships(row: Mapping[str, str], release: str) -> bool:
    """Whether a row of an engine table covers a release; an empty ``last`` is still there."""
    here = _version(release)
    return _version(row["first"]) <= here and (not row["last"] or here <= _version(row["last"]))


_version = cache(Version)


def _leaves(tree: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """``(path, value)`` of everything that is not a mapping with something in it; lists are leaves."""
    if isinstance(tree, Mapping) and tree:
        for key, value in tree.items():
            yield from _leaves(value, (*path, str(key)))
    else:
        yield path, tree


def _fields(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """``(dotted path, value)`` of every field, ``[]`` for the items of a list, parents before children."""
    if path:
        yield path, tree
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from _fields(value, f"{path}.{key}" if path else str(key))
    elif isinstance(tree, list):
        for item in tree:
            yield from _fields(item, f"{path}[]")


_TYPES: Mapping[str, Any] = {
    "string": str,
    "str": str,
    "duration": str,
    "object": Mapping,
    "map": Mapping,
    "json": Mapping,
    "list": list,
    "list of string": list,
    "list of object": list,
    "any": object,
    "quantity": (str, int),
}


def _is(value: Any, kind: str) -> bool:
    if kind == "bool":
        return isinstance(value, bool)
    if kind == "int":
        return isinstance(value, int) and not isinstance(value, bool)
    if kind == "float":
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, _TYPES[kind])


def _in_range(value: Any, words: str) -> bool:
    """Whether a value obeys the start of a ``valid`` cell (``> 0``, ``0..1``, ``a|b``); cells of prose say nothing."""
    if isinstance(value, str):
        choices = re.match(r"[\w-]+(?:\|[\w-]+)+(?![\w-])", words)
        return not choices or value in choices[0].split("|")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return True
    if bounds := re.match(r"(-?[\d.]+)\.\.(-?[\d.]+)", words):
        return float(bounds[1]) <= value <= float(bounds[2])
    if bound := re.match(r"(>=|<=|>) ?(-?[\d.]+)", words):
        sign, limit = bound[1], float(bound[2])
        return value >= limit if sign == ">=" else value <= limit if sign == "<=" else value > limit
    return True


# ------------------------------------------------------------------------------------------------------ the router


def chart(values: Mapping[str, Any], kind: str, version: str) -> Iterator[str]:
    """Helm values against router-chart-values.csv; ``kind`` is the chart, ``standalone`` or ``gateway``."""
    rows: dict[str, Mapping[str, str]] = {row["key"]: row for row in facts.table("router-chart-values")}
    for path, value in _leaves(values):
        key = ".".join(path)
        exact = _chart_row(rows.get(key), value, kind, version)
        # A key below a map that the chart hands on whole (flags, matchLabels) needs no row of its own.
        above = (".".join(path[:depth]) for depth in range(len(path) - 1, 0, -1))
        holders = [rows[name] for name in above if name in rows and rows[name]["type"] in ("map", "any")]
        if exact is None or any(_chart_row(row, {}, kind, version) is None for row in holders):
            continue
        yield f"{key}: {exact}"
    yield from _chart_rules(values)


def _chart_row(row: Mapping[str, str] | None, value: Any, kind: str, version: str) -> str | None:
    if row is None:
        return "no chart knows this key"
    if row["where"] == "not read" or not _knows(row, version):
        return f"not read by {version}: {row['effect']}"
    if row["effect"] == "refused":
        return f"refused by {version}"
    if kind not in row["charts"].split("+"):
        return f"only in the {row['charts']} chart"
    if row["type"] and not _is(value, row["type"]):
        return f"{value!r} is not a {row['type']}"
    return None


def _chart_rules(values: Mapping[str, Any]) -> Iterator[str]:
    # Column template_fails_when, and `effect` where it says what renders nonsense.
    router = values["router"]
    if not router["modelServers"].get("matchLabels"):
        yield "router.modelServers.matchLabels is missing"
    if any(set(port) != {"number"} or not _is(port["number"], "int") for port in router["modelServers"]["targetPorts"]):
        yield "router.modelServers.targetPorts holds something else than {number: N}"
    if router.get("tokenizer", {}).get("enabled") and not router["tokenizer"].get("modelName"):
        yield "router.tokenizer needs a modelName"
    if not {"cpu", "memory"} <= set(router["epp"].get("resources", {}).get("requests", {})):
        yield "router.epp.resources.requests needs cpu and memory"
    if not all(isinstance(text, str) for text in router["epp"].get("pluginsCustomConfig", {}).values()):
        yield "router.epp.pluginsCustomConfig holds a map where the ConfigMap needs text"
    if router["epp"].get("pluginsConfigFile") not in router["epp"].get("pluginsCustomConfig", {}):
        yield "router.epp.pluginsConfigFile names a file that is not there"


def picker_flags(values: Mapping[str, Any], version: str) -> Iterator[str]:
    """``router.epp.flags`` against the endpoint picker's rows of router-flags.csv."""
    for name, value in values["router"]["epp"].get("flags", {}).items():
        yield from _router_flag("epp", f"--{name}", str(value), version)


def sidecar(args: Sequence[str], version: str) -> Iterator[str]:
    """The sidecar's arguments against router-flags.csv."""
    for word in args:
        name, equals, value = word.partition("=")
        if not equals:
            # `--flag value` is a stray argument to the sidecar, which ignores it (router-tables.md, surprise 6).
            yield f"{word} is not --flag=value"
        elif (name, version) == ("--secure-serving", "main"):
            # main is in the table as of 2026-08-22, which refuses the flag; llm-d-router #2908 brought it later and
            # the newest guide passes it (router.md §0 and §5.1, router-observed.md first paragraph).
            if value not in ("true", "false"):
                yield f"{word} is not a bool"
        else:
            yield from _router_flag("sidecar", name, value, version)


# Values that the notes of router-flags.csv list: anything else ends the sidecar with exit code 0.
_SIDECAR_CHOICES = {
    ("--ec-connector", "v0.9.0"): ("", "ec-example", "ec-nixl"),
    ("--ec-connector", "v0.10.0"): ("", "ec-example", "ec-nixl"),
    ("--ec-connector", "main"): ("", "ec-example", "ec-nixl"),
    ("--kv-connector", "v0.9.0"): ("nixlv2", "shared-storage", "sglang", "mooncake", ""),
    ("--kv-connector", "v0.10.0"): ("nixlv2", "shared-storage", "sglang", "mooncake", "offloading"),
    ("--kv-connector", "main"): ("nixlv2", "shared-storage", "sglang", "mooncake", "offloading"),
}


def _router_flag(program: str, name: str, value: str, version: str) -> Iterator[str]:
    rows = [row for row in facts.table("router-flags") if (row["program"], row["flag"]) == (program, name)]
    row = next((row for row in rows if _knows(row, version)), None)
    if row is None:
        yield f"{program} {version} has no flag {name}"
        return
    if "deprecated" in row["notes"] and (name, version) != ("--vllm-port", "v0.9.0"):
        yield f"{program} {name} is deprecated: {row['notes']}"
    patterns = {"bool": r"true|false", "int": r"-?\d+", "duration": r"(\d+(\.\d+)?(ns|us|ms|s|m|h))+"}
    if not re.fullmatch(patterns.get(row["type"], r".*"), value, re.IGNORECASE):
        yield f"{program} {name}={value} is not a {row['type']}"
    choices = _SIDECAR_CHOICES.get((name, version))
    if program == "sidecar" and choices and value not in choices:
        yield f"{program} {name}={value} is none of {choices}"


def picker_config(config: Mapping[str, Any], version: str) -> Iterator[str]:
    """The envelope of an EndpointPickerConfig against router-config-fields.csv; parameters are another table's."""
    rows = {row["field"]: row for row in facts.table("router-config-fields")}
    for path, value in _fields(_without_parameters(config)):
        if path.endswith("[]"):
            continue
        row = rows.get(path)
        if row is None or not _knows(row, version):
            yield f"{version} has no field {path}"
        elif row["notes"].startswith("deprecated") or row["invalid_effect"].startswith("deprecated"):
            yield f"{path} is deprecated"
        elif row["type"] in ("string", "bool", "int", "float", "object", "list of object") and not _is(
            value, row["type"]
        ):
            yield f"{path}: {value!r} is not {row['type']}"
    # The table's main is of 2026-08-22 and refuses llm-d.ai/v1; the newest guide's files carry it and need a router
    # after v0.10.0 (router.md §0, llm-d-guides.md §10.3).
    wanted = "llm-d.ai/v1" if version == "main" else "llm-d.ai/v1alpha1"
    if config.get("apiVersion") != wanted:
        yield f"apiVersion is {config.get('apiVersion')!r}, {version} wants {wanted}"
    if config.get("kind") != "EndpointPickerConfig":
        yield f"kind is {config.get('kind')!r}"


def _without_parameters(config: Mapping[str, Any]) -> dict[str, Any]:
    plugins = [{k: v for k, v in plugin.items() if k != "parameters"} for plugin in config.get("plugins", [])]
    return {**config, "plugins": plugins}


# router.md §0 and §2.6: gone from the main of September, though the table's main (2026-08-22) still loads them.
_GONE_ON_MAIN = {"tokenizer", "by-label", "by-label-selector", "pd-profile-handler", "disagg-headers-handler"}
_GONE_ON_MAIN |= {"prefill-header-handler"}


def plugins(config: Mapping[str, Any], flags: Mapping[str, Any], version: str) -> Iterator[str]:
    """Plugin types against router-plugins.csv: known, not deprecated, alpha ones only with their flag."""
    allowed = flags.get("allow-experimental-plugins") is True
    for plugin in config["plugins"]:
        kind = plugin["type"]
        row = plugin_row(kind, version)
        if row is None or (version == "main" and kind in _GONE_ON_MAIN):
            yield f"{version} has no plugin {kind}"
            continue
        if row["stability"] == "deprecated":
            yield f"{kind} is deprecated, use {row['replaced_by']}"
        if row["stability"] == "alpha" and not allowed:
            yield f"{kind} is alpha and needs --allow-experimental-plugins"
        given = {path for path, _ in _fields(plugin.get("parameters", {}))}
        if row["ignores_parameters"] == "yes" and given:
            yield f"{kind} ignores its parameters: {sorted(given)}"
        for name in filter(None, row["required_parameters"].split(" + ")):
            if name not in given:
                yield f"{kind} needs {name}"


def plugin_row(kind: str, version: str) -> Mapping[str, str] | None:
    """The row of a plugin type that covers a version."""
    rows = (row for row in facts.table("router-plugins") if row["type"] == kind)
    return next((row for row in rows if _knows(row, version)), None)


def parameters(config: Mapping[str, Any], version: str) -> Iterator[str]:
    """Plugin parameters against router-plugin-parameters.csv: known to the version, of its type, in its range."""
    rows: dict[tuple[str, str], list[Mapping[str, str]]] = {}
    for row in facts.table("router-plugin-parameters"):
        rows.setdefault((row["type"], row["parameter"]), []).append(row)
    for plugin in config["plugins"]:
        kind = plugin["type"]
        for path, value in _fields(plugin.get("parameters", {})):
            row = next((row for row in rows.get((kind, path), []) if _knows(row, version)), None)
            if row is None:
                yield f"{version}: {kind} has no parameter {path}"
            elif "deprecated" in row["valid"] or row["valid"].startswith("must stay"):
                yield f"{kind}.{path}: {row['valid']}"
            elif not _is(value, row["go_type"]):
                yield f"{kind}.{path}: {value!r} is not {row['go_type']}"
            elif not _in_range(value, row["valid"]):
                yield f"{kind}.{path}: {value!r} is not {row['valid']}"


def picker_sense(config: Mapping[str, Any], version: str) -> Iterator[str]:
    """What the tables cannot say by row: references, pickers, deciders, producers (router.md §1.3–§1.6)."""
    declared = [plugin.get("name", plugin["type"]) for plugin in config["plugins"]]
    by_name = {plugin.get("name", plugin["type"]): plugin for plugin in config["plugins"]}
    kinds = {name: (plugin_row(plugin["type"], version) or {}).get("kind", "") for name, plugin in by_name.items()}
    if len(set(declared)) != len(declared):
        yield "two plugins have one name"
    profiles = {profile["name"]: profile for profile in config["schedulingProfiles"]}
    if len(profiles) != len(config["schedulingProfiles"]):
        yield "two profiles have one name"
    yield from _profiles_make_sense(profiles, kinds)
    yield from _deciders_make_sense(declared, by_name, kinds, profiles, version)
    yield from _producers_make_sense(config, declared, by_name)


def _profiles_make_sense(profiles: Mapping[str, Mapping[str, Any]], kinds: Mapping[str, str]) -> Iterator[str]:
    if list(kinds.values()).count("picker") > 1:
        yield "with several pickers declared, a profile without one takes any (router.md §1.3)"
    for name, profile in profiles.items():
        refs = [entry["pluginRef"] for entry in profile["plugins"]]
        yield from (f"profile {name} refers to {ref}, which is not declared" for ref in refs if ref not in kinds)
        roles = [kinds.get(ref, "") for ref in refs]
        if roles.count("picker") > 1:
            yield f"profile {name} has two pickers"
        if "picker" in kinds.values() and roles[-1:] != ["picker"]:
            yield f"profile {name} does not end with the declared picker"
        if len(set(refs)) != len(refs):
            yield f"profile {name} lists a plugin twice"
        yield from (
            f"profile {name} lists {ref}, a {role}, which does nothing there"
            for ref, role in zip(refs, roles, strict=True)
            if role not in ("filter", "scorer", "picker")
        )
        yield from (
            f"profile {name} weighs {entry['pluginRef']}, which is no scorer"
            for entry in profile["plugins"]
            if "weight" in entry and kinds.get(entry["pluginRef"]) != "scorer"
        )


def _deciders_make_sense(
    declared: Sequence[str],
    by_name: Mapping[str, Mapping[str, Any]],
    kinds: Mapping[str, str],
    profiles: Mapping[str, Any],
    version: str,
) -> Iterator[str]:
    handlers = [name for name, kind in kinds.items() if kind == "handler"]
    if len(handlers) > 1 or (len(profiles) > 1 and len(handlers) != 1):
        yield f"{len(profiles)} profiles and the handlers {handlers}"
    asked = {}
    for handler in handlers:
        asked = by_name[handler].get("parameters", {}).get("deciders", {})
    right = {"encode": "always-disagg-multimodal-decider", "prefill": "always-disagg-pd-decider"}
    for stage, decider in asked.items():
        if decider not in declared:
            yield f"the decider {decider} is not declared"
        elif version == "v0.9.0" and declared.index(decider) > declared.index(handlers[0]):
            yield f"v0.9.0 wants {decider} before {handlers[0]}"
        if stage not in profiles:
            yield f"the stage {stage} has a decider and no profile: it never runs"
        if decider != right.get(stage):
            yield f"{decider} decides on {stage}"
    for stage in ("encode", "prefill"):
        if stage in profiles and stage not in asked:
            yield f"the profile {stage} has no decider: it never runs"
    if handlers and "decode" not in profiles:
        yield "no profile decode: every request gets 429"
    unused = [name for name, kind in kinds.items() if kind == "decider" and name not in asked.values()]
    if unused:
        yield f"deciders nobody asks: {unused}"


# Consumers that name their producer, and the type whose name that is.
_NAMED = {
    "prefixMatchInfoProducerName": ("approx-prefix-cache-producer", "precise-prefix-cache-producer"),
    "inFlightLoadProducerName": ("inflight-load-producer",),
    "producerName": ("mm-embeddings-cache-producer",),
}


def _producers_make_sense(
    config: Mapping[str, Any], declared: Sequence[str], by_name: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    types = [plugin["type"] for plugin in config["plugins"]]
    token = next((plugin for plugin in config["plugins"] if plugin["type"] == "token-producer"), None)
    if token and token.get("name", "token-producer") != "token-producer":
        yield "a renamed token-producer loses to an automatic one (router.md §1.3)"
    if token is None and any(kind.endswith("prefix-cache-producer") for kind in types):
        yield "without a token-producer the picker prices pictures with its own defaults (router.md §1.3)"
    given = (token or {}).get("parameters", {})
    if "estimate" in given and ({"vllm", "modelName"} & set(given)):
        yield "token-producer takes an estimate or a renderer, not both"
    if "token-load-scorer" in types and "inflight-load-producer" not in types:
        yield "token-load-scorer without inflight-load-producer does not start (router-tables.md, surprise 1)"
    for plugin in config["plugins"]:
        for name, value in plugin.get("parameters", {}).items():
            if name in _NAMED and (value not in declared or by_name[value]["type"] not in _NAMED[name]):
                yield f"{plugin['type']}.{name} names {value}"
    if "precise-prefix-cache-producer" in types:
        if "vllm" not in given:
            yield "precise-prefix-cache-producer never matches without the vllm token-producer (router.md §2.4)"
        wired = [
            (source["pluginRef"], entry["pluginRef"])
            for source in config.get("dataLayer", {}).get("sources", [])
            for entry in source.get("extractors", [])
        ]
        if ("endpoint-notification-source", "precise-prefix-cache-producer") not in wired:
            yield "precise-prefix-cache-producer learns of no pod (router.md §2.4)"


# ------------------------------------------------------------------------------------------------------ the engines


class Fork:
    """The fork image of the encode topologies before vLLM moved embeddings itself (model-servers.md §0.1)."""

    CONNECTOR = "ECCPUConnector"  # from vLLM 0.26 in the table; the fork brought it to older engines
    KEY = "num_ec_blocks"  # in no table: the fork's own; it ignores the two below without a word
    IGNORED = ("ec_cpu_bytes", "ec_enable_nixl")
    ENV = ("VLLM_EC_SIDE_CHANNEL_HOST", "VLLM_EC_SIDE_CHANNEL_PORT")  # from 0.26 in the table, likewise


def vllm(argv: Sequence[str], release: str, fork: bool = False) -> Iterator[str]:
    """Words after ``vllm serve`` against vllm-flags.csv, and the JSON in them against vllm-config-keys.csv."""
    words = list(argv)
    if not words or words[0].startswith("-"):
        yield "the model is not the first word"
    for name, value in _given(words[1:], _bools("vllm-flags", release)):
        row = _flags("vllm-flags", release).get(name)
        if row is None:
            yield f"vLLM {release} has no flag {name}"
        elif wrong := _flag_value(row, value):
            yield f"vLLM {release}: {name} {wrong}"
        elif row["type"] == "json" and value is not None:
            yield from _json_keys(row["flag"], json.loads(value), release, fork)


def sglang(argv: Sequence[str], release: str) -> Iterator[str]:
    """Words after ``sglang.launch_server`` against sglang-flags.csv."""
    for name, value in _given(argv, _bools("sglang-flags", release), lists=("--encoder-urls",)):
        row = _flags("sglang-flags", release).get(name)
        if row is None:
            yield f"SGLang {release} has no flag {name}"
        elif wrong := _flag_value(row, value):
            yield f"SGLang {release}: {name} {wrong}"


def vllm_env(names: Iterable[str], release: str, fork: bool = False) -> Iterator[str]:
    """Variables that start with ``VLLM_`` against vllm-env.csv: another one does nothing."""
    known = {row["name"] for row in facts.table("vllm-env") if _ships(row, release)} | set(Fork.ENV if fork else ())
    yield from (
        f"vLLM {release} does not read {name}" for name in names if name.startswith("VLLM_") and name not in known
    )


def _spellings(row: Mapping[str, str], release: str) -> Iterator[str]:
    """The names of a flag in a release; ``changed`` says from or until when an alias is one."""
    yield row["flag"]
    for alias in row["aliases"].split():
        since = re.search(rf"alias {re.escape(alias)} from ([\w.]+)", row["changed"])
        until = re.search(rf"alias {re.escape(alias)} until ([\w.]+)", row["changed"])
        late = since and _version(release) < _version(since[1])
        gone = until and _version(release) > _version(until[1])
        if not late and not gone:
            yield alias


@cache
def _flags(name: str, release: str) -> Mapping[str, Mapping[str, str]]:
    """Every spelling of every flag of a release."""
    rows = [row for row in facts.table(name) if _ships(row, release)]
    return {spelling: row for row in rows for spelling in _spellings(row, release)}


def _bools(name: str, release: str) -> set[str]:
    return {spelling for spelling, row in _flags(name, release).items() if row["type"] == "bool"}


def _given(words: Sequence[str], bools: set[str], lists: Sequence[str] = ()) -> Iterator[tuple[str, str | None]]:
    """``(flag, value)`` of a command line; a bool's value is None unless somebody gave it one with ``=``."""
    index = 0
    while index < len(words):
        name, equals, value = words[index].partition("=")
        index += 1
        if not name.startswith("-"):
            yield name, None  # a stray word: no flag has that name
        elif equals:
            yield name, value
        elif name in bools:
            yield name, None
        elif name in lists:
            start = index
            while index < len(words) and not words[index].startswith("-"):
                index += 1
            yield name, " ".join(words[start:index])
        else:
            yield name, words[index] if index < len(words) else None
            index += 1


def _flag_value(row: Mapping[str, str], value: str | None) -> str | None:
    """What is wrong with a flag's value; None where nothing is."""
    if row["type"] == "bool":
        return None if value is None else f"takes no value, not {value!r}"  # engine-tables.md, How to read values
    if value is None:
        return "has no value"
    choices = row["choices"].split()
    if row["type"] in ("choice", "list") and choices and not set(value.split()) <= set(choices):
        return f"is {value!r}, none of {choices}"
    patterns = {"int": r"-?\d+", "float": r"-?\d+(\.\d+)?"}
    if row["flag"] in ("--max-model-len",):  # k, m, g suffixes and auto (engine-tables.md)
        patterns["int"] = r"-?\d+[kKmMgGtT]?|auto"
    if not re.fullmatch(patterns.get(row["type"], r"(?s:.*)"), value):
        return f"is {value!r}, not {row['type']}"
    if row["type"] == "json":
        try:
            json.loads(value)
        except ValueError:
            return f"is {value!r}, not JSON"
    return None


def _json_keys(flag: str, config: Mapping[str, Any], release: str, fork: bool) -> Iterator[str]:
    rows = [row for row in facts.table("vllm-config-keys") if row["flag"] == flag and _ships(row, release)]
    if not rows:
        return  # handed on to somebody else as it is: --mm-processor-kwargs goes to the model's own processor
    connector = config.get("ec_connector") or config.get("kv_connector") or ""
    for key, value in config.items():
        row = next((row for row in rows if not row["connector"] and row["key"] == key), None)
        if row is None:
            yield f"vLLM {release}: {flag} has no key {key}"
        elif wrong := _json_value(row, value):
            yield f"vLLM {release}: {flag} {key} {wrong}"
    if connector:
        yield from _connector(connector, "ec" if "ec_connector" in config else "kv", release, fork)
        extra = next((config[key] for key in config if key.endswith("_extra_config")), {})
        yield from _extra_keys(flag, connector, extra, release, fork, rows)


def _connector(name: str, kind: str, release: str, fork: bool) -> Iterator[str]:
    rows = facts.table("vllm-connectors")
    if fork and name == Fork.CONNECTOR:
        return
    if not any((row["kind"], row["connector"]) == (kind, name) and _ships(row, release) for row in rows):
        yield f"vLLM {release} has no {kind} connector {name}"


def _extra_keys(
    flag: str,
    connector: str,
    extra: Mapping[str, Any],
    release: str,
    fork: bool,
    rows: Sequence[Mapping[str, str]],
) -> Iterator[str]:
    mine = {row["key"]: row for row in rows if row["connector"] == connector}
    if fork and connector == Fork.CONNECTOR:
        yield from (f"the fork ignores {key}" for key in extra if key in Fork.IGNORED)
        if not _is(extra.get(Fork.KEY), "int"):
            yield f"the fork takes its default size without {Fork.KEY}"
        extra = {key: value for key, value in extra.items() if key not in (*Fork.IGNORED, Fork.KEY)}
    for key, value in extra.items():
        if key not in mine:
            # Never validated by the engine: a key it does not know is ignored without a word (model-servers.md §1.1).
            yield f"vLLM {release}: {connector} does not read {key}"
        elif wrong := _json_value(mine[key], value):
            yield f"vLLM {release}: {connector} {key} {wrong}"
    required = [key for key, row in mine.items() if row["default"] == "required"]
    if not (fork and connector == Fork.CONNECTOR):
        yield from (f"vLLM {release}: {connector} needs {key}" for key in required if key not in extra)


def _json_value(row: Mapping[str, str], value: Any) -> str | None:
    if row["type"] == "choice":
        return None if str(value) in row["choices"].split() else f"is {value!r}, none of {row['choices']}"
    return None if _is(value, row["type"]) else f"is {value!r}, not {row['type']}"
