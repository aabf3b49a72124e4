"""``mmdeploy lint --live`` judges what is on a cluster by the rules for files, alone or as if files were applied."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_diff import committed
from tests.rig import users
from tests.rig.api import Api
from tests.rig.controlplane import ControlPlane
from tests.rig.deploying import CHART, NAME, Ran, mmdeploy, render

DECODE = "mm-baseline-nvidia-gpu-vllm-decode"

pytestmark = pytest.mark.usefixtures("custom_resources")


def lint(plane: ControlPlane, *words: str | Path, user: str = users.ADMIN) -> Ran:
    return mmdeploy(plane, "lint", "--live", "--fail-on", "info", *words, user=user)


def found(ran: Ran) -> dict[str, dict[str, Any]]:
    """Findings of ``-o json`` by code."""
    return {item["code"]: item for item in json.loads(ran.out)["findings"]}


def put(plane: ControlPlane, bundle: Path, namespace: str, *words: str) -> None:
    """Apply a bundle by hand, with the picker's image that its release has."""
    for directory in ("modelserver", "gateway", "monitoring"):
        if (bundle / directory).is_dir():
            plane.kubectl("apply", *words, "-k", bundle / directory)
    tag = "main" if "release: main" in (bundle / "mmdeploy.yaml").read_text(encoding="utf-8") else "v0.10.0"
    values = str(bundle / "router" / "values.yaml")
    image = f"router.epp.image.tag={tag}"
    plane.helm("upgrade", "--install", NAME, CHART, "-n", namespace, "-f", values, "--set", image)


@pytest.fixture
def bundle(plane: ControlPlane, namespace: str, tmp_path: Path) -> Path:
    place = render(plane, tmp_path / "bundle", namespace, "-t", "aggregation", "--release", "v0.9")
    put(plane, place, namespace, "--server-side")
    return place


@pytest.mark.parametrize("way", ["--server-side", "--server-side=false"])
@pytest.mark.parametrize(
    "overlay",
    [
        "v0.9/aggregation/gpu/vllm/gke",
        "v0.9/aggregation/xpu/vllm/base",
        "v0.9/aggregation/tpu/v7/vllm/gke",
        "v0.9/e-p-d/gpu/vllm/coreweave",
        "main/e-pd/gpu/vllm/base",
    ],
)
def test_a_sound_overlay_is_silent(plane: ControlPlane, namespace: str, tmp_path: Path, overlay: str, way: str) -> None:
    """Defaults, status, owners of fields and what controllers make are nobody's mistake, however it was applied."""
    place = committed(overlay, namespace, tmp_path / "bundle")
    put(plane, place, namespace, way)
    ran = lint(plane, "-n", namespace)
    assert (ran.code, "nothing found" in ran.out) == (0, True), ran.out
    assert "live objects of namespace" in ran.out
    beside = lint(plane, place)
    assert (beside.code, "nothing found" in beside.out) == (0, True), beside.out


def test_an_edit_on_the_cluster_is_found_where_it_is(plane: ControlPlane, bundle: Path, namespace: str) -> None:
    """A flag that the engine does not have: `lint` of the files is silent, the cluster is not."""
    argument = '[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--no-such-flag=1"}]'
    plane.kubectl("patch", f"deployment/{DECODE}", "-n", namespace, "--type=json", "-p", argument)
    assert mmdeploy(plane, "lint", bundle).code == 0
    ran = lint(plane, "-n", namespace, "-o", "json")
    (finding,) = found(ran).values()
    assert ran.code == 3
    assert finding["file"] == f"Deployment/{DECODE} (live)"
    assert "--no-such-flag" in finding["message"]
    assert "--no-such-flag=1" in finding["text"]


def test_files_are_judged_as_if_they_were_applied(plane: ControlPlane, bundle: Path, namespace: str) -> None:
    """The file mends what is wrong on the cluster; and a file that is wrong spoils what is right there."""
    argument = '[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--no-such-flag=1"}]'
    plane.kubectl("patch", f"deployment/{DECODE}", "-n", namespace, "--type=json", "-p", argument)
    assert lint(plane, bundle).code == 0
    assert lint(plane, bundle / "modelserver").code == 0
    assert lint(plane, bundle / "router", "-n", namespace).code == 3


def test_files_and_live_objects_are_held_against_each_other(plane: ControlPlane, bundle: Path, namespace: str) -> None:
    """Values whose pool selects other labels than the live pods carry: MMD101, as for files alone."""
    values = bundle / "router" / "values.yaml"
    text = values.read_text(encoding="utf-8")
    assert "llm-d.ai/guide: " in text
    values.write_text(text.replace("llm-d.ai/guide: ", "llm-d.ai/guide: other-"), encoding="utf-8")
    alone = {item["code"] for item in json.loads(mmdeploy(plane, "lint", bundle, "-o", "json").out)["findings"]}
    beside = found(lint(plane, values, "-n", namespace, "-o", "json"))
    assert "MMD101" in alone
    assert beside["MMD101"]["file"] == str(values)


def test_a_live_configuration_of_the_picker_is_read(plane: ControlPlane, bundle: Path, namespace: str) -> None:
    picker = f"configmap/{NAME}-epp"
    edit = "sed -i -e s/prefix-cache-affinity-filter/no-such-plugin/"
    plane.run("env", f"KUBE_EDITOR={edit}", "kubectl", "edit", "-n", namespace, picker)
    ran = lint(plane, "-n", namespace, "-o", "json")
    assert ran.code == 3
    files = {item["file"] for item in json.loads(ran.out)["findings"]}
    assert files == {f"ConfigMap/{NAME}-epp (live)"}


def test_a_deployer_may_judge_the_namespace(plane: ControlPlane, bundle: Path, namespace: str, deployer: str) -> None:
    ran = lint(plane, "-n", namespace, user=deployer)
    assert (ran.code, "nothing found" in ran.out) == (0, True), ran.out


def test_what_may_not_be_read_is_said(plane: ControlPlane, admin: Api, bundle: Path, namespace: str) -> None:
    rules = [{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list"]}]
    users.grant(admin, namespace, users.NOBODY, rules)
    ran = lint(plane, "-n", namespace, user=users.NOBODY)
    assert "may not be read, so not judged: ConfigMap, Service" in ran.out


def test_nothing_to_read_is_an_error(plane: ControlPlane, namespace: str) -> None:
    forbidden = lint(plane, "-n", namespace, user=users.NOBODY)
    assert (forbidden.code, forbidden.out) == (5, "")
    assert f"nothing in namespace {namespace} may be read" in forbidden.err
    absent = lint(plane, "-n", "no-such-namespace")
    assert (absent.code, absent.out) == (5, "")
    assert "holds nothing to judge" in absent.err


def test_options_of_the_cluster_need_live(plane: ControlPlane, bundle: Path) -> None:
    ran = mmdeploy(plane, "lint", bundle, "-n", "somewhere")
    assert (ran.code, ran.out) == (2, "")
    assert "--namespace: only means something with --live" in ran.err


def test_secrets_are_never_read(plane: ControlPlane, admin: Api, bundle: Path, namespace: str) -> None:
    secret = "s3cr3t-" + "0123456789abcdef"
    metadata = {"name": "some", "namespace": namespace}
    admin.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"HF_TOKEN": secret}})
    ran = lint(plane, "-n", namespace, "-o", "json")
    assert "Secret/" not in ran.out
    assert secret not in ran.out + ran.err
