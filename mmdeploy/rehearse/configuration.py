"""An EndpointPickerConfig as the picker takes it: plugins by name, profiles, deciders, and what it adds by itself.

Source: facts router.md sections 1.3, 1.6 and 2. Only what decides where requests go is read; a configuration with
which the real picker would not start is refused as lint finds it, not here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from mmdeploy.errors import UsageError
from mmdeploy.estimator import producers
from mmdeploy.estimator.router import Estimator

HANDLER = "disagg-profile-handler"
PREFIX = "approx-prefix-cache-producer"
INFLIGHT = "inflight-load-producer"
STAGES = ("decode", "encode", "prefill")
"""In the order in which the handler runs them."""

_NEEDS = {
    HANDLER: (PREFIX,),
    "prefix-cache-scorer": (PREFIX,),
    "prefix-cache-affinity-filter": (PREFIX,),
    "no-hit-lru-scorer": (PREFIX,),
    "token-load-scorer": (INFLIGHT,),
    "active-request-scorer": (INFLIGHT,),
}
"""Producers that a plugin makes the picker create where nobody declared them."""

_FILTERS = ("-filter",)
_PICKERS = ("max-score-picker", "random-picker", "weighted-random-picker")


@dataclass(frozen=True)
class Plugin:
    """One declared plugin."""

    name: str
    kind: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class Profile:
    """One scheduling profile: filters in order, scorers with weights, a picker."""

    name: str
    filters: tuple[Plugin, ...]
    scorers: tuple[tuple[Plugin, float], ...]
    picker: Plugin


@dataclass(frozen=True)
class Configuration:
    """What the picker runs with."""

    plugins: Mapping[str, Plugin]
    profiles: Mapping[str, Profile]
    stages: Mapping[str, str]
    """Stage → name of its profile; empty without the handler."""
    deciders: Mapping[str, Plugin]
    """Stage → what decides on it."""
    estimator: Estimator | None
    """None where a model server counts real tokens."""

    @property
    def handler(self) -> Plugin | None:
        """The handler that disaggregates."""
        return next((plugin for plugin in self.plugins.values() if plugin.kind == HANDLER), None)

    def of_kind(self, kind: str) -> list[Plugin]:
        """The plugins of one type."""
        return [plugin for plugin in self.plugins.values() if plugin.kind == kind]


def read(content: Mapping[str, Any], *, video_supported: bool) -> Configuration:
    """Raises `UsageError` for what is no configuration, and for dangling references."""
    plugins = dict(_plugins(content))
    for plugin in list(plugins.values()):
        for kind in _NEEDS.get(plugin.kind, ()):
            plugins.setdefault(kind, Plugin(kind, kind, {}))
    profiles = {profile.name: profile for profile in _profiles(content, plugins)}
    handler = next((plugin for plugin in plugins.values() if plugin.kind == HANDLER), None)
    said = handler.parameters if handler else {}
    stages = {stage: _mapping(said.get("profiles")).get(stage, stage) for stage in STAGES} if handler else {}
    deciders = {
        stage: _declared(plugins, str(name), f"{HANDLER} deciders.{stage}")
        for stage, name in _mapping(said.get("deciders")).items()
    }
    producer = producers.from_text(yaml.safe_dump(dict(content), sort_keys=False), "the picker's configuration")
    block = None if producer.precise else Estimator.from_block(producer.estimate, video_supported=video_supported)
    return Configuration(plugins, profiles, stages, deciders, block)


def of_values(values: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """The configuration that Helm values give the picker. Raises `UsageError` where they give none."""
    picker = _mapping(_mapping(values.get("router")).get("epp"))
    text = _mapping(picker.get("pluginsCustomConfig")).get(str(picker.get("pluginsConfigFile")))
    content = picker.get("pluginsConfig") or (yaml.safe_load(text) if isinstance(text, str) else text)
    if not isinstance(content, dict):
        raise UsageError(
            "router.epp.pluginsConfigFile names no EndpointPickerConfig in pluginsCustomConfig",
            origin=origin,
            next_step="mmdeploy lint says what is wrong with the bundle",
        )
    return content


def _plugins(content: Mapping[str, Any]) -> Iterator[tuple[str, Plugin]]:
    for entry in content.get("plugins") or ():
        name = str(entry.get("name") or entry["type"])
        yield name, Plugin(name, str(entry["type"]), _mapping(entry.get("parameters")))


def _profiles(content: Mapping[str, Any], plugins: Mapping[str, Plugin]) -> Iterator[Profile]:
    shared = next((plugin for plugin in plugins.values() if plugin.kind in _PICKERS), None)
    declared: list[dict[str, Any]] = content.get("schedulingProfiles") or [
        {"name": "default", "plugins": [{"pluginRef": name} for name in plugins]}
    ]
    for entry in declared:
        filters, scorers, picker = [], [], shared or Plugin(_PICKERS[0], _PICKERS[0], {})
        for reference in entry.get("plugins") or ():
            plugin = _declared(plugins, str(reference["pluginRef"]), f"profile {entry['name']}")
            if plugin.kind in _PICKERS:
                picker = plugin
            elif plugin.kind.endswith(_FILTERS):
                filters.append(plugin)
            elif plugin.kind.endswith("-scorer") or plugin.kind == "context-length-aware":
                scorers.append((plugin, float(reference.get("weight", 1))))
        yield Profile(str(entry["name"]), tuple(filters), tuple(scorers), picker)


def _declared(plugins: Mapping[str, Plugin], name: str, where: str) -> Plugin:
    if name not in plugins:
        raise UsageError(
            f"{where} references undefined plugin {name!r}, and the endpoint picker would not start",
            nearest=list(plugins)[:3],
            next_step="mmdeploy lint says what is wrong with the bundle",
        )
    return plugins[name]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
