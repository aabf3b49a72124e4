"""What a bundle says of its engines, read off their command lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from mmdeploy import intended
from mmdeploy.verify import configuration
from tests.rig.rendering import write_bundle
from tests.verify.simulated import CATALOG


@pytest.mark.parametrize(
    ("more", "count"),
    [([], 1), (["--api-server-count=4"], 4), (["--api-server-count", "4"], 4), (["-dp", "2"], 2),
     (["--data-parallel-size=2", "--api-server-count=3"], 3)],
)  # fmt: skip
def test_processes_that_take_requests(more: list[str], count: int, tmp_path: Path) -> None:
    """vllm-flags.csv: ``--api-server-count,-asc`` and ``--data-parallel-size,-dp``, one of each unless said."""
    ranks = 2 if "data-parallel" in " ".join(more) or "-dp" in more else 1
    decode = {"extraArgs": more, "tensorParallelSize": 2, "accelerators": 2 * ranks}
    bundle = write_bundle(tmp_path / "bundle", {"topology": "aggregation", "decode": decode})
    assert configuration.read(intended.read(bundle, CATALOG))["apiServers"] == count
