"""What kustomize says at length of a bundle that somebody edited is one sentence, about the file to be mended."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mmdeploy import intended
from mmdeploy.cli import blueprints
from mmdeploy.errors import UsageError

pytestmark = pytest.mark.kubectl
ROOT = Path(__file__).resolve().parents[2]
BUNDLE = ROOT / "overlays" / "main" / "aggregation" / "gpu" / "vllm" / "base"
KUSTOMIZATION = "kustomization.yaml"


@pytest.fixture
def complaint(tmp_path: Path) -> Callable[..., UsageError]:
    """The error of a bundle whose kustomization has more lines, or other resources."""

    def of(more: str, resource: str = "", text: str = "") -> UsageError:
        made = Path(shutil.copytree(BUNDLE, tmp_path / "bundle", dirs_exist_ok=True))
        file = made / "modelserver" / KUSTOMIZATION
        listed = f"resources:\n- {resource}" if resource else "resources:"
        file.write_text(file.read_text(encoding="utf-8").replace("resources:", listed) + more, encoding="utf-8")
        if text:
            (made / "modelserver" / resource).write_text(text, encoding="utf-8")
        with pytest.raises(UsageError) as caught:
            intended.read(made, blueprints.load())
        assert "\n" not in caught.value.found
        assert "error:" not in caught.value.found
        assert str(tmp_path) not in caught.value.found
        return caught.value

    return of


RENAMED = 'images: [{name: x, newTag: "1"}]\n'
"""Harmless: mmdeploy reads a kustomization that only lists files itself."""

CASES = {
    "a patch that is missing": (("patches: [{path: nope.yaml}]\n",), KUSTOMIZATION, "names nope.yaml, which is not"),
    "a file of a generator that is missing": (
        ("configMapGenerator: [{name: c, files: [nope.txt]}]\n",), KUSTOMIZATION, "names nope.txt, which is not there",
    ),
    "an older field, which is warned of, and a patch that is missing": (
        ("patchesStrategicMerge: [nope.yaml]\n",), KUSTOMIZATION, "names nope.yaml, which is not there",
    ),
    "a field that there is not": (("patchez: []\n",), KUSTOMIZATION, 'invalid Kustomization: json: unknown field "pat'),
    "a patch of another object": (
        ('patches: [{patch: "{apiVersion: apps/v1, kind: Deployment, metadata: {name: other}}"}]\n',), KUSTOMIZATION,
        "no resource matches strategic merge patch",
    ),
    "a file that is no YAML": ((RENAMED, "bad.yaml", "a: [\n"), "bad.yaml", "line 1: did not find expected node"),
    "a file that is no object": ((RENAMED, "bad.yaml", "spec: {}\n"), "bad.yaml", "missing Resource metadata"),
    "a file that is not there any more": ((RENAMED, "https://127.0.0.1:9/base.yaml"), KUSTOMIZATION,
                                          "https://127.0.0.1:9/base.yaml cannot be fetched: dial tcp"),
}  # fmt: skip


@pytest.mark.parametrize(("words", "file", "said"), CASES.values(), ids=CASES)
def test_one_sentence_about_one_file(
    complaint: Callable[..., UsageError], words: tuple[str, ...], file: str, said: str
) -> None:
    problem = complaint(*words)
    assert problem.origin is not None
    assert Path(problem.origin).name == file
    assert said in problem.found
    assert problem.next_step
