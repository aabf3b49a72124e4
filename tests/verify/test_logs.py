"""Logs that a targets file names: files beside it, and addresses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from mmdeploy.cli import blueprints
from mmdeploy.errors import UsageError
from mmdeploy.verify import logs, targets_file
from mmdeploy.verify.transport import HttpTransport

ROOT = Path(__file__).resolve().parents[2]
BUNDLE = ROOT / "overlays/main/e-pd/gpu/vllm/gke"


def targets(tmp_path: Path, **pod: str) -> Path:
    path = tmp_path / "targets.yaml"
    content = {
        "schemaVersion": 1, "kind": "Targets", "model": "m", "topology": "aggregation", "server": "vllm",
        "release": "main", "entry": {"url": "http://127.0.0.1:9"},
        "roles": {"decode": [{"name": "decode-0", "url": "http://127.0.0.1:9", **pod}]},
    }  # fmt: skip
    path.write_text(yaml.safe_dump(content))
    return path


def test_a_file_is_named_as_seen_from_the_targets_file(tmp_path: Path) -> None:
    (tmp_path / "decode-0.log").write_text("INFO one\nDEBUG two\n")
    found = targets_file.read(targets(tmp_path, log="decode-0.log"), blueprints.load())
    read = logs.reader(found, HttpTransport())
    assert read is not None
    assert list(read("decode-0")) == ["INFO one", "DEBUG two"]


def test_no_pod_has_a_log(tmp_path: Path) -> None:
    assert logs.reader(targets_file.read(targets(tmp_path), blueprints.load()), HttpTransport()) is None


@pytest.mark.parametrize("place", ["absent.log", "http://127.0.0.1:9/log"])
def test_a_log_that_cannot_be_read_is_told(place: str, tmp_path: Path) -> None:
    read = logs.reader(targets_file.read(targets(tmp_path, log=place), blueprints.load()), HttpTransport())
    assert read is not None
    with pytest.raises(UsageError, match="the log of decode-0 cannot be read"):
        read("decode-0")


def verified(*options: str) -> str:
    """What ``mmdeploy verify`` says of the embeddings of a rehearsal."""
    program = [sys.executable, "-m", "mmdeploy"]
    command = [*program, "rehearse", str(BUNDLE), *options, "--", *program, "verify", "--only", "embeddings"]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False).stdout


def test_a_rehearsal_at_debug_proves_that_embeddings_are_used() -> None:
    lines = verified("--debug-logs").splitlines()
    assert lines[1].split()[:2] == ["embeddings", "proved"]


def test_a_consumer_that_encodes_anew_is_contradicted_by_its_log() -> None:
    said = verified("--debug-logs", "--fault", "consumer-reencodes")
    assert said.splitlines()[1].split()[:2] == ["embeddings", "contradicted"]
