"""The program as a test calls it: arguments in, exit status and both streams out."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from mmdeploy.__main__ import main
from mmdeploy.inputs import GUIDE_VARIABLES

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Done:
    """How a call ended."""

    status: int
    stdout: str
    stderr: str


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without what would change the program's answers, and with ``extra``."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("MMDEPLOY_", "_MMDEPLOY_"))}
    for name in (*GUIDE_VARIABLES, "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "CI"):
        ours.pop(name, None)
    return {**ours, "TERM": "xterm", **(extra or {})}


def run(*args: str | os.PathLike[str], env: Mapping[str, str] | None = None, stdin: str = "") -> Done:
    """Call the program in this process, which is quick. ``env`` is added to a clean environment."""
    out, err, status = io.StringIO(), io.StringIO(), 0
    with (
        mock.patch.object(sys, "argv", ["mmdeploy", *map(os.fspath, args)]),
        mock.patch.dict(os.environ, environment(env), clear=True),
        mock.patch.object(sys, "stdin", io.StringIO(stdin)),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as stopped:
            status = stopped.code if isinstance(stopped.code, int) else int(stopped.code is not None)
    return Done(status, out.getvalue(), err.getvalue())


def run_process(
    *args: str | os.PathLike[str],
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: bytes = b"",
    timeout: float = 60,
) -> Done:
    """Call the program in a process of its own, as a person does."""
    done = subprocess.run(
        [sys.executable, "-m", "mmdeploy", *map(os.fspath, args)],
        input=stdin,
        capture_output=True,
        cwd=cwd,
        env=environment({"PYTHONPATH": str(ROOT), **(env or {})}),
        timeout=timeout,
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())
