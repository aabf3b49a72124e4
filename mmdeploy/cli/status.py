"""``mmdeploy status``."""

from __future__ import annotations

import json
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mmdeploy.cli import naming

if TYPE_CHECKING:
    from mmdeploy.apply.status import Status

EXAMPLES = """Examples:

mmdeploy status deploy/

mmdeploy status --namespace llm-d-multimodal-serving --watch

mmdeploy status --name multimodal-serving -o json
"""
WATCH_SECONDS = 2.0
"""Between two looks of ``--watch``."""


class Form(StrEnum):
    """Forms of ``-o``."""

    text = "text"
    json = "json"


def status(
    bundle: Annotated[
        Path | None,
        typer.Argument(help="A bundle's directory, or a spec file.", metavar="BUNDLE", show_default="what is there"),
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            help="Where to look.",
            metavar="NAME",
            show_default="the context's",
            callback=naming.namespace,
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name", help="Which of several deployments of the namespace.", metavar="NAME", callback=naming.name
        ),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Look again and again, until Ctrl-C.")] = False,
    kubeconfig: Annotated[Path | None, typer.Option("--kubeconfig", help="Another kubeconfig.", metavar="FILE")] = None,
    context: Annotated[
        str | None, typer.Option("--context", help="Another context of the kubeconfig.", metavar="NAME")
    ] = None,
    output: Annotated[Form, typer.Option("--output", "-o", help="What stdout gets.")] = Form.text,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say each request on stderr.")] = False,
    blueprints_dir: Annotated[
        Path | None, typer.Option("--blueprints", help="Other blueprints.", metavar="DIR", envvar="MMDEPLOY_BLUEPRINTS")
    ] = None,
) -> None:
    """Show a deployment as it is: ready pods by role, router, release, drift, and what still starts.

    Without BUNDLE it finds what mmdeploy has applied in the namespace, or what carries llm-d's labels. Exits with 1
    where there is no deployment; one that is not ready is no error.
    """
    from mmdeploy import intended as bundles
    from mmdeploy.apply.status import Status
    from mmdeploy.cli import blueprints
    from mmdeploy.cluster.access import Access
    from mmdeploy.cluster.session import Session
    from mmdeploy.errors import UsageError
    from mmdeploy.report import documents
    from mmdeploy.report import status as screen

    catalog = blueprints.load(blueprints_dir)
    intended = bundles.read(bundle, catalog) if bundle is not None else None
    if intended is not None:
        for option, said, own in (("--namespace", namespace, intended.namespace), ("--name", name, intended.name)):
            if said not in (None, own):
                raise UsageError(f"the bundle says {own!r}", origin=option, next_step=f"leave out {option}, or BUNDLE")
    session = Session.connect(Access(kubeconfig, context), _traced if verbose else None)
    place = intended.namespace if intended else namespace or session.where.namespace
    looking = Status(session, catalog, place, name=name, intended=intended, clock=time.monotonic)
    if watch:
        _watch(looking, output)
        return
    document = looking.document()
    print(documents.as_json(document) if output is Form.json else screen.text(document), end="")


def _watch(looking: Status, output: Form) -> None:
    """Look until somebody stops it, with 130."""
    from mmdeploy.errors import StoppedError

    try:
        if output is Form.text and sys.stdout.isatty():
            _redraw(looking)
        else:
            _lines(looking, output)
    except KeyboardInterrupt:
        raise typer.Exit(StoppedError.exit_code) from None


def _lines(looking: Status, output: Form) -> None:
    """A line whenever something changed: JSON without line breaks, or text."""
    from mmdeploy.report import status as screen

    said = ""
    for document in _again(looking):
        changed = json.dumps(_without_ages(document)) if output is Form.json else screen.line(_without_ages(document))
        if changed != said:
            said = changed
            print(json.dumps(document) if output is Form.json else screen.line(document), flush=True)


def _redraw(looking: Status) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from mmdeploy.report import status as screen

    console = Console(highlight=False, markup=False, emoji=False)
    with Live(console=console, auto_refresh=False) as live:
        for document in _again(looking):
            rows = screen.text(document, console.width).splitlines()
            height = max(3, console.height - 1)
            rows = rows if len(rows) <= height else [*rows[: height - 1], "…"]  # what is taller cannot be redrawn
            live.update(Text.from_ansi("\n".join(rows), no_wrap=True, overflow="ellipsis"), refresh=True)


def _again(looking: Status) -> Any:
    """Documents for as long as somebody looks. A cluster that is away for a moment is told once, on stderr."""
    from mmdeploy.errors import ClusterError, ForbiddenError
    from mmdeploy.report import problems

    seen = away = False
    while True:
        try:
            yield looking.document()
            seen, away = True, False
        except ForbiddenError:
            raise
        except ClusterError as problem:
            if not seen:
                raise
            if not away:
                print(problems.error(problem), file=sys.stderr)
            away = True
        time.sleep(WATCH_SECONDS)


def _without_ages(document: Any) -> Any:
    """The document without what grows by itself."""
    if isinstance(document, dict):
        return {key: None if key == "seconds" else _without_ages(value) for key, value in document.items()}
    return [_without_ages(item) for item in document] if isinstance(document, list) else document


def _traced(line: str) -> None:
    sys.stderr.write(f"{line}\n")  # in one piece: requests run in parallel
