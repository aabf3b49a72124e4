"""What llm-d ships tomorrow is data: a model, a provider, an accelerator and a release are added without code.

And data that is wrong says so, with file and line.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.program import ROOT, Done, run, run_process


@pytest.fixture
def blueprints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the blueprints that a test may change."""
    monkeypatch.chdir(tmp_path)
    copy = tmp_path / "blueprints"
    shutil.copytree(ROOT / "blueprints", copy)
    return copy


def edit(path: Path, old: str, new: str) -> int:
    """Replace the one place where ``old`` stands; the line on which ``new`` begins."""
    text = path.read_text()
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {path.name}"
    at = text.index(old) + len(new) - len(new.lstrip("\n"))
    path.write_text(text.replace(old, new))
    return text.count("\n", 0, text.index(old)) + 1 + at - text.index(old)


def render(*args: str) -> Done:
    return run("render", "--blueprints", Path("blueprints").resolve(), *args)


def summary(*args: str) -> dict[str, Any]:
    done = render(*args, "-o", "json")
    assert done.status == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def manifests(*args: str) -> list[dict[str, Any]]:
    done = render(*args, "-o", "yaml")
    assert done.status == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


# --- tomorrow


FAMILY = """
  tomorrow-vl:
    title: Tomorrow-VL
    image: {algorithm: area, patch: 20, merge: 2, min_pixels: 1600, max_pixels: 160000000}
    settings: {Tomorrow-VL: }
    source: a test
"""
MODEL = """
  acme/Tomorrow-VL-9B:
    family: tomorrow-vl
    architecture: TomorrowForConditionalGeneration
    servers: {vllm: [gpu]}
    encodeServers: [vllm]
    handoffMetadata: [image]
    source: a test
"""


def append(path: Path, text: str) -> None:
    path.write_text(path.read_text().rstrip("\n") + "\n" + text.lstrip("\n"))


def add_model(blueprints: Path) -> None:
    append(blueprints / "catalog/families.yaml", FAMILY)
    append(blueprints / "catalog/models.yaml", MODEL)


def test_a_copy_renders_the_same(blueprints: Path) -> None:
    for args in (["-t", "e-pd"], ["-a", "tpu/v7"], ["-t", "e-pd", "--server", "sglang"]):
        assert render(*args, "-o", "yaml") == run("render", *args, "-o", "yaml")


@pytest.mark.parametrize("topology", ["aggregation", "e-pd", "e-p-d"])
def test_the_model_of_tomorrow(blueprints: Path, topology: str) -> None:
    add_model(blueprints)
    found = summary("-t", topology, "-m", "acme/Tomorrow-VL-9B")
    assert found["status"] == "unverified"
    # 40 x 40 pixels a token: 1280 / 40 * 720 / 40 = 32 * 18 = 576; the router divides the area: 921600 // 1600 = 576.
    price = found["image1280x720"]
    assert (price["modelTokens"], price["routerTokens"]) == (576, 576)
    assert found["spec"]["estimator"]["image"]["dynamic"]["factor"] == 1600
    pods = [item for item in manifests("-t", topology, "-m", "acme/Tomorrow-VL-9B") if "spec" in item]
    assert "acme/Tomorrow-VL-9B" in json.dumps(pods)
    assert '"llm-d.ai/model": "Tomorrow-VL-9B"' in json.dumps(pods)


def test_the_model_of_tomorrow_is_listed_completed_and_suggested(blueprints: Path) -> None:
    add_model(blueprints)
    listed = json.loads(run("models", "--blueprints", Path("blueprints").resolve(), "-o", "json").stdout)["models"]
    (row,) = [row for row in listed if row["name"] == "acme/Tomorrow-VL-9B"]
    assert row["topologies"] == ["aggregation", "e-pd", "e-p-d"]
    assert row["image1280x720Tokens"] == 576
    assert "acme/Tomorrow-VL-9B" in render("-m", "acme/Tomorow-VL-9B").stderr
    refused = render("-m", "acme/Tomorrow-VL-9B", "-a", "xpu")
    assert refused.status == 2
    assert "no supported combination" in refused.stderr


def test_the_model_of_tomorrow_refuses_the_estimator_of_today(blueprints: Path) -> None:
    add_model(blueprints)
    done = render("-m", "acme/Tomorrow-VL-9B", "--estimator", '{"image": {"dynamic": {"factor": 1024}}}')
    assert done.status == 2
    # 921600 // 1024 = 900; 900 / 576 = +56 %.
    for text in ("900", "576", "+56 %"):
        assert text in done.stderr
    assert re.search(r"\bfactor\W+1600\b", done.stderr)


def test_the_provider_of_tomorrow(blueprints: Path) -> None:
    append(blueprints / "catalog/providers.yaml", "acme:\n  title: Acme Cloud, two network cards a pod\n")
    matrix = blueprints / "catalog/matrix.yaml"
    matrix.write_text(
        matrix.read_text().replace("providers: [base, gke, coreweave]", "providers: [base, gke, coreweave, acme]")
    )
    (blueprints / "layers/provider/acme-gpu.yaml").write_text(
        "source: a test\nall:\n  pod:\n    containers:\n    - name: modelserver\n      env:\n"
        "      - {name: NCCL_IB_HCA, value: acme0}\n      resources:\n"
        "        limits: {acme.example/nic: '2'}\n        requests: {acme.example/nic: '2'}\n"
    )
    edit(
        blueprints / "stack.yaml",
        "- {layer: provider/coreweave-gpu, when: {provider: coreweave, accelerator: gpu}}\n",
        "- {layer: provider/coreweave-gpu, when: {provider: coreweave, accelerator: gpu}}\n"
        "- {layer: provider/acme-gpu, when: {provider: acme, accelerator: gpu}}\n",
    )
    for topology in ("e-pd", "e-p-d"):
        objects = manifests("-t", topology, "-p", "acme", "--workload", "Deployment")
        servers = [item for item in objects if item["kind"] == "Deployment"]
        assert servers
        for server in servers:
            (container,) = server["spec"]["template"]["spec"]["containers"]
            assert container["resources"]["limits"]["acme.example/nic"] == "2"
            assert {"name": "NCCL_IB_HCA", "value": "acme0"} in container["env"]
    assert "acme" in render("-t", "aggregation", "-p", "acmee").stderr
    refused = render("-t", "aggregation", "-p", "acme")
    assert refused.status == 2
    assert "-t e-pd -a gpu --server vllm -p acme" in refused.stderr


def test_the_accelerator_of_tomorrow(blueprints: Path) -> None:
    append(
        blueprints / "catalog/accelerators.yaml",
        "npu:\n  title: Acme NPU\n  reference: NPU 9\n  variant: npu\n  vendor: acme\n"
        "  resource: acme.example/npu\n  tensorParallel: [1, 4]\n",
    )
    edit(
        blueprints / "catalog/matrix.yaml",
        "rows:\n",
        "rows:\n- topology: aggregation\n  accelerator: npu\n  server: vllm\n  providers: [base]\n"
        "  models: [Qwen/Qwen3-VL-32B-Instruct]\n  namePrefix: mm-npu\n  status: {main: experimental}\n"
        "  source: a test\n",
    )
    edit(blueprints / "catalog/releases/main.yaml", "  vllm:\n", "  vllm:\n    npu: example.com/vllm-npu:v9.0.0\n")
    shutil.copy(blueprints / "layers/accelerator/gpu.yaml", blueprints / "layers/accelerator/npu.yaml")
    edit(
        blueprints / "stack.yaml",
        "- {layer: accelerator/gpu, when: {accelerator: gpu}}\n",
        "- {layer: accelerator/gpu, when: {accelerator: gpu}}\n- {layer: accelerator/npu, when: {accelerator: npu}}\n",
    )
    (server,) = [item for item in manifests("-a", "npu") if item["kind"] == "Deployment"]
    (container,) = server["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "example.com/vllm-npu:v9.0.0"
    assert container["resources"]["limits"]["acme.example/npu"] == "2"
    assert server["spec"]["template"]["metadata"]["labels"]["llm-d.ai/accelerator-vendor"] == "acme"
    # A TP of four times the devices is what this accelerator's entry allows.
    assert render("-a", "npu", "--set", "decode.tensorParallelSize=8", "--set", "decode.accelerators=2").status == 0
    refused = render("-a", "npu", "--set", "decode.tensorParallelSize=4", "--set", "decode.accelerators=2")
    assert refused.status == 2
    assert "Acme NPU" in refused.stderr


def test_the_release_of_tomorrow(blueprints: Path) -> None:
    text = (blueprints / "catalog/releases/v0.9.yaml").read_text()
    (blueprints / "catalog/releases/v0.10.yaml").write_text(
        text.replace("v0.10.0", "v0.11.0")
        .replace("v0.26.0", "v0.33.0")
        .replace("title: llm-d v0.9.0", "title: llm-d v0.10.0")
    )
    matrix = blueprints / "catalog/matrix.yaml"
    matrix.write_text(re.sub(r"(v0\.9: (\w+))", r"v0.10: \2, \1", matrix.read_text()))
    shutil.copy(blueprints / "layers/release/v0.9-encode.yaml", blueprints / "layers/release/v0.10-encode.yaml")
    edit(
        blueprints / "stack.yaml",
        "- {layer: release/v0.9-encode, when: {release: v0.9, encodes: true, server: vllm}}\n",
        "- {layer: release/v0.9-encode, when: {release: v0.9, encodes: true, server: vllm}}\n"
        "- {layer: release/v0.10-encode, when: {release: v0.10, encodes: true, server: vllm}}\n",
    )
    found = summary("--release", "v0.10")
    assert found["roles"][0]["image"] == "docker.io/vllm/vllm-openai:v0.33.0"
    assert found["spec"]["versions"]["routerChart"] == "v0.11.0"
    assert summary("-t", "e-pd", "--release", "v0.10")["spec"]["release"] == "v0.10"
    rows = json.loads(run("matrix", "--blueprints", Path("blueprints").resolve(), "-o", "json").stdout)["rows"]
    # Releases are told newest first, by number: v0.10 is newer than v0.9.
    assert list(dict.fromkeys(row["release"] for row in rows)) == ["main", "v0.10", "v0.9", "v0.8"]


def test_the_environment_names_blueprints_too(blueprints: Path) -> None:
    add_model(blueprints)
    done = run("render", "-m", "acme/Tomorrow-VL-9B", env={"MMDEPLOY_BLUEPRINTS": "blueprints"})
    assert done.status == 0, done.stderr


# --- what is wrong says where


def refused(blueprints: Path, *args: str) -> str:
    """The message of a render that fails because of the blueprints: one error, with a place in them."""
    done = render(*args)
    assert "Traceback" not in done.stderr
    assert done.status == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith(f"error: {blueprints}/"), done.stderr
    return done.stderr.replace(f"{blueprints}/", "blueprints/")


AGGREGATION = "layers/topology/aggregation.yaml"
GEMMA = ["-m", "google/gemma-4-31B-it", "-a", "tpu/v7"]

WRONG: dict[str, tuple[str, str, str, list[str], list[str]]] = {
    # name: file, what stands there, what stands there now, arguments that reach it, texts of the message
    "wrong layer name": (
        "stack.yaml",
        "{layer: server/vllm,",
        "{layer: server/vlm,",
        [],
        ["there is no layer 'server/vlm'", "server/vllm"],
    ),
    "unknown fact": (
        "stack.yaml",
        "{layer: option/monitoring, when: {monitoring:",
        "{layer: option/monitoring, when: {monitorin:",
        [],
        ["unknown fact 'monitorin'", "monitoring"],
    ),
    "entry that is no mapping": (
        "stack.yaml",
        "- {layer: user/role}",
        "- user/role",
        [],
        ["{layer: NAME, when: {FACT: VALUE}}"],
    ),
    "entry with an unknown key": (
        "stack.yaml",
        "- {layer: user/role}",
        "- {layer: user/role, whn: {server: vllm}}",
        [],
        ["whn", "when"],
    ),
    "value that no fact has": (
        "stack.yaml",
        "{layer: server/sglang, when: {server: sglang}}",
        "{layer: server/sglang, when: {server: sglangg}}",
        [],
        ["sglangg"],
    ),
    "name that is nothing": (
        AGGREGATION,
        "    shm: 20Gi",
        '    shm: "{{ role.memry }}"',
        [],
        ["role.memry", "memry"],
    ),
    "object that is nothing": (AGGREGATION, "    shm: 20Gi", '    shm: "{{ rle.memory }}"', [], ["'{{ rle.memory }}'"]),
    "syntax of an expression": (AGGREGATION, "    shm: 20Gi", '    shm: "{{ role. }}"', [], ["role."]),
    "expression that is never closed": (AGGREGATION, "    shm: 20Gi", '    shm: "{{ role.memory"', [], ["role.memory"]),
    "expression that divides by zero": (AGGREGATION, "    replicas: 8", '    replicas: "{{ 1 // 0 }}"', [], ["zero"]),
    "control flow": (
        AGGREGATION,
        "    shm: 20Gi",
        '    shm: "{% if true %}20Gi{% endif %}"',
        [],
        ["{%"],
    ),
    "value of itself": (AGGREGATION, "    shm: 20Gi", '    shm: "{{ role.shm }}"', [], ["worked out from itself"]),
    "values in a circle": (
        AGGREGATION,
        '    cpu: "16"',
        '    cpu: "{{ role.cpuRequest }}"',
        [],
        ["worked out from itself"],
    ),
    "container that nobody defines": (
        "layers/provider/gke-gpu.yaml",
        "- name: modelserver",
        "- name: modelsrver",
        ["-p", "gke"],
        ["overrides containers 'modelsrver', which no layer defines", "modelserver"],
    ),
    "sidecar that nobody defines": (
        "layers/release/main-encode.yaml",
        "- name: routing-proxy",
        "- name: routing-prox",
        ["-t", "e-pd"],
        ["overrides initContainers 'routing-prox', which no layer defines", "routing-proxy"],
    ),
    "removes what nobody set": (
        AGGREGATION,
        "    shm: 20Gi",
        "    shm: 20Gi\n    extra: null",
        [],
        ["removes 'extra', which no earlier layer sets"],
    ),
    "removes a plugin that nobody set": (
        "layers/router/precise.yaml",
        "- type: approx-prefix-cache-producer",
        "- type: approx-prefix-cache-producr",
        ["--routing", "precise"],
        ["removes 'approx-prefix-cache-producr', which no earlier layer sets"],
    ),
    "profile that refers to no plugin": (
        "layers/router/aggregation.yaml",
        "- pluginRef: token-load-scorer",
        "- pluginRef: token-load-scorr",
        [],
        ["token-load-scorr", "token-load-scorer"],
    ),
    "unknown section": (AGGREGATION, "decode:\n", "decoder:\n", [], ["unknown section 'decoder'", "decode"]),
    "unknown section of a role": (AGGREGATION, "  values:\n", "  valus:\n", [], ["unknown section 'valus'", "values"]),
    "unknown section of a router layer": (
        "layers/router/aggregation.yaml",
        "\nconfig:\n",
        "\nconfg:\n",
        [],
        ["unknown section 'confg'", "config"],
    ),
    "role that is no mapping": (
        "layers/provider/gke-gpu.yaml",
        "all:\n",
        "decode: 3\nall:\n",
        ["-p", "gke"],
        ["decode"],
    ),
    "unknown catalog key": (
        "catalog/models.yaml",
        "    family: gemma-4\n",
        "    famly: gemma-4\n",
        GEMMA,
        ["unknown key 'famly'", "family"],
    ),
    "missing catalog key": (
        "catalog/models.yaml",
        "    family: gemma-4\n",
        "",
        GEMMA,
        ["lacks family"],
    ),
    "unknown key of a release": (
        "catalog/releases/main.yaml",
        "routerVersion:",
        "routerVersin:",
        [],
        ["unknown key 'routerVersin'", "routerVersion"],
    ),
    "missing key of a release": (
        "catalog/releases/v0.9.yaml",
        "apiVersion: llm-d.ai/v1alpha1\n",
        "",
        ["--release", "v0.9"],
        ["lacks apiVersion"],
    ),
    "unknown key of a row": (
        "catalog/matrix.yaml",
        "  namePrefix: mm-baseline-xpu-vllm\n",
        "  namePrefx: mm-baseline-xpu-vllm\n",
        [],
        ["unknown key 'namePrefx'", "namePrefix"],
    ),
    "row of an unknown topology": (
        "catalog/matrix.yaml",
        "- topology: e-p-d\n",
        "- topology: e-p-d-x\n",
        [],
        ["e-p-d-x"],
    ),
    "row of an unknown release": (
        "catalog/matrix.yaml",
        "status: {main: community, v0.9: community}",
        "status: {mian: community, v0.9: community}",
        [],
        ["mian"],
    ),
    "row of an unknown model": (
        "catalog/matrix.yaml",
        "models: [google/gemma-4-31B-it]",
        "models: [google/gemma-4-31B]",
        ["-a", "tpu/v7"],
        ["google/gemma-4-31B"],
    ),
    "model of an unknown family": (
        "catalog/models.yaml",
        "    family: gemma-4\n",
        "    family: gemma-44\n",
        GEMMA,
        ["gemma-44", "gemma-4"],
    ),
    "unknown key of a family": (
        "catalog/families.yaml",
        "    title: Qwen3-VL\n",
        "    titel: Qwen3-VL\n",
        [],
        ["titel"],
    ),
    "duplicate key": ("catalog/ports.yaml", "proxy: 8081", "proxy: 8081\nproxy: 8082", [], ["'proxy' is given twice"]),
    "tab": ("catalog/ports.yaml", "proxy: 8081", "\tproxy: 8081", [], ["tab"]),
    "catalog that is a list": ("catalog/labels.yaml", "guide: llm-d.ai/guide", "- llm-d.ai/guide", [], []),
    "empty layer": ("layers/user/role.yaml", "", "", [], ["a layer is a mapping"]),
    "template that names nothing": ("templates/README.md.j2", "{{ spec.model }}", "{{ spec.modl }}", [], ["modl"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_says_file_and_line(blueprints: Path, name: str) -> None:
    file, old, new, args, texts = WRONG[name]
    path = blueprints / file
    if old:
        text = path.read_text()
        at = text.index(old)
        path.write_text(text[:at] + new + text[at + len(old) :])
        line = text.count("\n", 0, at) + 1 + (len(old) - len(old.lstrip("\n")))
    else:
        path.write_text("# nothing\n")
        line = 1
    message = refused(blueprints, *args, "-d", "out")
    assert not Path("out").exists()
    for word in texts:
        assert word in message
    place = re.match(r"error: blueprints/([^:]+)(?::(\d+))?(?::\d+)?: ", message)
    assert place, message
    assert place[1] == file
    assert place[2], "no line is named"
    # A missing key is missing somewhere in its entry, and a merged list is blamed at its item or the item's key.
    assert abs(int(place[2]) - line) <= 4, f"line {place[2]}, but it is line {line}"


def test_a_layer_that_no_stack_names(blueprints: Path) -> None:
    (blueprints / "layers/option/forgotten.yaml").write_text("source: a test\n")
    message = refused(blueprints)
    assert message.startswith("error: blueprints/layers/option/forgotten.yaml:1: ")
    assert "stack.yaml" in message


def test_missing_files_are_named(blueprints: Path) -> None:
    for file in ("catalog/ports.yaml", "stack.yaml", "workloads/Deployment.yaml", "templates/README.md.j2"):
        kept = (blueprints / file).read_bytes()
        (blueprints / file).unlink()
        # A process of its own each time: the templates are kept for the life of one.
        done = run_process("render", "--blueprints", blueprints)
        assert (done.status, done.stdout) == (2, "")
        assert done.stderr.startswith(f"error: {blueprints}/{file}: ")
        (blueprints / file).write_bytes(kept)
    assert render().status == 0


def test_a_directory_without_blueprints(tmp_path: Path) -> None:
    for command in ("render", "matrix", "models"):
        for place in (tmp_path, tmp_path / "nowhere"):
            done = run(command, "--blueprints", place)
            assert done.status == 2
            assert done.stderr.startswith(f"error: {place}: holds no catalog/\n")
            assert "next: point --blueprints at a directory that holds" in done.stderr


def test_mistakes_in_data_that_nothing_reads_yet_are_found_by_all(blueprints: Path) -> None:
    """`render --all` is what a contributor runs; a mistake in any layer that some row uses ends it."""
    path = blueprints / "layers/topology/e-pd-sglang.yaml"
    edit(path, "    kind: StatefulSet", '    kind: "{{ rle.kind }}"')
    done = run("render", "--blueprints", Path("blueprints").resolve(), "--all", "-d", "all")
    assert done.status == 2
    assert done.stderr.startswith(f"error: {path}:")
