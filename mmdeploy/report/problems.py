"""Errors and warnings as a person reads them, on stderr."""

from __future__ import annotations

import sys
import textwrap

from mmdeploy.errors import MmdeployError
from mmdeploy.report.terminal import style, width


def error(problem: MmdeployError) -> str:
    """What was found and where, what would be right, and what to do next, each on a line of its own."""
    head = f"{problem.origin}: {problem.found}" if problem.origin else problem.found
    lines = [style("error: ", "red", sys.stderr) + _wrapped(head, 7)]
    lines += [f"  also: {_wrapped(text, 8)}" for text in problem.more]
    if problem.nearest:
        label = "  try: " if len(problem.nearest) == 1 else "  nearest: "
        if sum(map(len, problem.nearest)) > 70:
            lines += [label.rstrip(), *(f"    {line}" for choice in problem.nearest for line in choice.splitlines())]
        else:
            lines.append(label + ", ".join(problem.nearest))
    if problem.next_step:
        lines.append(f"  next: {_wrapped(problem.next_step, 8)}")
    return "\n".join(lines)


def warning(text: str) -> str:
    """One remark on a line."""
    return style("warning: ", "yellow", sys.stderr) + _wrapped(text, 9)


def remark(text: str) -> str:
    """Talk that is neither error nor warning."""
    return _wrapped(text, 0)


def _wrapped(text: str, indent: int) -> str:
    columns = max(40, width(sys.stderr) - indent)
    lines = textwrap.wrap(text, columns, break_long_words=False, break_on_hyphens=False) or [""]
    return ("\n" + " " * indent).join(lines)
