"""What one version of the router knows: its plugins, their parameters, configuration fields and values keys.

The tables hold what was read off running routers; ``lint-router.yaml`` holds what they do not say, first of all what
``main`` became after the commit that they were made from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from mmdeploy.catalog import Catalog
from mmdeploy.lint.routers import routers
from mmdeploy.lint.source import dig
from mmdeploy.lint.tables import Row, age, has, notes, rows

if TYPE_CHECKING:
    from mmdeploy.lint.index import Deployment

LISTED = "[]"
"""What stands for "an item of this list" in a dotted path of the tables."""


@dataclass(frozen=True)
class Name:
    """What became of a name in one version: ``known``, ``removed``, ``later``, or ``unknown`` to every version read."""

    state: str
    row: Row | None = None
    instead: str = ""
    sure: bool = True
    """False where a removal was announced but not read in the source."""


class RouterFacts:
    """Answers for one version."""

    def __init__(self, catalog: Catalog, version: str) -> None:
        self.catalog = catalog
        self.version = version
        self.routers = routers(catalog.blueprints)
        self.main = version == self.routers.rolling

    def has(self, gate: str) -> bool:
        """Whether this version has a change, by its name in ``gates``."""
        return self.routers.has(gate, self.version)

    @cached_property
    def lint(self) -> Mapping[str, Any]:
        """``lint-router.yaml``."""
        return notes(self.catalog.blueprints, "router")

    def fact(self, *path: str) -> Any:
        """A value of ``lint-router.yaml``."""
        return dig(self.lint, path)

    def _rows(self, table: str) -> tuple[Row, ...]:
        return rows(self.catalog.blueprints, table)

    @cached_property
    def _plugins(self) -> Mapping[str, list[Row]]:
        return _grouped(self._rows("router-plugins"), "type")

    @cached_property
    def _parameters(self) -> Mapping[str, list[Row]]:
        return _grouped(self._rows("router-plugin-parameters"), "type")

    @cached_property
    def fields(self) -> Mapping[str, Row]:
        """Envelope fields of every version, by dotted path."""
        return {row["field"]: row for row in self._rows("router-config-fields")}

    @cached_property
    def keys(self) -> Mapping[str, Row]:
        """Values keys of every version, by dotted path."""
        return {row["key"]: row for row in self._rows("router-chart-values")}

    @cached_property
    def flags(self) -> Mapping[str, Row]:
        """Flags of the endpoint picker of every version."""
        return {row["flag"]: row for row in self._rows("router-flags") if row["program"] == "epp"}

    @cached_property
    def plugin_types(self) -> list[str]:
        """Types that this version registers."""
        return [kind for kind in self._plugins if self.plugin(kind).state == "known"]

    def plugin(self, kind: str) -> Name:
        """What became of a plugin type."""
        found = self._plugins.get(kind, [])
        gone = self.fact("main", "plugins", "removed", kind) if self.main else None
        if isinstance(gone, Mapping):
            return Name("removed", found[0] if found else None, str(gone.get("instead", "")), gone.get("sure", True))
        row = next((row for row in found if has(row, self.version)), found[-1] if found else None)
        return Name(age(found, self.version), row, row["replaced_by"] if row else "")

    def kind(self, kind: str) -> str:
        """``filter``, ``scorer``, ``picker``, ``handler``, ``decider``, …; empty for a type that no version has."""
        found = self._plugins.get(kind)
        return found[0]["kind"] if found else ""

    def parameters(self, kind: str) -> Mapping[str, Row]:
        """Parameters of a plugin type in every version, by dotted path."""
        return {row["parameter"]: row for row in self._parameters.get(kind, ())}

    def parameter(self, kind: str, path: str) -> Name:
        """What became of one parameter, its path spelled as in the table."""
        row = self.parameters(kind).get(path)
        gone = self.fact("main", "parameters", "removed", kind) if self.main else None
        if isinstance(gone, Mapping):
            parent = next((name for name in gone if path == name or path.startswith(f"{name}.")), None)
            if parent is not None:
                return Name("removed", row, str(gone[parent]))
        if row is None:
            pending = self.fact("main", "parameters", "pending", kind) if self.main else None
            return Name("pending" if path in (pending or ()) else "unknown")
        return Name(age([row], self.version), row)

    def field(self, path: str, v1: bool) -> Name:
        """What became of an envelope field; ``v1`` under apiVersion llm-d.ai/v1."""
        row = self.fields.get(path)
        if self.main:
            removed = self.fact("main", "fields", "removed") or {}
            renamed = (self.fact("main", "fields", "renamedInV1") or {}) if v1 else {}
            if path in renamed:
                return Name("removed", row, str(renamed[path]), sure=False)
            root = path.split(".")[0]
            if root in removed:
                return Name("removed", row, str(removed[root]))
            if any(path == name or path.startswith(f"{name}.") for name in self.fact("main", "fields", "added") or ()):
                return Name("added", row)
        if row is None:
            return Name("unknown")
        state = age([row], self.version)
        return Name("later" if row["first"] == "none" else state, row)

    @cached_property
    def known_keys(self) -> frozenset[str]:
        """Values keys that the charts of this version read."""
        added = (self.fact("main", "values", "added") or ()) if self.main else ()
        return frozenset([key for key, row in self.keys.items() if has(row, self.version)] + list(added))


def _grouped(found: tuple[Row, ...], column: str) -> Mapping[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in found:
        groups.setdefault(row[column], []).append(row)
    return groups


@cache
def facts_of(catalog: Catalog, version: str) -> RouterFacts:
    """The facts of one version."""
    return RouterFacts(catalog, version)


def facts(deployment: Deployment) -> RouterFacts:
    """What the router of a deployment knows."""
    return facts_of(deployment.catalog, deployment.release.router)


def children(paths: Mapping[str, Any], parent: str) -> Iterator[str]:
    """Dotted paths one step below ``parent`` (empty for the top)."""
    prefix = f"{parent}." if parent else ""
    for path in paths:
        if path.startswith(prefix) and path != parent and "." not in path[len(prefix) :]:
            yield path
