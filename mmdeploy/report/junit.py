"""Findings as JUnit XML, which build servers show among the tests: one case a finding, or one that passed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmdeploy.report.findings import clean

_PASSED = '    <testcase classname="mmdeploy lint" name="all"/>'
_ORDER = ("info", "warning", "error")


def suites(document: Mapping[str, Any]) -> str:
    """Findings at or above the threshold are failures, the others skipped cases that say why."""
    findings = document["findings"]
    failing = [item for item in findings if _fails(item, document["failOn"])]
    cases = [_case(item, item in failing) for item in findings] or [_PASSED]
    counts = f'tests="{len(cases)}" failures="{len(failing)}" errors="0" skipped="{len(findings) - len(failing)}"'
    return "\n".join(
        [
            '<?xml version="1.0" encoding="UTF-8"?>',
            f'<testsuites name="mmdeploy lint" {counts}>',
            f'  <testsuite name="mmdeploy lint" {counts}>',
            *cases,
            "  </testsuite>",
            "</testsuites>",
            "",
        ]
    )


def _fails(item: Mapping[str, Any], fail_on: str) -> bool:
    return fail_on != "never" and _ORDER.index(item["level"]) >= _ORDER.index(fail_on)


def _case(item: Mapping[str, Any], failed: bool) -> str:
    place = f"{item['file']}:{item['line']}:{item['column']}"
    name = f"{item['code']} {item['subject']} at {place}"
    head = f"classname={attribute(item['file'])} name={attribute(name)}"
    message = attribute(item["message"])
    if failed:
        body = "\n".join([f"{place}: {item['message']}", f"fix: {item['fix']}", f"from: {item['source']}"])
        inside = f"<failure type={attribute(item['level'])} message={message}>{escaped(_lines(body))}</failure>"
    else:
        inside = f"<skipped message={message}/>"
    return f"    <testcase {head}>{inside}</testcase>"


def attribute(value: str) -> str:
    """A value of an attribute, quotes and all."""
    return '"' + escaped(clean(value)).replace('"', "&quot;") + '"'


def escaped(value: str) -> str:
    """As ``xml.sax.saxutils`` does it, whose import takes longer than the rest of lint's report."""
    return value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _lines(value: str) -> str:
    return "\n".join(map(clean, value.splitlines()))
