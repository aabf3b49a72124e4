"""Kubernetes quantities, and durations, as numbers."""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = {
    **{unit: 1000**power for power, unit in enumerate(("", "k", "M", "G", "T", "P"))},
    **{unit: 1024**power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi"), start=1)},
}


def quantity(text: str | int | float) -> float:
    """A quantity in its base unit (bytes, cores, pieces): ``"40Gi"`` is 42949672960, ``"500m"`` is 0.5.

    Raises ValueError for text that is not a quantity.
    """
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([a-zA-Z]*)", str(text))
    if match is None or match[2] not in (*_UNITS, "m"):
        raise ValueError(f"{text!r} is not a quantity")
    number = float(match[1]) if "." in match[1] else int(match[1])
    return number / 1000 if match[2] == "m" else number * _UNITS[match[2]]


def seconds(text: str) -> float:
    """A duration in seconds: ``"90"``, ``"90s"``, ``"10m"``, ``"1h30m"``. Raises ValueError for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)|(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?", text.strip())
    if match is None or not any(match.groups()):
        raise ValueError(f"{text!r} is not a duration")
    bare, hours, minutes, rest = (float(part or 0) for part in match.groups())
    return bare + hours * 3600 + minutes * 60 + rest
