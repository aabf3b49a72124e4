"""What somebody else has put where the router's chart wants its own; helm would refuse it, halfway through."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from mmdeploy.cluster.helm import Chart
from tests.e2e.check.checking import Checker
from tests.rig.api import Api
from tests.rig.controlplane import ControlPlane

CHART = Path(__file__).resolve().parents[2] / "rig" / "chart"
EPP = "multimodal-serving-epp"
"""The chart's name for its objects, in release multimodal-serving."""


def service(namespace: str) -> dict[str, Any]:
    spec = {"ports": [{"port": 1, "name": "x"}], "selector": {"mine": "precious"}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": EPP, "namespace": namespace}, "spec": spec}


def deployment(namespace: str) -> dict[str, Any]:
    """With a selector that nobody may change: its dry run is refused."""
    labels = {"mine": "precious"}
    pods = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "b"}]}}
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": EPP, "namespace": namespace},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": pods},
    }  # fmt: skip


def test_objects_that_helm_did_not_make(checker: Checker, admin: Api, namespace: str) -> None:
    chart = {"chart": Chart(str(CHART))}
    free = f"{EPP} is free for the router's chart"
    assert free not in checker(options=chart)  # a dry run that would create it leaves nothing behind
    admin.apply(service(namespace), manager="kubectl")
    admin.apply(deployment(namespace), manager="kubectl")
    found = checker(options=chart)
    for kind in ("Service", "Deployment"):
        said = found[f"{kind} {free}"]
        assert said.result == "error"
        assert "made by kubectl" in said.detail
        assert "mmdeploy" not in said.detail
        assert "--adopt" in said.hint
    assert len([check for check in found.bad if EPP in check.name]) == 2
    assert free not in checker(options={**chart, "adopt": True})


def test_a_release_s_own_objects_and_another_s(
    checker: Checker, admin: Api, plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(dict(checker.intended().values)), encoding="utf-8")
    plane.helm("install", "multimodal-serving", CHART, "--namespace", namespace, "-f", values)
    chart = {"chart": Chart(str(CHART))}
    assert "is free for the router's chart" not in str(checker(options=chart)).replace("ConfigMap envoy is free", "")
    # The mark of another release, as after `helm install other` with the same full name.
    where = f"/api/v1/namespaces/{namespace}/serviceaccounts/{EPP}"
    plane.helm("uninstall", "multimodal-serving", "--namespace", namespace)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": EPP, "namespace": namespace}}
    notes = {"meta.helm.sh/release-name": "other", "meta.helm.sh/release-namespace": namespace}
    admin.apply({**account, "metadata": {**account["metadata"], "annotations": notes}}, manager="helm")
    assert admin.get(where)
    found = checker(options=chart)[f"ServiceAccount {EPP} is free"]
    assert (found.result, "helm release other" in found.detail) == ("error", True)


def test_an_object_that_does_not_fit_its_schema(checker: Checker) -> None:
    def change(item: dict[str, Any]) -> None:
        if item["kind"] == "Deployment":
            item["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = "soon"

    said = checker(change)["the server accepts Deployment"]
    assert said.result == "error"
    assert said.detail.startswith("it does not fit the schema of its kind: .spec.template.spec.termination")
    assert said.hint == "correct that field, or the settings that it was rendered from"
