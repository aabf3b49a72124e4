"""``mmdeploy diff`` on a real API server: what apply would change, and whose doing it is."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.rig import users
from tests.rig.api import Api
from tests.rig.controlplane import ControlPlane
from tests.rig.deploying import CHART, NAME, Ran, apply, hold_token, mmdeploy, render, succeeded

OVERLAYS = Path(__file__).resolve().parents[2] / "overlays"
DECODE = "mm-baseline-nvidia-gpu-vllm-decode"

pytestmark = pytest.mark.usefixtures("custom_resources")


def diff(plane: ControlPlane, bundle: Path, *words: str, user: str = users.ADMIN) -> Ran:
    return mmdeploy(plane, "diff", bundle, "--router-chart", CHART, *words, user=user)


def told(plane: ControlPlane, bundle: Path, *words: str, user: str = users.ADMIN) -> dict[str, Any]:
    """The document of ``-o json``; there must be one, and the exit code must say the same."""
    ran = diff(plane, bundle, "-o", "json", *words, user=user)
    document: dict[str, Any] = json.loads(ran.out)
    assert ran.code == (4 if document["different"] else 0), ran.err
    return document


def step(document: dict[str, Any], title: str) -> dict[str, Any]:
    everything = [*document["objects"], *(document["release"]["objects"] if document["release"] else ())]
    (found,) = [item for item in everything if f"{item['kind']}/{item['name']}" == title]
    return dict(found)


def said(item: dict[str, Any]) -> list[tuple[str, Any, Any, str]]:
    return [(each["path"], each["before"], each["after"], each["cause"]) for each in item["changes"]]


def committed(overlay: str, namespace: str, place: Path) -> Path:
    """A committed overlay, for a namespace."""
    shutil.copytree(OVERLAYS / overlay, place)
    for file in (place / "mmdeploy.yaml", *place.glob("*/kustomization.yaml")):
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace("llm-d-multimodal-serving", namespace), encoding="utf-8")
    return place


@pytest.fixture
def bundle(plane: ControlPlane, admin: Api, namespace: str, tmp_path: Path) -> Path:
    """An aggregated bundle that is applied."""
    hold_token(admin, namespace)
    place = render(plane, tmp_path / "bundle", namespace, "-t", "aggregation")
    succeeded(apply(plane, place, "--no-wait"))
    return place


Edit = Callable[..., None]


@pytest.fixture
def edit(plane: ControlPlane, namespace: str) -> Edit:
    """Change a live object with ``kubectl edit``, as a person does."""

    def change(what: str, script: str) -> None:
        plane.run("env", f"KUBE_EDITOR=sed -i -e '{script}'", "kubectl", "edit", "-n", namespace, what)

    return change


# -------------------------------------------------------------------------------------------------- new, and the same


def test_everything_is_new_where_not_even_the_namespace_is(plane: ControlPlane, tmp_path: Path) -> None:
    document = told(plane, render(plane, tmp_path / "bundle", "nowhere", "-t", "aggregation"))
    assert document["counts"] == {"create": 4}
    assert step(document, "Secret/llm-d-hf-token")["needs"] == "--hf-token-from"
    assert step(document, "Namespace/nowhere")["verb"] == "create"
    assert document["release"]["verb"] == "create"


@pytest.mark.parametrize(
    "overlay", ["v0.8/e-pd/gpu/vllm/gke", "v0.9/e-p-d/gpu/vllm/base", "main/e-pd/gpu/vllm/coreweave"]
)
def test_what_was_applied_does_not_differ(
    plane: ControlPlane, admin: Api, namespace: str, tmp_path: Path, overlay: str
) -> None:
    """Deployments and sets alike; and the owners of fields tell, so that not even a dry run is needed."""
    hold_token(admin, namespace)
    place = committed(overlay, namespace, tmp_path / "bundle")
    succeeded(apply(plane, place, "--no-wait"))
    ran = diff(plane, place, "-v")
    assert (ran.code, "nothing differs" in ran.out) == (0, True), ran.out
    assert "GET" in ran.err
    assert "PATCH" not in ran.err


def test_another_spelling_of_the_same_is_no_difference(plane: ControlPlane, bundle: Path) -> None:
    """A flag in another place and spelling, a quantity in another unit: no model server starts anew for that."""
    (path,) = bundle.glob("modelserver/*deployment*.yaml")
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    (container,) = [c for c in content["spec"]["template"]["spec"]["containers"] if c["name"] == "modelserver"]
    args = container["args"]
    args.remove("--tensor-parallel-size=2")
    container["args"] = [args[0], "--tensor-parallel-size", "2", *args[1:]]
    container["resources"]["limits"]["cpu"] = f"{int(container['resources']['limits']['cpu']) * 1000}m"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    assert diff(plane, bundle).code == 0


def test_a_token_that_is_missing_is_a_difference(plane: ControlPlane, bundle: Path, namespace: str) -> None:
    plane.kubectl("delete", "secret", "llm-d-hf-token", "-n", namespace)
    found = step(told(plane, bundle), "Secret/llm-d-hf-token")
    assert (found["stage"], found["verb"], found["needs"]) == ("secret", "create", "--hf-token-from")
    assert "needs --hf-token-from: the model servers read their token from it" in diff(plane, bundle).out
    plane.kubectl("create", "secret", "generic", "llm-d-hf-token", "--from-literal=OTHER=hf_other", "-n", namespace)
    ran = diff(plane, bundle)
    assert "data.HF_TOKEN: added <masked>" in ran.out
    assert "hf_other" not in ran.out + ran.err


# ------------------------------------------------------------------------------------------------------ whose doing


def test_an_edit_is_drift_and_names_the_manager(plane: ControlPlane, bundle: Path, edit: Edit) -> None:
    edit(f"deployment/{DECODE}", "s/^  replicas: 1$/  replicas: 3/")
    found = step(told(plane, bundle), f"Deployment/{DECODE}")
    assert said(found) == [("spec.replicas", 3, 1, "drift")]
    assert (found["verb"], found["managers"], found["needs"]) == ("conflict", ["kubectl-edit"], "--force-conflicts")
    ran = diff(plane, bundle)
    assert "spec.replicas: 3 → 1  (drift by kubectl-edit)" in ran.out
    assert "drift: somebody changed the live object" in ran.out


def test_scaling_is_drift_too(plane: ControlPlane, bundle: Path, namespace: str) -> None:
    plane.kubectl("scale", f"deployment/{DECODE}", "--replicas=2", "-n", namespace)
    found = step(told(plane, bundle), f"Deployment/{DECODE}")
    assert said(found) == [("spec.replicas", 2, 1, "drift")]
    assert found["managers"] == ["kubectl"]


def test_a_new_render_is_no_drift(plane: ControlPlane, bundle: Path, namespace: str) -> None:
    render(plane, bundle, namespace, "-t", "aggregation", decode_replicas=2)
    found = step(told(plane, bundle), f"Deployment/{DECODE}")
    assert said(found) == [("spec.replicas", 1, 2, "render")]
    assert (found["verb"], found["needs"]) == ("update", "")


def test_an_edit_and_a_new_render_are_told_as_both(
    plane: ControlPlane, bundle: Path, namespace: str, edit: Edit
) -> None:
    edit(f"deployment/{DECODE}", "s/^  replicas: 1$/  replicas: 3/")
    render(plane, bundle, namespace, "-t", "aggregation", "--set", "decode.cpu=20", decode_replicas=2)
    causes = {
        path.rpartition(".")[2]: cause for path, _, _, cause in said(step(told(plane, bundle), f"Deployment/{DECODE}"))
    }
    assert causes == {"replicas": "both", "cpu": "render"}


def test_what_others_add_is_told_and_left_alone(plane: ControlPlane, bundle: Path, namespace: str) -> None:
    plane.kubectl("set", "env", f"deployment/{DECODE}", "DEBUG=1", "-n", namespace)
    plane.kubectl("rollout", "restart", f"deployment/{DECODE}", "-n", namespace)  # a note that means nothing here
    document = told(plane, bundle)
    assert document["different"] is False
    (foreign,) = step(document, f"Deployment/{DECODE}")["foreign"]
    assert (foreign["path"], foreign["after"], foreign["manager"]) == (
        "spec.template.spec.containers[modelserver].env[DEBUG]", "1", "kubectl-set",
    )  # fmt: skip


def test_an_object_that_mmdeploy_did_not_make_needs_adopting(
    plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    place = render(plane, tmp_path / "bundle", namespace, "-t", "aggregation")
    plane.kubectl("apply", "-k", place / "modelserver")
    found = step(told(plane, place), f"Deployment/{DECODE}")
    assert (found["verb"], found["needs"]) == ("adopt", "--adopt")


# ------------------------------------------------------------------------------------------- made anew, and taken away


def test_a_selector_that_moved_is_explained(plane: ControlPlane, bundle: Path) -> None:
    """As between releases (llm-d-guides.md §18): the real server refuses, and the plan says what would happen."""
    (path,) = bundle.glob("modelserver/*deployment*.yaml")
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("llm-d.ai/guide: aggregation", "llm-d.ai/guide: moved"), encoding="utf-8")
    found = step(told(plane, bundle), f"Deployment/{DECODE}")
    assert (found["verb"], found["needs"]) == ("recreate", "--recreate")
    assert found["immutable"] == "spec.selector cannot be changed once the object is there"
    assert ("spec.selector.matchLabels[llm-d.ai/guide]", "aggregation", "moved", "render") in said(found)
    assert "its pods stop before new ones start" in diff(plane, bundle).out


def test_an_object_that_the_server_refuses_is_an_error(plane: ControlPlane, bundle: Path) -> None:
    (path,) = bundle.glob("modelserver/*deployment*.yaml")
    path.write_text(path.read_text(encoding="utf-8").replace("replicas: 1", "replicas: -1"), encoding="utf-8")
    ran = diff(plane, bundle)
    assert (ran.code, ran.out) == (5, "")
    assert ran.err.startswith(f"error: Deployment/{DECODE}: ")
    assert "must be greater than or equal to 0" in " ".join(ran.err.split())


def test_what_is_no_longer_wanted_is_listed(plane: ControlPlane, bundle: Path, namespace: str) -> None:
    shutil.rmtree(bundle)
    render(plane, bundle, namespace, "-t", "aggregation", "--set", "namePrefix=renamed")
    document = told(plane, bundle)
    verbs = {f"{item['kind']}/{item['name']}": item["verb"] for item in document["objects"]}
    assert verbs[f"Deployment/{DECODE}"] == "remove"
    assert verbs["Deployment/renamed-decode"] == "create"
    plane.kubectl("delete", "deployment", DECODE, "-n", namespace)
    assert f"Deployment/{DECODE}" not in diff(plane, bundle).out


# ------------------------------------------------------------------------------------------------------ who may look


def test_somebody_who_may_only_read_sees_the_same(
    plane: ControlPlane, admin: Api, bundle: Path, namespace: str, edit: Edit
) -> None:
    edit(f"deployment/{DECODE}", "s/^  replicas: 1$/  replicas: 3/")
    render(plane, bundle, namespace, "-t", "aggregation", "--set", "decode.cpu=20")
    groups = ["", "apps", "rbac.authorization.k8s.io", "inference.networking.k8s.io"]
    users.grant(admin, namespace, users.NOBODY, [{"apiGroups": groups, "resources": ["*"], "verbs": ["get", "list"]}])
    asked, read = told(plane, bundle), told(plane, bundle, user=users.NOBODY)
    assert (asked["dryRun"], read["dryRun"]) == (True, False)
    assert "worked out from the data alone" in read["notes"][0]
    assert read["objects"] == asked["objects"]


def test_somebody_who_may_not_read_is_told_so(plane: ControlPlane, bundle: Path) -> None:
    ran = diff(plane, bundle, user=users.NOBODY)
    assert (ran.code, ran.out) == (5, "")
    assert "forbidden" in ran.err


def test_a_deployer_of_one_namespace_sees_everything(
    plane: ControlPlane, bundle: Path, deployer: str, edit: Edit
) -> None:
    assert diff(plane, bundle, user=deployer).code == 0
    edit(f"deployment/{DECODE}", "s/^  replicas: 1$/  replicas: 3/")
    assert step(told(plane, bundle, user=deployer), f"Deployment/{DECODE}")["verb"] == "conflict"


def test_nothing_is_changed_by_looking(plane: ControlPlane, admin: Api, bundle: Path, namespace: str) -> None:
    render(plane, bundle, namespace, "-t", "aggregation", decode_replicas=2)
    where = f"/apis/apps/v1/namespaces/{namespace}/deployments/{DECODE}"
    before = admin.get(where)["metadata"]["generation"]
    assert diff(plane, bundle).code == 4
    assert admin.get(where)["metadata"]["generation"] == before
    assert NAME in plane.helm("list", "-n", namespace, "-q")
