"""What the guides say is true: their commands run, their output is the program's, their links lead somewhere.

``make guides`` (or ``pytest tests/guides --snapshot-update``) puts the real output where it changed.
"""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from mmdeploy.inputs import GUIDE_VARIABLES
from tests.guides.markdown import Block, anchors, blocks, links, matches

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "guides").glob("*.md"))]
PROGRAMS = ("mmdeploy", "make", "kubectl", "cp", "ls", "cat", "mkdir", "diff", "grep")
"""First words of commands that the tests run."""

needs_kubectl = shutil.which("kubectl") is None


def _names(pages: list[Path]) -> list[str]:
    return [str(page.relative_to(ROOT)) for page in pages]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A directory that looks like a clone to the commands of a guide, and that they may change."""
    shutil.copytree(ROOT / "blueprints", tmp_path / "blueprints")
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "overlays").symlink_to(ROOT / "overlays")
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    program = programs / "mmdeploy"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m mmdeploy "$@"\n')
    program.chmod(0o755)
    return tmp_path


def _environment(clone: Path) -> dict[str, str]:
    hidden = ("COLUMNS", "LINES", "FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "MAKEFLAGS", "MAKELEVEL")
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MMDEPLOY_", "_MMDEPLOY_")) and name not in (*hidden, *GUIDE_VARIABLES)
    }
    path = f"{clone / '.venv' / 'bin'}{os.pathsep}{kept['PATH']}"
    return {**kept, "PATH": path, "PYTHONPATH": str(ROOT), "TERM": "xterm", "NO_COLOR": "1"}


def _on_a_terminal(command: str, clone: Path, columns: int) -> tuple[int, list[str]]:
    """Exit status and lines of a command, as they look on a terminal of ``columns`` columns."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    with subprocess.Popen(
        ["sh", "-c", command],
        cwd=clone,
        env=_environment(clone),
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        output = b"".join(_read_all(ours))
        os.close(ours)
    # Progress is written over: what an erased line showed is not there at the end.
    left = re.sub(r"[^\n]*\r\x1b\[K", "", output.decode().replace("\r\n", "\n"))
    return process.returncode, left.splitlines()


def _read_all(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # how Linux says that the last program has closed the terminal
            return
        if not piece:
            return
        yield piece


def _runnable(command: str) -> str | None:
    """The command as the test runs it; None for one that only a cluster or another environment could run."""
    words = re.sub(r"^(?:[A-Z_]+=\S* )*", "", command).split()
    assert words[0] in PROGRAMS, f"no test runs {words[0]}: use another block than sh"
    if words[0] == "make":
        targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert words[1] in targets, f"the Makefile has no target {words[1]}"
        # The environment is the test's own; what the target does with it is what counts.
        return f"{command} -s -o .venv/runtime.stamp" if words[1] == "demo" else None
    if "kubectl" in words:
        assert "kubectl kustomize" in command, "only kubectl kustomize needs no cluster: use console"
        return None if needs_kubectl else command
    return command


class Reading:
    """One page from top to bottom, its commands run in one directory."""

    def __init__(self, page: Path, clone: Path, update: bool) -> None:
        self.page, self.clone, self.update = page, clone, update
        self.lines = page.read_text(encoding="utf-8").splitlines()
        self.shift, self.changed = 0, False

    def go(self) -> None:
        found = blocks("\n".join(self.lines))
        for index, block in enumerate(found):
            follows = found[index + 1] if index + 1 < len(found) else None
            shown = follows if follows and follows.language == "text" and follows.after_blank_only else None
            self._do(block, shown)
        if self.changed:
            self.page.write_text("\n".join(self.lines) + "\n", encoding="utf-8")

    def _do(self, block: Block, shown: Block | None) -> None:
        if block.language == "sh":
            self._run(block, shown)
        elif block.language == "console":
            self._compare_with_bundles(block)
        elif block.language == "diff" and "apply" in block.options:
            done = subprocess.run(
                ["git", "apply", "-"], cwd=self.clone, input=block.text, text=True, capture_output=True
            )
            assert done.returncode == 0, f"{self._at(block.first)}: {done.stderr}"
        for option, mode in (("file", "w"), ("append", "a")):
            if option in block.options:
                target = self.clone / block.options[option]
                assert option == "file" or target.is_file(), f"{self._at(block.first)}: there is no {target.name}"
                target.parent.mkdir(parents=True, exist_ok=True)
                with target.open(mode, encoding="utf-8") as stream:
                    stream.write(block.text)

    def _at(self, line: int) -> str:
        return f"{self.page.relative_to(ROOT)}:{line}"

    def _run(self, block: Block, shown: Block | None) -> None:
        expected = int(block.options.get("exit", "0"))
        columns = int(shown.options.get("width", "80")) if shown else 80
        output: list[str] = []
        everything = True
        for line, command in block.commands():
            runnable = _runnable(command)
            if runnable is None:
                everything = False
                continue
            status, said = _on_a_terminal(runnable, self.clone, columns)
            told = "\n".join(said)
            assert status == expected, f"{self._at(line)}: {command}\nended with {status}, not {expected}:\n{told}"
            output += said
        if shown and everything:
            self._compare(shown, output)

    def _compare(self, shown: Block, output: list[str]) -> None:
        output = [line.rstrip() for line in output]
        if matches(shown.lines, output):
            return
        if self.update and "..." not in shown.lines:
            start = shown.first - 1 + self.shift
            self.lines[start : start + len(shown.lines)] = output
            self.shift += len(output) - len(shown.lines)
            self.changed = True
            return
        told = "\n".join(output)
        pytest.fail(f"{self._at(shown.first)}: shows what is not printed (make guides renews it). Printed:\n{told}")

    def _compare_with_bundles(self, block: Block) -> None:
        bundles = [file.parent / "README.md" for file in self.clone.rglob("mmdeploy.sum")]
        said = {_plain(command) for file in bundles for command in _commands_of(file)}
        for line, command in block.commands():
            assert _plain(command) in said, f"{self._at(line)}: no bundle's README gives this command:\n{command}"


def _commands_of(file: Path) -> Iterator[str]:
    for block in blocks(file.read_text(encoding="utf-8")):
        for _, command in block.commands():
            yield command


def _plain(command: str) -> str:
    return " ".join(command.replace("\\\n", " ").split())


@pytest.mark.parametrize("name", _names(PAGES))
def test_commands_run_and_print_what_is_shown(name: str, clone: Path, request: pytest.FixtureRequest) -> None:
    reading = Reading(ROOT / name, clone, update=bool(request.config.getoption("update_snapshots", False)))
    reading.go()


@pytest.mark.parametrize("name", [*_names(PAGES), "CHANGELOG.md"])
def test_links_lead_somewhere(name: str) -> None:
    page = ROOT / name
    for target in links(page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{name} links to {target}, which is not there"
        assert not anchor or anchor in anchors(file), f"{name} links to {target}, but {file.name} has no such heading"


def test_every_output_belongs_to_a_command() -> None:
    for page in PAGES:
        before = ""
        for block in blocks(page.read_text(encoding="utf-8")):
            at = f"{page.name}:{block.first}"
            assert block.language != "text" or (before == "sh" and block.after_blank_only), f"{at}: output of what?"
            before = block.language


def test_the_reference_is_current() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mmdeploy", "schema", "-o", "markdown"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == (ROOT / "guides" / "spec.md").read_text(encoding="utf-8"), "make guides renews it"


def test_every_guide_is_linked_from_the_readme() -> None:
    targets = links((ROOT / "README.md").read_text(encoding="utf-8"))
    missing = [page for page in _names(PAGES[1:]) if page not in targets]
    assert not missing


def test_the_readme_lists_the_commands_there_are() -> None:
    from typer.main import get_command

    from mmdeploy.cli.program import program

    said = re.findall(r"^\| `mmdeploy (\w+)` \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(said) == sorted(get_command(program()).commands)  # type: ignore[attr-defined]


def test_every_name_of_an_expression_is_explained() -> None:
    from mmdeploy.cli import blueprints
    from mmdeploy.render.expressions import _environment
    from mmdeploy.render.resolve import Resolution, Resolver
    from mmdeploy.spec import DeploymentSpec

    spec = DeploymentSpec(topology="e-p-d", workload="DisaggregatedSet")
    resolution = Resolution(Resolver(blueprints.load()), spec, lambda path: "test")
    resolution.deployment()
    role = next(iter(resolution.roles.values()))
    names = {*resolution.context, *role._context, "poolSelector", "configFile", *_environment().globals}

    guide = (ROOT / "guides" / "contributing.md").read_text(encoding="utf-8")
    table = guide.partition("### Names that an expression may use")[2].partition("\n\nJinja")[0]
    first_cells = " ".join(line.split("|")[1] for line in table.splitlines() if line.startswith("|"))
    assert set(re.findall(r"`(\w+)", first_cells)) == names


def test_the_table_of_releases_says_what_the_catalog_says() -> None:
    from mmdeploy.cli import blueprints

    catalog = blueprints.load()
    guide = (ROOT / "guides" / "releases.md").read_text(encoding="utf-8")
    table = [[cell.strip() for cell in line.split("|")[2:-1]] for line in guide.splitlines() if line.startswith("|")]
    assert sorted(table[0]) == sorted(catalog.release_names)
    for column, name in enumerate(table[0]):
        release = catalog.release(name)
        said = " ".join(row[column] for row in table)
        facts = [release.versions["routerChart"], release.apiVersion, release.guideLabels["aggregation"]]
        facts += [images["gpu"].rpartition(":")[2] for kind, images in release.images.items() if kind == "vllm"]
        facts += [release.versions["leaderWorkerSet"]] if "disaggregated-set" in release.features else []
        missing = [fact for fact in facts if fact not in said]
        assert not missing, f"{name}: {missing}"


def test_the_options_of_the_reference_exist() -> None:
    from typer.main import get_command

    from mmdeploy.cli.program import program
    from mmdeploy.cli.render import OPTIONS
    from mmdeploy.spec import fields_of

    render = get_command(program()).commands["render"]  # type: ignore[attr-defined]
    assert set(OPTIONS) <= {option for parameter in render.params for option in parameter.opts}
    assert set(OPTIONS.values()) <= set(fields_of())
