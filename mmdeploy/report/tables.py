"""Tables: aligned columns, never cut. On a terminal that is too narrow, the least important columns are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mmdeploy.report.terminal import style, width

_GAP = 2


def table(
    columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]], droppable: Sequence[str] = ()
) -> tuple[str, list[str]]:
    """Rows as a table, and the headings that had to be left out.

    ``columns`` maps a row's key to its heading, in order; ``droppable`` lists keys that may go, the first first.
    """
    shown, dropped = dict(columns), []
    for key in (key for key in droppable if key in shown):
        if _width_of(shown, rows) <= width():
            break
        dropped.append(shown.pop(key))
    return _text(shown, rows), dropped


def _cells(columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    return [
        [heading.upper() for heading in columns.values()],
        *([_cell(row.get(key)) for key in columns] for row in rows),
    ]


def _widths(cells: Sequence[Sequence[str]]) -> list[int]:
    return [max(len(row[index]) for row in cells) for index in range(len(cells[0]))]


def _width_of(columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> int:
    widths = _widths(_cells(columns, rows))
    return sum(widths) + _GAP * (len(widths) - 1)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "-"
    return str(value)


def _text(columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> str:
    cells = _cells(columns, rows)
    widths = _widths(cells)
    lines = [(" " * _GAP).join(f"{cell:<{size}}" for cell, size in zip(row, widths, strict=True)) for row in cells]
    return "".join(f"{line.rstrip()}\n" for line in [style(lines[0], "bold"), *lines[1:]])
