"""Two objects are compared by what they mean: `differences.yaml` says what a person must be told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from mmdeploy.apply.comparison.differences import Difference, differences, shown

CASES = yaml.safe_load((Path(__file__).parent / "differences.yaml").read_text(encoding="utf-8"))


def told(item: Difference) -> str:
    if item.lines:
        return f"{shown(item.path)}: |{'|'.join(item.lines)}"
    plain = isinstance(item.before, str | None) and isinstance(item.after, str | None)
    before, after = (_word(value, plain) for value in (item.before, item.after))
    return f"{shown(item.path)}: {before} → {after}"


def _word(value: Any, plain: bool) -> str:
    if value is None:
        return "nothing"
    return value if isinstance(value, str) and plain else json.dumps(value)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_differences_are_what_changes_the_meaning(case: dict[str, Any]) -> None:
    assert [told(item) for item in differences(case["before"], case["after"])] == case["differences"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_other_way_round_differs_in_as_many_things(case: dict[str, Any]) -> None:
    assert len(differences(case["after"], case["before"])) == len(case["differences"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_nothing_differs_from_itself(case: dict[str, Any]) -> None:
    assert differences(case["before"], json.loads(json.dumps(case["before"]))) == []
