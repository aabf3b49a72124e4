"""What the terminal can do, asked once: width, colour. Piped output is never cut and never coloured."""

from __future__ import annotations

import os
import sys
from typing import Final, TextIO

WIDE: Final = 1_000_000
"""Columns of something that is not a terminal: nothing is wrapped or cut there."""

_STYLES: Final = {"bold": "1", "dim": "2", "red": "31", "yellow": "33", "green": "32", "cyan": "36"}


def width(stream: TextIO | None = None) -> int:
    """Columns of ``stream`` (default stdout)."""
    target = stream or sys.stdout
    if not target.isatty():
        return WIDE
    said = os.environ.get("COLUMNS", "")
    if said.isdigit() and int(said) > 0:
        return int(said)
    try:
        return os.get_terminal_size(target.fileno()).columns or 80
    except OSError:
        return 80


def coloured(stream: TextIO | None = None) -> bool:
    """Whether to colour: a terminal, and neither NO_COLOR (https://no-color.org) nor TERM=dumb."""
    return (stream or sys.stdout).isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def style(text: str, name: str, stream: TextIO | None = None) -> str:
    """``text`` in a style, where the stream shows one."""
    return f"\x1b[{_STYLES[name]}m{text}\x1b[0m" if coloured(stream) else text
