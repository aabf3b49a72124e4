"""``mmdeploy matrix``, ``models`` and ``schema``: what mmdeploy knows."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

MATRIX_EXAMPLES = """Examples:

mmdeploy matrix --release main

mmdeploy matrix -t e-pd -o json
"""
MODELS_EXAMPLES = """Examples:

mmdeploy models

mmdeploy models -o json
"""
SCHEMA_EXAMPLES = """Examples:

mmdeploy schema > mmdeploy.schema.json

mmdeploy schema -o markdown | less
"""

Blueprints = Annotated[
    Path | None, typer.Option("--blueprints", help="Other blueprints.", metavar="DIR", envvar="MMDEPLOY_BLUEPRINTS")
]


DROPPABLE = ("note", "workloads", "topologies", "model", "runsOn", "providers")
"""Columns that a narrow terminal may go without, the first first."""


class Form(StrEnum):
    """Forms of ``-o``."""

    table = "table"
    json = "json"


FormOption = Annotated[Form, typer.Option("--output", "-o", help="What stdout gets.")]


class SchemaForm(StrEnum):
    """Forms of ``schema -o``."""

    json = "json"
    markdown = "markdown"


def matrix(
    release: Annotated[str | None, typer.Option("--release", help="Only this release.", metavar="WORD")] = None,
    topology: Annotated[
        str | None, typer.Option("--topology", "-t", help="Only this topology.", metavar="WORD")
    ] = None,
    output: FormOption = Form.table,
    blueprints_dir: Blueprints = None,
) -> None:
    """List every supported combination, per release, and how well it is tested."""
    from mmdeploy.catalog.listings import matrix as rows_of
    from mmdeploy.cli import blueprints

    rows = rows_of(blueprints.load(blueprints_dir), release, topology)
    columns = ("release", "topology", "accelerator", "server", "providers", "model", "workloads", "status", "note")
    _print("Matrix", "rows", rows, columns, output)


def models(output: FormOption = Form.table, blueprints_dir: Blueprints = None) -> None:
    """List the served models that the catalog knows, and what a 1280x720 image takes on each."""
    from mmdeploy.cli import blueprints
    from mmdeploy.render.listings import models as rows_of

    rows = rows_of(blueprints.load(blueprints_dir))
    columns = ("name", "family", "estimator", "image1280x720Tokens", "routerTokens", "runsOn", "topologies")
    _print("Models", "models", rows, columns, output)


def schema(
    output: Annotated[SchemaForm, typer.Option("--output", "-o", help="What stdout gets.")] = SchemaForm.json,
) -> None:
    """Print the JSON Schema of the spec file, for editors to complete and check it, or a page that lists its fields."""
    from mmdeploy.report import documents, reference
    from mmdeploy.spec import json_schema

    if output is SchemaForm.markdown:
        from mmdeploy import inputs
        from mmdeploy.cli.render import OPTIONS

        print(reference.page(inputs.reference(OPTIONS), list(inputs.GUIDE_VARIABLES)), end="")
        return
    print(documents.as_json(json_schema()), end="")


def _print(kind: str, key: str, rows: list[dict[str, Any]], columns: tuple[str, ...], output: Form) -> None:
    from mmdeploy.report import documents, problems, tables

    if output is Form.json:
        print(documents.as_json({"schemaVersion": 1, "kind": kind, key: rows}), end="")
        return
    headings = {"image1280x720Tokens": "720p tokens", "routerTokens": "router", "runsOn": "runs on"}
    text, dropped = tables.table({name: headings.get(name, name) for name in columns}, rows, DROPPABLE)
    print(text, end="")
    if dropped:
        note = f"left out on this narrow terminal: {', '.join(dropped)} (-o json has everything)"
        print(problems.remark(note), file=sys.stderr)
