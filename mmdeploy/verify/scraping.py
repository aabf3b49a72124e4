"""Metrics pages: read, restricted to what the catalog names, and parsed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from mmdeploy.verify.evidence import Missing, Sample, Scrape

if TYPE_CHECKING:
    from mmdeploy.catalog.metrics import Page
    from mmdeploy.verify.transport import Answer

_STATUS: Mapping[int, Missing] = {401: "unauthorised", 403: "unauthorised", 404: "not found"}
_LARGEST = 2.0**63
"""What no counter reaches: a byte counter takes years to at 100 GB/s."""
KEPT_FAMILIES = 400
"""Names of families that are kept of one page; an engine has about a hundred."""


def page(name: str, moment: str, at: float, answer: Answer, kept: Page) -> Scrape:
    """The page that an answer holds, or why there is none."""
    if answer.status is None or answer.trouble:
        return Scrape(name, moment, at, missing="unreachable", detail=f"{answer.trouble}: {answer.detail}".strip(": "))
    if answer.status != 200:
        why = _STATUS.get(answer.status, "failed")
        return Scrape(name, moment, at, missing=why, detail=f"HTTP {answer.status}")
    text = answer.body.decode("utf-8", "replace")
    families = tuple(sorted(_families(text)))
    if not any(family.startswith(kept.prefixes) for family in families):
        return Scrape(
            name, moment, at, families=families[:KEPT_FAMILIES], missing="garbled", detail=_other(text, families, kept)
        )
    try:
        samples = tuple(_samples(text, kept))
    except (ValueError, LookupError, TypeError) as problem:
        return Scrape(name, moment, at, missing="garbled", detail=f"cannot be parsed: {problem}")
    return Scrape(
        name, moment, at, samples, tuple(item for item in families if item.startswith(kept.prefixes))[:KEPT_FAMILIES]
    )


def _samples(text: str, kept: Page) -> Iterator[Sample]:
    """The kept lines. A gauge that is no number, as one is that was never set, is left out. Raises ValueError for a
    counter that is none. A page may have thousands of others; they are left out before parsing, which is what costs."""
    for line in text.splitlines():
        if _name(line) in kept.kept:
            for sample in _parsed(line):
                if sample.name in kept.steady and not -_LARGEST < sample.value < _LARGEST:
                    raise ValueError(f"{sample.name} stands at {sample.value}, which no counter does")
                if sample.name in kept.kept and -_LARGEST < sample.value < _LARGEST:
                    yield sample


@lru_cache(maxsize=1 << 15)
def _parsed(line: str) -> tuple[Sample, ...]:
    """What one line says. Pages are read many times in a run, and few of their lines change in between."""
    from prometheus_client.parser import text_string_to_metric_families

    return tuple(
        Sample(sample.name, dict(sample.labels), float(sample.value))
        for family in text_string_to_metric_families(f"{line}\n")
        for sample in family.samples
    )


def _name(line: str) -> str:
    """The name that a line of a page begins with; ``""`` for a remark."""
    if line.startswith("#"):
        return ""
    return line.partition("{")[0].partition(" ")[0].strip()


def _families(text: str) -> Iterable[str]:
    """Families that the page announces, or has without announcing them; ``_created`` siblings are no families."""
    lines = text.splitlines()
    found = {words[2] for line in lines if line.startswith("# TYPE ") and len(words := line.split()) > 2}
    found = found or {name for line in lines if (name := _name(line)) and line.rpartition(" ")[2][:1].isdigit()}
    return {name for name in found if not name.endswith("_created")}


def _other(text: str, families: tuple[str, ...], kept: Page) -> str:
    wanted = " or ".join(sorted(kept.prefixes))
    if not families:
        return f"no metrics in it; it begins {' '.join(text[:60].split())!r}"
    return f"metrics of another program: {', '.join(families[:3])}, nothing that begins with {wanted}"
