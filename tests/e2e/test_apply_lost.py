"""The list of what was applied is lost: somebody deleted its ConfigMap. Apply makes it anew, delete takes all away."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.rig.api import Api
from tests.rig.controlplane import ControlPlane
from tests.rig.deploying import NAME, apply, delete, everything, hold_token, mmdeploy, render, succeeded

TOKEN = {"HF_TOKEN": "hf_of-nobody-in-particular"}
SECRET = "Secret/llm-d-hf-token"


@pytest.fixture
def bundle(plane: ControlPlane, namespace: str, tmp_path: Path, custom_resources: None) -> Path:
    return render(plane, tmp_path / "bundle", namespace, namePrefix="mm")


def lose(admin: Api, namespace: str) -> None:
    admin.delete(f"/api/v1/namespaces/{namespace}/configmaps/mmdeploy-{NAME}")


def entries(admin: Api, namespace: str) -> dict[str, bool]:
    """``Kind/name`` of what is listed, and whether it is known to have been written."""
    item = admin.get(f"/api/v1/namespaces/{namespace}/configmaps/mmdeploy-{NAME}")
    found = json.loads(item["data"]["inventory.json"])
    return {f"{entry['kind']}/{entry['name']}": bool(entry["uid"]) for entry in found["entries"]}


def test_adopt_takes_the_secret_and_the_release_back(
    plane: ControlPlane, admin: Api, namespace: str, deployer: str, bundle: Path
) -> None:
    succeeded(apply(plane, bundle, "--no-wait", "--hf-token-from", "env:HF_TOKEN", user=deployer, environ=TOKEN))
    listed = entries(admin, namespace)
    assert listed[SECRET]
    lose(admin, namespace)

    refused = apply(plane, bundle, "--no-wait", user=deployer)
    assert refused.code == 5
    assert f"a Helm release {NAME} is there that mmdeploy did not install" in refused.err
    gone = delete(plane, bundle, user=deployer)
    assert gone.code == 0
    assert f"mmdeploy apply {bundle} --adopt --no-wait makes one; then delete again" in " ".join(gone.err.split())

    # The token is not given again: the Secret is known by its mark.
    again = succeeded(apply(plane, bundle, "--no-wait", "--adopt", user=deployer))
    assert again.applied[SECRET] == "unchanged"
    assert entries(admin, namespace) == listed
    document = json.loads(mmdeploy(plane, "status", "-n", namespace, "-o", "json", user=deployer).out)
    assert document["lastApply"]["finished"] is True
    succeeded(delete(plane, bundle, user=deployer))
    assert everything(admin, namespace) == {}


def test_a_secret_of_somebody_else_stays_somebody_else_s(
    plane: ControlPlane, admin: Api, namespace: str, deployer: str, bundle: Path
) -> None:
    hold_token(admin, namespace)
    succeeded(apply(plane, bundle, "--no-wait", user=deployer))
    lose(admin, namespace)
    succeeded(apply(plane, bundle, "--no-wait", "--adopt", user=deployer))
    assert SECRET not in entries(admin, namespace)
    succeeded(delete(plane, bundle, user=deployer))
    assert set(everything(admin, namespace)) == {SECRET}


def test_nothing_is_said_where_nothing_is(plane: ControlPlane, bundle: Path) -> None:
    assert "Helm release" not in succeeded(delete(plane, bundle)).err
