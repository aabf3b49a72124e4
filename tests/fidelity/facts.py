"""Where the facts are: beside the repository, not in it. Tests that need them are skipped where they are absent."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[3] / "shared"


def path(*parts: str) -> Path:
    """A file of the facts; skips the test where the facts are not beside this checkout."""
    found = SHARED.joinpath(*parts)
    if not found.exists():
        pytest.skip(f"the facts are not beside this checkout: no ../shared/{'/'.join(parts)}")
    return found


@cache
def _rows(file: Path) -> Sequence[Mapping[str, str]]:
    with file.open(newline="", encoding="utf-8") as text:
        return list(csv.DictReader(text))


def table(name: str) -> Sequence[Mapping[str, str]]:
    """The rows of ``facts/<name>.csv``."""
    return _rows(path("facts", f"{name}.csv"))
