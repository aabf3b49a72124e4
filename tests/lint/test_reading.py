"""What lint can read: every spelling of a command line, every shape of a file, and files that are broken."""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from mmdeploy.errors import UsageError
from mmdeploy.lint import index, reading, run
from mmdeploy.lint.commands import NotJsonError, parse
from mmdeploy.lint.findings import Finding
from mmdeploy.lint.pods import Engine
from mmdeploy.lint.source import Document, read_text
from tests.lint.harness import base_files, resolver

needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not here")

EC = {"ec_connector": "ECCPUConnector", "ec_role": "ec_producer", "ec_connector_extra_config": {"ec_cpu_bytes": 16}}
TEXT = json.dumps(EC)


def deployment_of(*texts: str) -> index.Deployment:
    return index.index(resolver().catalog, reading.read_files({f"{at}.yaml": text for at, text in enumerate(texts)}))


def found_in(*paths: Path | str) -> list[Finding]:
    deployment = index.index(resolver().catalog, reading.read([str(path) for path in paths]))
    return run.run(deployment, run.select([], []), strict=True).findings


def pod(container: dict[str, Any]) -> str:
    spec = {"containers": [{"name": "engine", "image": "docker.io/vllm/vllm-openai:v0.30.0", **container}]}
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})


def engine(container: dict[str, Any]) -> Engine:
    (found,) = deployment_of(pod(container)).engines
    return found


SAME = {
    "in args": {"args": ["org/model", "--port=8100", "--tensor-parallel-size=4", f"--ec-transfer-config={TEXT}"]},
    "separated": {
        "command": ["vllm", "serve"],
        "args": ["org/model", "--port", "8100", "--tensor-parallel-size", "4", "--ec-transfer-config", TEXT],
    },
    "model as a flag": {
        "command": ["vllm", "serve"],
        "args": ["--model", "org/model", "--port", "8100", "-tp", "4", "--ec-transfer-config", TEXT],
    },
    "underscores": {
        "args": ["--model=org/model", "--port=8100", "--tensor_parallel_size=4", f"--ec_transfer_config={TEXT}"]
    },
    "dotted": {
        "args": [
            "org/model",
            "--port=8100",
            "-tp=4",
            "--ec-transfer-config.ec_connector=ECCPUConnector",
            "--ec-transfer-config.ec_role",
            "ec_producer",
            "--ec-transfer-config.ec_connector_extra_config.ec_cpu_bytes=16",
        ]
    },
    "a module": {
        "command": ["python3", "-m", "vllm.entrypoints.openai.api_server"],
        "args": ["--model", "org/model", "--port", "8100", "-tp", "4", "--ec-transfer-config", TEXT],
    },
    "a shell": {
        "command": ["/bin/bash", "-lc"],
        "args": [
            "set -euo pipefail\n# the engine\nexport A=b\n"
            "exec vllm serve org/model \\\n  --port 8100 \\\n  -tp 4 \\\n"
            f"  --ec-transfer-config '{TEXT}' 2>&1 | tee log\n"
        ],
    },
    "a shell with variables": {
        "command": ["sh", "-c", 'vllm serve "$MODEL" --port ${PORT} -tp $TP --ec-transfer-config "$EC"'],
        "env": [
            {"name": "MODEL", "value": "org/model"},
            {"name": "PORT", "value": "8100"},
            {"name": "TP", "value": "4"},
            {"name": "EC", "value": TEXT},
        ],
    },
    "variables of Kubernetes": {
        "command": ["vllm", "serve", "$(MODEL)"],
        "args": ["--port=$(PORT)", "--tensor-parallel-size=$(TP)", "--ec-transfer-config=$(EC)"],
        "env": [
            {"name": "MODEL", "value": "org/model"},
            {"name": "PORT", "value": "8100"},
            {"name": "TP", "value": "4"},
            {"name": "EC", "value": TEXT},
        ],
    },
}


@pytest.mark.parametrize("name", SAME)
def test_every_spelling_means_the_same(name: str) -> None:
    found = engine(SAME[name])
    assert (found.kind, found.model, found.port, found.tensor_parallel) == ("vllm", "org/model", 8100, 4)
    assert found.ec == EC


def test_sglang_and_its_default_port() -> None:
    container = {
        "image": "docker.io/lmsysorg/sglang:v0.5.20",
        "command": ["python3", "-m", "sglang.launch_server"],
        "args": ["--model-path", "org/model", "--encoder-only"],
    }
    found = engine(container)
    assert (found.kind, found.model, found.port, found.encodes_only) == ("sglang", "org/model", 30000, True)


def test_an_unknown_variable_stays_and_is_noted() -> None:
    command = parse({"args": ["--port=$(PORT)", "$$(LITERAL)"]}, ())
    assert command.value("--port") == "$(PORT)"
    assert command.unknown == ["PORT"]


def test_a_value_that_is_not_json() -> None:
    command = parse({"args": ["--ec-transfer-config={ec_role: x}"]}, ())
    with pytest.raises(NotJsonError, match="character 2"):
        command.json("--ec-transfer-config")


def test_numbers_with_a_suffix_are_json_to_vllm() -> None:
    command = parse({"args": ['--ec-transfer-config={"ec_cpu_bytes": 16G, "b": 1.5k}']}, ())
    assert command.json("--ec-transfer-config") == {"ec_cpu_bytes": 16 * 2**30, "b": 1500}


def test_lists_of_objects_are_their_items() -> None:
    first, second = yaml.safe_load(pod({"args": ["a/b"]})), yaml.safe_load(pod({"args": ["c/d"]}))
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [first, second]}, indent=2)
    deployment = deployment_of(text)
    assert [item.model for item in deployment.engines] == ["a/b", "c/d"]
    at = deployment.pods[1].position(("spec", "containers", 0, "args", 0))
    assert text.splitlines()[at.line - 1].strip() == '"c/d"'


def test_kinds_that_hold_pods() -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": yaml.safe_load(pod({"args": ["a/b"]}))["spec"]}
    shapes = {
        "Deployment": {"template": template},
        "StatefulSet": {"template": template},
        "DaemonSet": {"template": template},
        "Job": {"template": template},
        "CronJob": {"jobTemplate": {"spec": {"template": template}}},
        "LeaderWorkerSet": {"leaderWorkerTemplate": {"workerTemplate": template}},
        "DisaggregatedSet": {
            "roles": [{"name": "encode", "spec": {"leaderWorkerTemplate": {"workerTemplate": template}}}]
        },
    }
    for kind, spec in shapes.items():
        text = yaml.safe_dump({"apiVersion": "x/v1", "kind": kind, "metadata": {"name": "n"}, "spec": spec})
        assert [item.model for item in deployment_of(text).engines] == ["a/b"], kind


def test_marks_of_windows_change_nothing(tmp_path: Path) -> None:
    text = "kind: Pod\r\nmetadata:\r\n  name: a\r\n  labels: {b: c}\r\n"
    (tmp_path / "a.yaml").write_bytes(b"\xef\xbb\xbf" + text.encode())
    (document,) = reading.read([str(tmp_path / "a.yaml")]).documents
    assert document.value["metadata"] == {"name": "a", "labels": {"b": "c"}}
    at = document.position(("metadata", "labels", "b"))
    assert (at.line, at.column) == (4, 12)
    assert document.line_of(at) == "  labels: {b: c}"


def test_anchors_and_merges() -> None:
    text = "a: &a {x: 1, y: 2}\nb:\n  <<: *a\n  y: 3\nc: *a\n"
    (document,) = read_text(text, "f", [])
    assert document.value == {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}, "c": {"x": 1, "y": 2}}
    assert document.position(("b", "y")).line == 4


def test_recursion_is_a_finding_or_data_but_no_crash() -> None:
    for text in ("a: &a [*a]\n", "[" * 3000, "a: " * 3000):
        deployment = deployment_of(text)
        run.run(deployment, run.select([], []), strict=True)


def test_positions_in_a_stream_count_from_its_start() -> None:
    text = "# one\na: 1\n---\nb: 2\n...\n---\n# three\nc:\n  d: [1, {e: 3}]\n--- {f: 4}\n"
    documents = list(read_text(text, "f", []))
    places = [document.position(path) for document, path in zip(
        documents, [("a",), ("b",), ("c", "d", 1, "e"), ("f",)], strict=True
    )]  # fmt: skip
    assert [(at.line, at.column) for at in places] == [(2, 1), (4, 1), (9, 11), (10, 6)]
    assert documents[2].line_of(places[2]) == "  d: [1, {e: 3}]"


def test_what_cannot_be_parsed_is_found_and_the_rest_is_read(tmp_path: Path) -> None:
    text = "kind: ConfigMap\nmetadata: {name: a}\n---\nb: [1,\n---\nkind: Pod\nmetadata: {name: c}\n"
    (tmp_path / "a.yaml").write_text(text)
    (tmp_path / "b.yaml").write_text(pod({"args": ["a/b"]}))
    read = reading.read([str(tmp_path)])
    assert [document.value["kind"] for document in read.documents] == ["ConfigMap", "Pod", "Pod"]
    (defect,) = read.defects
    assert defect.position.file == str(tmp_path / "a.yaml")
    assert defect.position.line in (4, 5)
    (finding,) = [item for item in found_in(tmp_path) if item.code == "MMD901"]
    assert finding.line.strip() in ("b: [1,", "---")


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"a: 1\nb: \xff\xfe\n")
    (finding,) = [item for item in found_in(tmp_path) if item.code == "MMD901"]
    assert finding.position.line == 2


def test_a_key_given_twice_in_a_configuration_inside_values(tmp_path: Path) -> None:
    text = base_files({"topology": "e-pd"})["router/values.yaml"]
    line = "        - type: decode-filter\n"
    (tmp_path / "values.yaml").write_text(text.replace(line, line + "          type: x\n"))
    found = [item for item in found_in(tmp_path) if item.code == "MMD902"]
    assert [item.line for item in found] == ["          type: x"]


def test_unknown_tags_are_data() -> None:
    (document,) = read_text("a: !vault {b: [1]}\nc: !!python/object:x.y {}\nd: !ref e\n", "f", [])
    assert document.value == {"a": {"b": [1]}, "c": {}, "d": "e"}


def test_two_thousand_unrelated_objects(tmp_path: Path) -> None:
    one = "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c{n}, labels: {{app: x}}}}\ndata: {{a: b}}\n"
    (tmp_path / "many.yaml").write_text("---\n".join(one.format(n=n) for n in range(2000)))
    assert found_in(tmp_path) == []


def test_templates_of_a_chart_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "Chart.yaml").write_text("name: a\nversion: 1.0.0\n")
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "a.yaml").write_text("{{- if .Values.x }}\na: b\n{{ end }}\n")
    assert found_in(tmp_path) == []


def test_hidden_files_are_read_only_when_named(tmp_path: Path) -> None:
    (tmp_path / ".hidden.yaml").write_text("a: [\n")
    assert found_in(tmp_path) == []
    assert [item.code for item in found_in(tmp_path / ".hidden.yaml")] == ["MMD901"]


def test_a_link_that_leads_back_ends(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "a" / "b.yaml").write_text("kind: ConfigMap\nmetadata: {name: a}\n")
    assert len(reading.read([str(tmp_path)]).documents) == 1


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("a: [\n---\nkind: Pod\n"))
    read = reading.read(["-"])
    assert [str(defect.position) for defect in read.defects] == ["<stdin>:1:5"]
    assert len(read.documents) == 1


def test_a_path_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="no such file"):
        reading.read(["/nowhere/at/all"])


def write(directory: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)


def values_of(documents: list[Document]) -> list[Any]:
    return sorted(
        (document.value for document in documents), key=lambda value: (value["kind"], value["metadata"]["name"])
    )


@pytest.mark.kubectl
@needs_kubectl
@pytest.mark.parametrize("topology", ["aggregation", "e-pd", "e-p-d"])
def test_plain_kustomizations_are_built_as_kubectl_builds_them(topology: str, tmp_path: Path) -> None:
    write(tmp_path, base_files({"topology": topology, "monitoring": True}))
    quick = reading.read([str(tmp_path / "modelserver")])
    kustomization = tmp_path / "modelserver" / "kustomization.yaml"
    kustomization.write_text(kustomization.read_text() + "buildMetadata: []\n")  # not plain any more
    real = reading.read([str(tmp_path / "modelserver")])
    assert all(document.written is not None for document in real.documents)
    assert values_of(quick.documents) == values_of(real.documents)


@pytest.mark.kubectl
@needs_kubectl
def test_built_objects_point_to_the_files_they_come_from(tmp_path: Path) -> None:
    files = base_files({"topology": "e-pd", "workload": "Deployment"})
    write(tmp_path, {path: text for path, text in files.items() if path.startswith("modelserver/")})
    top = {"namePrefix": "x-", "resources": ["../modelserver"], "commonAnnotations": {"a": "b"}}
    write(tmp_path, {"top/kustomization.yaml": yaml.safe_dump(top)})
    read = reading.read([str(tmp_path)])
    encode = next(item for item in read.documents if item.value["metadata"]["name"].endswith("encode"))
    assert encode.value["metadata"]["name"].startswith("x-")
    assert len([item for item in read.documents if item.value["kind"] == "Deployment"]) == 2, "the base is built once"


@pytest.mark.kubectl
@needs_kubectl
def test_a_kustomization_that_cannot_be_built(tmp_path: Path) -> None:
    write(tmp_path, {"kustomization.yaml": "resources: [missing.yaml]\n"})
    assert [item.code for item in found_in(tmp_path)] == ["MMD903"]


def test_without_a_program_the_files_are_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    write(tmp_path, {"kustomization.yaml": "namePrefix: x-\nresources: [a.yaml]\n", "a.yaml": pod({"args": ["a/b"]})})
    read = reading.read([str(tmp_path)])
    assert len(read.documents) == 1
    assert "neither kubectl nor kustomize" in read.notes[0]


@pytest.mark.kubectl
@needs_kubectl
def test_a_configuration_out_of_a_generator_points_to_its_file(tmp_path: Path) -> None:
    config = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n- type: queue-scorer\n"
    kustomization = "configMapGenerator:\n- name: epp\n  files: [config.yaml]\n"
    write(tmp_path, {"config.yaml": config, "kustomization.yaml": kustomization})
    deployment = index.index(resolver().catalog, reading.read([str(tmp_path)]))
    (found,) = deployment.router.configs
    assert str(found.position(("plugins", 0))) == f"{tmp_path / 'config.yaml'}:4:3"
