"""One registry of codes: rules, their descriptions, their cases and the pages of guides/findings say the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from mmdeploy.errors import UsageError
from mmdeploy.lint import codes
from mmdeploy.lint.findings import GROUPS, rules
from mmdeploy.report import codes as pages
from tests.guides.markdown import anchors, links
from tests.lint.harness import ROOT

BLUEPRINTS = ROOT / "blueprints"
CASES: list[dict[str, Any]] = [
    case
    for path in sorted((Path(__file__).parent / "cases").glob("*.yaml"))
    for case in yaml.safe_load(path.read_text(encoding="utf-8")) or ()
]


def test_every_rule_is_described_and_nothing_else() -> None:
    assert codes.problems(BLUEPRINTS) == []
    known = codes.codes(BLUEPRINTS)
    assert {code for code, item in known.items() if not item.retired} == {item.code for item in rules()}
    assert all(code[3] in GROUPS for code in known)


def test_every_code_has_a_bad_case_and_a_good_twin() -> None:
    bad = {item["code"] for case in CASES for item in case["expect"]}
    good = {item["code"] for case in CASES if "twin" in case for item in case["expect"]}
    assert {item.code for item in rules()} - bad == {"MMD904"}  # which its own tests look at
    assert bad - good == set()


def test_every_row_of_the_corpus_is_listed_under_a_code_that_finds_it() -> None:
    known = codes.codes(BLUEPRINTS)
    for case in CASES:
        row = re.match(r"M\d{3}", case["id"])
        if row is not None:
            assert any(row[0] in known[item["code"]].corpus for item in case["expect"]), case["id"]
    listed = {row for item in known.values() for row in item.corpus}
    assert listed <= {case["id"][:4] for case in CASES}


def test_the_pages_are_current() -> None:
    data = [item.as_data() for item in codes.codes(BLUEPRINTS).values()]
    directory = ROOT / "guides" / "findings"
    expected = pages.pages(GROUPS, data)
    assert {path.name for path in directory.iterdir()} == set(expected), "make findings renews them"
    for name, text in expected.items():
        assert (directory / name).read_text(encoding="utf-8") == text, f"{name}: make findings renews it"


def test_the_links_of_the_pages_lead_somewhere() -> None:
    for page in (ROOT / "guides" / "findings").glob("*.md"):
        for target in links(page.read_text(encoding="utf-8")):
            path, _, anchor = target.partition("#")
            file = page.parent / path
            assert file.exists(), f"{page.name}: {target}"
            assert not anchor or anchor in anchors(file), f"{page.name}: {target}"


def test_examples_are_yaml() -> None:
    for code, item in codes.codes(BLUEPRINTS).items():
        for text in () if item.retired else (item.bad, item.good):
            assert text, code
            assert item.file or list(yaml.compose_all(text)), code


def problem_with(directory: Path, text: str) -> str:
    (directory / "findings").mkdir(exist_ok=True)
    (directory / "findings" / "1xx.yaml").write_text(text)
    return codes.problems(directory)[0]


def test_a_retired_code_is_never_used_again(tmp_path: Path) -> None:
    code = next(item.code for item in rules() if item.code[3] == "1")
    assert "must not use it again" in problem_with(tmp_path, f"{code}: {{title: a, retired: it was wrong}}\n")
    assert "has no rule; keep its entry" in problem_with(tmp_path, "MMD199: {title: a, why: b, bad: c, good: d}\n")
    assert "lacks why, bad, good" in problem_with(tmp_path, f"{code}: {{title: a}}\n")
    assert "must be a mapping of" in problem_with(tmp_path, f"{code}: {{titel: a}}\n")
    assert "belongs in 2xx.yaml" in problem_with(tmp_path, "MMD299: {title: a, retired: it was wrong}\n")
    assert "is not described" in problem_with(tmp_path, "MMD199: {title: a, retired: it was wrong}\n")
    assert codes.find(tmp_path, "199").level == "retired"


def test_a_code_is_found_in_every_spelling() -> None:
    assert {codes.find(BLUEPRINTS, word).code for word in ("MMD901", "mmd901", "901", " 901 ")} == {"MMD901"}
    with pytest.raises(UsageError) as caught:
        codes.find(BLUEPRINTS, "MMD999")
    assert any(near.startswith("MMD9") for near in caught.value.nearest)
