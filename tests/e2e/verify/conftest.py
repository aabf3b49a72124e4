"""What tests of `mmdeploy verify` on a cluster share: deployments that several tests look at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.verify.verifying import Deployed, deploy
from tests.rig.api import Api, wait
from tests.rig.controlplane import ControlPlane


@pytest.fixture(scope="module")
def epd(
    request: pytest.FixtureRequest, plane: ControlPlane, admin: Api, pod_network: None, custom_resources: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Deployed]:  # fmt: skip
    """Encode and decode as Deployments, two pods each, which log at DEBUG, and the picker's metrics open; a module's
    tests change little of it and put that back."""
    name = request.module.__name__.rpartition("test_")[2].replace("_", "-")
    where = f"/api/v1/namespaces/{name}"
    admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    wait("the namespace has its service account", lambda: admin.find(f"{where}/serviceaccounts/default"))
    yield deploy(
        plane, name, tmp_path_factory.mktemp("epd") / "bundle", "--topology", "e-pd", workload="Deployment",
        monitoring="true", encode_replicas=2, decode_replicas=2, debug=("encode", "decode"),
    )  # fmt: skip
    admin.delete(where)
    admin.delete(f"{where}/pods")
    wait("the namespace's pods are gone", lambda: not admin.items(f"{where}/pods"))
