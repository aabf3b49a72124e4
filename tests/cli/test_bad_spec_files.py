"""Spec files as people really have them: every bad one ends with a place and a sentence, never with a traceback."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.program import ROOT, Done, environment, run, run_process

SECONDS = 2.0
"""What a person waits without wondering; the issue's own words are "a clear error", not "in the end"."""


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def render(content: bytes) -> Done:
    Path("spec.yaml").write_bytes(content)
    start = time.monotonic()
    done = run("render", "-f", "spec.yaml", "-d", "out")
    assert time.monotonic() - start < SECONDS
    return done


BAD: dict[str, tuple[bytes, str, str]] = {
    # name: content, line:column where a person must look, and what the sentence must hold
    "wrong type": (b"decode:\n  replicas: many\n", "2:3", "decode.replicas is 'many'"),
    "wrong type in a list": (b"decode:\n  extraArgs:\n  - --enforce-eager\n  - [1]\n", "4:5", "decode.extraArgs.1"),
    "wrong type of a map's value": (b"decode:\n  labels:\n    team: [a]\n", "3:5", "decode.labels.team"),
    "text for a mapping": (b"topology: e-pd\ngateway: istio\n", "2:1", "gateway must be a mapping, not the text"),
    "list for a mapping": (b"decode:\n- replicas: 3\n", "1:1", "decode must be a mapping, not a list"),
    "nothing for a mapping": (b"topology: e-pd\ndecode:\n", "2:1", "decode must be a mapping, not nothing"),
    "unknown field": (b"topolgy: e-pd\n", "1:1", "unknown field 'topolgy'"),
    "unknown field further in": (b"decode:\n  cpu: 8\n  replcas: 3\n", "3:3", "unknown field 'decode.replcas'"),
    "unknown field in a secret": (b"hfSecret:\n  nam: x\n", "2:3", "unknown field 'hfSecret.nam'"),
    "date for a name": (b"name: 2024-01-01\n", "1:1", "name is"),
    "number that loses digits": (b"topology: e-pd\nrelease: 0.10\n", "2:1", "loses digits"),
    "duplicate key": (b"topology: e-pd\nname: a\ntopology: e-p-d\n", "3:1", "key 'topology' is given twice"),
    "duplicate key further in": (b"decode:\n  cpu: 8\n  cpu: 9\n", "3:3", "key 'cpu' is given twice"),
    "duplicate key in one line": (b"decode: {cpu: 8, cpu: 9}\n", "1:18", "key 'cpu' is given twice"),
    "duplicate key in quotes": (b"name: a\n'name': b\n", "2:1", "key 'name' is given twice"),
    "tab": (b"decode:\n\treplicas: 3\n", "2:1", "never tabs"),
    "tab after spaces": (b"decode:\n  cpu: 8\n \treplicas: 3\n", "3:2", "tab"),
    "empty": (b"", "1:1", "is empty"),
    "blank": (b"  \n\n \n", "1:1", "is empty"),
    "only comments": (b"# topology: e-pd\n# name: a\n", "1:1", "is empty"),
    "only a document start": (b"---\n", "1:1", "is empty"),
    "a program": (b"\x7fELF\x02\x01\x01\x00\x00", "1:1", "is it text?"),
    "a picture": (b"\x89PNG\r\n\x1a\n\x00\x00", "1:1", "is not UTF-8 text"),
    "control character": (b"name: a\ntopology: e\x07pd\n", "2:12", "is it text?"),
    "Latin-1": ("name: a\n# gr\xfc\xdfe\n".encode("latin-1"), "2:5", "is not UTF-8 text"),
    "UTF-16": ("topology: e-pd\n".encode("utf-16"), "1:1", "is not UTF-8 text"),
    "10 MB of comments": (b"# a comment\n" * 900_000, "1:1", "10.3 MiB"),
    "10 MB in one value": (b"name: " + b"a" * 10_000_000, "1:1", "9.5 MiB"),
    "several documents": (b"topology: e-pd\n---\ntopology: e-p-d\n", "2:1", "document"),
    "10,000 lists": (b"[" * 10_000, "1:", "nest"),
    "10,000 mappings": (b"{a: " * 10_000, "1:", "nest"),
    "10,000 lists in a field": (b"decode:\n  affinity: " + b"[" * 10_000, "2:", "nest"),
    "900 mappings in a free field": (b"decode:\n  affinity: " + b"{a: " * 900 + b"1" + b"}" * 900, "", "nest"),
    "alias to itself": (b"decode:\n  affinity: &a\n    again: *a\n", "", ""),
    "a list": (b"- topology: e-pd\n", "1:1", "a spec is a mapping"),
    "a word": (b"e-pd\n", "1:1", "a spec is a mapping"),
    "a number": (b"42\n", "1:1", "a spec is a mapping"),
    "integer of 5,000 digits": (b"name: a\ndecode:\n  replicas: " + b"9" * 5_000, "3:", "digits"),
    "integer of 40 digits": (b"decode:\n  replicas: " + b"9" * 40, "2:3", "decode.replicas"),
    "key that reads as a boolean": (b"yes: 3\n", "1:1", "key 'yes' reads as true or false"),
    "key that is a number": (b"3: 3\n", "1:1", "key"),
    "key that is nothing": (b"~: 3\n", "1:1", "key"),
    "key that is a list": (b"name: a\n? [a]\n: 3\n", "2:3", "a key must be plain text"),
    "quote that is never closed": (b'name: a\nnamespace: "b\n', "3:1", "end of stream"),
    "indentation": (b"name: a\n  topology: e-pd\n", "2:11", "not allowed"),
    "unknown alias": (b"name: a\nnamespace: *b\n", "2:12", "alias"),
    "tag": (b"name: !secret x\n", "1:7", "!secret"),
    "Python tag": (b"name: !!python/object/apply:os.system [id]\n", "1:7", "python/object"),
    "a name that no file can have": (b'name: a\nprocessorConfig: "a\\0b"\n', "2:1", ""),
    "file name for an estimator": (b"topology: aggregation\nestimator: nowhere.yaml\n", "2:1", "nowhere.yaml"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "place", "words"), BAD.values(), ids=BAD)
def test_says_where_and_what(content: bytes, place: str, words: str) -> None:
    done = render(content)
    assert done.status == 2, done.stderr[-500:]
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert not Path("out").exists()
    head = done.stderr.splitlines()[0]
    assert re.match(r"error: spec\.yaml:\d+:\d+: ", head)
    assert head.startswith(f"error: spec.yaml:{place}")
    assert words in head
    assert len(done.stderr) < 2_000, "the file is not repeated"


@pytest.mark.parametrize(
    ("content", "choice"),
    [
        (b"topolgy: e-pd\n", "topology"),
        (b"decode: {replcas: 3}\n", "replicas"),
        (b"Decode: {replicas: 3}\n", "decode"),
        (b"decode: {tensor_parallel_size: 3}\n", "tensorParallelSize"),
        (b"gateway: {class: istio}\n", "gatewayClass"),
    ],
)
def test_the_nearest_field_is_named(content: bytes, choice: str) -> None:
    suggested = re.search(r"^  (?:try|nearest): (.*)$", render(content).stderr, re.MULTILINE)
    assert suggested
    assert choice in suggested[1].split(", ")


def test_every_mistake_of_a_file_is_named_at_once() -> None:
    done = render(b"decode:\n  replicas: x\n  cpu: y\nfoo: 1\n")
    starts = (
        "error: spec.yaml:2:3: decode.replicas is 'x'",
        "  also: spec.yaml:3:3: decode.cpu is 'y'",
        "  also: spec.yaml:4:1: unknown field 'foo'",
    )
    for line, start in zip(done.stderr.splitlines(), starts, strict=False):
        assert line.startswith(start)


@pytest.mark.parametrize(
    "content",
    [b"topology: e-pd\nname: a\nname: b\n", b"decode:\n\tcpu: 8\n", b"[" * 10_000, b"\x00\x01", b"# x\n" * 300_000],
    ids=["duplicate key", "tab", "nesting", "binary", "too large"],
)
def test_a_file_that_cannot_be_read_at_all_says_what_to_do_next(content: bytes) -> None:
    assert re.search(r"^  next: \S", render(content).stderr, re.MULTILINE)


GOOD: dict[str, bytes] = {
    "byte order mark": b"\xef\xbb\xbftopology: e-pd\nencode:\n  replicas: 3\ndecode:\n  replicas: 3\n",
    "CRLF": b"topology: e-pd\r\nencode:\r\n  replicas: 3\r\ndecode:\r\n  replicas: 3\r\n",
    "no line end": b"topology: e-pd\nencode: {replicas: 3}\ndecode: {replicas: 3}",
    "JSON": b'{"topology": "e-pd", "encode": {"replicas": 3}, "decode": {"replicas": 3}}',
    "anchors": b"topology: e-pd\nencode: &three\n  replicas: 3\ndecode: *three\n",
    "merge keys": b"topology: e-pd\nencode: &three\n  replicas: 3\ndecode:\n  <<: *three\n",
    "document start and end": b"%YAML 1.1\n---\ntopology: e-pd\nencode: {replicas: 3}\ndecode: {replicas: 3}\n...\n",
    "null leaves a field out": b"topology: e-pd\nmodel: ~\nencode: {replicas: 3, cpu: }\ndecode: {replicas: 3}",
}


@pytest.mark.parametrize("content", GOOD.values(), ids=GOOD)
def test_unusual_but_good(content: bytes) -> None:
    assert render(content).status == 0
    written = Path("out/mmdeploy.yaml").read_text()
    plain = run("render", "-t", "e-pd", "--set", "encode.replicas=3", "--set", "decode.replicas=3", "-d", "plain")
    assert plain.status == 0
    assert written == Path("plain/mmdeploy.yaml").read_text()


def test_anchors_that_multiply_cannot_fill_the_memory() -> None:
    """A file of a few hundred bytes whose aliases stand for 9^9 values. It must end, one way or the other, soon."""
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    for below, name in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{name}: &{name} [" + ", ".join([f"*{below}"] * 9) + "]")
    Path("spec.yaml").write_text("\n".join(lines))
    size = 1 << 30
    done = subprocess.run(
        [sys.executable, "-m", "mmdeploy", "render", "-f", "spec.yaml"],
        capture_output=True,
        text=True,
        env=environment({"PYTHONPATH": str(ROOT)}),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (size, size)),  # noqa: PLW1509
        timeout=30,
    )
    assert "Traceback" not in done.stderr
    assert done.returncode == 2
    # The place is the alias at which the document passes the limit of what it may stand for.
    assert done.stderr.startswith("error: spec.yaml:")
    assert "the aliases multiply" in done.stderr


# --- files that are no files


def test_missing_file() -> None:
    done = run("render", "-f", "nowhere.yaml")
    assert done.status == 2
    assert done.stderr.startswith("error: nowhere.yaml: cannot be read: No such file or directory\n")


def test_directory_as_a_file() -> None:
    Path("spec.yaml").mkdir()
    done = run("render", "-f", "spec.yaml")
    assert done.status == 2
    assert done.stderr.startswith("error: spec.yaml: cannot be read: Is a directory\n")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_file() -> None:
    Path("spec.yaml").write_text("topology: e-pd\n")
    Path("spec.yaml").chmod(0)
    done = run("render", "-f", "spec.yaml")
    assert done.status == 2
    assert done.stderr.startswith("error: spec.yaml: cannot be read: Permission denied\n")


def test_unreadable_file_whoever_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Path.open

    def refuse(path: Path, *how: str, **more: str) -> object:
        if path.name == "spec.yaml":
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *how, **more)

    Path("spec.yaml").write_text("topology: e-pd\n")
    monkeypatch.setattr(Path, "open", refuse)
    done = run("render", "-f", "spec.yaml")
    assert done.status == 2
    assert done.stderr.startswith("error: spec.yaml: cannot be read: Permission denied\n")


# --- standard input


def test_standard_input() -> None:
    piped = run("render", "-f", "-", "-o", "json", stdin="topology: e-p-d\n")
    assert piped.status == 0
    assert piped.stdout == run("render", "-t", "e-p-d", "-o", "json").stdout


def test_mistake_on_standard_input() -> None:
    done = run("render", "-f", "-", stdin="topology: e-pd\ndecode: {replcas: 1}\n")
    assert done.status == 2
    assert done.stderr.startswith("error: <stdin>:2:10: unknown field 'decode.replcas'\n")


def test_empty_standard_input() -> None:
    done = run("render", "-f", "-", stdin="")
    assert done.status == 2
    assert done.stderr.startswith("error: <stdin>:1:1: is empty\n")


@pytest.mark.parametrize(
    ("content", "head"),
    [
        (b"\xef\xbb\xbftopology: e-pd\n", None),
        (b"name: caf\xe9\n", "error: <stdin>:1:10: is not UTF-8 text"),
        (b"topology: e-pd\n" + b"# x\n" * 2_000_000, "error: <stdin>:1:1: "),
    ],
    ids=["byte order mark", "Latin-1", "too large"],
)
def test_standard_input_is_read_like_a_file(content: bytes, head: str | None) -> None:
    done = run_process("render", "-f", "-", stdin=content)
    assert "Traceback" not in done.stderr
    assert done.status == (2 if head else 0), done.stderr
    if head:
        assert done.stderr.startswith(head)


# --- the program itself, in a process of its own


@pytest.mark.parametrize("name", ["wrong type", "duplicate key", "a program", "10 MB of comments", "10,000 lists"])
def test_as_a_person_runs_it(name: str, tmp_path: Path) -> None:
    content, place, words = BAD[name]
    (tmp_path / "spec.yaml").write_bytes(content)
    start = time.monotonic()
    done = run_process("render", "-f", "spec.yaml", cwd=tmp_path)
    # Starting Python is part of what a person waits for, and another program may keep this machine busy.
    assert time.monotonic() - start < SECONDS * 3
    assert done.status == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"error: spec.yaml:{place}")
    assert words in done.stderr
