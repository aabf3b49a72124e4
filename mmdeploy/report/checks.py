"""Checks for people: categories with a line under them, one line a check, and what to do about what is not well."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Final

from mmdeploy.report.terminal import style, width

Checks = Iterable[Mapping[str, Any]]
"""``category``, ``description``, ``result``, and where there is something to say ``detail``, ``hint``, ``admin``."""

_GLYPHS: Final = {"ok": ("√", "ok"), "warning": ("‼", "!!"), "error": ("×", "XX"), "skipped": ("-", "--")}
_COLOURS: Final = {"ok": "green", "warning": "yellow", "error": "red", "skipped": "dim"}
_INDENT: Final = 4
_PAGE: Final = 100
"""Columns of a manifest, wherever it is printed: same input, same bytes."""


def lines(checks: Checks) -> Iterator[str]:
    """Line by line, as the checks come in."""
    for number, (category, found) in enumerate(groupby(checks, key=lambda item: item["category"])):
        if number:
            yield ""
        yield style(category, "bold")
        yield "-" * len(category)
        for item in found:
            yield from _check(item)


def _check(item: Mapping[str, Any]) -> Iterator[str]:
    result = item["result"]
    head = f"{style(_glyph(result), _COLOURS[result])} {item['description']}"
    if result in ("ok", "skipped"):
        detail = item.get("detail", "")
        said = f"{head}: {detail}" if detail else head
        yield from _folded(f"{head} (not looked at: {detail})" if result == "skipped" else said, _INDENT, first=0)
        return
    yield from _folded(head, _INDENT, first=0)
    if item.get("detail"):
        yield from _folded(item["detail"], _INDENT)
    if item.get("hint"):
        yield from _folded(f"hint: {item['hint']}", _INDENT)
    if item.get("admin"):
        yield f"{' ' * _INDENT}an administrator runs:"
        # Commands are never folded: people copy them.
        yield from (f"{' ' * (_INDENT + 2)}{command}" for command in item["admin"])


def verdict(checks: Checks, strict: bool) -> str:
    """The last line: what it comes to, and how much of each there was."""
    results = [item["result"] for item in checks]
    failed = "error" in results or (strict and "warning" in results)
    counts = [f"{results.count(word)} {name}" for word, name in _COUNTED.items() if word in results]
    glyph = _glyph("error" if failed else "ok")
    return style(f"Status check results are {glyph}", "red" if failed else "green") + f" ({', '.join(counts)})"


_COUNTED: Final = {"ok": "ok", "warning": "to know", "error": "wrong", "skipped": "not looked at"}


def document(checks: Checks, success: bool, about: Mapping[str, Any]) -> dict[str, Any]:
    """``-o json``: as linkerd's, with a schema version, and what the checks were about."""
    categories = [
        {
            "categoryName": category,
            "checks": [{key: value for key, value in item.items() if key != "category"} for item in found],
        }
        for category, found in groupby(checks, key=lambda item: item["category"])
    ]
    return {"schemaVersion": 1, "kind": "Checks", **about, "success": success, "categories": categories}


def manifests(items: Iterable[Mapping[str, Any]]) -> str:
    """Manifests as YAML; innermost lists and mappings take one line, which is how people write rules."""
    import yaml

    texts = (yaml.safe_dump(item, default_flow_style=None, sort_keys=False, width=_PAGE) for item in items)
    return "---\n".join(texts)


def _glyph(result: str) -> str:
    """A sign that the terminal can show."""
    encoding = (sys.stdout.encoding or "ascii").lower()
    plain = not encoding.startswith("utf") or os.environ.get("TERM") == "dumb"
    return _GLYPHS[result][plain]


def _folded(text: str, indent: int, first: int | None = None) -> list[str]:
    start = " " * (indent if first is None else first)
    columns = max(40, width())
    return textwrap.wrap(
        text, columns, initial_indent=start, subsequent_indent=" " * indent, break_long_words=False,
        break_on_hyphens=False,
    ) or [""]  # fmt: skip


__all__ = ["document", "lines", "manifests", "verdict"]
