"""kubectl accepts the bundles: it builds each directory, reads each text as it was meant, and a person's own
kustomization works on top. Nothing here needs a cluster: `apply --dry-run=client` would, since it asks a server for its
kinds; `label --local` reads manifests with kubectl's own decoder and asks nobody.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from mmdeploy.render.disk import write
from tests.fidelity.renders import OPTIONED, OVERLAYS, SHIPPED, Case, names, render

pytestmark = pytest.mark.kubectl

# Options that add, replace or reshape objects; the others change values inside them.
_RESHAPING = (
    "monitoring",
    "gateway-gke",
    "gateway-istio",
    "as-deployments",
    "as-set",
    "example-connector",
    "everything",
)
RESHAPED = [
    case
    for case in OPTIONED
    if case.id.rpartition("+")[2] in _RESHAPING and case.said["accelerator"] == "gpu" and case.said["release"] != "v0.9"
]


def kubectl(*words: str | Path) -> str:
    """What kubectl prints; it must succeed, and finds no cluster."""
    environment = {**os.environ, "KUBECONFIG": os.devnull}
    done = subprocess.run(["kubectl", *words], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def built(directory: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Objects that ``kubectl kustomize`` makes of a directory, by kind and name."""
    objects = list(yaml.safe_load_all(kubectl("kustomize", directory)))
    found = {(item["kind"], item["metadata"]["name"]): item for item in objects}
    assert len(found) == len(objects)
    return found


def with_namespace(item: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    return {**item, "metadata": {**item["metadata"], "namespace": namespace}}


def meant(case: Case, directory: str) -> dict[tuple[str, str], dict[str, Any]]:
    """The case's objects in a directory, as they should come out."""
    items = [item for path, item in case.objects.items() if path.startswith(f"{directory}/")]
    return {(item["kind"], item["metadata"]["name"]): with_namespace(item, case.spec["namespace"]) for item in items}


@pytest.mark.parametrize("case", SHIPPED, ids=names)
def test_every_overlay_builds_to_its_own_objects_in_its_namespace(case: Case) -> None:
    for directory in case.kustomizations:
        assert built(OVERLAYS / case.id / directory) == meant(case, directory)


@pytest.mark.parametrize("case", RESHAPED, ids=names)
def test_every_directory_of_a_render_builds(case: Case, tmp_path: Path) -> None:
    write(case.bundle, tmp_path)
    assert {path.name for path in tmp_path.iterdir() if (path / "kustomization.yaml").exists()} == set(
        case.kustomizations
    )
    for directory in case.kustomizations:
        assert built(tmp_path / directory) == meant(case, directory)


# ------------------------------------------------------------------------------------------ texts as kubectl reads


def decoded(files: list[Path]) -> list[Any]:
    """Manifests as kubectl's own decoder reads them, without a server."""
    words = [word for file in files for word in ("-f", str(file))]
    text = kubectl("label", "--local", *words, "seen=yes", "-o", "json")
    documents = []
    decoder, index = json.JSONDecoder(), 0
    while index < len(text):
        document, end = decoder.raw_decode(text, index)
        documents += document["items"] if document["kind"] == "List" else [document]
        index = end + 1
    for document in documents:
        del document["metadata"]["labels"]["seen"]
        if not document["metadata"]["labels"]:
            del document["metadata"]["labels"]
    return documents


def test_kubectl_reads_every_overlay_as_it_was_written() -> None:
    files = [OVERLAYS / case.id / path for case in SHIPPED for path in case.objects]
    assert decoded(files) == [item for case in SHIPPED for item in case.objects.values()]


# Words that some reader of YAML takes for something else than text: YAML 1.1 and 1.2 numbers, booleans, nulls, dates,
# and characters with a meaning.
ODD = [
    "y",
    "N",
    "yes",
    "Off",
    "on",
    "null",
    "~",
    "012",
    "0o17",
    "0x1F",
    "0b1",
    "1_000",
    "1e3",
    "12e03",
    "1E5",
    "1.",
    "-.5",
]
ODD += [".5", ".inf", "NaN", ".NaN", "+1", "1:30", "2001-01-01", "=", "<<", "- x", "a: b", "#c", " lead", "trail ", ""]
ODD += [
    "tab\tin",
    "two\nlines",
    "end\n\n",
    "é",
    "😀",
    "\x7f",
    "\u0085",
    "\u2028",
    "!x",
    "*x",
    "&x",
    "%x",
    "@x",
    "`x",
    '"x',
    "'x",
]
ODD += ["{x", "[x", "|", ">", "?", "? x", "-", "---", "...", "true", "$(X)", "{{ x }}"]


@pytest.fixture(scope="module")
def odd_pod(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """A pod template with every odd text as a variable and as an annotation, as kubectl reads it."""
    texts = {f"ODD_{index}": text for index, text in enumerate(ODD)}
    directory = tmp_path_factory.mktemp("odd")
    write(render(topology="aggregation", decode={"extraEnv": texts, "annotations": texts}), directory)
    (item,) = decoded([directory / "modelserver" / "decode-deployment.yaml"])
    return item["spec"]["template"]


@pytest.mark.parametrize("index", range(len(ODD)), ids=map(repr, ODD))
def test_kubectl_reads_a_person_s_text_as_text(index: int, odd_pod: Mapping[str, Any]) -> None:
    name = f"ODD_{index}"
    assert odd_pod["metadata"]["annotations"][name] == ODD[index]
    (variable,) = [entry for entry in odd_pod["spec"]["containers"][0]["env"] if entry["name"] == name]
    assert variable["value"] == ODD[index]


# ---------------------------------------------------------------------- a person's own kustomization on top


def on_top(tmp_path: Path, content: Mapping[str, Any], **said: Any) -> dict[tuple[str, str], dict[str, Any]]:
    """A bundle, and what comes out of a kustomization that stands on it."""
    write(render(**said), tmp_path / "bundle")
    mine = tmp_path / "mine"
    mine.mkdir()
    text = {"resources": ["../bundle/modelserver"], **content}
    (mine / "kustomization.yaml").write_text(yaml.safe_dump(text), encoding="utf-8")
    return built(mine)


def replicas_of(count: int, kind: str, path: str) -> dict[str, Any]:
    change = [{"op": "replace", "path": path, "value": count}]
    return {"patches": [{"target": {"kind": kind, "name": ".*"}, "patch": yaml.safe_dump(change)}]}


@pytest.mark.parametrize(
    ("said", "kind", "path"),
    [
        pytest.param({"topology": "aggregation"}, "Deployment", "/spec/replicas", id="Deployment"),
        pytest.param({"topology": "e-pd"}, "DisaggregatedSet", "/spec/roles/1/spec/replicas", id="DisaggregatedSet"),
    ],
)
def test_replicas_can_be_patched(said: dict[str, str], kind: str, path: str, tmp_path: Path) -> None:
    objects = on_top(tmp_path, replicas_of(5, kind, path), **said)
    (item,) = [item for (found, _), item in objects.items() if found == kind]
    for step in path.strip("/").split("/"):
        item = item[int(step)] if step.isdigit() else item[step]
    assert item == 5


def test_a_strategic_merge_patch_finds_the_container_by_name(tmp_path: Path) -> None:
    name = "e-pd-disaggregation-nvidia-gpu-vllm-encode"
    extra = {"name": "modelserver", "env": [{"name": "MINE", "value": "1"}]}
    patch = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"template": {"spec": {"containers": [extra]}}},
    }
    plain = Case("plain", {"topology": "e-pd", "workload": "Deployment"})
    objects = on_top(tmp_path, {"patches": [{"patch": yaml.safe_dump(patch)}]}, **plain.said)
    (engine,) = objects["Deployment", name]["spec"]["template"]["spec"]["containers"]
    assert {"name": "MINE", "value": "1"} in engine["env"]
    assert engine["args"] == plain.roles["encode"].engine["args"]
    assert len(engine["env"]) == len(plain.roles["encode"].env) + 1


def test_the_namespace_can_be_another(tmp_path: Path) -> None:
    objects = on_top(tmp_path, {"namespace": "elsewhere"}, topology="e-pd")
    assert {item["metadata"]["namespace"] for item in objects.values()} == {"elsewhere"}


def test_an_image_can_be_another(tmp_path: Path) -> None:
    images = [{"name": "docker.io/vllm/vllm-openai", "newTag": "v9.9.9"}]
    objects = on_top(tmp_path, {"images": images}, topology="e-p-d", workload="Deployment")
    pods = [item["spec"]["template"]["spec"] for (kind, _), item in objects.items() if kind == "Deployment"]
    assert len(pods) == 3
    assert {pod["containers"][0]["image"] for pod in pods} == {"docker.io/vllm/vllm-openai:v9.9.9"}


def test_a_label_can_be_added_and_selectors_still_select(tmp_path: Path) -> None:
    added = {"labels": [{"pairs": {"team": "vision"}, "includeTemplates": True}]}
    objects = on_top(tmp_path, added, topology="e-p-d", workload="Deployment")
    for (kind, _), item in objects.items():
        assert item["metadata"]["labels"]["team"] == "vision"
        if kind == "Deployment":
            inside = item["spec"]["template"]["metadata"]["labels"]
            assert inside["team"] == "vision"
            assert "team" not in item["spec"]["selector"]["matchLabels"]
            assert item["spec"]["selector"]["matchLabels"].items() <= inside.items()


def test_two_bundles_stand_side_by_side_in_one_kustomization(tmp_path: Path) -> None:
    for topology in ("aggregation", "e-pd"):
        write(render(topology=topology, monitoring=True), tmp_path / topology)
    parts = ("modelserver", "monitoring")
    resources = [f"../{topology}/{part}" for topology in ("aggregation", "e-pd") for part in parts]
    (tmp_path / "both").mkdir()
    (tmp_path / "both" / "kustomization.yaml").write_text(yaml.safe_dump({"resources": resources}), encoding="utf-8")
    kinds = [kind for kind, _ in built(tmp_path / "both")]
    assert sorted(kinds) == [
        "Deployment",
        "DisaggregatedSet",
        "PodMonitor",
        "PodMonitor",
        "PodMonitor",
        "ServiceAccount",
        "ServiceAccount",
    ]
