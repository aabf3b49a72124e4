"""Whether a value lies in the range that the table of plugin parameters gives in words.

The words were made by trying values on running routers. Only what can be read without doubt is judged: a condition on
another parameter, a file that must exist or a name that must be declared is left to rules that can look at them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mmdeploy.lint.findings import Level
from mmdeploy.lint.tables import Row

_NUMBER = r"-?\d+(?:\.\d+)?"
_ENUM = re.compile(r"^[A-Za-z][\w-]*(?:\|[A-Za-z][\w-]*)+$")
_BOUND = re.compile(rf"^(>=|>|<=|<) ({_NUMBER})$")
_RANGE = re.compile(rf"^({_NUMBER})\.\.({_NUMBER})$")
_BETWEEN = re.compile(rf"^({_NUMBER}) (<=|<) x (<=|<) ({_NUMBER})$")
_DURATION = re.compile(r"^[-+]?(?:\d+(?:\.\d*)?(?:ns|us|µs|μs|ms|s|m|h))+$|^0$")
_FIXED = ("linear", "las", "LongestPrefix", "threshold")
"""Values of parameters that know only one."""
_HARMLESS = ("no clamp", "no cap", "no merge", "accepted", "ignored", "off")
"""Effects that a person who wrote the value meant."""

_COMPARE = {
    ">=": lambda value, bound: value >= bound,
    ">": lambda value, bound: value > bound,
    "<=": lambda value, bound: value <= bound,
    "<": lambda value, bound: value < bound,
}
_TYPES: Mapping[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "string": (str,),
    "duration": (str,),
    "list": (list,),
    "object": (Mapping,),
}


def wrong_type(row: Row, value: Any) -> str | None:
    """What kind of value is expected, where ``value`` is another; None where it fits (null fits everywhere)."""
    wanted = _TYPES.get(row["go_type"])
    if wanted is None or value is None:
        return None
    if isinstance(value, bool) and row["go_type"] != "bool":
        return row["go_type"]
    if row["go_type"] == "int" and isinstance(value, float) and value.is_integer():
        return None
    return None if isinstance(value, wanted) else row["go_type"]


def out_of_range(row: Row, value: Any) -> tuple[Level, str, str] | None:
    """``(level, what is allowed, what happens)`` for a value outside; None inside, and where nobody can tell."""
    inside = _inside(row, value)
    off = re.search(rf"; ([<>]=? {_NUMBER}) (turns [\w ]+ off)", row["valid"])
    if off is not None and _is_number(value) and _number_inside(off[1], value):
        return Level.warning, row["valid"].split(";")[0], f"{off[1]} {off[2]}"
    if inside is None or inside:
        return None
    effect = _effect(row["invalid_effect"], value)
    meant = (effect.startswith(_HARMLESS) and ", no " not in effect) or (value == "" and "silently" in effect)
    if not effect or meant:
        return None
    allowed = row["valid"].split(";")[0]
    if "startup error" in effect or "panics" in effect:
        return Level.error, allowed, effect
    return Level.warning, allowed, effect


def _inside(row: Row, value: Any) -> bool | None:
    """None where the words say more than this module understands."""
    if value is None:
        return None
    first = re.sub(r" \(([^)]*|.*\))$", "", row["valid"].split(";")[0].strip()).removeprefix("seconds, number ")
    if isinstance(value, str):
        return _text_inside(row, first, value)
    if not _is_number(value):
        return None
    if re.search(rf"; {value:g} allowed", row["valid"]):
        return None
    options = first.split(" or ")
    judged = [_number_inside(option.strip(), value) for option in options]
    if any(judged):
        return True
    return None if None in judged else False


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number_inside(words: str, value: float) -> bool | None:
    words = re.sub(r" \(.*\)$", "", words)
    if re.fullmatch(_NUMBER, words):
        return value == float(words)
    if match := _BOUND.match(words):
        return bool(_COMPARE[match[1]](value, float(match[2])))
    if match := _RANGE.match(words):
        return float(match[1]) <= value <= float(match[2])
    if match := _BETWEEN.match(words.split(",")[0]):
        low, high = float(match[1]), float(match[4])
        return bool(_COMPARE[match[2]](low, value) and _COMPARE[match[3]](value, high))
    return None


def _text_inside(row: Row, first: str, value: str) -> bool | None:
    if row["go_type"] == "duration":
        return None if not value or "Go duration" not in first else bool(_DURATION.match(value))
    if row["go_type"] != "string":
        return None
    if first == "non-empty":
        return bool(value)
    if _ENUM.match(first):
        allowed = first.split("|")
        extra = re.search(r"\((\w+) from v", row["valid"])
        if "ignored" in row["valid"]:  # case, dashes and underscores of the word do not matter
            plain = value.lower().replace("-", "").replace("_", "")
            return any(word.replace("-", "").startswith(plain) for word in allowed) if plain else None
        return value in allowed or bool(extra and value == extra[1])
    if first in _FIXED:
        return value == first
    return None


def _effect(words: str, value: Any) -> str:
    """The part of "< 64: clamped; <= 0: startup error" that speaks of ``value``."""
    for part in words.split("; "):
        condition, colon, effect = part.partition(": ")
        if not colon:
            if not re.search(r"\bwhen\b|\bwith\b|\bwithout\b", part):
                return part
            continue
        if _speaks_of(condition.strip(), value):
            return "" if re.search(r"only with|\bwhen\b|\bwith [a-z]", effect) else effect.strip()
    return ""


def _speaks_of(condition: str, value: Any) -> bool:
    for words in condition.removeprefix("missing or ").split(" or "):
        if words == '""':
            fits = value == ""
        elif words in ("other", "unparsable"):
            fits = value != ""
        elif words == "empty":
            fits = value == ""
        elif words == "negative":
            fits = _is_number(value) and value < 0
        elif _is_number(value):
            fits = bool(_number_inside(words, value))
        else:
            fits = False
        if fits:
            return True
    return False
