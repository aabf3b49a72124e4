"""``mmdeploy diff`` of the router: a Helm release, its values, and what became of its objects."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_diff import Edit, bundle, diff, edit, said, step, told
from tests.rig.api import Api
from tests.rig.controlplane import ControlPlane
from tests.rig.deploying import CHART, NAME, hold_token, render

__all__ = ["bundle", "edit"]
pytestmark = pytest.mark.usefixtures("custom_resources")

PICKER = f"{NAME}-epp"
FILE = "aggregation-plugins.yaml"
THRESHOLD = f"data[{FILE}].plugins[prefix-cache-affinity-filter].parameters.affinityThreshold"


def change_values(bundle: Path, pattern: str, text: str) -> None:
    path = bundle / "router" / "values.yaml"
    before = path.read_text(encoding="utf-8")
    after = re.sub(pattern, text, before, count=1)
    assert after != before
    path.write_text(after, encoding="utf-8")


def test_a_changed_weight_is_one_line(plane: ControlPlane, bundle: Path) -> None:
    change_values(bundle, r"( +)- pluginRef: token-load-scorer", r"\1- pluginRef: token-load-scorer\n\1  weight: 3")
    path = f"data[{FILE}].schedulingProfiles[default].plugins[token-load-scorer].weight"
    ran = diff(plane, bundle)
    assert [line.strip() for line in ran.out.splitlines() if "weight" in line] == [f"{path}: added 3"]
    assert ran.code == 4


def test_a_comment_and_a_moved_line_are_no_difference(plane: ControlPlane, bundle: Path) -> None:
    change_values(
        bundle, r"( +)affinityThreshold: (.*)\n( +maxTTFTPenaltyMs: .*)\n", r"\3\n\1# moved\n\1affinityThreshold: \2\n"
    )
    assert diff(plane, bundle).code == 0


def test_pods_that_keep_the_old_configuration_are_named(plane: ControlPlane, bundle: Path) -> None:
    """router.md §4.2: up to v0.10.0 a change of the configuration alone leaves the pod template as it is."""
    change_values(bundle, r"affinityThreshold: .*", "affinityThreshold: 0.5")
    document = told(plane, bundle)
    assert document["release"]["restart"] == [PICKER]
    assert [change["path"] for change in document["release"]["values"]] == [
        THRESHOLD.replace("data[", "router.epp.pluginsCustomConfig[")
    ]


def test_a_value_that_the_chart_ignores_is_told(plane: ControlPlane, bundle: Path) -> None:
    """router.md §4.2: the chart has no schema, and an unknown key is silently ignored."""
    change_values(bundle, r"router:\n", "router:\n  unheardOf: 1\n")
    release = told(plane, bundle)["release"]
    assert (release["verb"], release["objects"]) == ("update", [])
    assert release["notes"] == ["no object changes: the chart makes nothing of the values that do"]
    assert "values: router.unheardOf: added 1" in diff(plane, bundle).out


def test_an_edit_of_the_router_is_drift(plane: ControlPlane, bundle: Path, edit: Edit) -> None:
    edit(f"configmap/{PICKER}", "s/affinityThreshold: .*/affinityThreshold: 0.1/")
    found = step(told(plane, bundle), f"ConfigMap/{PICKER}")
    ((path, before, _, cause),) = said(found)
    assert (path, before, cause) == (THRESHOLD, 0.1, "drift")
    assert found["managers"] == ["kubectl-edit"]
    change_values(bundle, r"affinityThreshold: .*", "affinityThreshold: 0.5")
    assert said(step(told(plane, bundle), f"ConfigMap/{PICKER}")) == [(THRESHOLD, 0.1, 0.5, "both")]


def test_an_object_of_the_release_that_somebody_deleted(plane: ControlPlane, bundle: Path, namespace: str) -> None:
    plane.kubectl("delete", "service", PICKER, "-n", namespace)
    assert step(told(plane, bundle), f"Service/{PICKER}")["verb"] == "create"


def test_a_port_that_somebody_added_is_left_alone(plane: ControlPlane, bundle: Path, namespace: str) -> None:
    port = '[{"op": "add", "path": "/spec/ports/-", "value": {"name": "mine", "port": 7777}}]'
    plane.kubectl("patch", "service", PICKER, "-n", namespace, "--type=json", "-p", port)
    document = told(plane, bundle)
    assert document["different"] is False
    (foreign,) = step(document, f"Service/{PICKER}")["foreign"]
    assert (foreign["path"], foreign["manager"]) == ("spec.ports[7777]", "kubectl-patch")


def test_a_release_that_somebody_else_installed_needs_adopting(
    plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    place = render(plane, tmp_path / "bundle", namespace, "-t", "aggregation")
    values = str(place / "router" / "values.yaml")
    plane.helm("install", NAME, CHART, "-n", namespace, "-f", values)
    release = told(plane, place)["release"]
    assert (release["verb"], release["needs"]) == ("unchanged", "--adopt")


def test_nothing_secret_is_shown(plane: ControlPlane, admin: Api, bundle: Path, namespace: str) -> None:
    """In values, in a live object, in a Secret of the release; neither in text at -v nor in JSON."""
    secrets = [f"s3cr3t-{number}-" + "0123456789abcdef" for number in range(3)]
    change_values(bundle, r"  epp:\n", f"  epp:\n    env:\n    - name: HF_TOKEN\n      value: {secrets[0]}\n")
    plane.kubectl("set", "env", f"deployment/{PICKER}", f"API_KEY={secrets[1]}", "-n", namespace)
    decode = "deployment/mm-baseline-nvidia-gpu-vllm-decode"
    argument = (
        f'[{{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--api-key={secrets[2]}"}}]'
    )
    plane.kubectl("patch", decode, "-n", namespace, "--type=json", "-p", argument)
    shown: list[Any] = [diff(plane, bundle, "-v"), diff(plane, bundle, "-v", "-o", "json")]
    for ran in shown:
        assert ran.code == 4
        assert ran.out.count("<masked>") >= 3
        assert not [secret for secret in secrets if secret in ran.out + ran.err]


def test_a_release_that_is_not_there_is_created(
    plane: ControlPlane, admin: Api, namespace: str, tmp_path: Path
) -> None:
    hold_token(admin, namespace)
    document = told(plane, render(plane, tmp_path / "bundle", namespace, "-t", "aggregation"))
    assert document["release"]["verb"] == "create"
