"""2xx: the endpoint picker's configuration and the charts' values. This module: the envelope and the plugins in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from mmdeploy.documents import KeyPath
from mmdeploy.lint.findings import Found, Level, rule
from mmdeploy.lint.index import Deployment
from mmdeploy.lint.pools import pickers_of
from mmdeploy.lint.router import PickerConfig
from mmdeploy.lint.router_facts import LISTED, RouterFacts, children, facts
from mmdeploy.lint.rules.words import listed, short, suggestion
from mmdeploy.lint.source import dig
from mmdeploy.words import nearest

_SHAPES: Mapping[str, tuple[type, ...]] = {
    "list of object": (list,),
    "list of string": (list,),
    "object": (Mapping,),
    "string": (str,),
    "bool": (bool,),
    "float": (int, float),
    "int": (int,),
}


@rule("MMD201", Level.error, "router.md §0, §1.1; router-observed.md")
def api_version(deployment: Deployment) -> Iterator[Found]:
    """A configuration that the router in use does not decode: its apiVersion or kind is another's."""
    version = deployment.release.router
    accepted: list[str] = list(facts(deployment).fact("apiVersions", version) or ())
    for config in deployment.configs:
        value = config.document.value
        if not isinstance(value, Mapping):
            continue
        api, kind = value.get("apiVersion"), value.get("kind")
        if api and api not in accepted:
            yield Found(
                config.document, ("apiVersion",), config.title,
                f"router {version} does not decode apiVersion {api}: the endpoint picker exits at start",
                f"write apiVersion: {accepted[0]}",
            )  # fmt: skip
        if kind and kind != "EndpointPickerConfig":
            yield Found(
                config.document, ("kind",), config.title,
                f"kind {kind} is not registered: the endpoint picker exits at start", "write kind: "
                    "EndpointPickerConfig",
            )  # fmt: skip


@rule("MMD202", Level.error, "router.md §1.1, §1.2; router-config-fields.csv")
def envelope(deployment: Deployment) -> Iterator[Found]:
    """A field that the configuration does not have, or a value of the wrong shape: decoding is strict."""
    known = facts(deployment)
    for config in deployment.configs:
        value = config.document.value
        if isinstance(value, Mapping):
            v1 = value.get("apiVersion") == "llm-d.ai/v1"
            yield from _fields(config, known, v1, value, (), "")


def _fields(
    config: PickerConfig, known: RouterFacts, v1: bool, value: Mapping[Any, Any], path: KeyPath, dotted: str
) -> Iterator[Found]:
    for key, item in value.items():
        name = f"{dotted}.{key}" if dotted else str(key)
        at = (*path, str(key))
        answer = known.field(name, v1)
        if answer.state in ("unknown", "removed", "later"):
            yield Found(config.document, at, config.title, *_wrong_field(known, name, answer.state, answer.instead),
                        None if answer.sure else Level.warning)  # fmt: skip
            continue
        if answer.row is None or answer.state == "added" or name == "plugins[].parameters":
            continue
        shape = answer.row["type"]
        if item is not None and _misshapen(shape, item):
            yield Found(
                config.document, at, config.title,
                f"{name.replace(LISTED, '')} must be a {shape}, not {short(item)}: decoding fails and the endpoint "
                "picker exits", f"write a {shape}",
            )  # fmt: skip
        elif isinstance(item, Mapping):
            yield from _fields(config, known, v1, item, at, name)
        elif shape == "list of object":
            yield from _items(config, known, v1, item, at, name + LISTED)


def _items(
    config: PickerConfig, known: RouterFacts, v1: bool, items: Any, path: KeyPath, dotted: str
) -> Iterator[Found]:
    for index, item in enumerate(items if isinstance(items, list) else ()):
        if isinstance(item, Mapping):
            yield from _fields(config, known, v1, item, (*path, index), dotted)
        elif item is not None:
            yield Found(
                config.document, (*path, index), config.title,
                f"{dotted.removesuffix(LISTED)} holds {short(item)} where an object must stand: decoding fails",
                "write an object",
            )  # fmt: skip


def _wrong_field(known: RouterFacts, name: str, state: str, instead: str) -> tuple[str, str]:
    short = name.replace(LISTED, "")
    if state == "removed":
        return (
            f"{short} is no longer a field of router {known.version}: decoding fails and the endpoint picker exits",
            f"write {instead}" if instead else "remove it",
        )
    if state == "later":
        return (
            f"{short} is not yet a field of router {known.version}: decoding fails and the endpoint picker exits",
            "remove it, or use a router that has it",
        )
    parent, _, key = name.rpartition(".")
    near = nearest(key, [path.rpartition(".")[2] for path in children(known.fields, parent)])
    if parent == "plugins[]" and key == "config":
        near = ["parameters"]
    return (
        f"{short} is not a field of an EndpointPickerConfig: decoding is strict and the endpoint picker exits",
        f"write {near[0]}" if near else "remove it",
    )


def _misshapen(shape: str, value: Any) -> bool:
    wanted = _SHAPES.get(shape)
    if wanted is None:
        return False
    if isinstance(value, bool) and shape != "bool":
        return True
    return not isinstance(value, wanted)


@rule("MMD203", Level.error, "router.md §2; router-plugins.csv")
def plugin_types(deployment: Deployment) -> Iterator[Found]:
    """A plugin type that the router in use does not register."""
    known = facts(deployment)
    seen: set[str] = set()
    for config, plugin in deployment.plugins:
        answer = known.plugin(plugin.type)
        if not plugin.type or answer.state == "known":
            continue
        path = (*plugin.path, "type")
        if answer.state == "unknown":
            if plugin.type not in seen:
                seen.add(plugin.type)
                yield Found(
                    config.document, path, config.title,
                    f"plugin type {plugin.type} is registered by no router that this catalog knows"
                    + suggestion(plugin.type, known.plugin_types),
                    "check the spelling: a type that is not registered stops the endpoint picker", Level.info,
                )  # fmt: skip
            continue
        when = "no longer" if answer.state == "removed" else "not yet"
        yield Found(
            config.document, path, config.title,
            f"router {known.version} {when} has the plugin type {plugin.type}: the endpoint picker exits at start",
            f"use {answer.instead}" if answer.instead else "remove the plugin, or use a router that has it",
            None if answer.sure else Level.warning,
        )  # fmt: skip


@rule("MMD204", Level.error, "router.md §2 (alpha gate since v0.10.0)")
def alpha_gate(deployment: Deployment) -> Iterator[Found]:
    """A plugin of Alpha stability without the flag that allows it."""
    known = facts(deployment)
    flag = known.fact("chart", "alphaFlag")
    if not known.has("alphaFlag") or allows_alpha(deployment, flag):
        return
    fix = f"set router.epp.flags.{flag}: true"
    for config, plugin in deployment.plugins:
        row = known.plugin(plugin.type).row
        if row is not None and row["stability"] == "alpha" and known.plugin(plugin.type).state == "known":
            yield Found(
                config.document, (*plugin.path, "type"), config.title,
                f"{plugin.type} is of Alpha stability, and --{flag} is not set: the endpoint picker exits at "
                "start", fix,
            )  # fmt: skip
    builtin = known.fact("chart", "alphaConfig") or {}
    for values in deployment.router.values:
        name = values.get("router", "epp", "pluginsConfigFile")
        own = any(config.file_name == name for config in deployment.router.configs)
        if isinstance(name, str) and name in builtin and not own:
            yield Found(
                values.document, ("router", "epp", "pluginsConfigFile"), name,
                f"the chart's own {name} uses {builtin[name]}, which is of Alpha stability, and --{flag} is not set: "
                "the endpoint picker exits at start", fix,
            )  # fmt: skip


def allows_alpha(deployment: Deployment, flag: str) -> bool:
    """Whether Alpha plugins are allowed; True where nobody can know (a configuration without values or a picker)."""
    said = deployment.router.value("router", "epp", "flags")
    pickers = list(pickers_of(deployment))
    if not deployment.router.values and not pickers:
        return True
    by_values = [values.get("router", "epp", "flags") for values in deployment.router.values] if said else []
    for flags in by_values:
        if isinstance(flags, Mapping) and str(flags.get(flag, "")).lower() in ("true", "1", "t"):
            return True
    return any(
        picker.command.last(f"--{flag}") is not None
        and (picker.command.value(f"--{flag}") or "true").lower() in ("true", "1", "t")
        for picker in pickers
    )


@rule("MMD208", Level.error, "router.md §1.5")
def references(deployment: Deployment) -> Iterator[Found]:
    """A name that is missing, given twice, or refers to nothing."""
    for config in deployment.configs:
        yield from _identities(config)
        names = {plugin.name for plugin in config.plugins}
        for path, ref in _references(config):
            if not isinstance(ref, str) or not ref:
                yield Found(config.document, path, config.title, "the entry has no pluginRef: the endpoint picker "
                                                                 "exits",
                            "write pluginRef: and the name of a declared plugin")  # fmt: skip
            elif ref not in names:
                yield Found(
                    config.document, path, config.title,
                    f"{'.'.join(str(step) for step in path if isinstance(step, str))} names {ref}, which no plugin is "
                    f"called: the endpoint picker exits{suggestion(ref, names)}",
                    "declare the plugin, or correct the name",
                )  # fmt: skip


def _identities(config: PickerConfig) -> Iterator[Found]:
    plugins = Counter(plugin.name for plugin in config.plugins)
    profiles = Counter(profile.name for profile in config.profiles)
    seen: set[str] = set()
    for plugin in config.plugins:
        if not plugin.type:
            yield Found(config.document, plugin.path, config.title, "a plugin has no type: the endpoint picker exits",
                        "write type: and a plugin type")  # fmt: skip
        elif plugins[plugin.name] > 1 and plugin.name in seen:
            yield Found(
                config.document, plugin.path, config.title,
                f"two plugins are called {plugin.name} (the name defaults to the type): the endpoint picker exits",
                "give one of them a name of its own, or remove it",
            )  # fmt: skip
        seen.add(plugin.name)
    done: set[str] = set()
    for profile in config.profiles:
        if not profile.name:
            yield Found(config.document, profile.path, config.title,
                        "a scheduling profile has no name: the endpoint picker exits", "write name:")  # fmt: skip
        elif profiles[profile.name] > 1 and profile.name in done:
            yield Found(config.document, (*profile.path, "name"), config.title,
                        f"two scheduling profiles are called {profile.name}: the endpoint picker exits",
                        "rename or remove one")  # fmt: skip
        done.add(profile.name)


def _references(config: PickerConfig) -> Iterator[tuple[KeyPath, Any]]:
    """Places that must name a declared plugin, with what they name."""
    value = config.document.value
    for profile in config.profiles:
        for _, _, path in profile.entries:
            yield (*path, "pluginRef"), dig(value, (*path, "pluginRef"))
    for source in _list_paths(value, ("dataLayer", "sources")):
        yield (*source, "pluginRef"), dig(value, (*source, "pluginRef"))
        for extractor in _list_paths(value, (*source, "extractors")):
            yield (*extractor, "pluginRef"), dig(value, (*extractor, "pluginRef"))
    for place in (("dataLayer", "discovery"), ("dataLayer", "discovery", "endpoints")):
        if dig(value, (*place, "pluginRef")):
            yield (*place, "pluginRef"), dig(value, (*place, "pluginRef"))
    if config.handler is not None and config.handler.type == "disagg-profile-handler":
        deciders = config.handler.parameters.get("deciders")
        for stage, decider in deciders.items() if isinstance(deciders, Mapping) else ():
            if decider:
                yield (*config.handler.path, "parameters", "deciders", str(stage)), decider
        for key in ("encodeDeciderPluginName", "prefillDeciderPluginName", "deciderPluginName"):
            if config.handler.parameters.get(key):
                yield (*config.handler.path, "parameters", key), config.handler.parameters[key]


def _list_paths(value: Any, path: KeyPath) -> Iterator[KeyPath]:
    items = dig(value, path)
    for index, item in enumerate(items if isinstance(items, list) else ()):
        if isinstance(item, Mapping):
            yield (*path, index)


@rule("MMD209", Level.error, "router.md §1.3, §1.5")
def handlers_and_pickers(deployment: Deployment) -> Iterator[Found]:
    """Profile handlers and pickers: how many there may be."""
    known = facts(deployment)
    for config in deployment.configs:
        unknown = any(known.plugin(plugin.type).state == "unknown" for plugin in config.plugins)
        handlers = [plugin for plugin in config.plugins if known.kind(plugin.type) == "handler"]
        count = len(config.profiles)
        if len(handlers) > 1:
            names = listed(plugin.name for plugin in handlers)
            yield Found(config.document, handlers[-1].path, config.title,
                        f"{names} are both profile handlers, and only one is allowed: the endpoint picker exits",
                        "keep one of them")  # fmt: skip
        elif handlers and handlers[0].type == "single-profile-handler" and count > 1:
            yield Found(config.document, handlers[0].path, config.title,
                        f"single-profile-handler cannot run {count} scheduling profiles: the endpoint picker exits",
                        "use disagg-profile-handler, or keep one profile")  # fmt: skip
        elif not handlers and count > 1 and not unknown:
            yield Found(config.document, ("schedulingProfiles",), config.title,
                        f"{count} scheduling profiles and no profile handler: the endpoint picker exits",
                        "declare disagg-profile-handler, or keep one profile")  # fmt: skip
        yield from _pickers(config, known)


def _pickers(config: PickerConfig, known: RouterFacts) -> Iterator[Found]:
    declared_pickers = [plugin.name for plugin in config.plugins if known.kind(plugin.type) == "picker"]
    value = config.document.value
    if len(declared_pickers) > 1 and isinstance(value, Mapping) and not value.get("schedulingProfiles"):
        yield Found(config.document, ("plugins",), config.title,
                    f"{len(declared_pickers)} pickers and no schedulingProfiles: the one profile that is made of all "
                    "plugins may hold one picker, and the endpoint picker exits", "write "
                        "schedulingProfiles")  # fmt: skip
    for profile in config.profiles:
        here = [(name, path) for name, _, path in profile.entries if name in declared_pickers]
        if len(here) > 1:
            yield Found(config.document, here[1][1], config.title,
                        f"profile {profile.name} has two pickers, {here[0][0]} and {here[1][0]}: the endpoint picker "
                        "exits", "keep one picker a profile")  # fmt: skip
        elif not here and len(declared_pickers) > 1:
            yield Found(
                config.document, profile.path, config.title,
                f"profile {profile.name} names no picker, and {listed(declared_pickers)} are declared: it gets one of "
                "them at random each start", "name a picker in the profile", Level.warning,
            )  # fmt: skip
