"""``mmdeploy lint --live`` judges what is on a cluster by the rules for files, alone or as if files were applied."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import jsonschema
import pytest
import yaml

from tests.e2e.test_diff import committed
from tests.lint import sarif
from tests.rig import users
from tests.rig.api import Api
from tests.rig.controlplane import ControlPlane
from tests.rig.deploying import CHART, NAME, Ran, mmdeploy, render

TAGS = {"v0.8": "v0.9.0", "v0.9": "v0.10.0", "main": "main"}  # llm-d's releases and their routers: router.md §0
DECODE = "mm-baseline-nvidia-gpu-vllm-decode"

pytestmark = pytest.mark.usefixtures("custom_resources")


def lint(plane: ControlPlane, *words: str | Path, user: str = users.ADMIN) -> Ran:
    return mmdeploy(plane, "lint", "--live", "--fail-on", "info", *words, user=user)


def found(ran: Ran) -> dict[str, dict[str, Any]]:
    """Findings of ``-o json`` by code."""
    return {item["code"]: item for item in json.loads(ran.out)["findings"]}


def put(plane: ControlPlane, bundle: Path, namespace: str, *words: str, name: str = NAME) -> None:
    """Apply a bundle by hand, with the picker's image that its release has."""
    for directory in ("modelserver", "gateway", "monitoring"):
        if (bundle / directory).is_dir():
            plane.kubectl("apply", *words, "-k", bundle / directory)
    spec = (bundle / "mmdeploy.yaml").read_text(encoding="utf-8")
    tag = next(tag for release, tag in TAGS.items() if f"release: {release}" in spec)
    values = str(bundle / "router" / "values.yaml")
    image = f"router.epp.image.tag={tag}"
    plane.helm("upgrade", "--install", name, CHART, "-n", namespace, "-f", values, "--set", image)


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


def test_several_routers_are_each_judged_with_their_own_pods(
    plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """Two releases of llm-d side by side: neither is judged by the other's versions, and mistakes are still found."""
    put(
        plane,
        committed("v0.8/aggregation/gpu/vllm/base", namespace, tmp_path / "old"),
        namespace,
        "--server-side",
        name="r0",
    )
    words = ("-t", "e-pd", "--release", "main", "--mode", "gateway", "--gateway-class", "istio")
    put(plane, render(plane, tmp_path / "new", namespace, *words), namespace, "--server-side", name="r1")
    ran = lint(plane, "-n", namespace)
    assert (ran.code, "nothing found" in ran.out) == (0, True), ran.out
    assert "2 routers are here" in ran.out
    assert "r0 (v0.9.0), r1 (main)" in ran.out
    plane.run("env", "KUBE_EDITOR=sed -i s/v1alpha1/v1/", "kubectl", "edit", "-n", namespace,
              "configmap/r0-epp")  # fmt: skip
    finding = found(lint(plane, "-n", namespace, "-o", "json"))["MMD201"]
    assert finding["file"] == "ConfigMap/r0-epp (live)"
    assert "router v0.9.0 does not decode apiVersion llm-d.ai/v1" in finding["message"]


def test_a_file_replaces_the_object_of_its_kind_name_and_namespace(
    plane: ControlPlane, bundle: Path, namespace: str, tmp_path: Path
) -> None:
    argument = '[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--no-such-flag=1"}]'
    plane.kubectl("patch", f"deployment/{DECODE}", "-n", namespace, "--type=json", "-p", argument)
    good = yaml.safe_load((bundle / "modelserver" / "decode-deployment.yaml").read_text(encoding="utf-8"))
    good["metadata"] |= {"name": DECODE, "namespace": namespace}
    file = tmp_path / "file.yaml"
    file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [good]}), encoding="utf-8")
    assert "MMD301" not in lint(plane, file).out, "an item of a List"
    good["metadata"].pop("namespace")
    file.write_text(yaml.safe_dump(good), encoding="utf-8")
    assert "MMD301" not in lint(plane, file, "-n", namespace).out, "a file for any namespace"
    good["metadata"]["namespace"] = "elsewhere"
    file.write_text(yaml.safe_dump(good), encoding="utf-8")
    assert "MMD301" in lint(plane, file, "-n", namespace).out, "another namespace's object is another one"


@pytest.mark.parametrize("form", ["text", "json", "sarif", "junit", "github", "short"])
def test_every_form_names_the_live_object(plane: ControlPlane, bundle: Path, namespace: str, form: str) -> None:
    argument = '[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--no-such-flag=1"}]'
    plane.kubectl("patch", f"deployment/{DECODE}", "-n", namespace, "--type=json", "-p", argument)
    ran = lint(plane, "-n", namespace, "-o", form)
    assert (ran.code, ran.err) == (3, "")
    if form != "sarif":
        assert f"Deployment/{DECODE} (live)" in ran.out
        return
    log = json.loads(ran.out)
    jsonschema.validate(log, sarif.SCHEMA, format_checker=jsonschema.FormatChecker())
    place = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert unquote(place["artifactLocation"]["uri"]) == f"Deployment/{DECODE} (live)"
    assert place["region"]["snippet"]["text"].strip() == "- --no-such-flag=1"


def test_objects_that_are_going_are_not_judged(plane: ControlPlane, bundle: Path, namespace: str, admin: Api) -> None:
    """A finalizer holds a deployment that is deleted, and it has a flag that no engine has."""
    argument = '[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--no-such-flag=1"}]'
    plane.kubectl("patch", f"deployment/{DECODE}", "-n", namespace, "--type=json", "-p", argument)
    keep = '{"metadata": {"finalizers": ["example.com/keep"]}}'
    plane.kubectl("patch", f"deployment/{DECODE}", "-n", namespace, "--type=merge", "-p", keep)
    plane.kubectl("delete", f"deployment/{DECODE}", "-n", namespace, "--wait=false")
    ran = lint(plane, "-n", namespace)
    plane.kubectl(
        "patch", f"deployment/{DECODE}", "-n", namespace, "--type=merge", "-p", '{"metadata": {"finalizers": []}}'
    )
    assert "MMD301" not in ran.out


def test_a_scaler_explains_a_stage_without_pods(
    plane: ControlPlane, namespace: str, tmp_path: Path, admin: Api
) -> None:
    """Encode pods scaled to zero are a finding, unless something scales them."""
    overlay = committed("v0.9/e-pd/gpu/vllm/base", namespace, tmp_path / "bundle")
    put(plane, overlay, namespace, "--server-side")
    encode = "e-pd-disaggregation-nvidia-gpu-vllm-encode"
    plane.kubectl("scale", f"deployment/{encode}", "-n", namespace, "--replicas=0")
    assert "0 replicas" in lint(plane, "-n", namespace).out
    plane.kubectl("autoscale", f"deployment/{encode}", "-n", namespace, "--max=3")
    assert "0 replicas" not in lint(plane, "-n", namespace).out


def test_every_page_of_a_large_namespace_is_read(plane: ControlPlane, bundle: Path, namespace: str) -> None:
    """1,100 ConfigMaps, three pages of kubectl's size; the one that is wrong comes last by name."""
    argument = (
        '[{"op": "add", "path": "/spec/template/spec/containers/0/env/-", "value": '
        '{"name": "SOME", "valueFrom": {"configMapKeyRef": {"name": "zz-last", "key": "absent"}}}}]'
    )
    plane.kubectl("patch", f"deployment/{DECODE}", "-n", namespace, "--type=json", "-p", argument)
    items = [_config_map(f"some-{number}", namespace) for number in range(1100)] + [_config_map("zz-last", namespace)]
    plane.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    ran = lint(plane, "-n", namespace, "-o", "json")
    assert set(found(ran)) == {"MMD951"}
    assert "zz-last has no key absent" in found(ran)["MMD951"]["message"]


def _config_map(name: str, namespace: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"some": "x" * 500}}


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


def test_a_token_in_the_open_is_found_and_not_shown(plane: ControlPlane, bundle: Path, namespace: str) -> None:
    token = "hf_" + "a1B2c3D4e5" * 3
    plane.kubectl("set", "env", f"deployment/{DECODE}", "-n", namespace, "-c", "modelserver", f"OTHER_TOKEN={token}")
    for form in ("text", "json", "sarif", "junit", "github", "short"):
        ran = lint(plane, "-n", namespace, "-o", form)
        assert "MMD952" in ran.out
        assert token not in ran.out + ran.err
