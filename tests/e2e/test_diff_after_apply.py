"""What diff says is what apply does: after it, nothing differs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.test_diff import DECODE, Edit, bundle, diff, edit, step, told
from tests.rig.api import Api
from tests.rig.controlplane import ControlPlane
from tests.rig.deploying import NAME, apply, hold_token, render, succeeded

__all__ = ["bundle", "edit"]
pytestmark = pytest.mark.usefixtures("custom_resources")


def test_drift_is_taken_back_when_asked_to(plane: ControlPlane, bundle: Path, edit: Edit) -> None:
    edit(f"deployment/{DECODE}", "s/^  replicas: 1$/  replicas: 3/")
    edit(f"configmap/{NAME}-epp", "s/affinityThreshold: .*/affinityThreshold: 0.1/")
    refused = apply(plane, bundle, "--no-wait")
    assert refused.code == 5
    assert "--force-conflicts" in refused.err
    assert diff(plane, bundle).code == 4
    done = succeeded(apply(plane, bundle, "--no-wait", "--force-conflicts"))
    assert done.applied[f"Deployment/{DECODE}"] == "updated"
    assert diff(plane, bundle).code == 0


def test_a_new_render_and_a_selector_that_moved(plane: ControlPlane, bundle: Path) -> None:
    (path,) = bundle.glob("modelserver/*deployment*.yaml")
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("llm-d.ai/guide: aggregation", "llm-d.ai/guide: moved"), encoding="utf-8")
    refused = apply(plane, bundle, "--no-wait")
    assert refused.code == 5
    assert "--recreate" in refused.err
    done = succeeded(apply(plane, bundle, "--no-wait", "--recreate"))
    assert done.applied[f"Deployment/{DECODE}"] == "recreated"
    assert diff(plane, bundle).code == 0


def test_objects_that_are_adopted(plane: ControlPlane, admin: Api, namespace: str, tmp_path: Path) -> None:
    hold_token(admin, namespace)
    place = render(plane, tmp_path / "bundle", namespace, "-t", "aggregation")
    plane.kubectl("apply", "-k", place / "modelserver")
    assert step(told(plane, place), f"Deployment/{DECODE}")["verb"] == "adopt"
    succeeded(apply(plane, place, "--no-wait", "--adopt"))
    assert diff(plane, place).code == 0


def test_a_field_that_is_no_longer_rendered_goes(plane: ControlPlane, admin: Api, bundle: Path, namespace: str) -> None:
    (path,) = bundle.glob("modelserver/*deployment*.yaml")
    text = path.read_text(encoding="utf-8")
    assert "        - name: USER\n          value: llm-d\n" in text
    path.write_text(text.replace("        - name: USER\n          value: llm-d\n", ""), encoding="utf-8")
    (change,) = step(told(plane, bundle), f"Deployment/{DECODE}")["changes"]
    assert (change["path"], change["before"], change["after"], change["cause"]) == (
        "spec.template.spec.containers[modelserver].env[USER]", "llm-d", None, "render",
    )  # fmt: skip
    succeeded(apply(plane, bundle, "--no-wait"))
    live = admin.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/{DECODE}")
    assert "USER" not in {item["name"] for item in live["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert diff(plane, bundle).code == 0
