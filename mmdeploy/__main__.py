"""Where the ``mmdeploy`` program starts.

Nothing but the standard library is imported here, so that ``mmdeploy --version`` answers at once.
"""

from __future__ import annotations

import os
import sys

from mmdeploy import __version__


def main() -> None:
    """Run mmdeploy with ``sys.argv``; Ctrl-C and a reader that goes away end it without a traceback."""
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
