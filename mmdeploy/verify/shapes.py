"""Dataclasses from JSON, by their own annotations: what does not fit is told, not taken along."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

Shape = TypeVar("Shape")
DEEPEST = 100
"""Levels of what an annotation calls ``Any``."""


def built(shape: type[Shape], data: Any, place: str) -> Shape:
    """``shape`` from a mapping of its fields. Raises ValueError that names the place of what is wrong."""
    if not isinstance(data, dict):
        raise ValueError(f"{place} must be a mapping")
    assert is_dataclass(shape)
    hints = get_type_hints(shape)
    wanted = {item.name: item for item in fields(shape) if item.init}
    for name in data:
        if name not in wanted:
            raise ValueError(f"{place} has an unknown key {str(name)[:40]!r}")
    for name, item in wanted.items():
        if name not in data and item.default is MISSING and item.default_factory is MISSING:
            raise ValueError(f"{place} lacks {name}")
    return shape(**{name: fitted(hints[name], value, f"{place}.{name}") for name, value in data.items()})


def fitted(hint: Any, value: Any, place: str) -> Any:
    """``value`` where it is of the kind that ``hint`` says; lists become tuples. Raises ValueError."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return _finite(value, place)
    if origin in (Union, types.UnionType):
        return _any_of(arguments, value, place)
    if origin is Literal:
        if value not in arguments:
            raise ValueError(f"{place} is {str(value)[:40]!r}, not one of {', '.join(map(str, arguments))}")
        return value
    if origin in (tuple, list):
        if not isinstance(value, list):
            raise ValueError(f"{place} must be a list")
        return origin(fitted(arguments[0], item, f"{place}[{at}]") for at, item in enumerate(value))
    if origin in (Mapping, dict):
        if not isinstance(value, dict):
            raise ValueError(f"{place} must be a mapping")
        return {key: fitted(arguments[1], item, f"{place}.{str(key)[:40]}") for key, item in value.items()}
    if is_dataclass(hint) and isinstance(hint, type):
        return built(hint, value, place)
    return _simple(hint, value, place)


def _any_of(hints: tuple[Any, ...], value: Any, place: str) -> Any:
    if value is None and type(None) in hints:
        return None
    return fitted(next(hint for hint in hints if hint is not type(None)), value, place)


def _simple(hint: Any, value: Any, place: str) -> Any:
    names = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
    kinds = (int, float) if hint is float else (hint,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and hint is not bool):
        raise ValueError(f"{place} must be {names[hint]}")
    return _finite(value, place)


def _finite(value: Any, place: str, depth: int = 0) -> Any:
    """Raises ValueError for what JSON of ours never holds: NaN, infinities, numbers past 2^63, levels without end."""
    if depth > DEEPEST:
        raise ValueError(f"{place} is nested too deep")
    if isinstance(value, (int, float)) and not (abs(value) <= 2**63 and math.isfinite(value)):
        raise ValueError(f"{place} holds a number that none can be")
    if isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            _finite(item, place, depth + 1)
    return value
