"""Metrics of one process, in Prometheus' text form, with the habits that matter to whoever reads them.

Labelled series that nobody has counted are absent, not 0, unless their values are known beforehand. Counters of
Python's client have a sibling ``_created``. What is scraped may be older than what happened: see `Registry.lag`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of a histogram's buckets where the catalog gives none."""

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Family:
    """One metric: what it is called and which labels its series have."""

    name: str
    kind: str
    labels: tuple[str, ...]
    each: Mapping[str, Sequence[str]]
    """Labels whose values are known from the start."""
    late: bool
    buckets: tuple[float, ...]


@dataclass
class _Histogram:
    counts: list[int]
    total: float = 0.0


@dataclass
class _Series:
    created: float
    value: float = 0.0
    histogram: _Histogram | None = None


@dataclass
class Registry:
    """The series of one process."""

    families: Mapping[str, Family]
    common: Mapping[str, str]
    """Labels of every series, with their values; families that lack one of them do not show it."""
    created: bool
    clock: Callable[[], float]
    lag: float = 0.0
    """Seconds between flushes: what is scraped is the state at the last one. 0: as it is."""
    skew: float = 0.0
    """Seconds by which this process's clock is ahead."""
    _series: dict[str, dict[Labels, _Series]] = field(default_factory=dict)
    _shown: str | None = None
    _flush: float = 0.0

    def __post_init__(self) -> None:
        for key, family in self.families.items():
            self._series[key] = {}
            if not family.late:
                names = [name for name in family.labels if name not in self.common]
                for values in product(*(family.each.get(name, ("",)) for name in names)):
                    self._at(key, dict(zip(names, values, strict=True)))
        self._settle()

    def add(self, key: str, amount: float = 1, /, **labels: str) -> None:
        """Count ``amount``. A family that this release does not have is passed over."""
        if key in self.families:
            self._settle()
            self._at(key, labels).value += amount

    def set(self, key: str, value: float, /, **labels: str) -> None:
        """Set a gauge."""
        if key in self.families:
            self._settle()
            self._at(key, labels).value = value

    def observe(self, key: str, value: float, /, **labels: str) -> None:
        """Put one value into a histogram."""
        if key in self.families:
            self._settle()
            histogram = self._at(key, labels).histogram
            assert histogram is not None
            histogram.counts[bisect_left(self.families[key].buckets, value)] += 1
            histogram.total += value

    def value(self, key: str, **labels: str) -> float:
        """A counter or gauge as it is now (all its series together without ``labels``); a histogram's sum."""
        wanted = set(labels.items())
        found = [series for at, series in self._series.get(key, {}).items() if wanted <= set(at)]
        return sum(series.histogram.total if series.histogram else series.value for series in found)

    def forget_all(self, label: str, value: str) -> None:
        """Drop every series with that label."""
        for found in self._series.values():
            for at in [at for at in found if (label, value) in at]:
                del found[at]

    def text(self) -> str:
        """What a scrape gets."""
        self._settle()
        return self._shown if self._shown is not None else self._rendered()

    def _settle(self) -> None:
        """Flush, where the time for it has passed since the last change."""
        if self.lag and self.clock() >= self._flush:
            self._shown = self._rendered()
            self._flush = (math.floor(self.clock() / self.lag) + 1) * self.lag

    def _labels(self, key: str, labels: Mapping[str, str]) -> Labels:
        every = {**self.common, **labels}
        return tuple((name, str(every.get(name, ""))) for name in self.families[key].labels)

    def _at(self, key: str, labels: Mapping[str, str]) -> _Series:
        place = self._labels(key, labels)
        series = self._series[key].get(place)
        if series is None:
            family = self.families[key]
            histogram = _Histogram([0] * (len(family.buckets) + 1)) if family.kind == "histogram" else None
            series = self._series[key][place] = _Series(self.clock() + self.skew, histogram=histogram)
        return series

    def _rendered(self) -> str:
        lines: list[str] = []
        for key, family in self.families.items():
            found = self._series[key]
            if not found:
                continue
            base = family.name.removesuffix("_total") if family.kind == "counter" else family.name
            lines += (f"# HELP {family.name} simulated", f"# TYPE {family.name} {family.kind}")
            for labels, series in found.items():
                if series.histogram is None:
                    lines.append(f"{family.name}{_braces(labels)} {_number(series.value)}")
                else:
                    lines += _buckets(family, labels, series.histogram)
            if self.created and family.kind != "gauge":
                lines += (f"# HELP {base}_created simulated", f"# TYPE {base}_created gauge")
                lines += [f"{base}_created{_braces(at)} {series.created!r}" for at, series in found.items()]
        return "\n".join(lines) + "\n"


def _buckets(family: Family, labels: Labels, histogram: _Histogram) -> list[str]:
    lines, below = [], 0
    for bound, count in zip((*family.buckets, math.inf), histogram.counts, strict=True):
        below += count
        at = (*labels, ("le", "+Inf" if bound == math.inf else _number(bound)))
        lines.append(f"{family.name}_bucket{_braces(at)} {below}")
    lines.append(f"{family.name}_sum{_braces(labels)} {_number(histogram.total)}")
    lines.append(f"{family.name}_count{_braces(labels)} {below}")
    return lines


def _braces(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}" if labels else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    return str(float(value)) if value != int(value) else f"{int(value)}.0"


def families(section: Mapping[str, Any], version: tuple[int, ...], having: frozenset[str]) -> dict[str, Family]:
    """The families of one section of ``catalog/rehearse.yaml`` that a process of this version has.

    ``version`` empty is newer than every release; ``having`` are the words that ``needs`` may ask for.
    """
    found: dict[str, Family] = {}
    for key, entry in section.items():
        if not isinstance(entry, Mapping):
            continue
        if entry.get("needs", "") not in ("", *having) or not _in_time(entry, version):
            continue
        common = [name for name in section["common"] if name not in entry.get("without", ())]
        each = entry.get("each", {})
        found[key] = Family(
            entry["name"],
            entry["kind"],
            (*common, *each, *entry.get("labels", ())),
            each,
            bool(entry.get("late")),
            tuple(entry.get("buckets", SECONDS)) if entry["kind"] == "histogram" else (),
        )
    return found


def _in_time(entry: Mapping[str, Any], version: tuple[int, ...]) -> bool:
    if not version:
        return "last" not in entry
    return numbers(str(entry.get("first", "0"))) <= version <= numbers(str(entry.get("last", "999999")))


def numbers(version: str) -> tuple[int, ...]:
    """``v0.5.15.post1-cu130`` as (0, 5, 15); empty for text that is no version."""
    found: list[int] = []
    for part in version.strip().removeprefix("v").partition("-")[0].partition("@")[0].split("."):
        if not part.isdigit():
            break
        found.append(int(part))
    return tuple(found)
