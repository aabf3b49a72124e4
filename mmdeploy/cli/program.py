"""The program: its commands, and what happens to errors."""

from __future__ import annotations

import errno
import sys
from typing import Annotated

import typer

from mmdeploy import __version__
from mmdeploy.cli import apply, catalog, check, delete, diff, estimate, lint, rehearse, render, status, verify
from mmdeploy.errors import MmdeployError

EPILOG = """Exit codes: 0 done · 1 unexpected · 2 usage or invalid spec · 3 findings · 4 differences exist ·
5 cluster unreachable or forbidden · 6 verification contradicted · 124 timed out · 130 interrupted."""

app = typer.Typer(
    name="mmdeploy",
    help="Render, check and prove multimodal llm-d deployments.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,  # its tables cut the names of long options on a narrow terminal
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("render", epilog=render.EXAMPLES)(render.render)
app.command("lint", epilog=lint.LINT_EXAMPLES)(lint.lint)
app.command("check", epilog=check.EXAMPLES)(check.check)
app.command("diff", epilog=diff.EXAMPLES)(diff.diff)
app.command("rehearse", epilog=rehearse.EXAMPLES)(rehearse.rehearse)
app.command("verify", epilog=verify.EXAMPLES)(verify.verify)
app.command("apply", epilog=apply.EXAMPLES)(apply.apply)
app.command("status", epilog=status.EXAMPLES)(status.status)
app.command("delete", epilog=delete.EXAMPLES)(delete.delete)
app.command("explain", epilog=lint.EXPLAIN_EXAMPLES)(lint.explain)
app.command("estimate", epilog=estimate.EXAMPLES)(estimate.estimate)
app.command("matrix", epilog=catalog.MATRIX_EXAMPLES)(catalog.matrix)
app.command("models", epilog=catalog.MODELS_EXAMPLES)(catalog.models)
app.command("schema", epilog=catalog.SCHEMA_EXAMPLES)(catalog.schema)


def _version(asked: bool) -> None:
    if asked:
        print(f"mmdeploy {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", "-V", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Options of every command."""


def main() -> None:
    """Run the program with ``sys.argv``; errors become one message on stderr and the documented exit code."""
    try:
        app()
    except MmdeployError as problem:
        from mmdeploy.report import problems

        print(problems.error(problem), file=sys.stderr)
        sys.exit(problem.exit_code)
    except (KeyboardInterrupt, BrokenPipeError):
        raise
    except Exception as problem:
        if isinstance(problem, OSError) and problem.errno == errno.ENOSPC:
            raise
        import traceback

        traceback.print_exc()
        print("This is a bug in mmdeploy: please report it with the lines above.", file=sys.stderr)
        sys.exit(1)
