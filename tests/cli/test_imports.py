"""What a command loads is what a person waits for: libraries are imported by the commands that need them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.program import ROOT, environment

REPORT = """
import sys
sys.argv = ["mmdeploy", *{args!r}]
from mmdeploy.__main__ import main
status = 0
try:
    main()
except SystemExit as end:
    status = end.code or 0
print(*sorted({{name for name in sys.modules}}), file=open({report!r}, "w"))
sys.exit(status)
"""


def loaded(tmp_path: Path, *args: str, status: int = 0) -> set[str]:
    """Modules, and the packages that they are in, that a call leaves loaded."""
    report = tmp_path / "modules"
    done = subprocess.run(
        [sys.executable, "-c", REPORT.format(args=args, report=str(report))],
        cwd=tmp_path,
        env=environment({"PYTHONPATH": str(ROOT)}),
        capture_output=True,
        text=True,
    )
    assert done.returncode == status, done.stderr
    names = report.read_text().split()
    return {".".join(name.split(".")[: end + 1]) for name in names for end in range(name.count(".") + 1)}


COMMANDS = [
    ["render", "-t", "e-pd"],
    ["render", "-t", "e-pd", "-d", "out"],
    ["render", "-t", "e-pd", "-o", "json"],
    ["render", "--explain"],
    ["matrix"],
    ["models"],
    ["schema"],
    ["--help"],
    ["render", "--help"],
]


@pytest.mark.parametrize("args", COMMANDS, ids=" ".join)
def test_no_command_without_a_cluster_loads_its_client(tmp_path: Path, args: list[str]) -> None:
    modules = loaded(tmp_path, *args)
    assert "mmdeploy.cli" in modules, "the report is of the program"
    assert not modules & {"kubernetes", "mmdeploy.cluster", "requests", "urllib3"}


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_the_version_loads_no_library(tmp_path: Path, flag: str) -> None:
    modules = loaded(tmp_path, flag)
    assert "mmdeploy" in modules
    libraries = {"typer", "click", "pydantic", "jinja2", "yaml", "ruamel", "rich", "mmdeploy.cli", "mmdeploy.spec"}
    assert not modules & libraries


@pytest.mark.parametrize(
    "args",
    [["render", "-t", "e-pd", "-d", "out"], ["render", "-t", "e-pd", "-o", "yaml"], ["schema"], ["matrix"], ["models"]],
    ids=" ".join,
)
def test_what_is_piped_needs_no_library_for_terminals(tmp_path: Path, args: list[str]) -> None:
    assert not loaded(tmp_path, *args) & {"rich", "ruamel", "pygments"}


@pytest.mark.parametrize("args", [["matrix"], ["schema"]], ids=" ".join)
def test_commands_that_evaluate_nothing_need_no_templates(tmp_path: Path, args: list[str]) -> None:
    assert "jinja2" not in loaded(tmp_path, *args)


def test_an_error_is_told_without_loading_more(tmp_path: Path) -> None:
    modules = loaded(tmp_path, "render", "-a", "gpuu", status=2)
    assert not modules & {"rich", "ruamel", "jinja2", "kubernetes"}


@pytest.mark.parametrize("args", [["models"], ["render", "--help"]], ids=" ".join)
def test_a_command_loads_no_other_command(tmp_path: Path, args: list[str]) -> None:
    modules = loaded(tmp_path, *args)
    assert not modules & {"mmdeploy.cli.apply", "mmdeploy.cli.lint", "mmdeploy.cli.verify"}


def test_an_unknown_command_is_told_what_there_is(tmp_path: Path) -> None:
    assert "mmdeploy.cli.verify" in loaded(tmp_path, "verfiy", status=2)
