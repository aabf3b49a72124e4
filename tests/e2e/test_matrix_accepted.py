"""What is rendered for every row of the matrix is what a real API server takes, field by field."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from mmdeploy import documents, intended
from tests.e2e import matrix
from tests.rig import rendering
from tests.rig.api import Api, Object, RefusedError, path
from tests.rig.controlplane import ControlPlane
from tests.rig.deploying import CHART, mmdeploy, succeeded

NAMESPACE = "default"
"""Nothing is written, so one that is always there does."""
STRICT = "dryRun=All&fieldValidation=Strict&fieldManager=rig"


def objects(plane: ControlPlane, bundle: Path) -> list[Object]:
    """Those of the bundle, and those that helm makes of its values."""
    read = intended.read(bundle, rendering.catalog())
    text = plane.helm("template", read.name, CHART, "-n", NAMESPACE, "-f", bundle / intended.VALUES_FILE)
    made: list[Any] = [*read.objects, *documents.parse_all(text, "helm template")]
    for item in made:
        item["metadata"].setdefault("namespace", NAMESPACE)
    return made


def try_out(admin: Api, item: Object) -> Object:
    """Have the server say whether it would take an object; unknown and doubled fields are errors."""
    return admin.request("PATCH", f"{path(item)}?{STRICT}&force=true", item, "application/apply-patch+yaml")


@pytest.mark.parametrize("case", [*matrix.ALL, *matrix.ROUTED], ids=lambda case: case.id)
def test_every_object_is_accepted(
    plane: ControlPlane, admin: Api, custom_resources: None, tmp_path: Path, case: matrix.Case
) -> None:
    made = objects(plane, case.write(tmp_path / "bundle", NAMESPACE))
    kinds = Counter(item["kind"] for item in made)
    form = str(case.said["workload"])
    models = 1 if form == "DisaggregatedSet" else len(case.roles)
    picker = 1 if form == "Deployment" else 0
    sglang = case.said["server"] == "sglang"  # its encode role is a StatefulSet (llm-d-guides.md §8)
    assert kinds[form] + kinds["StatefulSet"] == models + picker
    assert (kinds["InferencePool"], kinds["StatefulSet"]) == (1, int(sglang))
    for item in made:
        try_out(admin, item)


@pytest.mark.parametrize("form", ["Deployment", "DisaggregatedSet"])
def test_a_field_that_does_not_exist_would_be_refused(
    plane: ControlPlane, admin: Api, custom_resources: None, tmp_path: Path, form: str
) -> None:
    bundle = matrix.newest("e-pd", form).write(tmp_path / "bundle", NAMESPACE)
    (item, *_) = [item for item in objects(plane, bundle) if item["kind"] == form]
    text = json.dumps(item)
    assert '"readinessProbe"' in text
    wrong = json.loads(text.replace('"readinessProbe"', '"readyProbe"'))
    with pytest.raises(RefusedError, match="readyProbe"):
        try_out(admin, wrong)


def test_the_cases_are_the_matrix(plane: ControlPlane) -> None:
    """What the command lists is what is tried here."""
    listed = json.loads(succeeded(mmdeploy(plane, "matrix", "-o", "json")).out)["rows"]
    axes = ("release", "topology", "accelerator", "server", "model")
    every = {
        (*(row[axis] for axis in axes), provider, form)
        for row in listed
        for provider in row["providers"]
        for form in row["workloads"]
    }
    assert {tuple(case.said[axis] for axis in (*axes, "provider", "workload")) for case in matrix.ALL} == every
    rows = {tuple(row[axis] for axis in axes) for row in listed}
    assert {tuple(case.said[axis] for axis in axes) for case in matrix.ONCE} == rows


def test_bundles_are_as_the_command_writes_them(plane: ControlPlane, tmp_path: Path) -> None:
    """The tests of the matrix render in their own process."""
    case = matrix.ROUTED[1]
    ours = case.write(tmp_path / "ours", "somewhere")
    spec = tmp_path / "spec.yaml"
    spec.write_text(yaml.safe_dump({**case.said, "namespace": "somewhere"}))
    succeeded(mmdeploy(plane, "render", "-q", "-f", spec, "-d", tmp_path / "theirs"))
    files = [file.relative_to(ours) for file in ours.rglob("*") if file.is_file()]
    assert len(files) > 8
    for file in files:
        assert (ours / file).read_bytes() == (tmp_path / "theirs" / file).read_bytes()
