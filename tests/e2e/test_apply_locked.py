"""A Helm release that a helm which was killed left locked, as helm itself writes it."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.rig.api import Api
from tests.rig.controlplane import ControlPlane, FailedError
from tests.rig.deploying import NAME, apply, delete, everything, hold_token, render, succeeded

LONG_AGO = "2020-01-01T00:00:00Z"


@pytest.fixture
def bundle(plane: ControlPlane, admin: Api, namespace: str, tmp_path: Path, custom_resources: None) -> Path:
    hold_token(admin, namespace)
    return render(plane, tmp_path / "bundle", namespace, namePrefix="mm")


def lock(admin: Api, namespace: str, revision: int, status: str) -> None:
    """What is left of a helm that was killed at work: the newest revision, never finished. Read off helm 4: the
    Secret's own base64, then helm's, gzip, JSON; the labels say it once more."""
    root = f"/api/v1/namespaces/{namespace}/secrets"
    item = admin.get(f"{root}/sh.helm.release.v1.{NAME}.v1")
    release = json.loads(gzip.decompress(base64.b64decode(base64.b64decode(item["data"]["release"]))))
    release["version"] = revision
    release["info"] |= {"status": status, "last_deployed": LONG_AGO, "description": "Preparing upgrade"}
    packed = base64.b64encode(base64.b64encode(gzip.compress(json.dumps(release).encode()))).decode()
    labels = item["metadata"]["labels"] | {"status": status, "version": str(revision)}
    metadata: dict[str, Any] = {"name": f"sh.helm.release.v1.{NAME}.v{revision}", "namespace": namespace}
    kept = {"apiVersion": "v1", "kind": "Secret", "type": item["type"], "data": {"release": packed}}
    if revision == 1:
        admin.delete(f"{root}/{metadata['name']}")
    admin.request("POST", root, {**kept, "metadata": {**metadata, "labels": labels}})


def status(plane: ControlPlane, namespace: str) -> list[str]:
    return [item["status"] for item in json.loads(plane.helm("list", "-n", namespace, "-o", "json"))]


LEFT = [(1, "pending-install"), (2, "pending-upgrade"), (1, "uninstalling")]


@pytest.mark.parametrize(("revision", "left"), LEFT)
def test_apply_unlocks_what_an_apply_left(
    plane: ControlPlane, admin: Api, namespace: str, deployer: str, bundle: Path, revision: int, left: str
) -> None:
    succeeded(apply(plane, bundle, "--no-wait", user=deployer))
    lock(admin, namespace, revision, left)
    assert status(plane, namespace) == [left]
    with pytest.raises(FailedError, match="another operation|no deployed releases"):  # helm alone goes no further
        plane.helm("upgrade", NAME, "tests/rig/chart", "-n", namespace, "-f", bundle / "router" / "values.yaml")
    ran = succeeded(apply(plane, bundle, "--no-wait", user=deployer))
    assert any("it was unlocked" in event["text"] for event in ran.of("warning"))
    assert status(plane, namespace) == ["deployed"]
    again = succeeded(apply(plane, bundle, "--no-wait", user=deployer))
    assert set(again.applied.values()) == {"unchanged"}


@pytest.mark.parametrize(("revision", "left"), LEFT)
def test_delete_unlocks_it_too(
    plane: ControlPlane, admin: Api, namespace: str, deployer: str, bundle: Path, revision: int, left: str
) -> None:
    succeeded(apply(plane, bundle, "--no-wait", user=deployer))
    lock(admin, namespace, revision, left)
    succeeded(delete(plane, bundle, user=deployer))
    assert set(everything(admin, namespace)) == {"Secret/llm-d-hf-token"}


def test_a_lock_of_somebody_else_is_not_broken(plane: ControlPlane, admin: Api, namespace: str, bundle: Path) -> None:
    plane.helm("install", NAME, "tests/rig/chart", "-n", namespace, "-f", bundle / "router" / "values.yaml")
    lock(admin, namespace, 2, "pending-upgrade")
    ran = apply(plane, bundle, "--no-wait", "--adopt", "--skip", "preflight")
    assert ran.code == 5
    assert "another helm changes the release" in ran.err
    assert status(plane, namespace) == ["pending-upgrade"]
