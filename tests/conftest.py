"""What every test may rely on."""

from __future__ import annotations

import shutil

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs kubectl where there is none."""
    if shutil.which("kubectl"):
        return
    absent = pytest.mark.skip(reason="kubectl is not on this machine")
    for item in items:
        if item.get_closest_marker("kubectl"):
            item.add_marker(absent)
