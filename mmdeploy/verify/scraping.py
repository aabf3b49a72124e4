"""Metrics pages: read, restricted to what the catalog names, and parsed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from mmdeploy.verify.evidence import Missing, Sample, Scrape

if TYPE_CHECKING:
    from mmdeploy.catalog.metrics import Page
    from mmdeploy.verify.transport import Answer

_STATUS: Mapping[int, Missing] = {401: "unauthorised", 403: "unauthorised", 404: "not found"}
_LARGEST = 2.0**63
"""What no counter reaches: a byte counter takes years to at 100 GB/s."""
_ANNOUNCED = re.compile(r"^# TYPE[ \t]+(\S+)", re.MULTILINE)
KEPT_FAMILIES = 400
"""Names of families that are kept of one page; an engine has about a hundred."""


def page(name: str, moment: str, at: float, answer: Answer, kept: Page) -> Scrape:
    """The page that an answer holds, or why there is none."""
    return Scraper(name, kept).page(moment, at, answer)


class Scraper:
    """The pages of one endpoint, one after the other.

    A run reads each page some dozen times, and most of its lines are the same again: they are not parsed anew. A
    picker's page may have thousands, as it counts each client apart.
    """

    def __init__(self, name: str, kept: Page) -> None:
        self._name, self._kept = name, kept
        self._body = b""
        self._last: Scrape | None = None
        self._lines: dict[str, Sample] = {}

    def page(self, moment: str, at: float, answer: Answer) -> Scrape:
        """The page that an answer holds, or why there is none."""
        if answer.status is None or answer.trouble:
            detail = f"{answer.trouble}: {answer.detail}".strip(": ")
            return Scrape(self._name, moment, at, missing="unreachable", detail=detail)
        if answer.status != 200:
            why = _STATUS.get(answer.status, "failed")
            return Scrape(self._name, moment, at, missing=why, detail=f"HTTP {answer.status}")
        body = answer.body
        if self._last is None or body != self._body:
            self._body, self._last = body, self._read(body.decode("utf-8", "replace"))
        return replace(self._last, moment=moment, at=at)

    def _read(self, text: str) -> Scrape:
        kept = self._kept
        families = tuple(sorted(_families(text)))
        own = tuple(item for item in families if item.startswith(kept.prefixes))[:KEPT_FAMILIES]
        if not own:
            detail = _other(text, families, kept)
            return Scrape(self._name, "", 0, families=families[:KEPT_FAMILIES], missing="garbled", detail=detail)
        try:
            samples = tuple(self._samples(text))
        except (ValueError, LookupError, TypeError) as problem:
            return Scrape(self._name, "", 0, missing="garbled", detail=f"cannot be parsed: {problem}")
        return Scrape(self._name, "", 0, samples, own)

    def _samples(self, text: str) -> Iterator[Sample]:
        """The kept lines. A gauge that is no number, as one is that was never set, is left out. Raises ValueError for a
        counter that is none. A page may have thousands of others; they are left out before parsing, which is what
        costs."""
        kept, known, self._lines = self._kept, self._lines, {}
        for line in text.splitlines():
            if (name := _name(line)) not in kept.kept:
                continue
            sample = self._lines[line] = known.get(line) or _parsed(name, line)
            if -_LARGEST < sample.value < _LARGEST:
                yield sample
            elif name in kept.steady:
                raise ValueError(f"{name} stands at {sample.value}, which no counter does")


def _parsed(name: str, line: str) -> Sample:
    """What one line says. Raises ValueError."""
    end = line.rfind("}") + 1 or line.find(" ")
    value, *time = line[end:].split() or [""]
    if len(time) > 1:
        raise ValueError(f"{line[:80]!r} has more than a value and a time")
    return Sample(name, _labels(line[:end]), float(value))


@lru_cache(maxsize=1 << 10)
def _labels(series: str) -> Mapping[str, str]:
    """Labels of a series, to be read only: the pods of a deployment have the same ones, at every moment."""
    from prometheus_client.parser import text_string_to_metric_families

    (family,) = text_string_to_metric_families(f"{series} 0\n")
    (sample,) = family.samples
    return dict(sample.labels)


def _name(line: str) -> str:
    """The name that a line of a page begins with; ``""`` for a remark."""
    return "" if line.startswith("#") else line.partition("{")[0].partition(" ")[0].strip()


def _families(text: str) -> Iterable[str]:
    """Families that the page announces, or has without announcing them; ``_created`` siblings are no families."""
    found = set(_ANNOUNCED.findall(text))
    if not found:
        lines = text.splitlines()
        found = {name for line in lines if (name := _name(line)) and line.rpartition(" ")[2][:1].isdigit()}
    return {name for name in found if not name.endswith("_created")}


def _other(text: str, families: tuple[str, ...], kept: Page) -> str:
    wanted = " or ".join(sorted(kept.prefixes))
    if not families:
        return f"no metrics in it; it begins {' '.join(text[:60].split())!r}"
    return f"metrics of another program: {', '.join(families[:3])}, nothing that begins with {wanted}"
