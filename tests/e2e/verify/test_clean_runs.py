"""Every topology on a real API server, with nothing wrong: everything that can be proved is proved."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.verify.verifying import deploy
from tests.rig.controlplane import ControlPlane

pytestmark = pytest.mark.usefixtures("pod_network", "custom_resources")


@pytest.mark.parametrize(
    ("topology", "settings"),
    [
        ("aggregation", {"decode_replicas": 3}),
        ("e-pd", {"encode_replicas": 2, "decode_replicas": 2, "debug": ("encode", "decode")}),
        ("e-pd", {"encode_replicas": 2, "decode_replicas": 2, "debug": ("encode", "decode"), "workload": "Deployment"}),
        ("e-p-d", {"encode_replicas": 2, "prefill_replicas": 2, "debug": ("encode", "prefill")}),
        (
            "e-p-d",
            {"encode_replicas": 2, "prefill_replicas": 2, "debug": ("encode", "prefill"), "workload": "Deployment"},
        ),
    ],
)
def test_everything_is_proved(
    topology: str, settings: dict[str, object], plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    deployed = deploy(plane, namespace, tmp_path / "bundle", "--topology", topology, monitoring="true", **settings)
    with deployed.simulated():
        ran = deployed.verify()
    print(ran.out, ran.err)
    assert (ran.code, ran.unproved) == (0, {}), ran.out + ran.err
