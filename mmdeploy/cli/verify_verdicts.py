"""Verdicts of ``mmdeploy verify`` on stdout, in the form that was asked for, and the exit code that they earn."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mmdeploy.verify.run import Outcome


class Form(StrEnum):
    """Forms of ``-o``."""

    table = "table"
    json = "json"
    junit = "junit"
    markdown = "markdown"


@dataclass(frozen=True)
class Shown:
    """How verdicts are shown."""

    form: Form
    strict: bool
    """What is not observable counts as a failure."""
    verbose: bool
    """The evidence of what is proved, too."""

    def show(self, outcome: Outcome) -> Mapping[str, Any]:
        """Print the verdicts; the document that they are of."""
        from mmdeploy.report import documents, verdicts
        from mmdeploy.verify import run

        document = run.document(outcome, self.strict)
        forms = {
            Form.table: lambda: verdicts.table(document, self.verbose),
            Form.json: lambda: documents.as_json(document),
            Form.junit: lambda: verdicts.suites(document, self.strict),
            Form.markdown: lambda: verdicts.markdown(document),
        }
        print(forms[self.form](), end="", flush=True)
        if not document["verdicts"]:
            told = "; ".join(f"{item['claim']}: {item['reason']}" for item in document["notApplicable"])
            print(f"nothing was judged, as no claim that was asked for applies: {told}", file=sys.stderr)
        return document

    def conclude(self, outcome: Outcome, *, late: bool = False) -> None:
        """Print the verdicts and end with their exit code."""
        document = self.show(outcome)
        if late:
            raise typer.Exit(124)
        if document["failed"]:
            raise typer.Exit(6)
