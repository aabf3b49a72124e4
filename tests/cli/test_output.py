"""What comes out: pages for people, documents for machines, talk on stderr, help that works."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import subprocess
import sys
import tarfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from syrupy.assertion import SnapshotAssertion
from typer.main import get_command

from mmdeploy import __version__
from mmdeploy.cli.program import program
from tests.cli.program import ROOT, Done, environment, run

COMMANDS: dict[str, Any] = get_command(program()).commands  # type: ignore[attr-defined]
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def document(done: Done) -> dict[str, Any]:
    """The one JSON document of an output, which must be strict JSON."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    found: dict[str, Any] = json.loads(done.stdout, parse_constant=refuse)
    return found


# --- pages for people


TOPOLOGIES = {
    "aggregation": ["-t", "aggregation"],
    "aggregation on tpu": ["-a", "tpu/v7"],
    "aggregation of gemma on tpu": ["-a", "tpu/v7", "-m", "google/gemma-4-31B-it"],
    "e-pd": ["-t", "e-pd", "-p", "gke"],
    "e-pd as deployments": ["-t", "e-pd", "--workload", "Deployment"],
    "e-pd of v0.8": ["-t", "e-pd", "--release", "v0.8"],
    "e-pd with sglang": ["-t", "e-pd", "--server", "sglang"],
    "e-pd with mooncake": ["-t", "e-pd", "--ec-connector", "ECMooncakeConnector"],
    "e-p-d": ["-t", "e-p-d", "-p", "coreweave"],
    "precise": ["--routing", "precise"],
    "tiles": ["-m", "acme/vl", "--processor-config", '{"processor_class": "InternVLProcessor"}'],
}


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_summary_page(name: str, snapshot: SnapshotAssertion) -> None:
    done = run("render", *TOPOLOGIES[name])
    assert done.status == 0
    assert done.stdout + "--- stderr\n" + done.stderr == snapshot


def test_summary_page_of_a_directory(snapshot: SnapshotAssertion) -> None:
    first = run("render", "-t", "e-pd", "-d", "epd")
    again = run("render", "-t", "e-pd", "-d", "epd")
    changed = run("render", "-t", "e-p-d", "--monitoring", "-d", "epd")
    assert [done.status for done in (first, again, changed)] == [0, 0, 0]
    assert "\n=====\n".join(done.stdout for done in (first, again, changed)) == snapshot


@pytest.mark.parametrize(
    "args", [["matrix"], ["matrix", "--release", "v0.9", "-t", "e-pd"], ["models"]], ids=lambda args: " ".join(args)
)
def test_tables(args: list[str], snapshot: SnapshotAssertion) -> None:
    done = run(*args)
    assert (done.status, done.stderr) == (0, "")
    assert done.stdout == snapshot


ERRORS = {
    "unsupported row": ["-t", "aggregation", "-p", "coreweave"],
    "estimator": ["-a", "tpu/v7", "-m", "google/gemma-4-31B-it", "--estimator", '{"image": {"mode": "dynamic"}}'],
    "memory": ["-t", "e-pd", "--set", "encode.shm=30Gi"],
    "several mistakes": ["--set", "decode.replicas=x", "--set", "decode.cpu=y", "--mode", "gatway"],
    "unknown path": ["--set", "encode.replcas=3"],
    "no effect": ["--set", "tracingEndpoint=http://collector:4317"],
    "missing file": ["-f", "nowhere.yaml"],
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str, snapshot: SnapshotAssertion) -> None:
    done = run("render", *ERRORS[name])
    assert (done.status, done.stdout) == (2, "")
    assert done.stderr == snapshot


def test_hand_edited_files(snapshot: SnapshotAssertion) -> None:
    run("render", "-d", "out")
    for name in ("README.md", "router/values.yaml"):
        Path("out", name).write_text("mine\n")
    done = run("render", "-d", "out")
    assert (done.status, done.stdout) == (4, "")
    assert done.stderr == snapshot


# --- documents for machines


@pytest.mark.parametrize(
    ("args", "kind"),
    [
        (["render", "-t", "e-pd"], "RenderSummary"),
        (["render", "-t", "e-pd", "-d", "out"], "RenderSummary"),
        (["render", "-t", "e-pd", "--server", "sglang"], "RenderSummary"),
        (["render", "-t", "e-p-d", "--explain"], "Explanation"),
        (["matrix"], "Matrix"),
        (["matrix", "--release", "v0.8"], "Matrix"),
        (["models"], "Models"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_json_is_one_document(args: list[str], kind: str) -> None:
    done = run(*args, "-o", "json")
    assert done.status == 0
    found = document(done)
    assert (found["schemaVersion"], found["kind"]) == (1, kind)


def test_json_summary_agrees_with_the_bundle() -> None:
    found = document(run("render", "-t", "e-p-d", "-d", "out", "-o", "json"))
    written = sorted(str(path.relative_to("out")) for path in Path("out").rglob("*") if path.is_file())
    assert sorted(found["files"]) == written
    assert found["written"]["directory"] == "out"
    assert sorted(change["path"] for change in found["written"]["changes"]) == written
    assert found["spec"] == yaml.safe_load(Path("out/mmdeploy.yaml").read_text())
    assert [role["name"] for role in found["roles"]] == ["encode", "prefill", "decode"]
    # 1280 * 720 / 1024 = 900, and Qwen3-VL takes 880 (visual-token-truth.csv): +2.3 %.
    price = found["image1280x720"]
    assert (price["routerTokens"], price["modelTokens"], price["errorPercent"]) == (900, 880, 2.3)


def test_json_of_a_spec_with_every_kind_of_value() -> None:
    """Whatever YAML can say in a free field, the document stays JSON."""
    Path("spec.yaml").write_text("decode:\n  affinity: {a: [1, 2.5, true, null, text], b: {c: ''}}\n")
    done = run("render", "-f", "spec.yaml", "-o", "json")
    assert done.status == 0
    assert document(done)["spec"]["decode"]["affinity"]["a"] == [1, 2.5, True, None, "text"]


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_yaml_is_a_stream_of_manifests(name: str) -> None:
    done = run(
        "render", *TOPOLOGIES[name], "--monitoring", "--mode", "gateway", "--gateway-class", "istio", "-o", "yaml"
    )
    assert done.status == 0
    objects = list(yaml.safe_load_all(done.stdout))
    assert all(item["apiVersion"] and item["kind"] for item in objects)
    assert {item["metadata"]["namespace"] for item in objects} == {run_namespace(name)}
    names = [(item["kind"], item["metadata"]["name"]) for item in objects]
    assert len(set(names)) == len(names)
    assert {"ServiceAccount", "PodMonitor", "Gateway"} <= {kind for kind, _ in names}


def run_namespace(name: str) -> str:
    """The guide's own namespaces; SGLang's profile has another (llm-d-guides.md §8)."""
    return "llm-d-sglang-xpu-gpu-e-pd" if "sglang" in name else "llm-d-multimodal-serving"


def test_yaml_holds_what_the_directory_holds() -> None:
    streamed = run("render", "-t", "e-pd", "--monitoring", "-d", "out", "-o", "yaml")
    in_files = []
    for path in sorted(Path("out").rglob("*.yaml")):
        content = yaml.safe_load(path.read_text())
        if path.name != "kustomization.yaml" and "apiVersion" in content:
            content["metadata"]["namespace"] = "llm-d-multimodal-serving"
            in_files.append(content)
    objects = list(yaml.safe_load_all(streamed.stdout))
    assert sorted(objects, key=str) == sorted(in_files, key=str)


def test_warnings_are_talk() -> None:
    for form in ("summary", "yaml", "json"):
        done = run("render", "-t", "e-pd", "-o", form)
        assert "warning: " in done.stderr
        assert "warning: " not in done.stdout
    assert document(run("render", "-t", "e-pd", "-o", "json"))["warnings"]


def test_errors_leave_stdout_empty() -> None:
    for form in ("summary", "yaml", "json"):
        assert run("render", "-a", "gpuu", "-o", form).stdout == ""


@pytest.mark.parametrize(
    ("args", "status"),
    [
        (["render", "-t", "e-pd"], 0),
        (["render", "-t", "e-pd", "-a", "xpu"], 2),
        (["render", "-t", "e-pd", "--set", "encode.shm=1Gi"], 2),
        (["render", "-t", "e-pd", "-d", "empty", "--check"], 4),
        (["render", "-t", "e-pd", "-d", "edited"], 4),
        (["render", "-t", "e-pd", "-d", "current", "--check"], 0),
        (["render", "-t", "e-pd", "--explain"], 0),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_the_exit_status_does_not_depend_on_the_form(args: list[str], status: int) -> None:
    for directory in ("current", "edited"):
        assert run("render", "-t", "e-pd", "-d", directory).status == 0
    Path("edited/README.md").write_text("mine\n")
    assert {form: run(*args, "-o", form).status for form in ("summary", "yaml", "json")} == {
        "summary": status,
        "yaml": status,
        "json": status,
    }


def test_check_with_json_is_one_document() -> None:
    """stdout is one document with ``-o json``, whatever else was asked for."""
    done = run("render", "-d", "out", "--check", "-o", "json")
    assert done.status == 4
    assert document(done)["schemaVersion"] == 1


# --- options that cannot both be meant


def test_explain_does_not_switch_check_off() -> None:
    assert run("render", "-d", "out", "--check", "--explain").status != 0


def test_explain_with_a_directory_writes_it_or_refuses() -> None:
    done = run("render", "-d", "out", "--explain")
    assert done.status == 2 or Path("out").exists()


def test_all_with_a_topology_keeps_to_it_or_refuses() -> None:
    done = run("render", "--all", "-t", "e-pd", "--release", "v0.8", "-d", "out")
    assert done.status == 2 or not Path("out/v0.8/aggregation").exists()


# --- help, version, completion


@pytest.mark.parametrize("flag", ["--help", "-h"])
@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command: str, flag: str) -> None:
    done = run(command, flag)
    assert done.status == 0
    assert re.search(rf"^\s*mmdeploy {command}\b", done.stdout, re.MULTILINE)


def test_help_of_the_program_lists_commands_and_exit_codes() -> None:
    done = run("--help")
    assert done.status == 0
    assert all(command in done.stdout for command in COMMANDS)
    assert "Exit codes" in done.stdout


def test_no_command_shows_the_help() -> None:
    done = run()
    assert done.status == 2
    assert "render" in done.stdout + done.stderr


def test_help_describes_every_option() -> None:
    for name, command in COMMANDS.items():
        for option in command.params:
            assert option.help, f"{name} {option.opts}"


EXAMPLES = [
    (name, [line.strip() for line in (command.epilog or "").splitlines() if line.strip().startswith("mmdeploy ")])
    for name, command in COMMANDS.items()
]


LIVE = re.compile(r"^mmdeploy (check|diff|apply|status|delete|lint --live|verify (epd$|--namespace))")
"""Examples that need a cluster. tests/e2e has one; here, none answers, and they must get as far as to say so."""

NOWHERE = {
    "clusters": [{"name": "away", "cluster": {"server": "https://127.0.0.1:9"}}],
    "users": [{"name": "nobody", "user": {"token": "none"}}],
    "contexts": [{"name": name, "context": {"cluster": "away", "user": "nobody"}} for name in ("here", "production")],
    "current-context": "here",
}


def as_run_here(line: str) -> tuple[str, set[int]]:
    """An example as this test runs it, and the exit statuses that it may have."""
    if "--print-rbac" in line:
        return line.partition(" | ")[0], {0}
    if LIVE.match(line):
        asks = line.startswith(("mmdeploy apply", "mmdeploy delete")) and " -y" not in line
        return line.replace(" --wait 10m", "") + " -y" * asks, {5}
    if "targets.yaml" in line and line.startswith("mmdeploy verify"):
        return f"mmdeploy rehearse epd --write-targets targets.yaml -- {line}", {0}
    return line, {0}


@pytest.mark.parametrize(("command", "lines"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_every_example_runs(command: str, lines: list[str], tmp_path: Path) -> None:
    """In a shell and one after the other, as a person would who copies them."""
    assert lines
    program = tmp_path / "bin" / "mmdeploy"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m mmdeploy "$@"\n')
    program.chmod(0o755)
    place = tmp_path / "place"
    place.mkdir()
    # Some commands read a bundle: the place holds one, and so does a directory in it.
    for directory in (place, place / "deploy", place / "epd"):
        if directory.name != "epd" or command == "verify" or command == "check":
            assert run("render", "-t", "e-pd", "-d", directory).status == 0
    (tmp_path / "kubeconfig").write_text(json.dumps(NOWHERE))
    with tarfile.open(place / "llm-d-router-standalone.tgz", "w:gz") as archive:
        archive.add(ROOT / "tests" / "rig" / "chart", "llm-d-router-standalone")
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    extra = {"KUBECONFIG": str(tmp_path / "kubeconfig"), "HF_TOKEN": "hf_of-a-test", "PYTHONPATH": str(ROOT)}
    for line in lines:
        words, statuses = as_run_here(line)
        done = subprocess.run(
            ["sh", "-c", words], cwd=place, env=environment({"PATH": path, **extra}), capture_output=True, text=True
        )
        assert done.returncode in statuses, f"{line}\n{done.stderr}"
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_version(flag: str) -> None:
    assert run(flag) == Done(0, f"mmdeploy {__version__}\n", "")
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", __version__)


def complete(shell: str, words: str) -> Done:
    """What the shell's completion script asks, as a program called mmdeploy."""
    index = str(len(words.split(" ")) - 1)
    env = {
        "_MMDEPLOY_COMPLETE": shell,
        "COMP_WORDS": words,
        "COMP_CWORD": index,
        "_TYPER_COMPLETE_ARGS": words,
    }
    call = "import sys; sys.argv = ['mmdeploy']; from mmdeploy.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", call], env=environment({"PYTHONPATH": str(ROOT), **env}), capture_output=True, text=True
    )
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script(shell: str) -> None:
    done = complete(f"source_{shell}", "")
    assert done.status == 0, done.stderr
    assert f"_MMDEPLOY_COMPLETE=complete_{shell}" in done.stdout


@pytest.mark.parametrize(
    ("words", "choices"),
    [
        ("mmdeploy ", {"render", "matrix", "models", "schema"}),
        ("mmdeploy render --topology ", {"aggregation", "e-pd", "e-p-d"}),
        ("mmdeploy render -t e-p", {"e-pd", "e-p-d"}),
        ("mmdeploy render --accelerator ", {"gpu", "xpu", "tpu/v7"}),
        ("mmdeploy render --server ", {"vllm", "sglang"}),
        ("mmdeploy render --provider ", {"base", "gke", "coreweave"}),
        ("mmdeploy render --release ", {"main", "v0.9", "v0.8"}),
        ("mmdeploy render --model Qwen/Qwen3-VL", {"Qwen/Qwen3-VL-32B-Instruct", "Qwen/Qwen3-VL-8B-Instruct"}),
        ("mmdeploy render --workload ", {"Deployment", "DisaggregatedSet"}),
        ("mmdeploy render --routing ", {"approximate", "precise"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_completion(words: str, choices: set[str]) -> None:
    done = complete("complete_bash", words)
    assert done.status == 0
    found = set(done.stdout.split())
    # More commands may come; an option's words are exactly the catalog's.
    assert found >= choices if words == "mmdeploy " else found == choices


# --- the schema


def schema() -> Any:
    jsonschema = pytest.importorskip("jsonschema")
    found = json.loads(run("schema").stdout)
    jsonschema.Draft202012Validator.check_schema(found)
    return jsonschema.Draft202012Validator(found)


def test_schema_accepts_every_overlay() -> None:
    validator = schema()
    specs = sorted((ROOT / "overlays").rglob("mmdeploy.yaml"))
    assert len(specs) >= 30
    for path in specs:
        assert list(validator.iter_errors(yaml.safe_load(path.read_text()))) == [], path


GOOD_SPECS = [
    "{}",
    "topology: e-pd",
    "decode: {cpu: 8, memory: 256Gi, extraArgs: [--max-model-len, 8192]}",
    "decode: {extraEnv: {A: text, B: 3, C: true, D: {valueFrom: {fieldRef: {fieldPath: status.podIP}}}}}",
    "decode: {labels: {build: 7}}",
    "encode: {ecCacheBytes: 42949672960}",
    "estimator: estimate.yaml",
    "processorConfig: preprocessor_config.json",
    "decode: {replicas: null}",
]
"""What the program takes; an editor that marks it red teaches people to distrust the schema."""


@pytest.mark.parametrize("text", GOOD_SPECS)
def test_schema_accepts_what_the_program_takes(text: str) -> None:
    validator = schema()
    Path("estimate.yaml").write_text("image: {mode: dynamic, dynamic: {factor: 1024}}\n")
    Path("preprocessor_config.json").write_text('{"image_processor_type": "Qwen2VLImageProcessor"}')
    topology = "e-pd" if "encode" in text else "aggregation"
    Path("spec.yaml").write_text(text)
    assert run("render", "-t", topology, "-f", "spec.yaml").status == 0
    assert [error.message for error in validator.iter_errors(yaml.safe_load(text))] == []


@pytest.mark.parametrize(
    "text",
    [
        "topolgy: e-pd",
        "topology: epd",
        "decode: {replicas: many}",
        "decode: {replicas: 0}",
        "decode: {replcas: 3}",
        "decode: [1]",
        "decode: {cpu: 8 cores}",
        "mode: gatway",
        "name: Not A Name",
        "schemaVersion: 2",
        "gateway: istio",
        "calibration: {affinityThreshold: 60}",
        "- topology: e-pd",
    ],
)
def test_schema_refuses_what_the_program_refuses(text: str) -> None:
    validator = schema()
    Path("spec.yaml").write_text(text)
    assert run("render", "-f", "spec.yaml").status == 2
    assert list(validator.iter_errors(yaml.safe_load(text)))


def test_schema_describes_every_field() -> None:
    found = json.loads(run("schema").stdout)
    for owner, definition in [("the spec", found), *found["$defs"].items()]:
        for name, field in definition["properties"].items():
            assert field.get("description"), f"{owner}.{name}"


# --- on a terminal


def on_terminal(*args: str, columns: int = 80, env: dict[str, str] | None = None) -> tuple[int, str]:
    """Run on a pseudo-terminal; exit status, and everything that it showed."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "mmdeploy", *args],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=environment({"PYTHONPATH": str(ROOT), "COLUMNS": str(columns), **(env or {})}),
        close_fds=True,
    )
    os.close(follower)
    shown = b"".join(_read_all(leader))
    os.close(leader)
    return process.wait(), shown.decode().replace("\r\n", "\n")


def _read_all(descriptor: int) -> Iterator[bytes]:
    while True:
        try:
            chunk = os.read(descriptor, 65536)
        except OSError:  # Linux says EIO when the last writer is gone
            return
        if not chunk:
            return
        yield chunk


PAGES = {
    "summary": ["render", "-t", "e-p-d", "--monitoring"],
    "summary of a directory": ["render", "-t", "e-pd", "-d", "some/where"],
    "summary of tiles": [
        "render", "-m", "acme/vl", "--processor-config", '{"processor_class": "InternVLProcessor"}',
    ],
    "explain": ["render", "-t", "e-pd", "--explain"],
    "matrix": ["matrix"],
    "models": ["models"],
    "error": ["render", "-t", "e-pd", "--encoder-cache-affinity"],
    "error with combinations": ["render", "-t", "aggregation", "-p", "coreweave"],
    "error of an estimator": ["render", "-a", "tpu/v7", "-m", "google/gemma-4-31B-it", "--estimator", "{image: {}}"],
    "help": ["render", "--help"],
}  # fmt: skip


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_wider_than_the_terminal(name: str, columns: int) -> None:
    _, shown = on_terminal(*PAGES[name], columns=columns)
    lines = ESCAPES.sub("", shown).splitlines()
    assert len(lines) > 2
    copied = {line for line in lines if line.startswith("    ")} if name.startswith("error") else set()
    too_long = [line for line in lines if len(line) > columns and line not in copied and not unbreakable(line, columns)]
    assert too_long == []


def unbreakable(line: str, columns: int) -> bool:
    """Whether no break between words could have made the line fit, or the line is a command to copy."""
    if line.removeprefix("next").strip().startswith("mmdeploy "):
        return True
    indent = len(line) - len(line.lstrip())
    longest = max(map(len, line.split()))
    return indent + longest > columns - 12 and len(line.split()) <= 3


@pytest.mark.parametrize("name", ["summary", "matrix", "error"])
def test_a_terminal_is_shown_colour(name: str) -> None:
    assert ESCAPES.search(on_terminal(*PAGES[name])[1])


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["NO_COLOR", "TERM=dumb"])
@pytest.mark.parametrize("name", ["summary", "explain", "matrix", "error"])
def test_no_colour_is_no_colour(name: str, env: dict[str, str]) -> None:
    assert not ESCAPES.search(on_terminal(*PAGES[name], env=env)[1])


def test_a_pipe_is_never_coloured_and_never_cut() -> None:
    for args in PAGES.values():
        done = run(*args, env={"COLUMNS": "40"})
        assert "\x1b" not in done.stdout + done.stderr
    assert run("matrix", env={"COLUMNS": "40"}).stdout == run("matrix", env={"COLUMNS": "200"}).stdout


def test_a_terminal_and_a_pipe_say_the_same() -> None:
    status, shown = on_terminal("matrix", "--release", "v0.8", columns=300, env={"NO_COLOR": "1"})
    piped = run("matrix", "--release", "v0.8")
    assert status == piped.status == 0
    assert words_of(shown) == words_of(piped.stdout)


def words_of(text: str) -> list[str]:
    return textwrap.dedent(text).split()
