"""What a wait does, for a person: a live table on a terminal, a line for each thing that matters elsewhere.

Takes events as plain data, as `mmdeploy.apply.events.as_data` makes them; those that are not about waiting are turned
into lines by whom the caller names::

    with progress.reader(lines) as reader:
        for event in events:
            reader.show(as_data(event))
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from mmdeploy.report.board import Board
from mmdeploy.report.waits import WaitLines

if TYPE_CHECKING:
    from rich.live import Live

Event = Mapping[str, Any]
Others = Callable[[Event], Iterable[str]]
"""Turns events that are not about waiting into lines."""

_COLOURS = {"ready": "green", "role": "bold", "trouble": "yellow", "dim": "dim"}


def reader(others: Others, stream: TextIO | None = None) -> Plain | Table:
    """What suits the stream (default stdout): the table on a terminal, lines elsewhere."""
    target = stream or sys.stdout
    live = target.isatty() and os.environ.get("TERM") not in ("dumb", None)
    return Table(others, target) if live else Plain(others, target)


class Plain:
    """A line for each thing that matters."""

    def __init__(self, others: Others, stream: TextIO) -> None:
        self._others = others
        self._stream = stream
        self._waits = WaitLines()

    def __enter__(self) -> Plain:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to put away."""

    def show(self, event: Event) -> None:
        """Take the next event."""
        for line in self._waits.of(event) if event["event"] == "waiting" else self._others(event):
            print(line, file=self._stream, flush=True)


class Table:
    """What happened scrolls by; what starts stands below it and is brought up to date."""

    def __init__(self, others: Others, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.console import Console
        from rich.live import Live

        self._others = others
        self._clock = clock
        self._board = Board()
        self._console = Console(file=stream, highlight=False, markup=False, emoji=False, soft_wrap=True)
        self._live: Live = Live(
            console=self._console, get_renderable=self._drawn, refresh_per_second=2, transient=True,
        )  # fmt: skip

    def __enter__(self) -> Table:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        """The table goes; what scrolled by stays."""
        self._live.stop()

    def show(self, event: Event) -> None:
        """Take the next event."""
        from rich.text import Text

        self._board.take(event, self._clock())
        if self._live.is_started and not self._board.busy:
            self._live.stop()  # questions and other output must not be drawn over
        if event["event"] != "waiting":
            for line in self._others(event):
                self._console.print(Text.from_ansi(line))
        elif not self._live.is_started:
            self._live.start()

    def _drawn(self) -> Any:
        from rich.text import Text

        # A frame that is taller than the terminal cannot be taken back: it would scroll by again and again.
        rows = self._board.rows(self._console.width, self._clock(), self._console.height - 2)
        text = Text(no_wrap=True, overflow="ellipsis", end="")
        for number, (kind, line) in enumerate(rows):
            text.append(("\n" if number else "") + line, style=_COLOURS.get(kind, ""))
        return text
