"""What people and programs get to see, and what they can leave out."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from syrupy.assertion import SnapshotAssertion

from mmdeploy.lint import judgement
from mmdeploy.lint.findings import Finding, Level, rules
from mmdeploy.lint.source import Position
from mmdeploy.report import findings as report
from tests.cli.program import run
from tests.lint import sarif

FORMS = ("text", "json", "sarif", "junit", "github", "short")

# Three findings that do not depend on the rules of a deployment: a key twice, no YAML, a useless ignore.
BROKEN = "kind: ConfigMap\nmetadata: {name: a}\ndata:\n  a: b\n  a: c\n"
UNREADABLE = "kind: [\n"
IGNORING = "kind: ConfigMap\nmetadata: {name: b}\ndata:\n  x: y  # mmdeploy: ignore MMD902 it was twice once\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with findings, and the one that programs run in."""
    monkeypatch.chdir(tmp_path)
    for name, text in (("broken.yaml", BROKEN), ("unreadable.yaml", UNREADABLE), ("ignoring.yaml", IGNORING)):
        (tmp_path / name).write_text(text)
    return tmp_path


def found(*words: str) -> list[dict[str, Any]]:
    done = run("lint", *words, "-o", "json")
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["schemaVersion"] == 1
    return list(document["findings"])


@pytest.mark.parametrize("form", FORMS)
def test_forms(form: str, place: Path, snapshot: SnapshotAssertion) -> None:
    done = run("lint", ".", "-o", form)
    assert done.status == 3
    assert done.stderr == ""
    assert shown(done.stdout, form) == snapshot


def shown(text: str, form: str) -> str:
    """The output without the descriptions of codes, which are not this test's matter."""
    if form != "sarif":
        return text
    document = json.loads(text)
    driver = document["runs"][0]["tool"]["driver"]
    driver["rules"] = [rule["id"] for rule in driver["rules"]]
    return json.dumps(document, indent=2)


@pytest.mark.parametrize("form", FORMS)
def test_nothing_found(form: str, place: Path, snapshot: SnapshotAssertion) -> None:
    done = run("lint", "ignoring.yaml", "-o", form, "--ignore", "9")
    assert done.status == 0
    assert done.stdout == snapshot


def test_sarif_is_valid(place: Path) -> None:
    jsonschema.Draft202012Validator.check_schema(sarif.SCHEMA)
    for words in ((".",), ("ignoring.yaml",), ("-",)):
        document = json.loads(run("lint", *words, "-o", "sarif", stdin=BROKEN).stdout)
        jsonschema.validate(document, sarif.SCHEMA, format_checker=jsonschema.FormatChecker())
        for result in document["runs"][0]["results"]:
            rule = document["runs"][0]["tool"]["driver"]["rules"][result["ruleIndex"]]
            assert rule["id"] == result["ruleId"]


def test_junit_counts_what_it_holds(place: Path) -> None:
    for words, failures, skipped in (((), 2, 1), (("--fail-on", "warning"), 3, 0), (("--fail-on", "never"), 0, 3)):
        root = ElementTree.fromstring(run("lint", ".", "-o", "junit", *words).stdout)
        (suite,) = root
        assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", str(failures), str(skipped))
        assert len(suite.findall("testcase/failure")) == failures
        assert len(suite.findall("testcase/skipped")) == skipped


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("words", "status"),
    [
        ((".",), 3),
        (("ignoring.yaml",), 0),
        (("ignoring.yaml", "--fail-on", "warning"), 3),
        (("ignoring.yaml", "--fail-on", "info"), 3),
        ((".", "--fail-on", "never"), 0),
        ((".", "--select", "MMD904"), 0),
        ((".", "--ignore", "MMD901,MMD902"), 0),
    ],
)
def test_the_exit_status_does_not_depend_on_the_form(
    form: str, words: tuple[str, ...], status: int, place: Path
) -> None:
    assert run("lint", *words, "-o", form).status == status


def test_select_and_ignore(place: Path) -> None:
    assert [item["code"] for item in found(".", "--select", "MMD902")] == ["MMD902"]
    assert {item["code"] for item in found(".", "--select", "9", "--ignore", "MMD902")} == {"MMD901"}
    done = run("lint", ".", "--select", "MMD0")
    assert (done.status, done.stdout) == (2, "")
    assert "neither a code nor a group" in done.stderr


def test_no_path_is_an_error_with_an_example(place: Path) -> None:
    done = run("lint")
    assert done.status == 2
    assert "mmdeploy lint router/values.yaml modelserver/" in done.stderr


def test_an_unknown_release_names_the_known(place: Path) -> None:
    done = run("lint", ".", "--as-release", "v0.10")
    assert done.status == 2
    assert "v0.9" in done.stderr


def test_a_comment_passes_over_its_line(place: Path) -> None:
    text = BROKEN.replace("  a: c\n", "  a: c  # mmdeploy: ignore MMD902 both are wanted\n")
    (place / "broken.yaml").write_text(text)
    document = json.loads(run("lint", "broken.yaml", "-o", "json").stdout)
    assert (document["findings"], document["ignored"], document["failed"]) == ([], 1, False)


def test_an_annotation_passes_over_its_object(place: Path) -> None:
    # A second document with the same mistake is not covered.
    one = "kind: Deployment\nmetadata:\n  name: {name}\n{annotation}spec:\n  template:\n    spec:\n      containers:\n"
    one += "      - name: engine\n        image: vllm/vllm-openai:latest\n        args: [a/b]\n"
    annotated = one.format(name="a", annotation="  annotations:\n    mmdeploy.llm-d.ai/ignore: {codes} we know\n")
    plain = one.format(name="b", annotation="")
    (place / "two.yaml").write_text(plain.replace("b\n", "a\n", 1) + "---\n" + plain)
    codes = sorted({item["code"] for item in found("two.yaml")})
    if not codes:
        pytest.skip("no rule looks at this")
    (place / "two.yaml").write_text(annotated.replace("{codes}", " ".join(codes)) + "---\n" + plain)
    left = found("two.yaml")
    assert {item["line"] > 14 for item in left} == {True}


def test_a_useless_ignore_is_reported_only_where_its_code_is_judged(place: Path) -> None:
    assert [(item["code"], item["line"]) for item in found("ignoring.yaml")] == [("MMD904", 4)]
    assert found("ignoring.yaml", "--ignore", "MMD902") == []


def test_a_baseline_hides_what_was_there_and_shows_what_is_new(place: Path) -> None:
    (place / "sub").mkdir()
    assert run("lint", ".", "--baseline", "sub/known.json", "--write-baseline").status == 0
    done = run("lint", ".", "--baseline", "sub/known.json")
    assert (done.status, done.stderr) == (0, "")
    assert "nothing found (3 in the baseline)" in done.stdout
    (place / "broken.yaml").write_text("# moved\n" + BROKEN + "  b: 1\n")
    assert run("lint", str(place), "--baseline", "sub/known.json").status == 0, "lines and the way to a file may change"
    (place / "new.yaml").write_text(BROKEN)
    assert [item["file"] for item in found(".", "--baseline", "sub/known.json")] == ["new.yaml"]
    (place / "unreadable.yaml").unlink()
    done = run("lint", ".", "--baseline", "sub/known.json", "--ignore", "MMD902")
    assert "were not found again" in done.stdout


def test_baselines_that_are_none(place: Path) -> None:
    assert "cannot be read" in run("lint", ".", "--baseline", "none.json").stderr
    for text in ("{", "[]", '{"schemaVersion": 1, "findings": [{}]}', '{"schemaVersion": 2, "findings": []}'):
        (place / "bad.json").write_text(text)
        assert run("lint", ".", "--baseline", "bad.json").status == 2
    assert "--baseline FILE" in run("lint", ".", "--write-baseline").stderr


def test_settings_of_a_repository(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "pyproject.toml").write_text(
        '[tool.mmdeploy.lint]\nfail-on = "never"\nignore = ["MMD902"]\noutput = "short"\n'
    )
    (place / "sub").mkdir()
    monkeypatch.chdir(place / "sub")
    done = run("lint", "..")
    assert (done.status, done.stdout.count("\n")) == (0, 1)
    assert run("lint", "..", "--fail-on", "error").status == 3, "an option wins"
    assert "MMD902" in run("lint", "..", "--ignore", "MMD901").stdout, "an option wins"
    (place / "sub" / ".mmdeploy.yaml").write_text("lint: {select: [MMD902, MMD904], fail-on: warning, output: json}\n")
    done = run("lint", "..")
    assert done.status == 3
    codes = [item["code"] for item in json.loads(done.stdout)["findings"]]
    assert codes == ["MMD902", "MMD904"], "the nearest file counts alone"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lint: {fail_on: error}\n", "nearest: fail-on"),
        ("lint: {fail-on: eror}\n", "nearest: error"),
        ("lint: {output: xml}\n", "output cannot be 'xml'"),
        ("lint: {select: {a: b}}\n", "select must be a list"),
        ("lint: [a]\n", "must be a mapping"),
        ("lints: {}\n", "unknown key 'lints'"),
        ("- a\n", "must hold a mapping"),
        ("lint: {baseline: 3}\n", "baseline must be text"),
    ],
)
def test_settings_that_are_wrong(text: str, said: str, place: Path) -> None:
    (place / ".mmdeploy.yaml").write_text(text)
    done = run("lint", "ignoring.yaml")
    assert done.status == 2
    assert said in done.stderr or said.replace("nearest", "try") in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool.mmdeploy]\nlint = 3\n", "lint settings must be a mapping"),
        ("[tool]\nmmdeploy = {lint = []}\n", "lint settings must be a mapping"),
        ("tool.mmdeploy = 'lint'\n", "tool.mmdeploy must be a table"),
        ("[ tool . mmdeploy . lint ]\nfail-on = 'eror'\n", "fail-on cannot be 'eror'"),
        ("[tool.mmdeploy.lint\n", "is not TOML"),
    ],
)
def test_settings_of_the_wrong_type_in_a_pyproject(text: str, said: str, place: Path) -> None:
    (place / "pyproject.toml").write_text(text)
    done = run("lint", "ignoring.yaml")
    assert done.status == 2
    assert said in done.stderr
    assert "pyproject.toml" in done.stderr


@pytest.mark.parametrize(
    "text", ["dependencies = ['mmdeploy']\n", "[tool.mmdeploys]\nlint = 3\n", "[tool.mmdeploy]\nx = 1\n", "[broken\n"]
)
def test_a_pyproject_without_settings_is_no_matter(text: str, place: Path) -> None:
    (place / "pyproject.toml").write_text(text)
    assert run("lint", "ignoring.yaml", "--ignore", "9").status == 0


def test_a_baseline_in_the_settings_starts_at_their_file(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("lint", ".", "--baseline", "known.json", "--write-baseline").status == 0
    (place / ".mmdeploy.yaml").write_text("lint: {baseline: known.json}\n")
    (place / "sub").mkdir()
    monkeypatch.chdir(place / "sub")
    assert run("lint", "..").status == 0


def test_what_stands_in_a_file_cannot_write_on_the_terminal(place: Path) -> None:
    (place / "esc.yaml").write_text('a: 1\na: 2 # \x9b31m"\n"\\e[31m": 1\n"\\e[31m": 2\n')
    for form in ("text", "short", "github", "junit"):
        out = run("lint", "esc.yaml", "-o", form).stdout
        assert "\x1b" not in out
        assert "\x9b" not in out


def test_annotations_escape_what_would_end_them() -> None:
    item = {
        "code": "MMD101", "level": "info", "file": "a,b:c%.yaml", "line": 1, "column": 2, "subject": "Pod/a",
        "path": "", "message": "100 %\nof it", "fix": "x", "source": "y", "text": "",
    }  # fmt: skip
    assert report.github({"findings": [item]}) == (
        "::notice file=a%2Cb%3Ac%25.yaml,line=1,col=2,title=MMD101 Pod/a::100 %25 of it%0Afix: x\n"
    )


def test_explain(snapshot: SnapshotAssertion) -> None:
    done = run("explain", "mmd602")
    assert done.status == 0
    assert done.stdout == snapshot
    listed = run("explain")
    assert listed.status == 0
    assert "MMD601" in listed.stdout
    assert json.loads(run("explain", "MMD601", "-o", "json").stdout)["codes"][0]["code"] == "MMD601"


@pytest.mark.parametrize("word", ["MMD6", "6", "6xx", "mmd6xx", "estimator"])
def test_explain_lists_the_codes_of_a_group(word: str) -> None:
    listed = json.loads(run("explain", word, "-o", "json").stdout)["codes"]
    assert {item["code"] for item in listed} == {item.code for item in rules() if item.code.startswith("MMD6")}
    shown = run("explain", word)
    assert shown.status == 0
    assert [line.split()[0] for line in shown.stdout.splitlines()[1:]] == [item["code"] for item in listed]


@pytest.mark.parametrize("word", ["0", "MMD0", "and", "xx"])
def test_a_word_that_is_no_group_lists_none(word: str) -> None:
    done = run("explain", word)
    assert (done.status, done.stdout) == (2, "")


def test_explain_names_the_nearest() -> None:
    done = run("explain", "MMD909")
    assert done.status == 2
    assert "MMD90" in done.stderr


def test_render_refuses_what_lint_finds(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Finding(
        "MMD101",
        Level.error,
        Position("router/values.yaml", 3, 1),
        "Helm values",
        "router",
        "it is wrong",
        "fix it",
        "x",
        "",
    )
    monkeypatch.setattr(judgement, "errors_of_bundle", lambda *given: [wrong])
    for words in (("-d", "out"), ("-d", "out", "--check"), ("-o", "yaml")):
        done = run("render", "-t", "e-pd", *words)
        assert (done.status, done.stdout) == (3, "")
        assert "have 1 error, so they are not written" in done.stderr
        assert "MMD101 router/values.yaml:3:1 Helm values: it is wrong" in done.stderr
    assert not (place / "out").exists()
    assert run("render", "-t", "e-pd", "--explain").status == 0, "what is wrong can still be looked into"
