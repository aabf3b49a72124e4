"""The router by helm 3, which lists, locks and merges in its own way; everything else runs with helm 4."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.test_apply_locked import lock
from tests.rig import users
from tests.rig.api import Api
from tests.rig.build import program
from tests.rig.controlplane import ControlPlane
from tests.rig.deploying import (
    CHART,
    NAME,
    Ran,
    apply_words,
    everything,
    hold_token,
    mmdeploy,
    render,
    succeeded,
)


@pytest.fixture
def third(plane: ControlPlane, tmp_path: Path) -> dict[str, str]:
    """An environment whose helm is helm 3."""
    place = tmp_path / "bin"
    place.mkdir()
    (place / "helm").symlink_to(program("helm3"))
    return {"PATH": f"{place}:{plane.environment()['PATH']}"}


@pytest.fixture
def bundle(plane: ControlPlane, admin: Api, namespace: str, tmp_path: Path, custom_resources: None) -> Path:
    hold_token(admin, namespace)
    return render(plane, tmp_path / "bundle", namespace, namePrefix="mm")


def run(plane: ControlPlane, third: dict[str, str], *words: str | Path, user: str = users.ADMIN) -> Ran:
    return mmdeploy(plane, *words, user=user, environ=third)


def picker(admin: Api, namespace: str) -> dict[str, object]:
    found = admin.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/{NAME}-epp")
    return dict(found["spec"])


def test_it_is_helm_3(plane: ControlPlane, third: dict[str, str], bundle: Path) -> None:
    document = json.loads(run(plane, third, "check", bundle, "--router-chart", CHART, "-o", "json").out)
    checks = [check for category in document["categories"] for check in category["checks"]]
    (said,) = [check["detail"] for check in checks if check["description"].startswith("helm is ")]
    assert said.lstrip("v").startswith("3.")


def test_there_and_back(
    plane: ControlPlane, admin: Api, namespace: str, deployer: str, third: dict[str, str], bundle: Path
) -> None:
    before = everything(admin, namespace)
    ran = succeeded(run(plane, third, *apply_words(bundle, "--no-wait"), user=deployer))
    assert ran.applied[f"HelmRelease/{NAME}"] == "created"
    again = succeeded(run(plane, third, *apply_words(bundle, "--no-wait"), user=deployer))
    assert set(again.applied.values()) == {"unchanged"}
    assert run(plane, third, "diff", bundle, "--router-chart", CHART, user=deployer).code == 0
    succeeded(run(plane, third, "delete", bundle, "-y", "-o", "jsonl", user=deployer))
    assert everything(admin, namespace) == before


def test_values_that_changed(
    plane: ControlPlane, admin: Api, namespace: str, third: dict[str, str], bundle: Path
) -> None:
    succeeded(run(plane, third, *apply_words(bundle, "--no-wait")))
    values = bundle / "router" / "values.yaml"
    values.write_text(values.read_text().replace("affinityThreshold: 0.6", "affinityThreshold: 0.7"))
    assert run(plane, third, "diff", bundle, "--router-chart", CHART).code == 4
    ran = succeeded(run(plane, third, *apply_words(bundle, "--no-wait")))
    assert ran.applied[f"HelmRelease/{NAME}"] == "updated"
    assert ran.applied[f"Deployment/{NAME}-epp"] == "restarted"
    assert run(plane, third, "diff", bundle, "--router-chart", CHART).code == 0


def test_what_somebody_edited_is_put_right_unasked(
    plane: ControlPlane, admin: Api, namespace: str, third: dict[str, str], bundle: Path
) -> None:
    """helm 3 merges on the client and takes fields of others over: it knows no conflict. The plan shows them."""
    succeeded(run(plane, third, *apply_words(bundle, "--no-wait")))
    admin.apply({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 3},
                 "metadata": {"name": f"{NAME}-epp", "namespace": namespace}})  # fmt: skip
    ran = succeeded(run(plane, third, *apply_words(bundle, "--no-wait")))
    (planned,) = [event for event in ran.of("planned") if event["kind"] == "HelmRelease"]
    assert planned["changes"] == [f"Deployment/{NAME}-epp spec.replicas"]
    assert picker(admin, namespace)["replicas"] == 1
    assert run(plane, third, "diff", bundle, "--router-chart", CHART).code == 0


@pytest.mark.parametrize(
    ("revision", "left"), [(1, "pending-install"), (2, "pending-upgrade"), (1, "uninstalling")]
)  # fmt: skip
def test_a_lock_that_was_left(
    plane: ControlPlane, admin: Api, namespace: str, third: dict[str, str], bundle: Path, revision: int, left: str
) -> None:
    succeeded(run(plane, third, *apply_words(bundle, "--no-wait")))
    lock(admin, namespace, revision, left)
    succeeded(run(plane, third, *apply_words(bundle, "--no-wait")))
    (release,) = json.loads(plane.helm("list", "-n", namespace, "-o", "json"))
    assert release["status"] == "deployed"


def test_the_other_helm_goes_on(
    plane: ControlPlane, admin: Api, namespace: str, third: dict[str, str], bundle: Path
) -> None:
    """A release of helm 3 under helm 4, as after an upgrade of a laptop, and taken away by helm 3 again."""
    before = everything(admin, namespace)
    succeeded(run(plane, third, *apply_words(bundle, "--no-wait")))
    assert set(succeeded(mmdeploy(plane, *apply_words(bundle, "--no-wait"))).applied.values()) == {"unchanged"}
    values = bundle / "router" / "values.yaml"
    values.write_text(values.read_text().replace("affinityThreshold: 0.6", "affinityThreshold: 0.7"))
    succeeded(mmdeploy(plane, *apply_words(bundle, "--no-wait")))
    assert mmdeploy(plane, "diff", bundle, "--router-chart", CHART).code == 0
    succeeded(run(plane, third, "delete", bundle, "-y", "-o", "jsonl"))
    assert everything(admin, namespace) == before
