"""What one engine release knows: flags, configuration keys, variables and connectors, from the catalog's tables.

The tables come from a list of releases. A release between two of them is given what either neighbour has, so that
nothing is called wrong that was only not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from mmdeploy.lint.pods import Engine
from mmdeploy.lint.tables import NEWEST, Row, Tables, Version, rows, version

_ALIAS = re.compile(r"alias (\S+) (from|gone in) (\S+)")
_CHANGE = re.compile(r"(?:choices|known values) (gained|lost) (.+?) in (\d[\w.]*)")
_TYPE = re.compile(r"type (\w+) until (\d[\w.]*), (\w+) from")
_UNTIL = re.compile(r"\(until (\d[\w.]*): ([^)]*)\)")
_SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True)
class Spelling:
    """A name that a flag has, and the releases that know it under this name."""

    row: Row
    first: str
    last: str
    ended: str = ""
    """The first release without it, where the table says that instead of the last one with it."""


@dataclass(frozen=True)
class Knowledge:
    """Whether a release knows something: ``known``, ``removed``, ``later``, or ``unknown`` to every release."""

    state: str
    row: Row | None = None
    first: str = ""
    last: str = ""


@cache
def _spellings(directory: Path, table: str) -> Mapping[str, tuple[Spelling, ...]]:
    found: dict[str, list[Spelling]] = {}
    for row in rows(directory, table):
        limits = {name: (word, at) for name, word, at in _ALIAS.findall(row["changed"])}
        for name in (row["flag"], *row["aliases"].split()):
            word, at = limits.pop(name, ("", ""))
            first = at if word == "from" else row["first"]
            found.setdefault(name, []).append(Spelling(row, first, row["last"], at if word == "gone in" else ""))
        for name, (word, at) in limits.items():
            if word == "gone in":
                found.setdefault(name, []).append(Spelling(row, row["first"], row["last"], at))
    return {name: tuple(spellings) for name, spellings in found.items()}


class EngineFacts:
    """Answers for the engines of one kind."""

    def __init__(self, tables: Tables, kind: str) -> None:
        self.tables = tables
        self.kind = kind
        self.notes = tables.notes("engine")

    @cached_property
    def releases(self) -> Sequence[Version]:
        """Releases that the tables were read from, oldest first."""
        return sorted(version(str(text)) for text in self.notes["releases"][self.kind])

    def _span(self, at: str) -> tuple[Version, Version]:
        """The releases read just below and just above ``at`` (twice the same where it was read itself)."""
        now = version(at)
        below = [item for item in self.releases if item <= now] or [self.releases[0]]
        above = [item for item in self.releases if item >= now] or [self.releases[-1]]
        return below[-1], above[0]

    def state(self, found: Sequence[Spelling], at: str | None) -> Knowledge:
        """What a release (None: one that nothing tells of) knows of a thing with these spellings."""
        real = [item for item in found if item.first != "none"]
        if not real:
            return Knowledge("unknown")
        if at is None or version(at) < self.releases[0]:  # older than anything that was read: nothing is claimed
            return Knowledge("known", real[-1].row, real[-1].first, real[-1].last)
        low, high = self._span(at)
        for item in real:
            first = version(item.first)
            last = version(item.last) if item.last else NEWEST
            ended = version(item.ended) if item.ended else NEWEST
            if any(first <= now <= last and now < ended for now in {low, high}):
                return Knowledge("known", item.row, item.first, item.last)
        past = [item for item in real if version(item.first) <= high]
        if not past:
            return Knowledge("later", real[0].row, real[0].first, real[0].last)
        gone = past[-1]
        return Knowledge("removed", gone.row, gone.first, gone.last or f"the release before {gone.ended}")

    def flag(self, name: str, at: str | None) -> Knowledge:
        """A flag by its name, an alias, or the beginning that only one flag has."""
        known = _spellings(self.tables.blueprints, f"{self.kind}-flags")
        if name in known:
            return self.state(known[name], at)
        if re.match(r"^-O\S*$", name) or name in self.notes["flags"]["alsoKnown"][self.kind]:
            return Knowledge("known")
        if name.startswith("--"):
            longer = [self.state(item, at) for text, item in known.items() if text.startswith(name)]
            flags = {item.row["flag"]: item for item in longer if item.state == "known" and item.row}
            if len(flags) == 1:
                return next(iter(flags.values()))
        return Knowledge("unknown")

    def flag_names(self) -> Sequence[str]:
        """Every flag of every release."""
        return tuple(_spellings(self.tables.blueprints, f"{self.kind}-flags"))

    def key(self, flag: str, key: str, at: str | None, connector: str = "") -> Knowledge:
        """A key of a JSON flag (``connector``: of that connector's free-form configuration)."""
        found = self.tables.of("vllm-config-keys", "flag", "connector", "key").get((flag, connector, key), ())
        return self.state([_row_spelling(row) for row in found], at)

    def keys(self, flag: str, connector: str = "") -> Iterator[Row]:
        """Every key of a JSON flag, or of a connector's free-form configuration."""
        return iter(self.tables.of("vllm-config-keys", "flag", "connector").get((flag, connector), ()))

    def variable(self, name: str, at: str | None) -> Knowledge:
        """An environment variable of vLLM."""
        found = self.tables.of("vllm-env", "name").get((name,), ())
        return self.state([_row_spelling(row) for row in found], at)

    def variable_names(self) -> Sequence[str]:
        """Every environment variable of every release."""
        return tuple(row["name"] for row in rows(self.tables.blueprints, "vllm-env"))

    def connector(self, kind: str, name: str, at: str | None) -> Knowledge:
        """A connector by name; ``kind`` is ``ec`` or ``kv``."""
        found = self.tables.of("vllm-connectors", "kind", "connector").get((kind, name), ())
        return self.state([_row_spelling(row) for row in found], at)

    def connectors(self, kind: str, at: str | None) -> list[str]:
        """Names of connectors that a release has."""
        names = [row["connector"] for row in rows(self.tables.blueprints, "vllm-connectors") if row["kind"] == kind]
        return [name for name in names if self.connector(kind, name, at).state == "known"]

    def type_at(self, row: Row, at: str | None) -> str:
        """The type of a flag or key in a release."""
        for before, until, after in _TYPE.findall(_changes(row)):
            if at is not None and self._span(at)[0] <= version(until):
                return str(before)
            return str(after)
        return row["type"]

    def choices_at(self, row: Row, at: str | None) -> frozenset[str]:
        """Values that a release knows; with no release, those of any."""
        changes = _changes(row)
        found = set(row["choices"].split())
        for until, listed in _UNTIL.findall(changes):
            if at is None or self._span(at)[0] <= version(until):
                found |= set(listed.split())
        now = self._span(at)[1] if at is not None else None
        for word, names, when in reversed(_CHANGE.findall(changes)):
            if word == "lost" and (now is None or now < version(when)):
                found |= set(names.split())
            elif word == "gained" and now is not None and now < version(when):
                found -= set(names.split())
        return frozenset(found)

    def default_at(self, row: Row, at: str) -> str:
        """The default of a key in a release."""
        for before, until in re.findall(r"default (\S+) until (\d[\w.]*)", _changes(row)):
            if self._span(at)[0] <= version(until):
                return str(before)
        return row["default"]


def _row_spelling(row: Row) -> Spelling:
    return Spelling(row, row["first"], row["last"])


def _changes(row: Row) -> str:
    return row.get("changed") or row.get("notes") or ""


def facts_of(tables: Tables, engine: Engine) -> EngineFacts:
    """Facts about the kind of an engine."""
    return _facts(tables.blueprints, engine.kind)


@cache
def _facts(blueprints: Path, kind: str) -> EngineFacts:
    return EngineFacts(Tables(blueprints), kind)


def before(engine: Engine, release: str) -> bool:
    """Whether an engine is known to be older than a release."""
    return engine.version is not None and version(engine.version) < version(release)


def at_least(engine: Engine, release: str) -> bool:
    """Whether an engine is known to be a release or newer."""
    return engine.version is not None and version(engine.version) >= version(release)


def whole_number(text: str) -> int | None:
    """A number with vLLM's suffixes: ``32k`` is 32000, ``32K`` is 32768."""
    match = re.fullmatch(r"([+-]?\d+(?:\.\d+)?)([kmgtKMGT]?)", text)
    if match is None:
        return None
    return int(float(match[1]) * _SUFFIXES.get(match[2], 1))


@dataclass(frozen=True)
class ModelName:
    """What the catalog makes of a served model's name."""

    family: str = ""
    architecture: str = ""


def model_of(tables: Tables, models: Mapping[str, Any], name: str | None) -> ModelName:
    """Family and architecture of a model by its name; empty where nothing fits."""
    if name is None:
        return ModelName()
    model = models.get(name)
    if model is not None:
        return ModelName(model.family, model.architecture)
    short = name.rstrip("/").rsplit("/", 1)[-1].lower()
    for entry in tables.notes("engine")["names"]["patterns"]:
        if re.search(entry["match"], short):
            return ModelName(entry["family"], entry["architecture"])
    return ModelName()
