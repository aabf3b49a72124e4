"""The shape of the program: who imports whom, the drawn exception tree, and what a quick answer may load."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

from mmdeploy import __version__, errors

ROOT = Path(__file__).resolve().parent.parent

# A line of the tree: the drawn branches, the class, the exit code. A step to the right is four characters.
DRAWN = re.compile(r"^ {4}(?P<branches>(?:[│├└─ ]{4})*)(?P<name>\w+)\s+\[(?P<code>\d+)\]", re.MULTILINE)


def test_rooms_import_only_what_the_table_allows(capsys: pytest.CaptureFixture[str]) -> None:
    status = lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True, no_logo=True)
    assert status == 0, capsys.readouterr().out


def test_every_exception_is_drawn_with_its_parent_and_exit_code() -> None:
    drawn: dict[str, tuple[str, int]] = {}
    above = ["Exception"]
    for line in DRAWN.finditer(errors.__doc__ or ""):
        depth = len(line["branches"]) // 4
        del above[depth + 1 :]
        drawn[line["name"]] = (above[-1], int(line["code"]))
        above.append(line["name"])

    defined = {
        name: (thing.__bases__[0].__name__, thing.exit_code)
        for name, thing in vars(errors).items()
        if isinstance(thing, type) and issubclass(thing, errors.MmdeployError)
    }
    assert drawn == defined


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_is_printed_without_loading_a_library(option: str) -> None:
    program = f"""
import sys
sys.argv = ["mmdeploy", {option!r}]
from mmdeploy.__main__ import main
main()
print(*{{name.partition(".")[0] for name in sys.modules}})
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    answer, modules = done.stdout.splitlines()
    assert answer == f"mmdeploy {__version__}"
    assert not {"typer", "click", "pydantic", "rich", "jinja2", "yaml", "ruamel", "kubernetes"} & set(modules.split())
