"""The shipped families, read once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from mmdeploy.catalog.families import Family, load_families


@pytest.fixture(scope="session")
def families() -> Mapping[str, Family]:
    return load_families(Path(__file__).parents[2] / "blueprints")


@pytest.fixture(scope="session")
def qwen(families: Mapping[str, Family]) -> Family:
    return families["qwen3-vl"]
