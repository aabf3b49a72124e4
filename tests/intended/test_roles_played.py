"""A bundle that lost the workload of a role is refused: an apply would take away what runs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mmdeploy import intended
from mmdeploy.cli import blueprints
from mmdeploy.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]
CATALOG = blueprints.load()


def copied(name: str, folder: Path) -> Path:
    return Path(shutil.copytree(ROOT / "overlays" / name / "gpu/vllm/base", folder / "bundle"))


@pytest.mark.parametrize("text", ["", "null\n", "# later\n", "---\n---\n"])
def test_an_emptied_manifest(text: str, tmp_path: Path) -> None:
    bundle = copied("main/e-pd", tmp_path)
    file = bundle / "modelserver/disaggregatedset.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match="no workload plays the roles encode and decode that mmdeploy.yaml") as caught:
        intended.read(bundle, CATALOG)
    assert caught.value.origin == str(file)
    assert f"mmdeploy render -f {bundle}/mmdeploy.yaml -d {bundle}" in str(caught.value.next_step)


def test_a_workload_that_is_listed_no_more(tmp_path: Path) -> None:
    bundle = copied("v0.9/e-p-d", tmp_path)
    file = bundle / "modelserver/kustomization.yaml"
    file.write_text(file.read_text(encoding="utf-8").replace("- prefill-deployment.yaml\n", ""), encoding="utf-8")
    with pytest.raises(UsageError, match="no workload plays the role prefill that") as caught:
        intended.read(bundle, CATALOG)
    assert caught.value.origin == str(file)


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    bundle = copied("v0.9/e-p-d", tmp_path)
    shutil.rmtree(bundle / "modelserver")
    with pytest.raises(UsageError, match="no workload plays the roles encode and prefill and decode") as caught:
        intended.read(bundle, CATALOG)
    assert str(bundle / "modelserver") in str(caught.value.origin)
    # Taking it all away needs no workloads.
    assert intended.place(bundle, CATALOG)[1] == "multimodal-serving"
