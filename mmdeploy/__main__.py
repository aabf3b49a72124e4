"""Where the ``mmdeploy`` program starts.

Nothing but the standard library is imported here, so that ``mmdeploy --version`` answers at once.
"""

from __future__ import annotations

import io
import os
import sys

from mmdeploy import __version__


def main() -> None:
    """Run mmdeploy with ``sys.argv``; Ctrl-C and a reader that goes away end it without a traceback."""
    _open_streams()
    try:
        try:
            _run()
        finally:
            # What is still buffered is written here, where a reader that went away can be caught.
            sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # `mmdeploy ... | head`: the interpreter flushes stdout once more when it ends, so that must lead somewhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as problem:
        print(f"error: standard output cannot be written: {problem.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _open_streams() -> None:
    """Closed streams lead nowhere, instead of into each other; a narrow encoding shows an escape, not a traceback."""
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: SIM115  # open to the end of the program
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _run() -> None:
    if sys.argv[1:] in (["--version"], ["-V"]):
        print(f"mmdeploy {__version__}")
        return
    # pydantic would search every installed package for plugins; mmdeploy uses none.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")
    from mmdeploy.cli import main as cli_main

    cli_main()


if __name__ == "__main__":
    main()
