"""How long a value is as JSON that Go writes: what the router counts of tools and of ``/v1/responses`` inputs.

Source: encoding/json's Marshal: no spaces, ``<`` ``>`` ``&`` and U+2028/9 escaped with six characters, every number
a float of 64 bits in its shortest form.
"""

from __future__ import annotations

import json
from typing import Any

_ESCAPED = {"<": 5, ">": 5, "&": 5, "\u2028": 3, "\u2029": 3}
"""Bytes that an escape of six adds over the UTF-8 form."""


def length(value: Any) -> int:
    """Bytes of ``value`` (as `json.loads` makes it) in Go's JSON."""
    match value:
        case str():
            return _text(value)
        case bool() | None:
            return 5 if value is False else 4
        case int() | float():
            return len(_number(value))
        case dict():
            pairs = sum(_text(key) + 1 + length(item) for key, item in value.items())
            return pairs + max(0, len(value) - 1) + 2
        case _:
            return sum(length(item) for item in value) + max(0, len(value) - 1) + 2


def _text(text: str) -> int:
    written = json.dumps(text, ensure_ascii=False)
    extra = sum(text.count(character) * bytes_ for character, bytes_ in _ESCAPED.items())
    return utf8_length(written) + extra


def utf8_length(text: str) -> int:
    """Bytes of ``text`` in UTF-8; half of a surrogate pair counts 3, like the mark that Go puts in its place."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _number(value: int | float) -> str:
    """Shortest digits that read back as the float ``value``; an exponent below 1e-6 and from 1e21 on.

    Python has the same digits, but writes exponents from 1e16 on and below 1e-4, and with a leading zero.
    """
    try:
        text = repr(float(value)).removesuffix(".0")
    except OverflowError:  # Go refuses such a number
        return str(value)
    mantissa, exponent, power = text.partition("e")
    if not exponent:
        return text
    if not 1e-6 <= abs(value) < 1e21:
        return f"{mantissa}e{int(power):+d}"
    whole, _, fraction = mantissa.partition(".")
    if int(power) > 0:
        return (whole + fraction).ljust(len(whole) + int(power), "0")
    sign = "-" if value < 0 else ""
    return f"{sign}0.{'0' * (-int(power) - 1)}{whole.lstrip('-')}{fraction}"
