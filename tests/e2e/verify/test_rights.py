"""Verifying takes the rights that it prints and no others; without one of them the rest is still judged."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.e2e.verify.verifying import Deployed, Verdicts
from tests.rig import deploying, users
from tests.rig.simulated import Simulated


@pytest.fixture(scope="module")
def running(epd: Deployed) -> Iterator[Simulated]:
    with epd.simulated() as simulated:
        yield simulated


@pytest.fixture(scope="module")
def printed(epd: Deployed) -> list[dict[str, Any]]:
    """The Role, as ``--print-rbac`` says it."""
    ran = deploying.mmdeploy(
        epd.plane, "verify", epd.bundle, "-n", epd.namespace, "--print-rbac", "--for", users.NOBODY
    )
    return list(yaml.safe_load_all(ran.out))


def granted(epd: Deployed, items: list[dict[str, Any]], group: str = "", resource: str = "", verb: str = "") -> None:
    """Grant what was printed, but for one verb of one resource."""
    role, binding = copy.deepcopy(items)
    for rule in role["rules"]:
        if group in rule["apiGroups"] and resource in rule["resources"]:
            rest = [each for each in rule["resources"] if each != resource]
            less = [each for each in rule["verbs"] if each != verb]
            role["rules"] += [{**rule, "resources": rest}] if rest else []
            role["rules"] += [{**rule, "resources": [resource], "verbs": less}] if less else []
            role["rules"].remove(rule)
            break
    else:
        assert not resource, f"{resource} is not printed"
    epd.api.apply(role)
    epd.api.apply(binding)


def verified(epd: Deployed, bundle: bool = True) -> Verdicts:
    return epd.verify(user=users.NOBODY, bundle=bundle)


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize("bundle", [True, False])
def test_the_printed_rights_suffice(epd: Deployed, printed: list[dict[str, Any]], bundle: bool) -> None:
    granted(epd, printed)
    ran = verified(epd, bundle)
    assert (ran.code, ran.unproved) == (0, {}), ran.out + ran.err
    assert "no right" not in ran.err


def test_no_secret_is_asked_for(printed: list[dict[str, Any]]) -> None:
    rules = printed[0]["rules"]
    assert not [rule for rule in rules if "secrets" in rule["resources"] or "*" in rule["resources"]]
    assert not [rule for rule in rules if set(rule["verbs"]) & {"update", "patch", "delete", "*"}]


@pytest.mark.usefixtures("running")
def test_without_any_right_one_sentence(epd: Deployed, printed: list[dict[str, Any]]) -> None:
    granted(epd, [{**printed[0], "rules": []}, printed[1]])
    ran = verified(epd)
    assert ran.code == 5
    assert "no right to list pods" in ran.err
    assert "--print-rbac" in ran.err
    assert "Traceback" not in ran.err


LESS = [
    # group, resource, verb, with a bundle, claims that are then not observable, claims that are still proved
    ("", "services", "list", True, set(), {"roles", "text", "image", "stages", "entry"}),
    (
        "",
        "services/proxy",
        "create",
        True,
        {"text", "image", "stages", "entry", "spread", "affinity", "pricing"},
        {"roles"},
    ),
    ("", "pods/proxy", "get", True, {"roles", "stages"}, {"text", "image"}),
    ("", "pods/proxy", "create", True, {"embeddings"}, {"roles", "text", "image", "stages", "entry", "pricing"}),
    ("", "pods/log", "get", True, set(), {"roles", "text", "image", "stages", "affinity", "pricing", "entry"}),
    ("", "configmaps", "get", True, set(), {"roles", "text", "image", "stages", "affinity", "pricing", "entry"}),
    ("", "configmaps", "get", False, set(), {"roles", "text", "image", "stages", "entry"}),
    ("inference.networking.k8s.io", "inferencepools", "list", True, set(), {"roles", "text", "image", "stages"}),
    ("inference.networking.k8s.io", "inferencepools", "list", False, set(), {"text", "image", "stages"}),
    ("gateway.networking.k8s.io", "httproutes", "list", True, set(), {"roles", "text", "image", "stages", "entry"}),
]


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize(("group", "resource", "verb", "bundle", "unseen", "proved"), LESS)
def test_with_one_right_less(
    epd: Deployed, printed: list[dict[str, Any]], group: str, resource: str, verb: str, bundle: bool,
    unseen: set[str], proved: set[str],
) -> None:  # fmt: skip
    granted(epd, printed, group, resource, verb)
    ran = verified(epd, bundle)
    assert ran.code == 0, ran.out + ran.err
    assert "contradicted" not in ran.words.values()
    assert unseen <= {claim for claim, word in ran.words.items() if word == "not observable"}
    assert proved <= {claim for claim, word in ran.words.items() if word == "proved"}
    for claim in unseen:
        assert f"{verb} {resource}" in ran.said(claim)
    assert f"{verb} {resource}" in ran.err + ran.out
