"""Findings for people (text), for editors and grep (short), and for a build that shows them beside the code (github).

All take the document of ``mmdeploy lint -o json``. What stood in somebody's file is shown without control characters,
so that it cannot write on the terminal.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from mmdeploy.report.terminal import style, width

Findings = Mapping[str, Any]
_COLOURS = {"error": "red", "warning": "yellow", "info": "cyan"}
_GITHUB = {"error": "error", "warning": "warning", "info": "notice"}
_LABEL = 8
_LONGEST_LINE = 160
"""Characters of a source line that are shown; a rendered chart may hold lines of many thousands."""


def text(document: Findings) -> str:
    """Grouped by file: each finding with its line, a caret, the fix and the source of the fact; then a summary."""
    blocks = []
    for file, findings in groupby(document["findings"], key=lambda item: item["file"]):
        blocks.append("\n\n".join([style(clean(file), "bold"), *("\n".join(_finding(item)) for item in findings)]))
    return "\n\n".join([*blocks, "\n".join(_summary(document))]) + "\n"


def _finding(item: Mapping[str, Any]) -> Iterator[str]:
    place = f"{item['line']}:{item['column']}"
    head = style(f"{item['level']} {item['code']}", _COLOURS[item["level"]])
    yield _folded(f"  {place:<{_LABEL}}{head}  ", sentence(item), 4)
    line = clean(item["text"].replace("\t", " "))
    if line.strip():
        yield from _marked(line, item["column"] - 1)
    yield _folded("    fix:  ", item["fix"], 10)
    yield _folded("    from: ", item["source"], 10)


def sentence(item: Mapping[str, Any]) -> str:
    """What is wrong with what; a finding about a whole file need not name it again."""
    return str(item["message"]) if item["subject"] == item["file"] else f"{item['subject']}: {item['message']}"


def _marked(line: str, column: int) -> Iterator[str]:
    """The line and a caret under the column, without the indentation and cut to what fits."""
    indent = min(len(line) - len(line.lstrip()), max(column, 0))
    room = min(_LONGEST_LINE, width() - 6)
    start = indent if column - indent < room else column - room // 2
    shown = line[start : start + room]
    yield "    " + style("| ", "dim") + shown
    yield "    " + style("| ", "dim") + " " * max(0, min(column - start, len(shown))) + style("^", "bold")


def _summary(document: Findings) -> Iterator[str]:
    for note in document["notes"]:
        yield _folded("note: ", note, 6)
    counts = [f"{count} {level}{'s' * (count != 1)}" for level, count in document["counts"].items() if count]
    more = [f"{document[key]} {word}" for key, word in (("ignored", "ignored"), ("known", "in the baseline"))
            if document[key]]  # fmt: skip
    said = ", ".join(counts) or "nothing found"
    yield style(said, "red" if document["failed"] else "green") + (f" ({', '.join(more)})" if more else "")
    yield _folded("judged as ", release(document["release"]), 10)


def release(found: Mapping[str, Any]) -> str:
    """Which versions the files were judged by, and why."""
    said = f"router {found['router']}"
    if found["sidecar"] != found["router"]:
        said += f", sidecar {found['sidecar']}"
    if found["engines"]:
        said += f", {', '.join(found['engines'])}"
    why = "; ".join(found["reasons"]) or "nothing says which; --as-release sets it"
    return f"{said} ({why})"


def short(document: Findings) -> str:
    """One line a finding: ``file:line:column: level code message``."""
    return "".join(
        clean(f"{item['file']}:{item['line']}:{item['column']}: {item['level']} {item['code']} {sentence(item)}") + "\n"
        for item in document["findings"]
    )


def github(document: Findings) -> str:
    """Workflow commands that GitHub Actions turns into annotations."""
    return "".join(_annotation(item) + "\n" for item in document["findings"])


def _annotation(item: Mapping[str, Any]) -> str:
    places = {"file": item["file"], "line": item["line"], "col": item["column"]}
    places["title"] = f"{item['code']} {item['subject']}"
    properties = ",".join(f"{name}={_property(str(value))}" for name, value in places.items())
    message = _data(f"{clean(item['message'])}\nfix: {clean(item['fix'])}")
    return f"::{_GITHUB[item['level']]} {properties}::{message}"


def _data(value: str) -> str:
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    return _data(value).replace(":", "%3A").replace(",", "%2C")


def clean(value: str) -> str:
    """Text on one line that a terminal takes as text."""
    return "".join(character if character.isprintable() else "\ufffd" for character in re.sub(r"[\r\n]+", " ", value))


def _folded(label: str, value: str, indent: int) -> str:
    columns = max(40, width() - len(re.sub(r"\x1b\[\d+m", "", label)))
    lines = textwrap.wrap(clean(value), columns, break_long_words=False, break_on_hyphens=False) or [""]
    rest = " ".join(lines[1:])
    wide = max(40, width() - indent)
    more = textwrap.wrap(rest, wide, break_long_words=False, break_on_hyphens=False)
    return "\n".join([(label + lines[0]).rstrip(), *(" " * indent + line for line in more)])
