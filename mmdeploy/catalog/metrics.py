"""Metric families by engine and router, under all the names that they have had: ``blueprints/catalog/metrics.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from mmdeploy.errors import BlueprintError

if TYPE_CHECKING:
    from mmdeploy.catalog.catalog import Catalog

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True)
class MetricFamily:
    """Something that is counted."""

    key: str
    """What mmdeploy calls it: ``requests``, ``prefixHits``, ``decisions``."""
    kind: Kind
    names: tuple[str, ...]
    """As exposed, the present name first; histograms without ``_sum`` and ``_count``."""
    labels: tuple[str, ...] = ()
    first: str = ""
    last: str = ""
    counts: str = ""
    restless: bool = False
    """Moves without any request, so that nobody waits for it to stand still."""
    appears: str = ""
    """``first event`` for a family that a page does not even announce before something happened."""
    source: str = ""

    @property
    def samples(self) -> frozenset[str]:
        """Names of the lines that are kept."""
        if self.kind == "histogram":
            return frozenset(f"{name}_{part}" for name in self.names for part in ("sum", "count"))
        return frozenset(self.names)


@dataclass(frozen=True)
class Page:
    """What is kept of one kind of metrics page."""

    prefixes: tuple[str, ...]
    """Beginnings of the names on such a page; a page without any of them belongs to another program."""
    families: Mapping[str, MetricFamily]
    restarts: tuple[str, ...]
    """Lines that change when the process starts anew."""
    paths: Mapping[str, str]

    @cached_property
    def steady(self) -> frozenset[str]:
        """Names of the lines that move with requests only."""
        moving = (family for family in self.families.values() if family.kind != "gauge" and not family.restless)
        return frozenset().union(*(family.samples for family in moving))

    @cached_property
    def kept(self) -> frozenset[str]:
        """Names of all lines that are kept."""
        return frozenset(self.restarts).union(*(family.samples for family in self.families.values()))


class Metrics:
    """The whole table. Raises `BlueprintError` with file and line for what is wrong in it."""

    def __init__(self, catalog: Catalog) -> None:
        """Reads the file of ``catalog``."""
        self._document = catalog.document("catalog", "metrics.yaml")
        if not isinstance(self._document.value, dict):
            raise BlueprintError("must hold a mapping", origin=f"{self._document.name}:1:1")
        self._table: Mapping[str, Any] = self._document.value

    @property
    def servers(self) -> tuple[str, ...]:
        """Engines that the table knows."""
        return tuple(self._table["engines"])

    def engine(self, server: str, role: str) -> Page:
        """What a pod of that role says."""
        path: tuple[str, ...] = ("engines", server)
        entry = self._table["engines"][server]
        own = entry.get("roles", {}).get(role)
        if own is not None:
            path = (*path, "roles", role)
        return self._page({**entry, **(own or {})}, path, (entry["prefix"],))

    @cached_property
    def picker(self) -> Page:
        """What an endpoint picker says."""
        entry = self._table["router"]
        return self._page(entry, ("router",), tuple(entry["prefixes"]))

    def decision(self, topology: str, media: bool) -> str | None:
        """The decision that the picker counts for a request; None where it counts none."""
        found: str | None = self._table["decisions"].get(topology, {}).get("media" if media else "text")
        return found

    @property
    def headers(self) -> Mapping[str, str]:
        """Request headers: ``isolation``, ``requestId``, ``prefiller``, ``encoders``."""
        found: Mapping[str, str] = self._table["headers"]
        return found

    @property
    def affinity_plugins(self) -> frozenset[str]:
        """Plugin types that make repeats go where their cache is."""
        return frozenset(self._table["affinityPlugins"]["types"])

    def picks_own_encoders(self, server: str) -> bool:
        """Whether the language server finds its encoders itself, past the router."""
        return server in self._table["ownEncoders"]["servers"]

    @property
    def patience(self) -> Mapping[str, float]:
        """Seconds: ``quietSeconds``, ``firstWait``, ``longestWait``, ``settleSeconds``, ``pageSeconds``."""
        found: Mapping[str, float] = self._table["patience"]
        return found

    @property
    def tolerances(self) -> Mapping[str, float]:
        """``wholeBlocks`` and ``leastHitShare``."""
        found: Mapping[str, float] = self._table["tolerances"]
        return found

    def _page(self, entry: Mapping[str, Any], path: tuple[str, ...], prefixes: tuple[str, ...]) -> Page:
        families = {key: self._family(key, said, (*path, "families", key)) for key, said in entry["families"].items()}
        return Page(prefixes, families, tuple(entry["restarts"]), entry.get("paths", {}))

    def _family(self, key: str, said: Mapping[str, Any], path: tuple[str, ...]) -> MetricFamily:
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in said.items()
        }
        try:
            return MetricFamily(key=key, **values)
        except TypeError as problem:
            raise BlueprintError(f"{key}: {problem}", origin=self._document.origin(path)) from None
