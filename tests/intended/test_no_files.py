"""What is no file is not read: a pipe would be waited for, a device has no end."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mmdeploy import intended
from mmdeploy.cli import blueprints
from mmdeploy.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]
FILES = ["mmdeploy.yaml", "router/values.yaml", "modelserver/kustomization.yaml", "modelserver/serviceaccount.yaml"]

KINDS: dict[str, tuple[Callable[[Path], object], str]] = {
    "pipe": (os.mkfifo, "is a pipe, where a file is wanted"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "is a device, where a file is wanted"),
    "loop": (lambda path: path.symlink_to(path.name), "cannot be read: Too many levels of symbolic links"),
    "directory": (Path.mkdir, "is a directory, where a file is wanted"),
}


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_is_said(kind: str, file: str, tmp_path: Path) -> None:
    if kind == "directory" and file.endswith("serviceaccount.yaml"):
        pytest.skip("a directory among the resources is another kustomization")
    bundle = Path(shutil.copytree(ROOT / "overlays/v0.9/e-p-d/gpu/vllm/base", tmp_path / "bundle"))
    (bundle / file).unlink()
    make, said = KINDS[kind]
    make(bundle / file)
    with pytest.raises(UsageError) as caught:
        intended.read(bundle, blueprints.load())
    assert caught.value.found == said
    assert caught.value.origin == str(bundle / file)
    assert caught.value.next_step


def test_a_link_to_a_file_is_one(tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(ROOT / "overlays/v0.9/e-p-d/gpu/vllm/base", tmp_path / "bundle"))
    (bundle / "router/values.yaml").rename(tmp_path / "mine.yaml")
    (bundle / "router/values.yaml").symlink_to(tmp_path / "mine.yaml")
    assert intended.read(bundle, blueprints.load()).values
