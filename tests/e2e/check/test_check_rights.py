"""Rights: who has exactly those that `--print-rbac` prints may apply, and each that is taken away is found."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.check.checking import Checker, Found
from tests.rig import users
from tests.rig.api import Api
from tests.rig.controlplane import ControlPlane

CHART = Path(__file__).resolve().parents[2] / "rig" / "chart"
MAY_APPLY = "may apply the bundle"
MAY_LOOK = "may read what the checks look at"


def printed(checker: Checker, who: str, **spec: Any) -> list[dict[str, Any]]:
    """What `mmdeploy check --print-rbac` prints, with no cluster to ask."""
    checker.intended(**spec)  # writes the spec file
    words = ["check", str(checker.folder / "mmdeploy.yaml"), "--print-rbac", "--for", who]
    done = subprocess.run(
        [sys.executable, "-m", "mmdeploy", *words], capture_output=True, text=True, check=True,
        env={"PATH": "/nowhere", "KUBECONFIG": "/nowhere"},
    )  # fmt: skip
    return list(yaml.safe_load_all(done.stdout))


@pytest.fixture
def granted(admin: Api) -> Iterator[Any]:
    """Applies manifests, and takes them away at the end."""
    given: list[str] = []
    collection = "/apis/rbac.authorization.k8s.io/v1"

    def grant(items: list[dict[str, Any]]) -> None:
        for item in items:
            place = f"/namespaces/{item['metadata']['namespace']}" if "namespace" in item["metadata"] else ""
            given.append(f"{collection}{place}/{item['kind'].lower()}s/{item['metadata']['name']}")
            admin.apply(item)

    yield grant
    for path in given:
        admin.delete(path)


SPECS: dict[str, dict[str, Any]] = {
    "aggregation": {},
    "sets": {"topology": "e-p-d"},
    "devices": {"accelerator": "xpu"},
    "monitoring": {"monitoring": True},
    "gateway": {"mode": "gateway", "gateway": {"gatewayClass": "istio"}},
}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_exactly_the_printed_rights_are_enough(checker: Checker, granted: Any, spec: dict[str, Any]) -> None:
    granted(printed(checker, users.NOBODY, **spec))
    found = checker(user=users.NOBODY, **spec)
    for check in found.checks:
        if check.category in ("permissions", "dry-run", "machines", "quota", "collisions"):
            assert check.result == "ok" or "chart" in check.detail, found


@pytest.mark.parametrize("spec", [SPECS["sets"], SPECS["monitoring"]], ids=["sets", "monitoring"])
def test_each_right_that_is_taken_away_is_found(checker: Checker, granted: Any, spec: dict[str, Any]) -> None:
    role, binding, *wide = printed(checker, users.NOBODY, **spec)
    granted([role, binding, *wide])
    intended = checker.intended(**spec)
    for given in [role, *wide[:1]]:
        for number, rule in enumerate(given["rules"]):
            granted([{**given, "rules": [*given["rules"][:number], *given["rules"][number + 1 :]]}])
            found = checker.of(intended, user=users.NOBODY)
            told = "\n".join(check.detail for check in found.bad if check.category == "permissions")
            words = rule.get("resources") or rule["nonResourceURLs"]
            assert all(word in told for word in words), f"{rule} is missed by:\n{told}"
        granted([given])


def test_helm_installs_the_chart_with_the_printed_rights(
    checker: Checker, plane: ControlPlane, granted: Any, tmp_path: Path
) -> None:
    # What the rights are for: the real API server refuses a Role that grants more than its maker holds.
    for spec in ({}, {"monitoring": True}):
        granted(printed(checker, users.NOBODY, **spec))
        values = tmp_path / "values.yaml"
        values.write_text(yaml.safe_dump(dict(checker.intended(**spec).values)), encoding="utf-8")
        words = ("upgrade", "--install", "multimodal-serving", CHART, "--namespace", checker.namespace, "-f", values)
        plane.helm(*words, user=users.NOBODY)
        plane.helm("uninstall", "multimodal-serving", "--namespace", checker.namespace, user=users.NOBODY)


def test_a_user_without_rights_gets_the_command_for_an_administrator(checker: Checker) -> None:
    found = checker(user=users.NOBODY)
    assert found[MAY_APPLY].result == "error"
    assert found[MAY_APPLY].admin == (
        # Nobody may look whether it is there; a Role needs it.
        f"kubectl create namespace {checker.namespace} --dry-run=client -o yaml | kubectl apply -f -",
        f"mmdeploy check {checker.folder}/mmdeploy.yaml --print-rbac --for nobody | kubectl apply -f -",
    )
    assert found[MAY_LOOK].result == "warning"
    # Nothing is claimed that nobody could see.
    assert {check.category for check in found.checks if check.result == "ok"} <= {
        "kubernetes-api", "programs", "custom-resources", "names", "collisions",
    }  # fmt: skip


def test_rights_in_one_namespace_do_for_apply(checker: Checker, deployer: str) -> None:
    found = checker(user=deployer)
    assert found[MAY_APPLY].result == "ok"
    assert "list nodes" in found[MAY_LOOK].detail
    assert found["the server accepts every object"].result == "ok"


def test_a_namespace_that_is_not_there_is_an_administrators_step(checker: Checker) -> None:
    options = {"creates": frozenset({"namespace", "secret"})}
    found: Found = checker(user=users.VIEWER, options=options, namespace="not-there")
    assert found["may create namespace not-there"].result == "error"
    assert found["may create namespace not-there"].admin[0] == "kubectl create namespace not-there"
    assert checker(options=options, namespace="not-there")["may create namespace not-there"].result == "ok"


def test_cluster_wide_rights_of_monitoring_are_named_apart(checker: Checker, deployer: str) -> None:
    found = checker(user=deployer, monitoring=True)
    assert found[MAY_APPLY].result == "ok"
    wide = found["cluster-wide rights of the router's monitoring"]
    assert wide.result == "error"
    assert "tokenreviews.authentication.k8s.io" in wide.detail
    assert "--set monitoring=false" in wide.hint
