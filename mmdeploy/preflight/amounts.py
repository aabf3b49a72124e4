"""Amounts of resources as whole thousandths: sums of thousands of pods stay exact."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

Amounts = dict[str, int]
"""Resource name → thousandths of its base unit (cores, bytes, pieces)."""

_DECIMAL: Final = {unit: Decimal(1000) ** power for power, unit in enumerate(("n", "u", "m", "", "k", "M", "G", "T",
                                                                             "P", "E"), start=-3)}  # fmt: skip
_BINARY: Final = {unit: Decimal(1024) ** power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)}
_UNITS: Final = _DECIMAL | _BINARY
_BYTES: Final = ("memory", "storage")


@lru_cache(maxsize=4096)
def milli(text: str | int | float) -> int:
    """A Kubernetes quantity in thousandths, rounded up as the API server does. What is no quantity counts as 0:
    the dry run tells."""
    match = re.fullmatch(r"\+?([0-9]*\.?[0-9]*)(?:[eE]([-+]?[0-9]+))?([a-zA-Z]*)", str(text).strip())
    if match is None or match[1] in ("", ".") or match[3] not in _UNITS:
        return 0
    value = Decimal(match[1]).scaleb(int(match[2] or 0)) * _UNITS[match[3]] * 1000
    return int(value.to_integral_value(rounding="ROUND_CEILING"))


def amounts(said: Mapping[str, Any] | None) -> Amounts:
    """A mapping of quantities, as resources and quotas have it."""
    return {name: milli(value) for name, value in (said or {}).items() if isinstance(value, str | int | float)}


def add(into: Amounts, more: Mapping[str, int], times: int = 1) -> None:
    """Add to a sum, in place."""
    for name, amount in more.items():
        into[name] = into.get(name, 0) + amount * times


def total(parts: Iterable[Mapping[str, int]]) -> Amounts:
    """The sum of some."""
    result: Amounts = {}
    for part in parts:
        add(result, part)
    return result


def greatest(parts: Iterable[Mapping[str, int]]) -> Amounts:
    """For each resource the greatest of some."""
    result: Amounts = {}
    for part in parts:
        for name, amount in part.items():
            result[name] = max(amount, result.get(name, 0))
    return result


def said(resource: str, amount: int) -> str:
    """An amount for a person: ``256Gi`` of memory, ``7.5`` cores, ``16``."""
    if any(word in resource for word in _BYTES):
        value = Decimal(amount) / 1000
        for unit, size in reversed(_BINARY.items()):
            if abs(value) >= size:
                return f"{_plain(value / size)}{unit}"
        return _plain(value)
    return _plain(Decimal(amount) / 1000)


def _plain(value: Decimal) -> str:
    return f"{value:.1f}".removesuffix(".0")


__all__ = ["Amounts", "add", "amounts", "greatest", "milli", "said", "total"]
