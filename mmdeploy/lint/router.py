"""The router as the deployment configures it: Helm values, rendered chart objects, bare configurations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from mmdeploy.documents import KeyPath
from mmdeploy.lint.source import Defect, Document, Position, dig

CONFIG_KIND = "EndpointPickerConfig"
LEGACY_KEYS = ("inferenceExtension", "inferencePool", "inferenceObjectives", "experimentalHttpRoute")
BUILT_IN = ("default-plugins.yaml", "payload-agnostic.yaml")
"""Configuration files that the charts bring along."""
VALUES_KEYS = ("router", "httpRoute", "provider", *LEGACY_KEYS)


@dataclass
class Plugin:
    """A declared plugin; ``path`` leads to it in the configuration."""

    name: str
    type: str
    parameters: Mapping[str, Any]
    path: KeyPath
    named: bool
    """Whether a name was given (otherwise the name is the type)."""


@dataclass
class Profile:
    """A scheduling profile: ``(plugin name, weight, path)`` of each entry."""

    name: str
    entries: list[tuple[str, Any, KeyPath]]
    path: KeyPath


@dataclass
class PickerConfig:
    """An EndpointPickerConfig, wherever it stood."""

    document: Document
    file_name: str | None = None
    """Its name among the chart's configuration files."""
    values: Values | None = None
    """The Helm values that carry it."""

    @property
    def title(self) -> str:
        """What people call it: the name of its file, or its kind."""
        return self.file_name or CONFIG_KIND

    @cached_property
    def plugins(self) -> list[Plugin]:
        """Declared plugins, in order."""
        found = []
        for path, item in _items(self.document.value, ("plugins",)):
            parameters = item.get("parameters")
            kind = str(item.get("type", ""))
            found.append(
                Plugin(
                    str(item.get("name") or kind), kind, parameters if isinstance(parameters, Mapping) else {}, path,
                    bool(item.get("name")),
                )
            )  # fmt: skip
        return found

    @cached_property
    def profiles(self) -> list[Profile]:
        """Scheduling profiles, in order."""
        found = []
        for path, item in _items(self.document.value, ("schedulingProfiles",)):
            inner = list(_items(item, ("plugins",)))
            entries = [(str(entry.get("pluginRef", "")), entry.get("weight"), (*path, *at)) for at, entry in inner]
            found.append(Profile(str(item.get("name", "")), entries, path))
        return found

    def of_type(self, *types: str) -> list[Plugin]:
        """Plugins of some types."""
        return [plugin for plugin in self.plugins if plugin.type in types]

    def named(self, name: str) -> Plugin | None:
        """The plugin called ``name``."""
        return next((plugin for plugin in self.plugins if plugin.name == name), None)

    def profile(self, name: str) -> Profile | None:
        """The profile called ``name``."""
        return next((profile for profile in self.profiles if profile.name == name), None)

    def profile_types(self, profile: Profile) -> list[str]:
        """Plugin types that a profile runs, in order."""
        found = (self.named(name) for name, _, _ in profile.entries)
        return [plugin.type for plugin in found if plugin is not None]

    @cached_property
    def handler(self) -> Plugin | None:
        """The profile handler of disaggregated serving, if declared."""
        handlers = self.of_type("disagg-profile-handler", "pd-profile-handler")
        return handlers[0] if handlers else None

    def decider(self, stage: str) -> str | None:
        """Name of the decider of a stage (``encode``, ``prefill``), nested or in the retired flat form."""
        if self.handler is None:
            return None
        nested = dig(self.handler.parameters, ("deciders", stage))
        flat = self.handler.parameters.get(f"{stage}DeciderPluginName")
        if flat is None and stage == "prefill":
            flat = self.handler.parameters.get("deciderPluginName")
        value = nested if nested is not None else flat
        return str(value) if value else None

    def stage_profile(self, stage: str) -> str:
        """Name of the profile that serves a stage."""
        if self.handler is None:
            return stage
        nested = dig(self.handler.parameters, ("profiles", stage))
        flat = self.handler.parameters.get(f"{stage}Profile")
        return str(nested or flat or stage)

    def position(self, path: KeyPath = ()) -> Position:
        """Where something in the configuration stands."""
        return self.document.position(path)


@dataclass
class Values:
    """Helm values of the router charts."""

    document: Document

    def get(self, *path: str) -> Any:
        """The value at a path; None where it is not set."""
        return dig(self.document.value, path)

    def position(self, *path: str | int) -> Position:
        """Where a value stands."""
        return self.document.position(path)

    @cached_property
    def gateway(self) -> bool:
        """Whether these are values of the gateway chart."""
        return self.get("httpRoute") is not None or self.get("provider", "name") not in (None, "none")

    @cached_property
    def config_file(self) -> str:
        """The configuration file that the endpoint picker is told to read."""
        return str(self.get("router", "epp", "pluginsConfigFile") or "default-plugins.yaml")


@dataclass
class Router:
    """Everything about the router that the documents hold."""

    values: list[Values] = field(default_factory=list)
    configs: list[PickerConfig] = field(default_factory=list)

    def value(self, *path: str) -> tuple[Any, Values] | None:
        """A Helm value from the last values file that sets it."""
        for values in reversed(self.values):
            found = values.get(*path)
            if found is not None:
                return found, values
        return None


def values_of(document: Document) -> Values | None:
    """The document as Helm values of a router chart, if it is that."""
    value = document.value
    if not isinstance(value, Mapping) or "kind" in value or "apiVersion" in value:
        return None
    return Values(document) if any(isinstance(value.get(key), Mapping | list) for key in VALUES_KEYS) else None


def configs_of(document: Document, values: Values | None, defects: list[Defect]) -> Iterator[PickerConfig]:
    """Endpoint picker configurations in a document: itself, in a ConfigMap, or in Helm values."""
    value = document.value
    if not isinstance(value, Mapping):
        return
    if value.get("kind") == CONFIG_KIND or (
        "plugins" in value and "schedulingProfiles" in value and not value.get("kind")
    ):
        yield PickerConfig(document)
    elif value.get("kind") == "ConfigMap":
        data = value.get("data")
        for key, text in data.items() if isinstance(data, Mapping) else ():
            if isinstance(text, str) and (CONFIG_KIND in text or "schedulingProfiles" in text):
                yield from _embedded(document, ("data", key), str(key), None, defects)
    elif values is not None:
        files = values.get("router", "epp", "pluginsCustomConfig")
        for key, text in files.items() if isinstance(files, Mapping) else ():
            path = ("router", "epp", "pluginsCustomConfig", str(key))
            if isinstance(text, str):
                yield from _embedded(document, path, str(key), values, defects)
            elif isinstance(text, Mapping):
                yield PickerConfig(document.below(path, text), str(key), values)


def _embedded(
    document: Document, path: KeyPath, name: str, values: Values | None, defects: list[Defect]
) -> Iterator[PickerConfig]:
    inner = document.embedded(path, defects)
    if inner is not None and isinstance(inner.value, Mapping):
        yield PickerConfig(inner, name, values)


def _items(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Mapping[str, Any]]]:
    items = dig(value, path)
    for index, item in enumerate(items if isinstance(items, list) else ()):
        if isinstance(item, Mapping):
            yield (*path, index), item
