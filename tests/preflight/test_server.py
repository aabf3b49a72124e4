"""Versions of API servers."""

from __future__ import annotations

import pytest

from mmdeploy.cli import blueprints
from mmdeploy.preflight.facts import Facts, older, version_of
from mmdeploy.preflight.server import version

FACTS = Facts(blueprints.load())


@pytest.mark.parametrize(
    ("found", "sided", "result"),
    [
        ("v1.28.15", True, "error"),  # M151: native sidecars are on from 1.29
        ("v1.29.0", True, "ok"),
        ("v1.28.15", False, "ok"),
        ("v1.35.4-gke.1093000", True, "ok"),
        ("v1.30+", True, "ok"),
    ],
)
def test_native_sidecars_want_a_server_that_knows_them(found: str, sided: bool, result: str) -> None:
    check = version(found, sided, FACTS)
    assert check.result == result
    assert ("hang in Init" in check.detail) == (result == "error")


@pytest.mark.parametrize(
    ("text", "numbers"), [("v1.35.4", (1, 35, 4)), ("v1.30+", (1, 30)), ("0.11.1", (0, 11, 1)), ("main", ())]
)
def test_what_a_version_starts_with(text: str, numbers: tuple[int, ...]) -> None:
    assert version_of(text) == numbers


def test_a_word_is_not_older_than_a_number() -> None:
    assert not older("main", "1.28")
    assert older("1.9.9", "1.28")
    assert not older("v1.28.0", "1.28")
