"""Tables of the catalog, by release: what router and engines know.

Versions of the router are those of `mmdeploy.lint.routers`, those of engines dotted numbers. An empty ``last`` means
that the newest release read still has it.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

Row = Mapping[str, str]
Version = tuple[int, ...]

NEWEST: Version = (1 << 30,)


@cache
def rows(directory: Path, name: str) -> tuple[Row, ...]:
    """All rows of a table."""
    with (directory / "catalog" / "tables" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


@cache
def index(directory: Path, name: str, *columns: str) -> Mapping[tuple[str, ...], tuple[Row, ...]]:
    """Rows of a table by the values of some columns."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows(directory, name):
        found.setdefault(tuple(row[column] for column in columns), []).append(row)
    return {key: tuple(value) for key, value in found.items()}


def version(text: str) -> Version:
    """``v0.30.1`` as numbers that compare; ``main`` is newer than all, text without numbers is oldest."""
    if text in ("main", "nightly", "latest"):
        return NEWEST
    return tuple(int(number) for number in re.findall(r"\d+", text.split("-")[0].split("+")[0]))[:4]


def has(row: Row, at: str) -> bool:
    """Whether the thing of a row exists in version ``at``."""
    if row["first"] == "none":
        return False
    now = version(at)
    return version(row["first"]) <= now and (not row["last"] or now <= version(row["last"]))


def age(found: Sequence[Row], at: str) -> str:
    """``known``, ``removed`` or ``later`` for rows of one thing in version ``at``; ``unknown`` without rows."""
    if not found or all(row["first"] == "none" for row in found):
        return "unknown"
    if any(has(row, at) for row in found):
        return "known"
    return "later" if all(version(row["first"]) > version(at) for row in found if row["first"] != "none") else "removed"


@cache
def notes(directory: Path, name: str) -> Mapping[str, Any]:
    """``catalog/lint-NAME.yaml``: what rules need to know beyond the tables."""
    text = (directory / "catalog" / f"lint-{name}.yaml").read_text(encoding="utf-8")
    value: Mapping[str, Any] = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return value


class Tables:
    """The tables under one directory of blueprints."""

    def __init__(self, blueprints: Path) -> None:
        self.blueprints = blueprints

    def notes(self, name: str) -> Mapping[str, Any]:
        """``catalog/lint-NAME.yaml``."""
        return notes(self.blueprints, name)

    def of(self, name: str, *columns: str) -> Mapping[tuple[str, ...], tuple[Row, ...]]:
        """A table by the values of some columns."""
        return index(self.blueprints, name, *columns)

    def vllm_flag(self, name: str) -> Row | None:
        """The row of an engine flag by its name, an alias (a negation, a short form) or an unambiguous prefix."""
        return _flag(self.blueprints, "vllm-flags", name)


@cache
def _aliases(directory: Path, table: str) -> Mapping[str, Row]:
    found: dict[str, Row] = {}
    for row in rows(directory, table):
        for alias in row["aliases"].split():
            found.setdefault(alias, row)
    found.update({row["flag"]: row for row in rows(directory, table)})
    return found


def _flag(directory: Path, table: str, name: str) -> Row | None:
    known = _aliases(directory, table)
    if name in known:
        return known[name]
    if not name.startswith("--"):
        return None
    longer = {row["flag"]: row for alias, row in known.items() if alias.startswith(name)}
    return next(iter(longer.values())) if len(longer) == 1 else None
