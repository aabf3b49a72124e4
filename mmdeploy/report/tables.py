"""Tables: aligned by rich on a terminal, tab-free columns that are never cut elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mmdeploy.report.terminal import WIDE, coloured, width


def table(columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a table; ``columns`` maps a row's key to its heading, in order."""
    cells = [[_cell(row.get(key)) for key in columns] for row in rows]
    if width() == WIDE:
        return _plain(list(columns.values()), cells)
    return _rich(list(columns.values()), cells)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "-"
    return str(value)


def _plain(headings: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    everything = [[heading.upper() for heading in headings], *cells]
    widths = [max(len(row[index]) for row in everything) for index in range(len(headings))]
    lines = ("   ".join(f"{cell:<{size}}" for cell, size in zip(row, widths, strict=True)) for row in everything)
    return "".join(line.rstrip() + "\n" for line in lines)


def _rich(headings: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    from io import StringIO

    from rich.console import Console
    from rich.table import Table

    output = StringIO()
    console = Console(file=output, width=width(), force_terminal=coloured(), no_color=not coloured(), highlight=False)
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        grid.add_column(heading.upper(), overflow="fold")
    for row in cells:
        grid.add_row(*row)
    console.print(grid, markup=False)
    return "".join(line.rstrip() + "\n" for line in output.getvalue().splitlines())
