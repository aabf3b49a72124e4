"""Every topology on a real API server, with nothing wrong: everything that can be proved is proved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.verify.verifying import deploy
from tests.rig.controlplane import ControlPlane

ALWAYS = {"roles", "text", "image", "entry"}
TWO = {"encode_replicas": 2, "decode_replicas": 2}
E_PD = {**TWO, "debug": ("encode", "decode")}
E_P_D = {**TWO, "prefill_replicas": 2, "debug": ("encode", "prefill")}
DEPLOYMENT = {"workload": "Deployment"}

# Which claims a topology makes: llm-d-guides.md §16. A language server of SGLang picks its encoders itself, and its
# router neither follows caches nor prices.
CASES = [
    ("aggregation", {"decode_replicas": 3}, ALWAYS | {"affinity", "pricing"}),
    ("e-pd", E_PD, ALWAYS | {"affinity", "pricing", "stages", "spread", "embeddings"}),
    ("e-pd", E_PD | DEPLOYMENT, ALWAYS | {"affinity", "pricing", "stages", "spread", "embeddings"}),
    ("e-pd", TWO | {"server": "sglang"}, ALWAYS | {"stages", "embeddings"}),
    ("e-p-d", E_P_D, ALWAYS | {"affinity", "pricing", "stages", "spread", "embeddings", "kv"}),
    ("e-p-d", E_P_D | DEPLOYMENT, ALWAYS | {"affinity", "pricing", "stages", "spread", "embeddings", "kv"}),
]


@pytest.mark.usefixtures("pod_network", "custom_resources")
@pytest.mark.parametrize(("topology", "settings", "claims"), CASES)
def test_everything_is_proved(
    topology: str, settings: dict[str, Any], claims: set[str], plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    deployed = deploy(plane, namespace, tmp_path / "bundle", "--topology", topology, monitoring="true", **settings)
    with deployed.simulated():
        ran = deployed.verify()
    assert (ran.code, ran.unproved) == (0, {}), ran.out + ran.err
    assert set(ran.words) == claims
