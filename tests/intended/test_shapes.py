"""What was edited out of shape is told with its line and what is wanted there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mmdeploy import intended
from mmdeploy.cli import blueprints
from mmdeploy.errors import SpecError

ROOT = Path(__file__).resolve().parents[2]
CATALOG = blueprints.load()
DEPLOYMENT = "modelserver/decode-deployment.yaml"
VALUES = "router/values.yaml"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return Path(shutil.copytree(ROOT / "overlays/v0.9/e-p-d/gpu/vllm/base", tmp_path / "bundle"))


def edited(bundle: Path, file: str, before: str, after: str) -> int:
    """Replaces the first ``before``; the line (from 1) where it stood."""
    path = bundle / file
    text = path.read_text(encoding="utf-8")
    assert before in text
    path.write_text(text.replace(before, after, 1), encoding="utf-8")
    return text[: text.index(before)].count("\n") + 1


@pytest.mark.parametrize(
    ("file", "before", "after", "said"),
    [
        (DEPLOYMENT, "  replicas: 4\n", "  replicas: '4'\n", "spec.replicas is '4', where a whole number is wanted"),
        (DEPLOYMENT, "  replicas: 4\n", "  replicas: true\n", "spec.replicas is true, where a whole number is wanted"),
        (DEPLOYMENT, "      containers:\n", "      containers: x\n      others:\n",
         "spec.template.spec.containers is 'x', where a list is wanted"),
        (DEPLOYMENT, "        - name: HF_TOKEN\n", "        - HF_TOKEN\n        - name: HF_TOKEN\n",
         "spec.template.spec.containers[0].env[0] is 'HF_TOKEN', where a mapping is wanted"),
        (DEPLOYMENT, "kind: Deployment\n", "kind: [Deployment]\n", "kind is a list, where text is wanted"),
        (VALUES, "router:\n", "router: []\nothers:\n", "router is an empty list, where a mapping is wanted"),
        (VALUES, "  modelServers:\n", "  modelServers: x\n  others:\n", "router.modelServers is 'x', where a mapping"),
        ("mmdeploy.yaml", "versions:\n", "versions: 7\nothers:\n", "versions is 7, where a mapping is wanted"),
        ("modelserver/kustomization.yaml", "resources:\n", "resources: {a: b}\nothers:\n",
         "resources is a mapping, where a list is wanted"),
    ],
)  # fmt: skip
def test_a_shape_is_told_with_its_line(file: str, before: str, after: str, said: str, bundle: Path) -> None:
    line = edited(bundle, file, before, after)
    with pytest.raises(SpecError) as caught:
        intended.read(bundle, CATALOG)
    assert said in caught.value.found
    name, found, _ = str(caught.value.origin).rsplit(":", 2)
    assert name == str(bundle / file)
    assert int(found) == line
    assert caught.value.next_step
    assert caught.value.exit_code == 2


def test_what_is_missing_is_told_where_it_should_be(bundle: Path) -> None:
    text = (bundle / DEPLOYMENT).read_text(encoding="utf-8")
    line = text[: text.index("    spec:\n")].count("\n") + 1
    edited(bundle, DEPLOYMENT, "      containers:\n", "      others:\n")
    with pytest.raises(SpecError, match="Deployment [a-z-]*decode: spec.template.spec lacks containers") as caught:
        intended.read(bundle, CATALOG)
    assert caught.value.origin == f"{bundle / DEPLOYMENT}:{line}:5"


def test_the_second_document_of_a_file_has_its_own_lines(bundle: Path) -> None:
    path = bundle / "modelserver/serviceaccount.yaml"
    text = path.read_text(encoding="utf-8")
    more = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: extra\n  labels: none\n"
    path.write_text(f"---\n# nothing here\n---\n{text}---\n{more}", encoding="utf-8")
    with pytest.raises(SpecError, match="ConfigMap extra: metadata.labels is 'none', where a mapping") as caught:
        intended.read(bundle, CATALOG)
    assert caught.value.origin == f"{path}:{3 + text.count(chr(10)) + 1 + 5}:3"


def test_a_field_without_a_value_is_as_good_as_none(bundle: Path) -> None:
    """``volumes:`` with nothing behind it is what is left when somebody deletes its items; kubectl takes it."""
    edited(bundle, DEPLOYMENT, "      containers:\n", "      imagePullSecrets:\n      containers:\n")
    found = intended.read(bundle, CATALOG)
    assert all("imagePullSecrets" not in template["spec"] for template in found.templates())


def test_what_the_program_does_not_read_is_nobody_s_business(bundle: Path) -> None:
    edited(bundle, DEPLOYMENT, "      containers:\n", "      dnsConfig: [odd]\n      containers:\n")
    assert any(template["spec"].get("dnsConfig") == ["odd"] for template in intended.read(bundle, CATALOG).templates())
