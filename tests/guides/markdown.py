"""Fenced blocks and links of a Markdown file, and what its info strings mean to the tests.

========================  ==============================================================================
````sh````                every command runs, in order, in one directory a file; each must end with 0
````sh exit=2````         ... each must end with 2
````text````              directly after ``sh``: what the commands print on a terminal of 80 columns;
                          a line ``...`` stands for any lines
````text width=120````    ... of 120 columns
````console````           commands for a cluster: not run, but a bundle's own README must give the same
````yaml file=a/b````     the block is written to ``a/b`` before the commands that follow it
````yaml append=a/b````   ... or added at the end of it
````diff apply````        ``git apply`` must take it
anything else             not looked at
========================  ==============================================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_FENCE = re.compile(r"^(?P<fence>```+)(?P<info>.*)$")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(?P<text>.+?) *$", re.MULTILINE)


@dataclass
class Block:
    """One fenced block. ``first`` is the line number of its first line of content, counted from 1."""

    language: str
    options: dict[str, str]
    first: int
    lines: list[str] = field(default_factory=list)
    after_blank_only: bool = False
    """Whether nothing but blank lines is between the block before it and this one."""

    @property
    def text(self) -> str:
        """The content with a line end after each line."""
        return "".join(line + "\n" for line in self.lines)

    def commands(self) -> Iterator[tuple[int, str]]:
        """Line number and text of each command; a backslash at a line's end goes on with the next line."""
        number, parts = self.first, list[str]()
        for at, line in enumerate(self.lines, self.first):
            if not parts:
                number = at
            parts.append(line)
            if line.endswith("\\"):
                continue
            command = "\n".join(parts)
            parts = []
            if command.strip() and not command.lstrip().startswith("#"):
                yield number, command


def blocks(text: str) -> list[Block]:
    """Every fenced block of a Markdown text, in order."""
    found: list[Block] = []
    current: Block | None = None
    fence, blank_since = "", False
    for number, line in enumerate(text.splitlines(), 1):
        match = _FENCE.match(line)
        if current is None and match:
            language, *words = match["info"].split() or [""]
            options = {word.partition("=")[0]: word.partition("=")[2] for word in words}
            current = Block(language, options, number + 1, after_blank_only=blank_since)
            fence = match["fence"]
        elif current is not None and line == fence:
            found.append(current)
            current, blank_since = None, True
        elif current is not None:
            current.lines.append(line)
        elif line.strip():
            blank_since = False
    if current is not None:
        raise ValueError(f"the block that starts on line {current.first} does not end")
    return found


def without_blocks(text: str) -> str:
    """The prose: links and headings are looked for there."""
    kept, fence = [], ""
    for line in text.splitlines():
        match = _FENCE.match(line)
        if not fence and match:
            fence = match["fence"]
        elif fence:
            fence = "" if line == fence else fence
        else:
            kept.append(line)
    return "\n".join(kept)


def links(text: str) -> list[str]:
    """Targets of the links in the prose."""
    return [match["target"] for match in _LINK.finditer(without_blocks(text))]


def anchors(file: Path) -> set[str]:
    """The anchors that GitHub gives a file's headings."""
    headings = (match["text"] for match in _HEADING.finditer(without_blocks(file.read_text(encoding="utf-8"))))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def matches(shown: list[str], real: list[str]) -> bool:
    """Whether the lines of a guide are the real ones; ``...`` stands for any lines."""
    pattern = "".join(r"(?:.*\n)*?" if line == "..." else re.escape(line) + r"\n" for line in shown)
    return re.fullmatch(pattern, "".join(line + "\n" for line in real)) is not None
