"""The router's versions stand in the catalog, once: tags lead to them, rules ask for what changed by its name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mmdeploy.errors import BlueprintError
from mmdeploy.lint.routers import Routers, routers
from tests.lint.harness import ROOT, resolver

RULES = ROOT / "mmdeploy" / "lint"


@pytest.fixture
def known() -> Routers:
    return routers(ROOT / "blueprints")


# router.md §4.1: charts and images under their present names begin with v0.9.0; v0 and main move on.
@pytest.mark.parametrize(
    ("tag", "version"),
    [
        ("v0.9.0", "v0.9.0"), ("0.9.3", "v0.9.0"), ("v0.10.0-rc.1", "v0.10.0"), ("v0.10", "v0.10.0"),
        ("v0.11.0", "main"), ("v1.0.0", "main"), ("main", "main"), ("v0", "main"), ("latest", "main"),
        ("v0.8.0", None), ("", None), ("sha-12ab", None),
    ],
)  # fmt: skip
def test_a_tag_leads_to_a_version(known: Routers, tag: str, version: str | None) -> None:
    assert known.of(tag) == version


def test_a_change_holds_from_or_up_to_a_version(known: Routers) -> None:
    """The alpha gate came with v0.10.0 (router.md §2); plugins were made in order up to v0.9.0 (router.md §1.4)."""
    assert [known.has("alphaFlag", version) for version in known.versions] == [False, True, True]
    assert [known.has("pluginsInOrder", version) for version in known.versions] == [True, False, False]
    assert known.gate("pluginsInOrder").ended == "v0.10.0"


def test_every_change_is_asked_for_and_every_question_has_an_answer(known: Routers) -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in RULES.rglob("*.py"))
    assert set(re.findall(r'(?:\.has|\.gate)\(["\'](\w+)["\']', text)) == set(known.gates)


def test_no_rule_names_a_version_of_the_router() -> None:
    """Sources of a rule may: they are titles of what was read."""
    for path in RULES.rglob("*.py"):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            assert line.startswith("@rule(") or not re.search(r"\bv0\.(9|10)\b", line), f"{path}:{number}: {line}"


def test_every_release_has_a_router_that_is_known(known: Routers) -> None:
    catalog = resolver().catalog
    assert {catalog.release(name).routerVersion for name in catalog.release_names} <= set(known.versions)


@pytest.mark.parametrize("entry", ["{since: v0.11.0}", "{until: main}", "{source: nowhere}"])
def test_a_change_of_no_version_is_refused(tmp_path: Path, entry: str) -> None:
    (tmp_path / "catalog").mkdir()
    text = f"routers: {{versions: [v0.9.0, main], assumed: v0.9.0, aliases: []}}\ngates: {{some: {entry}}}\n"
    (tmp_path / "catalog" / "lint-router.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(BlueprintError, match="gates.some must say since or until"):
        routers(tmp_path)


def test_a_change_that_nobody_listed_is_an_error(known: Routers) -> None:
    with pytest.raises(BlueprintError, match="does not list alphaFlags") as caught:
        known.gate("alphaFlags")
    assert "alphaFlag" in caught.value.nearest
