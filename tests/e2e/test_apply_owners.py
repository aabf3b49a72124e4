"""What others made or changed is not touched without an option that says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rig.api import Api, Object, wait
from tests.rig.controlplane import ControlPlane
from tests.rig.deploying import NAME, apply, delete, everything, hold_token, mmdeploy, render, succeeded

ACCOUNT = "mm-sa"


@pytest.fixture
def bundle(plane: ControlPlane, admin: Api, namespace: str, tmp_path: Path, custom_resources: None) -> Path:
    """One Deployment ``mm-decode``, its service account, and the router; the token is there."""
    hold_token(admin, namespace)
    return render(plane, tmp_path / "bundle", namespace, namePrefix="mm")


def decode(admin: Api, namespace: str) -> str:
    """Where the Deployment is."""
    return f"/apis/apps/v1/namespaces/{namespace}/deployments/mm-decode"


def account(namespace: str) -> Object:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": namespace}}


# ------------------------------------------------------------------------------------------------------ others' objects


def test_an_object_of_somebody_else_is_adopted_only_when_asked(
    plane: ControlPlane, admin: Api, namespace: str, bundle: Path
) -> None:
    (name,) = _accounts(bundle)
    admin.apply({**account(namespace), "metadata": {"name": name, "namespace": namespace}}, manager="somebody")
    ran = apply(plane, bundle, "--skip", "preflight", "--no-wait")
    assert ran.code == 5
    assert f"ServiceAccount/{name} is there already" in ran.err
    assert "--adopt" in ran.err
    assert "Deployment/mm-decode" not in everything(admin, namespace)

    ran = succeeded(apply(plane, bundle, "--no-wait", "--adopt"))
    assert ran.applied[f"ServiceAccount/{name}"] == "adopted"
    succeeded(delete(plane, bundle))
    assert f"ServiceAccount/{name}" not in everything(admin, namespace)


def _accounts(bundle: Path) -> list[str]:
    import yaml

    return [yaml.safe_load(file.read_text())["metadata"]["name"] for file in bundle.glob("modelserver/serviceaccount*")]


def test_an_adopted_object_leaves_the_other_deployment(
    plane: ControlPlane, admin: Api, namespace: str, bundle: Path, tmp_path: Path
) -> None:
    succeeded(apply(plane, bundle, "--no-wait"))
    other = render(plane, tmp_path / "other", namespace, "--name", "second", namePrefix="mm")
    words = ("--skip", "preflight", "--skip", "router", "--no-wait")
    ran = apply(plane, other, *words)
    assert ran.code == 5
    assert f"it is part of {NAME}" in ran.err

    succeeded(apply(plane, other, *words, "--adopt"))
    succeeded(delete(plane, bundle))
    assert "Deployment/mm-decode" in everything(admin, namespace), "it is the second deployment's by now"
    succeeded(delete(plane, other))
    assert "Deployment/mm-decode" not in everything(admin, namespace)


def test_a_release_of_somebody_else_is_adopted_only_when_asked(
    plane: ControlPlane, admin: Api, namespace: str, bundle: Path
) -> None:
    values = bundle / "router" / "values.yaml"
    plane.helm("install", NAME, "tests/rig/chart", "--namespace", namespace, "-f", values)
    ran = apply(plane, bundle, "--skip", "preflight", "--no-wait")
    assert ran.code == 5
    assert f"Helm release {NAME} is there that mmdeploy did not install" in ran.err
    succeeded(apply(plane, bundle, "--skip", "preflight", "--no-wait", "--adopt"))
    succeeded(delete(plane, bundle))


# ------------------------------------------------------------------------------------------------------ others' changes


def test_a_field_of_somebody_else_is_a_conflict_that_names_them(
    plane: ControlPlane, admin: Api, namespace: str, bundle: Path
) -> None:
    succeeded(apply(plane, bundle, "--no-wait"))
    edit = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "mm-decode", "namespace": namespace},
            "spec": {"replicas": 2}}  # fmt: skip
    admin.apply(edit, manager="autoscaler")
    ran = apply(plane, bundle, "--no-wait")
    assert ran.code == 5
    assert "autoscaler manages spec.replicas" in ran.err
    assert "--force-conflicts" in ran.err
    assert admin.get(decode(admin, namespace))["spec"]["replicas"] == 2

    ran = succeeded(apply(plane, bundle, "--no-wait", "--force-conflicts"))
    assert ran.applied["Deployment/mm-decode"] == "updated"
    assert admin.get(decode(admin, namespace))["spec"]["replicas"] == 1


def test_what_somebody_deleted_comes_back(plane: ControlPlane, admin: Api, namespace: str, bundle: Path) -> None:
    succeeded(apply(plane, bundle, "--no-wait"))
    admin.delete(decode(admin, namespace))
    wait("it is gone", lambda: admin.find(decode(admin, namespace)) is None)
    ran = succeeded(apply(plane, bundle, "--no-wait"))
    assert ran.applied["Deployment/mm-decode"] == "created"
    again = succeeded(apply(plane, bundle, "--no-wait"))
    assert set(again.applied.values()) == {"unchanged"}


def test_what_is_still_ending_is_made_anew(plane: ControlPlane, admin: Api, namespace: str, bundle: Path) -> None:
    succeeded(apply(plane, bundle, "--no-wait"))
    held = decode(admin, namespace)
    uid = admin.merge(held, {"metadata": {"finalizers": ["rig.example/held"]}})["metadata"]["uid"]
    admin.delete(held)
    ran = apply(plane, bundle, "--no-wait", "--timeout", "3s")
    assert ran.code == 124
    assert "finalizers rig.example/held" in ran.err
    admin.merge(held, {"metadata": {"finalizers": None}})
    succeeded(apply(plane, bundle, "--no-wait"))
    assert admin.get(held)["metadata"]["uid"] != uid


def test_what_somebody_made_anew_is_left_by_delete(
    plane: ControlPlane, admin: Api, namespace: str, bundle: Path
) -> None:
    succeeded(apply(plane, bundle, "--no-wait"))
    mine = admin.get(decode(admin, namespace))
    admin.delete(decode(admin, namespace))
    wait("it is gone", lambda: admin.find(decode(admin, namespace)) is None)
    metadata = {"name": "mm-decode", "namespace": namespace}
    admin.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": mine["spec"]},
                manager="somebody")  # fmt: skip
    ran = succeeded(delete(plane, bundle))
    assert {event["text"] for event in ran.of("warning")} == {
        "Deployment/mm-decode is left: somebody else made it anew"
    }
    assert "Deployment/mm-decode" in everything(admin, namespace)


# ------------------------------------------------------------------------------------------------ what cannot change


def test_a_selector_that_moved_is_recreated_only_when_asked(
    plane: ControlPlane, admin: Api, namespace: str, bundle: Path
) -> None:
    succeeded(apply(plane, bundle, "--no-wait"))
    uid = admin.get(decode(admin, namespace))["metadata"]["uid"]
    _rename_guide(bundle)
    ran = apply(plane, bundle, "--skip", "preflight", "--no-wait")
    assert ran.code == 5
    assert "--recreate" in ran.err
    assert admin.get(decode(admin, namespace))["metadata"]["uid"] == uid

    ran = succeeded(apply(plane, bundle, "--skip", "preflight", "--no-wait", "--recreate"))
    assert ran.applied["Deployment/mm-decode"] == "recreated"
    assert admin.get(decode(admin, namespace))["metadata"]["uid"] != uid
    again = succeeded(apply(plane, bundle, "--skip", "preflight", "--no-wait"))
    assert set(again.applied.values()) == {"unchanged"}


def _rename_guide(bundle: Path) -> None:
    """As between llm-d releases: the guide's label, which the selector has, is called something else."""
    for file in bundle.glob("modelserver/*deployment.yaml"):
        text = file.read_text()
        assert "llm-d.ai/guide: aggregation" in text
        file.write_text(text.replace("llm-d.ai/guide: aggregation", "llm-d.ai/guide: multimodal-aggregation"))


# --------------------------------------------------------------------------------------------------------------- router


def test_a_picker_whose_configuration_alone_changes_is_restarted(
    plane: ControlPlane, admin: Api, namespace: str, bundle: Path
) -> None:
    """Charts up to v0.10.0 leave its pods as they are then (router.md §4.2, llm-d-router#2459)."""
    succeeded(apply(plane, bundle, "--no-wait"))
    picker = f"/apis/apps/v1/namespaces/{namespace}/deployments/{NAME}-epp"
    assert "annotations" not in admin.get(picker)["spec"]["template"]["metadata"]
    values = bundle / "router" / "values.yaml"
    text = values.read_text()
    assert "affinityThreshold: 0.6" in text
    values.write_text(text.replace("affinityThreshold: 0.6", "affinityThreshold: 0.7"))

    ran = succeeded(apply(plane, bundle, "--no-wait"))
    assert ran.applied[f"HelmRelease/{NAME}"] == "updated"
    assert ran.applied[f"Deployment/{NAME}-epp"] == "restarted"
    restarted = admin.get(picker)["spec"]["template"]["metadata"]["annotations"]
    assert set(restarted) == {"kubectl.kubernetes.io/restartedAt"}
    again = succeeded(apply(plane, bundle, "--no-wait"))
    assert set(again.applied.values()) == {"unchanged"}
    assert admin.get(picker)["spec"]["template"]["metadata"]["annotations"] == restarted


def test_a_router_that_somebody_edited_is_put_right(
    plane: ControlPlane, admin: Api, namespace: str, bundle: Path
) -> None:
    succeeded(apply(plane, bundle, "--no-wait"))
    picker = f"/apis/apps/v1/namespaces/{namespace}/deployments/{NAME}-epp"
    edit = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": f"{NAME}-epp", "namespace": namespace},
            "spec": {"replicas": 3}}  # fmt: skip
    admin.apply(edit)
    assert mmdeploy(plane, "diff", bundle, "--router-chart", "tests/rig/chart").code == 4
    ran = apply(plane, bundle, "--no-wait")
    assert ran.code == 5
    assert f"Deployment/{NAME}-epp: rig manages spec.replicas" in ran.err
    succeeded(apply(plane, bundle, "--no-wait", "--force-conflicts"))
    assert admin.get(picker)["spec"]["replicas"] == 1
