"""A finding's code explained on a terminal, and the pages of ``guides/findings``."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from mmdeploy.report.terminal import style, width

Code = Mapping[str, Any]
_NOTE = "<!-- Written by `make findings` from blueprints/findings and the rules. Change those, not this page. -->"
_ANNOTATION = "mmdeploy.llm-d.ai/ignore"


def explained(code: Code) -> str:
    """Everything about one code."""
    blocks = [style(f"{code['code']}  {code['title']}", "bold") + f"\n{code['level']}, group {code['group']}"]
    if code["retired"]:
        blocks.append(_wrapped(f"Retired: {code['retired']}. The code is never used for anything else."))
    blocks += [_wrapped(paragraph) for paragraph in code["why"].split("\n\n") if paragraph.strip()]
    for heading, key in (("Wrong:", "bad"), ("Right:", "good")):
        if code[key]:
            blocks.append(style(heading, "bold") + "\n" + textwrap.indent(code[key], "    "))
    if not code["retired"]:
        blocks.append(style("To silence it:", "bold") + "\n" + textwrap.indent(_silencing(code["code"]), "    "))
        blocks.append(_wrapped(f"Source of the fact: {code['source']}"))
    return "\n\n".join(blocks) + "\n"


def _silencing(code: str) -> str:
    return "\n".join(
        [
            "a comment at the end of the line, or alone on the line above:",
            f"  # mmdeploy: ignore {code} why it is right here",
            "an annotation, for the whole object:",
            f'  {_ANNOTATION}: "{code} why"',
            "for one run, or in the settings file:",
            f"  mmdeploy lint --ignore {code} PATH",
        ]
    )


def _wrapped(text: str) -> str:
    columns = min(width(), 120)
    return textwrap.fill(" ".join(text.split()), columns, break_long_words=False, break_on_hyphens=False)


def pages(groups: Mapping[str, str], codes: Sequence[Code]) -> dict[str, str]:
    """Every page by file name: an index, and one page a hundred."""
    found = {"README.md": _index(groups, codes)}
    for digit, title in groups.items():
        mine = [code for code in codes if code["code"][3] == digit]
        if mine:
            found[f"{digit}xx.md"] = _group(digit, title, mine)
    return found


def _index(groups: Mapping[str, str], codes: Sequence[Code]) -> str:
    """The page that lists every code, and the code that finds each row of the corpus."""
    lines = [
        _NOTE,
        "# Findings of `mmdeploy lint`",
        "",
        "Each finding has a code: `MMD` and three digits, grouped by hundred. An `error` will not work or silently",
        "does something else, a `warning` may, an `info` is worth knowing. `mmdeploy explain CODE` prints the same",
        "text. A retired code is never used again. [Linting](../linting.md) says how to run and how to silence it.",
        "",
    ]
    for digit, title in groups.items():
        mine = [code for code in codes if code["code"][3] == digit]
        if mine:
            lines += [f"## [{digit}xx: {title}]({digit}xx.md)", "", "| code | level | what |", "| --- | --- | --- |"]
            lines += [
                f"| [{code['code']}]({digit}xx.md#{_anchor(code)}) | {code['level']} | {_cell(code['title'])} |"
                for code in mine
            ]
            lines.append("")
    rows = sorted({(row, code["code"]) for code in codes for row in code["corpus"]})
    lines += [
        "## Real mistakes and the codes that find them",
        "",
        "The rules are tested against a collection of misconfigurations that people really suffered from. Its rows:",
        "",
        "| row | code |",
        "| --- | --- |",
    ]
    for row in sorted({row for row, _ in rows}):
        lines.append(f"| {row} | {', '.join(code for known, code in rows if known == row)} |")
    return "\n".join(lines) + "\n"


def _group(digit: str, title: str, codes: Sequence[Code]) -> str:
    """The page of one hundred."""
    lines = [_NOTE, f"# {digit}xx: {title}", "", "[All findings](README.md)", ""]
    for code in codes:
        lines += [f"## {_heading(code)}", "", f"Level: {code['level']}.", ""]
        if code["retired"]:
            lines += [f"Retired: {code['retired']}.", ""]
            continue
        lines += [code["why"], ""]
        for heading, key in (("Wrong:", "bad"), ("Right:", "good")):
            lines += [heading, "", f"```{'yaml' if not code.get('file') else ''}", code[key], "```", ""]
        lines += [f"Source: {code['source']}", ""]
        if code["corpus"]:
            lines += [f"Rows of the collection: {', '.join(code['corpus'])}.", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _heading(code: Code) -> str:
    return f"{code['code']}: {code['title']}"


def _anchor(code: Code) -> str:
    kept = [character for character in _heading(code).lower() if character.isalnum() or character in "-_ "]
    return "".join(kept).replace(" ", "-")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
