"""mmdeploy verify --debug-logs, from the question to the pods that are as before."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.verify.verifying import Deployed, deploy
from tests.rig.api import wait
from tests.rig.controlplane import ControlPlane

pytestmark = pytest.mark.usefixtures("pod_network", "custom_resources")

SETTINGS = {
    "e-pd": {"encode_replicas": 2, "decode_replicas": 2},
    "e-p-d": {"encode_replicas": 1, "prefill_replicas": 2, "decode_replicas": 1},
}


def levels(deployed: Deployed) -> set[str | None]:
    """Of all containers of the model servers."""
    return {
        next((item.get("value") for item in container.get("env", ()) if item["name"] == "VLLM_LOGGING_LEVEL"), None)
        for pod in deployed.pods()
        if "llm-d.ai/role" in pod["metadata"].get("labels", {})
        for container in pod["spec"]["containers"]
    }


@pytest.mark.parametrize(
    ("topology", "form"), [("e-pd", "Deployment"), ("e-pd", "DisaggregatedSet"), ("e-p-d", "DisaggregatedSet")]
)
def test_transfers_that_no_counter_shows_are_proved_by_logs(
    topology: str, form: str, plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    deployed = deploy(
        plane, namespace, tmp_path / "bundle", "--topology", topology, workload=form, monitoring="true",
        **SETTINGS[topology],
    )  # fmt: skip
    with deployed.simulated():
        plain = deployed.verify("--only", "embeddings")
        assert plain.words == {"embeddings": "not observable"}, plain.out + plain.err
        ran = deployed.verify("--only", "embeddings", "--debug-logs", "-y")
        assert ran.words == {"embeddings": "proved"}, ran.out + ran.err
        assert "starting NIXL xfer" in ran.said("embeddings")
    assert "put VLLM_LOGGING_LEVEL" in ran.err
    wait("the pods are as before", lambda: levels(deployed) == {None}, seconds=60)


def test_nobody_is_there_to_ask(plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    deployed = deploy(plane, namespace, tmp_path / "bundle", "--topology", "e-pd", encode_replicas=1, decode_replicas=1)
    ran = deployed.verify("--only", "embeddings", "--debug-logs")
    assert (ran.code, "no terminal to ask on" in ran.err) == (2, True)
    assert levels(deployed) == {None}
