"""Every value with where it came from: three columns that a terminal can hold and grep can search."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from mmdeploy.report.terminal import WIDE, style, width


def listing(rows: Sequence[Mapping[str, Any]]) -> str:
    """``path = value`` and the origin below it where they do not fit beside each other."""
    return "".join(_line(row["path"], _text(row["value"]), row["origin"]) for row in rows)


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)


def _line(path: str, value: str, origin: str) -> str:
    said = f"{path} = {value}"
    columns = width()
    room = columns - len(said) - len(origin) - 2
    if columns == WIDE:
        return f"{said}\t{origin}\n"
    if room >= 0:
        return f"{said}  {' ' * room}{style(origin, 'dim')}\n"
    lines = textwrap.wrap(said, columns, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return "\n".join([*lines, f"    {style(origin, 'dim')}"]) + "\n"
