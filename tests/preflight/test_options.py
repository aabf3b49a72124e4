"""What a person may write after `mmdeploy check`, without a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUNDLE = ROOT / "overlays" / "main" / "aggregation" / "gpu" / "vllm" / "base"


def check(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mmdeploy", "check", str(BUNDLE), *words], cwd=ROOT, capture_output=True, text=True,
        check=False, env={**os.environ, "KUBECONFIG": os.devnull, "HOME": "/nowhere", **environment},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--wait", "soon"], "'soon' is not a duration"),
        (["--for", "jo"], "--for: belongs to --print-rbac"),
        (["-o", "yaml"], "-o yaml: belongs to --print-rbac"),
        (["--hf-token-from", "hf_mine"], "says neither env:NAME nor file:PATH"),
        (["--hf-token-from", "env:NOT_THERE"], "env:NOT_THERE: there is no token: the variable is not set"),
        (["--hf-token-from", "file:/not/there"], "file:/not/there: the token cannot be read: No such file"),
    ],
)
def test_misuse(words: list[str], told: str) -> None:
    done = check(*words)
    assert done.returncode == 2, done.stdout + done.stderr
    assert told in done.stderr
    assert "hf_mine" not in done.stderr


def test_no_kubeconfig_is_a_check_that_fails() -> None:
    done = check()
    assert done.returncode == 5
    assert "× the API server answers" in done.stdout


def test_a_bundle_that_was_edited_out_of_shape(tmp_path: Path) -> None:
    import shutil

    bundle = shutil.copytree(BUNDLE, tmp_path / "bundle")
    file = next(path for path in (bundle / "modelserver").glob("*.yaml") if "kind: Deployment" in path.read_text())
    file.write_text(file.read_text().partition("  template:")[0])
    done = subprocess.run(
        [sys.executable, "-m", "mmdeploy", "check", str(bundle), "--print-rbac"], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert ": spec lacks template" in done.stderr


def test_the_rights_as_json() -> None:
    import json

    done = check("--print-rbac", "-o", "json")
    assert [item["kind"] for item in json.loads(done.stdout)["items"]] == [
        "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding",
    ]  # fmt: skip


def test_a_placeholder_is_told_and_a_name_is_not() -> None:
    nobody = check("--print-rbac")
    assert "SOMEBODY" in nobody.stdout
    assert "SOMEBODY stands for whom the rights are for: --for NAME" in nobody.stderr
    somebody = check("--print-rbac", "--for", "jo")
    assert "SOMEBODY" not in somebody.stdout + somebody.stderr
