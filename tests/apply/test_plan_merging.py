"""Without the server's word, a three-way merge says what applying comes to: `merging.yaml`."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from mmdeploy.apply.comparison.merging import merged

CASES = yaml.safe_load((Path(__file__).parent / "merging.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_merge_of_three(case: dict[str, Any]) -> None:
    before = copy.deepcopy(case)
    assert merged(case["live"], case["wanted"], case["last"]) == case["after"]
    assert case == before, "merging changed what it was given"
