"""A bundle read back is what was rendered; a broken one is told with its place."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mmdeploy import intended
from mmdeploy.cli import blueprints
from mmdeploy.errors import SpecError, UsageError

ROOT = Path(__file__).resolve().parents[2]
BUNDLES = sorted(path.parent for path in (ROOT / "overlays").rglob("mmdeploy.sum"))
BUNDLE = ROOT / "overlays/v0.9/e-p-d/gpu/vllm/base"
CATALOG = blueprints.load()


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return Path(shutil.copytree(BUNDLE, tmp_path / "bundle"))


@pytest.mark.parametrize("directory", BUNDLES, ids=lambda path: str(path.relative_to(ROOT / "overlays")))
def test_a_directory_and_its_spec_file_say_the_same(directory: Path) -> None:
    """The spec file is rendered anew, the directory is read: two ways to the same objects."""
    read, rendered = intended.read(directory, CATALOG), intended.read(directory / "mmdeploy.yaml", CATALOG)
    assert dict(read.spec) == dict(rendered.spec)
    assert read.values == rendered.values
    assert [dict(item) for item in read.objects] == [dict(item) for item in rendered.objects]


def test_workloads_come_after_what_their_pods_need_and_consumers_after_producers() -> None:
    found = intended.read(BUNDLE, CATALOG)
    # The bundle's kustomization lists them by file name: decode before encode.
    assert [(item["kind"], intended.role_of(item)) for item in found.objects] == [
        ("ServiceAccount", ""), ("Deployment", "encode"), ("Deployment", "prefill"), ("Deployment", "decode"),
    ]  # fmt: skip
    # 2 encode, 4 prefill, 4 decode: llm-d-guides.md §18, the change of 08-08.
    assert [(role, count) for role, count, _ in found.pods()] == [("encode", 2), ("prefill", 4), ("decode", 4)]


def test_an_edit_by_hand_is_what_is_meant(bundle: Path) -> None:
    file = bundle / "modelserver/decode-deployment.yaml"
    file.write_text(file.read_text().replace("replicas: 4", "replicas: 7"))
    assert {role: count for role, count, _ in intended.read(bundle, CATALOG).pods()}["decode"] == 7


@pytest.mark.kubectl
def test_a_kustomization_that_patches_is_built_by_kustomize(bundle: Path) -> None:
    file = bundle / "modelserver/kustomization.yaml"
    file.write_text(file.read_text() + "namePrefix: blue-\n")
    found = intended.read(bundle, CATALOG)
    assert all(item["metadata"]["name"].startswith("blue-") for item in found.objects)


def broken(bundle: Path, name: str) -> None:
    """Break a bundle in one of several ways."""
    kustomization = bundle / "modelserver/kustomization.yaml"
    account = bundle / "modelserver/serviceaccount.yaml"
    if name == "no spec":
        (bundle / "mmdeploy.yaml").unlink()
    elif name == "half a spec":
        (bundle / "mmdeploy.yaml").write_text("topology: e-pd\n")
    elif name == "no file":
        account.unlink()
    elif name == "twice":
        account.write_text(f"{account.read_text()}---\n{account.read_text()}")
    elif name == "no object":
        account.write_text("just text\n")
    elif name == "another namespace":
        text = kustomization.read_text().replace("namespace: llm-d-multimodal-serving", "namespace: other")
        kustomization.write_text(text)
    else:
        kustomization.write_text("resources: [")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no spec", "it has no mmdeploy.yaml"),
        ("half a spec", "it lacks name, namespace, mode, versions"),
        ("no file", "lists serviceaccount.yaml, which is not there"),
        ("twice", "is listed twice"),
        ("no object", "is no object"),
        ("another namespace", "is in namespace other, but the router goes to llm-d-multimodal-serving"),
        ("no yaml", "flow sequence|expected"),
    ],
)
def test_a_broken_bundle_is_told(name: str, said: str, bundle: Path) -> None:
    broken(bundle, name)
    with pytest.raises(UsageError, match=said) as caught:
        intended.read(bundle, CATALOG)
    assert caught.value.origin
    assert str(bundle) in caught.value.origin
    assert caught.value.next_step


def test_namespace_and_name_are_had_of_a_broken_bundle_too(bundle: Path) -> None:
    (bundle / "modelserver/serviceaccount.yaml").unlink()
    assert intended.place(bundle, CATALOG) == ("llm-d-multimodal-serving", "multimodal-serving")
    assert intended.place(bundle / "mmdeploy.yaml", CATALOG) == ("llm-d-multimodal-serving", "multimodal-serving")


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file or directory"):
        intended.read(tmp_path / "absent", CATALOG)


def test_a_spec_file_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text("topologie: e-pd\n")
    with pytest.raises(SpecError, match="topologie"):
        intended.read(path, CATALOG)
