"""The program: its commands, and what happens to errors."""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Final

import typer

from mmdeploy import __version__
from mmdeploy.errors import MmdeployError

EPILOG = """Exit codes: 0 done · 1 failed · 2 usage or invalid spec · 3 findings · 4 differences exist ·
5 cluster unreachable or forbidden · 6 verification contradicted · 124 timed out · 130 interrupted."""

EXAMPLES = "EXAMPLES"
COMMANDS: Final = {
    "render": ("render", EXAMPLES),
    "lint": ("lint", "LINT_EXAMPLES"),
    "check": ("check", EXAMPLES),
    "diff": ("diff", EXAMPLES),
    "rehearse": ("rehearse", EXAMPLES),
    "verify": ("verify", EXAMPLES),
    "apply": ("apply", EXAMPLES),
    "status": ("status", EXAMPLES),
    "delete": ("delete", EXAMPLES),
    "explain": ("lint", "EXPLAIN_EXAMPLES"),
    "estimate": ("estimate", EXAMPLES),
    "matrix": ("catalog", "MATRIX_EXAMPLES"),
    "models": ("catalog", "MODELS_EXAMPLES"),
    "schema": ("catalog", "SCHEMA_EXAMPLES"),
}
"""A command is the function of its name in a module of this room; the examples in its help stand beside it."""


def program(words: Sequence[str] = ()) -> typer.Typer:
    """The program for a command line: with the one command that is called, or with all where it is not plain which.

    Importing all of them and working out their options takes half the time that a short command takes.
    """
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
    app.callback()(_options)
    called = words[0] if words and words[0] in COMMANDS else None
    for name, (module, examples) in COMMANDS.items():
        if called in (None, name):
            found = import_module(f"mmdeploy.cli.{module}")
            app.command(name, epilog=getattr(found, examples))(getattr(found, name))
    return app


def _version(asked: bool) -> None:
    if asked:
        print(f"mmdeploy {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", "-V", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Options of every command."""


def main() -> None:
    """Run the program with ``sys.argv``; errors become one message on stderr and the documented exit code."""
    try:
        program(sys.argv[1:])()
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
