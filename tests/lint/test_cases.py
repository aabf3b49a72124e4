"""Every code has a bad case that it finds, on the right line, and a good twin on which everything is silent.

Cases are data: ``cases/*.yaml``. ``base`` is a spec (see `harness.base_files`), ``change`` edits its files, ``expect``
lists codes with the text of the line that is pointed at, ``twin`` is a change that must stay silent.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lint.harness import base_files, changed, lint

CASES = [
    pytest.param(case, id=case["id"])
    for path in sorted((Path(__file__).parent / "cases").glob("*.yaml"))
    for case in yaml.safe_load(path.read_text(encoding="utf-8")) or ()
]


def described(findings: Any) -> str:
    return "\n".join(
        f"{item.code} {item.level.name} {item.position} {item.subject}: {item.message}" for item in findings
    )


@pytest.mark.parametrize("case", CASES)
def test_bad(case: dict[str, Any], tmp_path: Path) -> None:
    found = lint(changed(base_files(case["base"]), case["change"]), tmp_path, case.get("as_release"))
    expected = {item["code"] for item in case["expect"]}
    assert {item.code for item in found} == expected, described(found)
    for wanted in case["expect"]:
        lines = [item.line for item in found if item.code == wanted["code"]]
        assert any(wanted["at"] in line for line in lines), (wanted["at"], lines)
        if "level" in wanted:
            assert wanted["level"] in {item.level.name for item in found if item.code == wanted["code"]}


@pytest.mark.parametrize("case", [case for case in CASES if "twin" in case.values[0]])
def test_good_twin(case: dict[str, Any], tmp_path: Path) -> None:
    base = case.get("twin_base", case["base"])
    found = lint(changed(base_files(base), case["twin"]), tmp_path, case.get("as_release"))
    assert not found, described(found)
