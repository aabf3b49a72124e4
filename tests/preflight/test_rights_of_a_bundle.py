"""The rights of a bundle, and the manifests that grant them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mmdeploy import intended as reading
from mmdeploy.cli import blueprints
from mmdeploy.errors import UsageError
from mmdeploy.preflight.facts import Facts
from mmdeploy.preflight.permissions import granted
from mmdeploy.preflight.rbac import manifests, subject
from mmdeploy.preflight.rights import Right, plural, rights

ROOT = Path(__file__).resolve().parents[2]
CATALOG = blueprints.load()
OVERLAYS = sorted(file.parent for file in (ROOT / "overlays").rglob("mmdeploy.yaml"))


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda path: str(path.relative_to(ROOT / "overlays")))
def test_no_right_is_broader_than_it_has_to_be(overlay: Path) -> None:
    intended = reading.read(overlay, CATALOG)
    found = manifests(rights(intended, Facts(CATALOG)), intended.name, intended.namespace, None)
    kinds = {plural(str(item["kind"])) for item in intended.objects}
    written = set()
    for item in found:
        for rule in item.get("rules", ()):
            assert "*" not in [*rule.get("verbs", ()), *rule.get("resources", ()), *rule.get("apiGroups", ())]
            assert not set(rule["verbs"]) & {"escalate", "bind", "impersonate", "deletecollection"}
            written |= set(rule["resources"]) if "patch" in rule["verbs"] else set()
    assert kinds <= written  # every object of the bundle may be written
    cluster = [rule for item in found if item["kind"] == "ClusterRole" for rule in item["rules"]]
    assert all(set(rule["verbs"]) <= {"get", "list"} for rule in cluster)


@pytest.mark.parametrize(
    ("kind", "resource"),
    [
        # As the API servers and definitions of ../shared/crds spell them.
        ("InferencePool", "inferencepools"),
        ("NetworkPolicy", "networkpolicies"),
        ("Gateway", "gateways"),
        ("Ingress", "ingresses"),
        ("DisaggregatedSet", "disaggregatedsets"),
        ("ResourceClaimTemplate", "resourceclaimtemplates"),
    ],
)
def test_plurals(kind: str, resource: str) -> None:
    assert plural(kind) == resource


def rule(groups: list[str], resources: list[str], verbs: list[str], *names: str) -> dict[str, Any]:
    said = {"apiGroups": groups, "resources": resources, "verbs": verbs}
    return {"resourceRules": [{**said, "resourceNames": list(names)} if names else said]}


@pytest.mark.parametrize(
    ("rules", "right", "allowed"),
    [
        (rule(["*"], ["*"], ["*"]), Right("apps", "deployments", ("get",), ""), True),
        (rule([""], ["pods"], ["get"]), Right("", "pods/log", ("get",), ""), False),
        (rule([""], ["*/log"], ["get"]), Right("", "pods/log", ("get",), ""), True),
        (rule([""], ["pods"], ["get"], "one"), Right("", "pods", ("get",), ""), False),
        (rule(["apps"], ["deployments"], ["get"]), Right("", "deployments", ("get",), ""), False),
        ({}, Right("", "pods", ("get",), ""), False),
    ],
)
def test_what_listed_rules_grant(rules: dict[str, Any], right: Right, allowed: bool) -> None:
    assert granted(rules, right, "get") is allowed


def test_whom_to_grant_them() -> None:
    assert subject("jo") == {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jo"}
    assert subject("group:ml")["kind"] == "Group"
    assert subject("serviceaccount:ci:deployer") == {"kind": "ServiceAccount", "namespace": "ci", "name": "deployer"}
    with pytest.raises(UsageError, match="names no service account"):
        subject("serviceaccount:deployer")
    with pytest.raises(UsageError, match="names nobody"):
        subject(" ")


def test_same_bundle_same_bytes() -> None:
    intended = reading.read(OVERLAYS[0], CATALOG)
    one, two = (manifests(rights(intended, Facts(CATALOG)), "a", "b", "c") for _ in range(2))
    assert one == two
