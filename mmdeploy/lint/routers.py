"""The router's versions by age, and what changed between them: ``routers`` and ``gates`` of ``lint-router.yaml``.

Rules ask for a change by its name; in which version it came stands in the catalog alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mmdeploy.errors import BlueprintError
from mmdeploy.lint.tables import notes


@dataclass(frozen=True)
class Gate:
    """A change of the router."""

    since: str | None
    """First version that has it; None where the oldest has it."""
    until: str | None
    """Last version that has it; None where the newest has it."""
    ended: str | None
    """First version without it, after ``until``."""


@dataclass(frozen=True)
class Routers:
    """Versions of the router that the catalog knows."""

    versions: tuple[str, ...]
    """Oldest first; the last one is `rolling`."""
    assumed: str
    """What documents without any sign of a version are judged by."""
    rolling: str
    """The version that moves on under one name."""
    aliases: frozenset[str]
    """Tags of images and charts that mean the rolling version."""
    gates: Mapping[str, Gate]

    def of(self, tag: str) -> str | None:
        """A tag or chart version as a version; None for one that says nothing, or is older than all.

        Patches count as their minor version; anything newer than the last tagged version is the rolling one.
        """
        if tag in self.aliases:
            return self.rolling
        match = re.match(r"^v?(\d+)\.(\d+)", tag)
        if match is None:
            return None
        number, tagged = (int(match[1]), int(match[2])), self.versions[:-1]
        if number > _number(tagged[-1]):
            return self.rolling
        return next((version for version in reversed(tagged) if _number(version) <= number), None)

    def has(self, name: str, version: str) -> bool:
        """Whether a version has a change."""
        gate, at = self.gate(name), self.versions.index(version)
        late_enough = gate.since is None or at >= self.versions.index(gate.since)
        return late_enough and (gate.until is None or at <= self.versions.index(gate.until))

    def gate(self, name: str) -> Gate:
        """A change by its name. Raises `BlueprintError` for one that the catalog does not list."""
        if name not in self.gates:
            raise BlueprintError(
                f"gates does not list {name}", origin="catalog/lint-router.yaml", nearest=sorted(self.gates)
            )
        return self.gates[name]


def _number(version: str) -> tuple[int, int]:
    major, minor, *_ = re.findall(r"\d+", version)
    return int(major), int(minor)


@cache
def routers(blueprints: Path) -> Routers:
    """The router's versions. Raises `BlueprintError` for a change of a version that is not listed."""
    found = notes(blueprints, "router")
    about, versions = found["routers"], tuple(found["routers"]["versions"])
    gates = {name: _gate(name, entry, versions) for name, entry in found["gates"].items()}
    return Routers(versions, about["assumed"], versions[-1], frozenset(about["aliases"]), gates)


def _gate(name: str, entry: Mapping[str, str], versions: tuple[str, ...]) -> Gate:
    since, until = entry.get("since"), entry.get("until")
    unknown = next((version for version in (since, until) if version is not None and version not in versions), None)
    if unknown is not None or not (since or until) or until == versions[-1]:
        raise BlueprintError(
            f"gates.{name} must say since or until which version, not {unknown or until!r}",
            origin="catalog/lint-router.yaml", nearest=versions[:-1],
        )  # fmt: skip
    return Gate(since, until, versions[versions.index(until) + 1] if until else None)


__all__ = ["Gate", "Routers", "routers"]
