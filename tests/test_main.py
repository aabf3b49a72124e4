"""How the program starts and how it ends when it is cut short."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

from mmdeploy import __main__, __version__


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A command line to put a ``main`` in, in place of the real one."""
    module = ModuleType("mmdeploy.cli")
    monkeypatch.setitem(sys.modules, "mmdeploy.cli", module)
    monkeypatch.setattr(sys, "argv", ["mmdeploy", "render"])
    return module


def test_version_alone_is_answered_at_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["mmdeploy", "--version"])
    __main__.main()
    assert capsys.readouterr().out == f"mmdeploy {__version__}\n"


def test_everything_else_goes_to_the_command_line(cli: ModuleType) -> None:
    called: list[list[str]] = []
    cli.main = lambda: called.append(sys.argv[1:])
    __main__.main()
    assert called == [["render"]]


def test_ctrl_c_ends_with_130(cli: ModuleType) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    cli.main = interrupted
    with pytest.raises(SystemExit) as stopped:
        __main__.main()
    assert stopped.value.code == 130


def test_a_reader_that_goes_away_gets_no_traceback() -> None:
    # The program waits for its input to end before it starts, so that its output is closed by then.
    program = "import sys; sys.stdin.read(); from mmdeploy.__main__ import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", program, "--version"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1
