"""Verdicts of ``mmdeploy verify``: a table for people, then what is behind each that is not proved; JUnit for build
servers; Markdown for a ticket. All take the document of ``-o json``.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mmdeploy.report.findings import clean
from mmdeploy.report.junit import attribute, escaped
from mmdeploy.report.terminal import style, width

Verdicts = Mapping[str, Any]
_COLOURS = {"proved": "green", "contradicted": "red", "not observable": "yellow"}
_MARKS = {"proved": "+", "contradicted": "!", "not observable": "?"}
_INDENT = 4


def table(document: Verdicts, evidence: bool = False) -> str:
    """One line a claim; under those that are not proved, or all with ``evidence``, why."""
    claims = document["verdicts"]
    first = max([len(item["claim"]) for item in claims] + [len("CLAIM")])
    second = max([len(item["verdict"]) for item in claims] + [len("VERDICT")])
    lines = [style(f"{'CLAIM':<{first}}  {'VERDICT':<{second}}  SUMMARY", "bold")]
    for item in claims:
        head = f"{item['claim']:<{first}}  {style(item['verdict'], _COLOURS[item['verdict']])}"
        head += " " * (second - len(item["verdict"])) + "  "
        lines.append(_folded(head, clean(item["summary"]), first + second + 4))
    for item in claims:
        if evidence or item["verdict"] != "proved":
            lines += ["", *_details(item)]
    return "\n".join([*lines, "", *_closing(document)]) + "\n"


def _details(item: Mapping[str, Any]) -> Iterator[str]:
    yield style(f"{item['claim']}: {item['verdict']}", _COLOURS[item["verdict"]])
    for line in item["evidence"]:
        yield _folded("  seen: ", line["text"], 8)
    for number, cause in enumerate(item["causes"], 1):
        yield _folded(f"  {number}. ", cause["why"] + (f" ({cause['because']})" if cause["because"] else ""), 5)
        yield _folded("     look: ", cause["look"], 11)
    for text in item["observable"]:
        yield _folded("  to see it: ", text, 14)


def _closing(document: Verdicts) -> Iterator[str]:
    for item in document["notApplicable"]:
        yield _folded(f"{item['claim']} does not apply: ", item["reason"], _INDENT)
    partly = [item for item in document["verdicts"] if item["verdict"] == "proved" and item["observable"]]
    for item in partly:
        yield _folded(f"{item['claim']}, not seen: ", "; ".join(item["observable"]), _INDENT)
    counts = [f"{count} {word}" for word, count in document["counts"].items() if count]
    spent = document["spent"]
    yield (
        style(", ".join(counts) or "nothing judged", "red" if document["failed"] else "green")
        + f" ({_amount(spent['requests'], 'request')}, {_amount(spent['promptTokens'], 'prompt token')}, "
        f"{spent['seconds']:.1f} s)"
    )


def _amount(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def markdown(document: Verdicts) -> str:
    """A table, and the details of what is not proved, for a ticket or a pull request."""
    said = document["deployment"]
    lines = [
        f"### {said['model']}, {said['topology']} on {said['server']}",
        "",
        "| | claim | verdict | summary |",
        "| --- | --- | --- | --- |",
    ]
    for item in document["verdicts"]:
        cells = [_MARKS[item["verdict"]], item["claim"], item["verdict"], item["summary"]]
        lines.append(f"| {' | '.join(_cell(cell) for cell in cells)} |")
    for item in document["verdicts"]:
        if item["verdict"] != "proved":
            lines += ["", f"**{item['claim']}: {item['verdict']}**", ""]
            lines += [f"- seen: {_cell(line['text'])}" for line in item["evidence"]]
            for cause in item["causes"]:
                lines.append(f"- maybe: {_cell(cause['why'])}{_because(cause)}; look: {_cell(cause['look'])}")
            lines += [f"- to see it: {_cell(text)}" for text in item["observable"]]
    lines += ["", *(f"{item['claim']} does not apply: {_cell(item['reason'])}  " for item in document["notApplicable"])]
    return "\n".join(lines).rstrip() + "\n"


def _because(cause: Mapping[str, Any]) -> str:
    return f" ({_cell(cause['because'])})" if cause["because"] else ""


def _cell(text: str) -> str:
    return clean(text).replace("|", "\\|").replace("<", "&lt;")


def suites(document: Verdicts, strict: bool = False) -> str:
    """JUnit XML: a contradiction is a failure; what is not observable is skipped, or a failure too with ``strict``."""
    verdicts = document["verdicts"]
    failing = [item for item in verdicts if _fails(item, strict)]
    skipped = [item for item in verdicts if item["verdict"] == "not observable" and item not in failing]
    counts = f'tests="{len(verdicts)}" failures="{len(failing)}" errors="0" skipped="{len(skipped)}"'
    return "\n".join(
        [
            '<?xml version="1.0" encoding="UTF-8"?>',
            f'<testsuites name="mmdeploy verify" {counts}>',
            f'  <testsuite name="mmdeploy verify" {counts}>',
            *(_case(item, item in failing) for item in verdicts),
            "  </testsuite>",
            "</testsuites>",
            "",
        ]
    )


def _fails(item: Mapping[str, Any], strict: bool) -> bool:
    return item["verdict"] == "contradicted" or (strict and item["verdict"] == "not observable")


def _case(item: Mapping[str, Any], failed: bool) -> str:
    head = f'classname="mmdeploy verify" name={attribute(item["claim"] + ": " + item["title"])}'
    seen = "\n".join(clean(line["text"]) for line in item["evidence"])
    if failed:
        why = "\n".join(f"{cause['why']}{_because(cause)}; look: {cause['look']}" for cause in item["causes"])
        inside = (
            f"<failure type={attribute(item['verdict'])} message={attribute(item['summary'])}>"
            f"{escaped(seen + chr(10) + why)}</failure>"
        )
    elif item["verdict"] == "proved":
        inside = f"<system-out>{escaped(seen)}</system-out>"
    else:
        inside = f"<skipped message={attribute(item['summary'])}/>"
    return f"    <testcase {head}>{inside}</testcase>"


def progress(lines: Sequence[str]) -> str:
    """The last thing that was done, on one line of a terminal."""
    return clean(lines[-1])[: max(10, width() - 1)] if lines else ""


def _folded(label: str, value: str, indent: int) -> str:
    columns = max(40, width() - len(re.sub(r"\x1b\[\d+m", "", label)))
    lines = textwrap.wrap(clean(value), columns, break_long_words=False, break_on_hyphens=False) or [""]
    rest = " ".join(lines[1:])
    more = textwrap.wrap(rest, max(40, width() - indent), break_long_words=False, break_on_hyphens=False)
    return "\n".join([(label + lines[0]).rstrip(), *(" " * indent + line for line in more)])
