"""Layers laid on each other, by Kubernetes' own merge keys, with a record of who said what.

Mappings merge key by key. Lists merge item by item where Kubernetes or the router has a key for their items
(`MERGE_KEYS`), arguments by flag; any other list replaces the one below it. A literal ``null``, or an item with
``$remove: true``, takes away what an earlier layer set; where nothing was set, that is an error: a layer that overrides
nothing it could override is out of date.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mmdeploy.documents import KeyPath
from mmdeploy.errors import BlueprintError
from mmdeploy.render.arguments import flag_of, group
from mmdeploy.render.expressions import NOTHING, Noted, Place

MERGE_KEYS: Mapping[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "resourceClaims": ("name",),
    "claims": ("name",),
    "ports": ("containerPort", "name"),
    "volumeMounts": ("mountPath",),
    "plugins": ("pluginRef", "name", "type"),
    "schedulingProfiles": ("name",),
    "sources": ("pluginRef",),
    "extractors": ("pluginRef",),
}
"""List name → fields that identify an item; the first that an item has counts."""


@dataclass
class Provenance:
    """For each value, by path, the place that had the last word, and what it said."""

    places: dict[KeyPath, Place | str] = field(default_factory=dict)
    said: dict[KeyPath, Any] = field(default_factory=dict)

    def set(self, path: KeyPath, place: Place | str, value: Any = None) -> None:
        """Note that ``place`` decides the value at ``path``."""
        self.places[path] = place
        self.said[path] = value


def merge(base: Any, patch: Any, place: Place, provenance: Provenance, path: KeyPath = ()) -> Any:
    """``patch`` laid on ``base``; neither is changed. ``place`` is where the patch stands."""
    if patch is NOTHING:
        return base
    if isinstance(base, Noted) and isinstance(patch, Mapping):
        return Noted(merge(base.value, patch, place, provenance, path), base.note)
    if isinstance(patch, Mapping):
        return _merge_mapping(base if isinstance(base, Mapping) else {}, patch, place, provenance, path)
    if isinstance(patch, list):
        name = path[-1] if path else ""
        if name == "args" and path[0] == "pod":
            return _merge_arguments(base or [], patch, place, provenance, path)
        keys = MERGE_KEYS.get(str(name))
        if keys and all(isinstance(item, Mapping) for item in patch):
            return _merge_items(base or [], patch, keys, place, provenance, path)
    provenance.set(path, place, patch)
    return patch


def _merge_mapping(
    base: Mapping[str, Any], patch: Mapping[str, Any], place: Place, provenance: Provenance, path: KeyPath
) -> dict[str, Any]:
    merged = dict(base)
    if not patch and not base:
        provenance.set(path, place)
    for key, value in patch.items():
        here, there = (*path, key), place.at(key)
        if value is None:
            _removing(key in merged, key, there)
            del merged[key]
        else:
            merged[key] = merge(merged.get(key), value, there, provenance, here)
    return merged


def _merge_items(
    base: list[Any], patch: list[Any], keys: tuple[str, ...], place: Place, provenance: Provenance, path: KeyPath
) -> list[Any]:
    merged = list(base)
    known = {_identity(item, keys): index for index, item in enumerate(merged)}
    for index, item in enumerate(patch):
        identity, there = _identity(item, keys), place.at(index)
        position = known.get(identity)
        if item.get("$remove"):
            _removing(position is not None, identity, there)
            merged = [other for other in merged if _identity(other, keys) != identity]
            known = {_identity(other, keys): at for at, other in enumerate(merged)}
            continue
        below = None if position is None else merged[position]
        if path and path[-1] == "env" and ("value" in item or "valueFrom" in item):
            below = None  # a variable has one source: the later one replaces the earlier
        value = merge(below, item, there, provenance, (*path, identity))
        if position is None:
            known[identity] = len(merged)
            merged.append(value)
        else:
            merged[position] = value
    return merged


def _identity(item: Mapping[str, Any], keys: tuple[str, ...]) -> str | int:
    for key in keys:
        if key in item:
            value = item[key]
            return value.value if isinstance(value, Noted) else value  # type: ignore[no-any-return]
    return "?"


def _merge_arguments(
    base: list[Any], patch: list[Any], place: Place, provenance: Provenance, path: KeyPath
) -> list[Any]:
    merged = list(base)
    for index, argument in enumerate(group(patch)):
        if isinstance(argument, list) and len(argument) == 1:
            continue  # a flag whose value said nothing
        flag, there = flag_of(argument), place.at(index)
        positions = [at for at, other in enumerate(merged) if flag is not None and flag_of(other) == flag]
        provenance.set((*path, flag or str(argument)), there, argument)
        if not positions:
            merged.append(_without_nulls(argument, there))
            continue
        first = positions[0]
        merged[first] = _merge_argument(merged[first], argument, there, provenance, (*path, flag or ""))
        merged = [other for at, other in enumerate(merged) if at not in positions[1:]]
    return merged


def _merge_argument(old: Any, new: Any, place: Place, provenance: Provenance, path: KeyPath) -> Any:
    both = isinstance(old, list) and isinstance(new, list) and len(old) == len(new) == 2
    if both and isinstance(old[1], Mapping) and isinstance(new[1], Mapping):
        return [old[0], merge(old[1], new[1], place.at(1), provenance, path)]
    return new


def _without_nulls(argument: Any, place: Place) -> Any:
    if isinstance(argument, list) and len(argument) == 2 and isinstance(argument[1], Mapping):
        _refuse_nulls(argument[1], place)
    return argument


def _refuse_nulls(value: Mapping[str, Any], place: Place) -> None:
    for key, item in value.items():
        if item is None:
            _removing(False, key, place)
        elif isinstance(item, Mapping):
            _refuse_nulls(item, place)


def _removing(there: bool, what: Any, place: Place) -> None:
    if not there:
        raise BlueprintError(f"removes {what!r}, which no earlier layer sets", origin=str(place))
