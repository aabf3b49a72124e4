"""How checks look."""

from __future__ import annotations

import io
import sys

import pytest

from mmdeploy.report import checks

FOUND = [
    {"category": "kubernetes-api", "description": "it answers", "result": "ok", "detail": "v1.35.4"},
    {"category": "namespace", "description": "it exists", "result": "error", "detail": "it does not",
     "hint": "make it", "admin": ["kubectl create namespace one"]},
    {"category": "namespace", "description": "room", "result": "skipped", "detail": "no right"},
]  # fmt: skip


def test_categories_lines_and_what_to_do() -> None:
    assert list(checks.lines(FOUND)) == [
        "kubernetes-api",
        "--------------",
        "√ it answers: v1.35.4",
        "",
        "namespace",
        "---------",
        "× it exists",
        "    it does not",
        "    hint: make it",
        "    an administrator runs:",
        "      kubectl create namespace one",
        "- room (not looked at: no right)",
    ]
    assert checks.verdict(FOUND, strict=False) == "Status check results are × (1 ok, 1 wrong, 1 not looked at)"


def test_warnings_count_when_they_shall() -> None:
    warned = [{"category": "a", "description": "b", "result": "warning"}]
    assert "√" in checks.verdict(warned, strict=False)
    assert "×" in checks.verdict(warned, strict=True)


def test_signs_that_the_terminal_can_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    lines = "\n".join(checks.lines(FOUND))
    assert "XX it exists" in lines
    assert lines.isascii()


def test_the_document_is_linkerd_s_with_a_schema() -> None:
    # field.md §2.2: success, categories with categoryName, checks with description and result.
    document = checks.document(FOUND, False, {"namespace": "one"})
    assert list(document) == ["schemaVersion", "kind", "namespace", "success", "categories"]
    assert [item["categoryName"] for item in document["categories"]] == ["kubernetes-api", "namespace"]
    assert document["categories"][1]["checks"][0]["admin"] == ["kubectl create namespace one"]
    assert "category" not in document["categories"][0]["checks"][0]
