"""``mmdeploy apply --verify``: the last stage proves what the others put there."""

from __future__ import annotations

from pathlib import Path

import pytest

from mmdeploy import intended
from tests.e2e.verify.verifying import CATALOG
from tests.rig import deploying
from tests.rig.controlplane import ControlPlane
from tests.rig.simulated import Simulated


@pytest.mark.usefixtures("pod_network", "custom_resources")
def test_apply_verifies_as_its_last_stage(plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    bundle = deploying.render(
        plane, tmp_path / "bundle", namespace, "--topology", "aggregation", monitoring="true", decode_replicas=2
    )
    deploying.hold_token(plane.api(), namespace)
    meant = intended.read(bundle, CATALOG)
    with Simulated(plane.api(), namespace, meant, CATALOG) as simulated:
        ran = deploying.apply(plane, bundle, "--hf-token-from", "existing", "--verify")
        assert ran.code == 0, ran.err + ran.out
        said = {event["claim"]: event["verdict"] for event in ran.of("verified")}
        assert set(said.values()) == {"proved", "not applicable"}
        assert {"roles", "text", "image", "affinity", "pricing", "entry"} <= set(said)

        for pod in simulated.pods_of("decode"):
            pod.engine.settings.answers = "garbage"
        ran = deploying.apply(plane, bundle, "--hf-token-from", "existing", "--verify")
        assert ran.code == 6, ran.err + ran.out
        said = {event["claim"]: event["verdict"] for event in ran.of("verified")}
        assert said["image"] == "contradicted"
