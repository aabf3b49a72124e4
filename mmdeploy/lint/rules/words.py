"""Wording that several rules share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mmdeploy.words import nearest


def suggestion(name: str, known: Iterable[str]) -> str:
    """``; did you mean x?`` where something near is known."""
    near = nearest(name, list(known))
    return f"; did you mean {near[0]}?" if near else ""


def short(value: Any) -> str:
    """A value as people would say it in a sentence; the kind of a long one."""
    kinds = {dict: "a mapping", list: "a list", type(None): "nothing"}
    text = kinds.get(type(value)) or repr(value)
    return text if len(text) <= 40 else f"a {type(value).__name__}"


def listed(names: Iterable[object]) -> str:
    """``a, b and c``."""
    words = [str(name) for name in names]
    return " and ".join(words) if len(words) < 3 else f"{', '.join(words[:-1])} and {words[-1]}"
