"""Differences between two metrics pages of one endpoint.

Three things are told apart that all look like zero: a counter that did not move, a family that the page does not have,
and a page that could not be read. A process that started anew in between is noticed, not added up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mmdeploy.catalog.metrics import MetricFamily
    from mmdeploy.verify.evidence import Scrape

Series = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Change:
    """By how much something moved."""

    value: float | None
    """None where it is not known."""
    why: str = ""
    """Why it is not known: a phrase such as ``decode-0 restarted``."""
    restarted: bool = False
    absent: bool = False
    """The page is there, the family is not."""

    @property
    def known(self) -> bool:
        """Whether there is a number."""
        return self.value is not None

    @property
    def number(self) -> int:
        """The value as a whole number; 0 where it is not known, for sums of what is known."""
        return round(self.value or 0)


def change(
    before: Scrape | None,
    after: Scrape | None,
    family: MetricFamily,
    *,
    part: str = "",
    restarts: Iterable[str] = (),
    labels: Mapping[str, str] | None = None,
) -> Change:
    """By how much a counter (or ``part`` ``sum`` or ``count`` of a histogram) moved, over all series with ``labels``.

    ``labels`` picks series. A series that appears was at zero: engines and pickers create a labelled series with its
    first event.
    """
    if before is None or after is None:
        return Change(None, "its metrics were not read")
    for page in (before, after):
        if page.missing is not None:
            return Change(
                None, f"{page.endpoint}'s metrics are {page.missing}" + (f" ({page.detail})" if page.detail else "")
            )
    name = present(after, family, part) or present(before, family, part)
    if name is None:
        return Change(None, f"{after.endpoint} has no {family.names[0]}", absent=True)
    if restarted(before, after, restarts):
        return Change(None, f"{after.endpoint} restarted in between", restarted=True)
    old, new = _series(before, name, labels or {}), _series(after, name, labels or {})
    if any(key not in new or new[key] < value for key, value in old.items()):
        return Change(None, f"{after.endpoint} restarted in between", restarted=True)
    return Change(sum(new.values()) - sum(old.values()))


def restarted(before: Scrape, after: Scrape, markers: Iterable[str]) -> bool:
    """Whether a line that changes only with a new process has changed; one that stands at 0 was not set yet."""
    for marker in markers:
        old, new = _series(before, marker, {}), _series(after, marker, {})
        if any(value and key in new and new[key] != value for key, value in old.items()):
            return True
    return False


def value(page: Scrape | None, family: MetricFamily, *, part: str = "", **labels: str) -> float | None:
    """What a gauge or counter stands at, over all series with ``labels``; None where the page does not say."""
    name = present(page, family, part) if page is not None and page.readable else None
    if page is None or name is None:
        return None
    found = _series(page, name, labels)
    return sum(found.values()) if found else None


def by_label(page: Scrape | None, family: MetricFamily, label: str) -> dict[str, float]:
    """Value by a label's value, summed over the other labels."""
    found: dict[str, float] = {}
    name = present(page, family) if page is not None and page.readable else None
    for sample in page.by_name.get(name, ()) if page is not None and name is not None else ():
        if label in sample.labels:
            found[sample.labels[label]] = found.get(sample.labels[label], 0) + sample.value
    return found


def present(page: Scrape | None, family: MetricFamily, part: str = "") -> str | None:
    """The name under which a page has a family's lines: the first of its names, so that no alias is counted twice.

    A family that is announced without a series counts as present: it is there, and nothing has happened yet.
    """
    if page is None:
        return None
    lines = page.by_name
    part = part or ("count" if family.kind == "histogram" else "")
    for name in family.names:
        line = f"{name}_{part}" if part else name
        if line in lines or name in page.families or name.removesuffix("_total") in page.families:
            return line
    return None


def _series(page: Scrape, name: str, labels: Mapping[str, str]) -> dict[Series, float]:
    return {
        tuple(sorted(sample.labels.items())): sample.value
        for sample in page.by_name.get(name, ())
        if all(sample.labels.get(key) == text for key, text in labels.items())
    }
