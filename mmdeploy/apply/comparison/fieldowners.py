"""Who set which field of a live object, by ``metadata.managedFields``.

The server notes each manager's fields as a tree: ``f:key`` for a key, ``k:{…}`` for an item of a list by its merge
keys, ``v:…`` for an item that is its own key, ``.`` for the thing itself. Whoever changes a field takes it from the
others, so a field that is still ours has the value that we gave it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from mmdeploy.apply.comparison.differences import Label, Path
from mmdeploy.apply.comparison.merging import label_of, labelled

OURS: Final = "mmdeploy"
_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "fieldRef": {"apiVersion": "v1"},
    "resourceFieldRef": {"divisor": "0"},
}
"""What the server adds inside mappings that are set as a whole."""
_NOTHING: Final = object()
EMPTY: Final[tuple[Any, ...]] = ("", {}, [], False, 0)
"""Values that the server may keep by leaving them out: a field that is ours and not there was set to one of these."""

Fields = Mapping[str, Any]


@dataclass(frozen=True)
class Owner:
    """One manager's fields."""

    manager: str
    fields: Fields
    applied: bool
    """Whether by server-side apply, which is an intent, and not by an update."""
    subresource: str = ""


@dataclass(frozen=True)
class FieldOwners:
    """Who set what in one object."""

    owners: tuple[Owner, ...]

    @classmethod
    def of(cls, live: Mapping[str, Any]) -> FieldOwners:
        """As the server says it."""
        entries = (live.get("metadata") or {}).get("managedFields") or ()
        return cls(tuple(_owner(entry) for entry in entries))

    @cached_property
    def ours(self) -> bool:
        """Whether mmdeploy ever applied it."""
        return self.applied_by(OURS)

    def applied_by(self, manager: str) -> bool:
        """Whether a manager used server-side apply on it."""
        return any(owner.manager == manager and owner.applied for owner in self.owners)

    def managers(self, path: Path) -> tuple[str, ...]:
        """Everyone who set the value at a path, or something in it."""
        return tuple(dict.fromkeys(owner.manager for owner in self.owners if _owns(owner.fields, path)))

    def besides(self, manager: str) -> Iterator[Owner]:
        """The other managers; not controllers that report a status."""
        return (owner for owner in self.owners if owner.manager != manager and owner.subresource != "status")

    def prove_unchanged(self, wanted: Mapping[str, Any], live: Mapping[str, Any]) -> bool:
        """Whether applying ``wanted`` can change nothing at all: each of its fields is ours and has its value, and no
        other field is ours. A no may be wrong, a yes is not."""
        mine = [owner.fields for owner in self.owners if owner.manager == OURS and owner.applied]
        return len(mine) == 1 and _same_fields(_without_identity(wanted), mine[0], live, "")


def _owner(entry: Mapping[str, Any]) -> Owner:
    applied = entry.get("operation") == "Apply"
    return Owner(str(entry.get("manager", "")), entry.get("fieldsV1") or {}, applied, str(entry.get("subresource", "")))


def _without_identity(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Without what names an object: nobody owns that."""
    metadata = {key: value for key, value in wanted.get("metadata", {}).items() if key not in ("name", "namespace")}
    plain = {key: value for key, value in wanted.items() if key not in ("apiVersion", "kind", "metadata")}
    return {**plain, **({"metadata": metadata} if metadata else {})}


def _owns(fields: Fields, path: Path) -> bool:
    """Whether a tree of fields has the value at a path, something below it, or the whole that it is part of."""
    name = ""
    for index, step in enumerate(path):
        if not fields:
            return index > 0
        if isinstance(step, Label):
            below = next((tree for key, tree in fields.items() if _label(key, name) == step), None)
        else:
            below = fields.get(f"f:{step}")
        if below is None:
            return False
        fields, name = below, step
    return True


def _label(key: str, name: str) -> str | None:
    """What an item of the list called ``name`` is called in paths, from its key in a tree of fields."""
    sign, _, text = key.partition(":")
    if sign not in ("k", "v"):
        return None
    value = json.loads(text)
    return label_of(name, value) if sign == "k" else str(value)


def _same_fields(wanted: Any, fields: Fields, live: Any, name: str) -> bool:
    inner = {key: tree for key, tree in fields.items() if key != "."}
    if not inner:
        return _same(wanted, live, name)
    if isinstance(wanted, Mapping) and isinstance(live, Mapping):
        if {f"f:{key}" for key in wanted} != inner.keys():
            return False
        return all(_same_fields(value, inner[f"f:{key}"], live.get(key), key) for key, value in wanted.items())
    if isinstance(wanted, list) and isinstance(live, list):
        return _same_items(wanted, inner, live, name)
    return False


def _same_items(wanted: list[Any], fields: Fields, live: list[Any], name: str) -> bool:
    if all(key.startswith("v:") for key in fields):
        values = [json.loads(key[2:]) for key in fields]
        return sorted(map(str, values)) == sorted(map(str, wanted)) and all(value in live for value in values)
    new, there = labelled(name, wanted), labelled(name, live)
    trees = {_label(key, name): tree for key, tree in fields.items()}
    if new is None or there is None or new.keys() != trees.keys() or len(trees) != len(fields):
        return False
    if list(new) != [label for label in there if label in new]:
        return False  # applying puts the items into the wanted order
    return all(_same_item(item, trees[label], there[label]) for label, item in new.items())


def _same_item(wanted: Any, fields: Fields, live: Any) -> bool:
    """An item's keys are its fields too; a port's protocol may be one without being said."""
    said = {key: value for key, value in live.items() if f"f:{key}" in fields and key not in wanted}
    return not (said.keys() - {"protocol"}) and _same_fields({**wanted, **said}, fields, live, "")


def _same(wanted: Any, live: Any, name: str) -> bool:
    """Whether a value that is set as a whole is there as wanted, but for what the server adds in such places."""
    if isinstance(wanted, Mapping) and isinstance(live, Mapping):
        defaults = {key: value for key, value in _DEFAULTS.get(name, {}).items() if key not in wanted}
        plain = {key: value for key, value in live.items() if defaults.get(key, _NOTHING) != value}
        return wanted.keys() == plain.keys() and all(_same(item, plain[key], key) for key, item in wanted.items())
    if isinstance(wanted, list) and isinstance(live, list):
        return len(wanted) == len(live) and all(_same(a, b, "") for a, b in zip(wanted, live, strict=True))
    if live is None and wanted in EMPTY:
        return True
    return type(wanted) is type(live) and bool(wanted == live)


__all__ = ["EMPTY", "OURS", "FieldOwners", "Fields", "Owner"]
