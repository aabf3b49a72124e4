"""What mmdeploy refuses, one file a case under ``cases/``: a case added is a file added.

A case holds ``spec`` (text of a spec file, called spec.yaml) or ``args``, and what must be said about it:

- ``exit``: exit code, 2 where it is left out
- ``origin``: where the person said it: ``spec.yaml:line:column``, an option, a file; left out where no single place is
  to blame
- ``found``: texts that the message must hold
- ``nearest``: suggestions that must be among those made
- ``works``: the good twin (``spec`` or ``args``), as near to the bad one as can be, which must render
- ``files``: further files, by name
- ``written``, ``edited``: arguments that fill the target directory first, and a file in it that is edited by hand then

Why a case is refused stands in the comment on top of its file.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from mmdeploy.render import refusals
from tests.cli.program import Done, run

CASES = Path(__file__).parent / "cases"
NAMES = sorted(path.stem for path in CASES.glob("*.yaml"))
KEYS = {"spec", "args", "exit", "origin", "found", "nearest", "works", "files", "written", "edited"}
OUT = "out"

PATH_AND_VALUE = re.compile(r"[a-z][A-Za-z]*(\.[a-z][A-Za-z]*)*=[^…]+")


@cache
def case_of(name: str) -> dict[str, Any]:
    case: dict[str, Any] = yaml.safe_load((CASES / f"{name}.yaml").read_text(encoding="utf-8"))
    return case


def render(what: Mapping[str, Any], *more: str) -> Done:
    """Render a case's ``spec`` or ``args`` into the directory ``out``, or with ``more`` options to nowhere."""
    args = [str(arg) for arg in what.get("args", ())]
    if "spec" in what:
        Path("spec.yaml").write_text(what["spec"], encoding="utf-8")
        args += ["-f", "spec.yaml"]
    return run("render", *args, *(more or ("-d", OUT)))


def tree(root: str = ".") -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(Path(root).rglob("*")) if path.is_file()}


def suggestions(stderr: str) -> list[str]:
    """What the message says would work, one entry a choice; a block of YAML is one choice."""
    found: list[str] = []
    listing = False
    for line in stderr.splitlines():
        if line in ("  nearest:", "  try:"):
            listing = True
        elif listing and line.startswith("    "):
            inside_block = line.startswith("     ") and found
            found[-1:] = [f"{found[-1]}\n{line[4:]}"] if inside_block else [*found[-1:], line[4:]]
        else:
            listing = False
            if match := re.match(r"  (nearest|try): (.*)", line):
                found += match[2].split(", ") if match[1] == "nearest" else [match[2]]
    return found


def is_suggested(near: str, choice: str) -> bool:
    """A case may name the whole choice, a line of a block, or a field whose value is left to the person."""
    lines = [line.strip() for line in choice.splitlines()]
    return near in (choice, *lines) or (near.endswith("=") and choice.startswith(near))


def as_options(suggestion: str) -> list[str] | None:
    """A suggestion as a person would follow it on the command line; None for a bare word."""
    if suggestion.startswith("-"):
        return shlex.split(suggestion)
    if PATH_AND_VALUE.fullmatch(suggestion):
        return ["--set", suggestion]
    if "\n" in suggestion:
        return [
            word
            for field, value in yaml.safe_load(suggestion).items()
            for word in ("--set", f"{field}={json.dumps(value)}")
        ]
    return None


def prepare(case: Mapping[str, Any]) -> None:
    for file, text in case.get("files", {}).items():
        Path(file).write_text(text, encoding="utf-8")
    if "written" in case:
        assert run("render", *case["written"], "-d", OUT).status == 0
        with Path(OUT, case["edited"]).open("a", encoding="utf-8") as file:
            file.write("# by hand\n")


def test_cases_are_well_formed() -> None:
    for name in NAMES:
        case = case_of(name)
        assert set(case) <= KEYS, name
        assert ("spec" in case) != ("args" in case), name
        assert ("spec" in case["works"]) != ("args" in case["works"]), name
        assert case["found"], name
        assert (CASES / f"{name}.yaml").read_text(encoding="utf-8").startswith("# "), f"{name}: say why it is refused"


@dataclass(frozen=True)
class Refused:
    """A case that was tried: how it ended, and what the target directory held before and after."""

    case: Mapping[str, Any]
    done: Done
    before: Mapping[str, bytes]
    after: Mapping[str, bytes]
    directory_made: bool

    @property
    def head(self) -> str:
        """The line that says what was found; empty for a case that is not refused, which `test_is_refused` tells."""
        return next((line for line in self.done.stderr.splitlines() if line.startswith("error: ")), "")


@pytest.fixture(scope="module", params=NAMES)
def refused(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Refused]:
    """Each case is tried once, in a directory of its own that stays the working directory of its tests."""
    with contextlib.chdir(tmp_path_factory.mktemp("case")):
        case = case_of(request.param)
        prepare(case)
        before = tree(OUT)
        done = render(case)
        yield Refused(case, done, before, tree(OUT), Path(OUT).exists() and "written" not in case)


def test_is_refused(refused: Refused) -> None:
    done = refused.done
    assert "Traceback" not in done.stderr
    assert done.status == refused.case.get("exit", 2), done.stderr
    assert done.stdout == ""
    assert refused.after == refused.before, "something was written"
    assert not refused.directory_made
    assert done.stderr.count("error: ") == 1, done.stderr
    for text in refused.case["found"]:
        assert text in refused.head
    made = suggestions(done.stderr)
    for near in map(str, refused.case.get("nearest", ())):
        assert any(is_suggested(near, choice) for choice in made), made


def test_says_where(refused: Refused) -> None:
    if refused.head and "origin" in refused.case:
        assert refused.head.startswith(f"error: {refused.case['origin']}: ")


def test_says_what_to_do_next(refused: Refused) -> None:
    if refused.head:
        assert re.search(r"^  next: \S", refused.done.stderr, re.MULTILINE), refused.done.stderr


def test_good_twin_renders(refused: Refused) -> None:
    done = render(refused.case["works"])
    assert done.status == 0, done.stderr
    assert Path(OUT, "mmdeploy.yaml").is_file()


def test_suggestions_can_be_followed(refused: Refused) -> None:
    """No suggestion leads straight back to the same refusal, and, where there are any, one of them works alone."""
    made = suggestions(refused.done.stderr)
    followed = {text: options for text in made if (options := as_options(text))}
    ends = {text: render(refused.case, *options, "--explain") for text, options in followed.items()}
    for text, done in ends.items():
        assert refused.head not in done.stderr, f"{text} changes nothing"
    if ends:
        assert 0 in {done.status for done in ends.values()}, {text: done.stderr for text, done in ends.items()}


def test_every_rule_has_a_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that no case breaks is a rule that nobody knows to work."""
    monkeypatch.chdir(tmp_path)
    broken: set[str] = set()

    def watched(rule: Any) -> Any:
        def check(resolution: Any) -> None:
            try:
                rule(resolution)
            except Exception:
                broken.add(rule.__name__)
                raise

        return check

    rules = refusals.RULES
    monkeypatch.setattr(refusals, "RULES", tuple(watched(rule) for rule in rules))
    monkeypatch.setattr(refusals, "check_unread", watched(refusals.check_unread))
    for name in NAMES:
        if "written" not in case_of(name):
            prepare(case_of(name))
            render(case_of(name), "--explain")
    assert broken == {rule.__name__ for rule in rules} | {"check_unread"}
