"""Encode pods without the label that says so: the picker's filters go by it, and nothing fails."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from tests.e2e.verify.verifying import Deployed
from tests.rig import deploying
from tests.rig.api import wait
from tests.rig.controlplane import ControlPlane
from tests.rig.workloads import ready_pods

OPTIONS = {"workload": "Deployment", "monitoring": "true", "encode_replicas": 1, "decode_replicas": 1}


def without_role(bundle: Path) -> None:
    """Takes the label from the encode Deployment: from its pods, and from what it selects them by."""
    for file in bundle.glob("modelserver/*.yaml"):
        items = list(yaml.safe_load_all(file.read_text()))
        for item in items:
            if item["kind"] == "Deployment" and item["metadata"]["name"].endswith("-encode"):
                item["spec"]["template"]["metadata"]["labels"].pop("llm-d.ai/role")
                item["spec"]["selector"]["matchLabels"].pop("llm-d.ai/role", None)
        file.write_text(yaml.safe_dump_all(items))


@pytest.mark.usefixtures("pod_network", "custom_resources")
@pytest.mark.parametrize("known", [True, False])
def test_encode_pods_without_their_label(known: bool, plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    good = deploying.render(plane, tmp_path / "good", namespace, "--topology", "e-pd", **OPTIONS)
    deploying.hold_token(plane.api(), namespace)
    edited = shutil.copytree(good, tmp_path / "edited")
    without_role(edited)
    # By hand: mmdeploy refuses such a bundle.
    values = edited / "router" / "values.yaml"
    plane.helm("install", deploying.NAME, deploying.CHART, "--namespace", namespace, "-f", values)
    plane.kubectl("apply", "-k", edited / "modelserver")
    deployed = Deployed(plane, plane.api(), namespace, good)
    wait("its pods are ready", lambda: ready_pods(plane.api(), namespace, 3))
    with deployed.simulated():
        ran = deployed.verify(*([good] if known else []), bundle=False)
    assert ran.code == 6, ran.out + ran.err
    assert {"roles", "stages"} <= {claim for claim, word in ran.words.items() if word == "contradicted"}
    assert "carries no label llm-d.ai/role" in ran.said("roles")
    assert "lost the label llm-d.ai/role" in ran.said("roles")  # the cause
