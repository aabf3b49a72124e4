"""The picker's metrics as the chart leaves them unless told otherwise: behind a token that nobody can check."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.verify.verifying import deploy
from tests.rig.controlplane import ControlPlane


@pytest.mark.usefixtures("pod_network", "custom_resources")
def test_what_the_picker_counts_is_not_observable_and_the_rest_is_proved(
    plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    deployed = deploy(plane, namespace, tmp_path / "bundle", "--topology", "aggregation", decode_replicas=2)
    with deployed.simulated():
        ran = deployed.verify()
        strict = deployed.verify("--strict")
    assert ran.code == 0, ran.out + ran.err
    assert "contradicted" not in ran.words.values()
    assert {"roles", "text", "image", "affinity"} <= {claim for claim, word in ran.words.items() if word == "proved"}
    assert "unauthorised (HTTP 401)" in ran.said("roles")
    assert "token" in ran.said("roles")
    assert strict.code == (6 if "not observable" in strict.words.values() else 0)
