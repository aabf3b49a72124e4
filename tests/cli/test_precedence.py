"""Who wins: option, then MMDEPLOY_* variable, then the guide's variables (when asked for), then file, then default."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mmdeploy import inputs
from mmdeploy.errors import UsageError
from mmdeploy.inputs import GUIDE_VARIABLES, collect
from mmdeploy.spec import fields_of
from tests.cli.program import Done, run

FIELDS = fields_of()
IDS = [".".join(map(str, path)) for path in FIELDS]


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def spec_of(done: Done) -> dict[str, Any]:
    assert done.status == 0, done.stderr
    spec: dict[str, Any] = json.loads(done.stdout)["spec"]
    return spec


def at(spec: Mapping[str, Any], dotted: str) -> Any:
    value: Any = spec
    for step in dotted.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def render(*args: str, file: str | None = None, env: Mapping[str, str] | None = None) -> Done:
    if file is not None:
        Path("spec.yaml").write_text(file, encoding="utf-8")
        args = ("-f", "spec.yaml", *args)
    return run("render", *args, "-o", "json", env=env)


def settle(*settings: str, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The plain values that options named ``--set`` and variables amount to, before they are checked."""
    return collect(file=None, options={}, settings=settings, environ=environ or {}, from_env=False).values


# Kinds of fields: a word, a yes or no, a number in a role, a text in a nested mapping, a free text, a mapping.
# Each with the default, and what file, guide variable, own variable and option say, in their own spellings.
KINDS: dict[str, tuple[Any, str, dict[str, str], dict[str, str], list[str], tuple[Any, Any, Any, Any]]] = {
    "topology": (
        "aggregation",
        "topology: e-pd",
        {"TOPOLOGY": "e-p-d"},
        {"MMDEPLOY_TOPOLOGY": "aggregation"},
        ["--topology", "e-pd"],
        ("e-pd", "e-p-d", "aggregation", "e-pd"),
    ),
    "monitoring": (
        False,
        "monitoring: true",
        {"MONITORING": "false"},
        {"MMDEPLOY_MONITORING": "true"},
        ["--no-monitoring"],
        (True, False, True, False),
    ),
    "name": (
        "multimodal-serving",
        "name: of-the-file",
        {"GUIDE_NAME": "of-the-guide"},
        {"MMDEPLOY_NAME": "of-the-variable"},
        ["--name", "of-the-option"],
        ("of-the-file", "of-the-guide", "of-the-variable", "of-the-option"),
    ),
    "decode.replicas": (
        8,
        "decode: {replicas: 2}",
        {},
        {"MMDEPLOY_DECODE_REPLICAS": "3"},
        ["--set", "decode.replicas=4"],
        (2, 2, 3, 4),
    ),
    "gateway.gatewayClass": (
        "none",
        "mode: gateway\ngateway: {gatewayClass: gke}",
        {},
        {"MMDEPLOY_GATEWAY_GATEWAY_CLASS": "istio", "MMDEPLOY_MODE": "gateway"},
        ["--gateway-class", "agentgateway", "--mode", "gateway"],
        ("gke", "gke", "istio", "agentgateway"),
    ),
    "versions.routerChart": (
        "v0",
        "versions: {routerChart: v1}",
        {},
        {"MMDEPLOY_VERSIONS_ROUTER_CHART": "v2"},
        ["--set", "versions.routerChart=v3"],
        ("v1", "v1", "v2", "v3"),
    ),
    "mmProcessorKwargs": (
        None,
        "mmProcessorKwargs: {max_pixels: 1000001}",
        {},
        {"MMDEPLOY_MM_PROCESSOR_KWARGS": '{"max_pixels": 1000002}'},
        ["--mm-processor-kwargs", '{"max_pixels": 1000003}'],
        ({"max_pixels": 1000001}, {"max_pixels": 1000001}, {"max_pixels": 1000002}, {"max_pixels": 1000003}),
    ),
    "decode.extraEnv": (
        None,
        "decode: {extraEnv: {SAID_BY: file}}",
        {},
        {"MMDEPLOY_DECODE_EXTRA_ENV": "{SAID_BY: variable}"},
        ["--set", "decode.extraEnv.SAID_BY=option"],
        ({"SAID_BY": "file"}, {"SAID_BY": "file"}, {"SAID_BY": "variable"}, {"SAID_BY": "option"}),
    ),
}


@pytest.mark.parametrize("field", KINDS)
def test_each_place_overrules_the_one_before(field: str) -> None:
    default, file, guide, variable, option, (of_file, of_guide, of_variable, of_option) = KINDS[field]
    base = ["--mode", "gateway"] if field.startswith("gateway.") else []
    assert at(spec_of(render(*base)), field) == default
    assert at(spec_of(render(file=file)), field) == of_file
    assert at(spec_of(render("--from-env", file=file, env=guide)), field) == of_guide
    assert at(spec_of(render("--from-env", file=file, env={**guide, **variable})), field) == of_variable
    everything = {**guide, **variable}
    assert at(spec_of(render("--from-env", *option, file=file, env=everything)), field) == of_option


def test_a_setting_overrules_the_option_of_the_same_field() -> None:
    assert spec_of(render("--set", "name=set", "--name", "option"))["name"] == "set"


def test_of_two_settings_the_last_one_counts() -> None:
    assert at(spec_of(render("--set", "decode.replicas=2", "--set", "decode.replicas=3")), "decode.replicas") == 3


def test_a_setting_changes_its_field_and_leaves_the_neighbours() -> None:
    spec = spec_of(render("--set", "decode.replicas=3", file="decode: {replicas: 2, cpu: '20'}"))
    assert (at(spec, "decode.replicas"), at(spec, "decode.cpu")) == (3, "20")


def test_a_setting_may_hold_a_whole_role() -> None:
    spec = spec_of(render("--set", "decode={replicas: 3, cpu: 20}"))
    assert (at(spec, "decode.replicas"), at(spec, "decode.cpu")) == (3, "20")


# --- the guide's own variables


GUIDE = {
    "TOPOLOGY": "e-pd",
    "ACCELERATOR_TYPE": "gpu",
    "MODEL_SERVER": "vllm",
    "INFRA_PROVIDER": "gke",
    "MODEL": "google/gemma-4-31B-it",
    "GUIDE_NAME": "guide",
    "NAMESPACE": "guide-namespace",
    "MONITORING": "true",
}


def test_the_variables_are_those_of_the_guide() -> None:
    assert set(GUIDE) == set(GUIDE_VARIABLES)


def test_guide_variables_do_not_count_unless_asked_for() -> None:
    done = render(env=GUIDE)
    assert spec_of(done) == spec_of(render())
    assert "from the environment" not in done.stderr


@pytest.mark.parametrize("variable", GUIDE)
def test_each_guide_variable_reaches_its_field(variable: str) -> None:
    spec = spec_of(render("--from-env", "--topology", "e-pd", env={variable: GUIDE[variable]}))
    field = ".".join(map(str, GUIDE_VARIABLES[variable]))
    wanted = True if variable == "MONITORING" else GUIDE[variable]
    assert at(spec, field) == (wanted if variable != "TOPOLOGY" else "e-pd")


def test_what_was_taken_is_printed() -> None:
    done = render("--from-env", env=GUIDE)
    said = "from the environment: " + " ".join(f"{name}={value}" for name, value in GUIDE.items())
    assert said in done.stderr.splitlines()
    assert json.loads(done.stdout)["spec"]["namespace"] == "guide-namespace"


def test_nothing_is_printed_when_nothing_was_taken() -> None:
    assert "from the environment" not in render("--from-env").stderr


def test_an_empty_guide_variable_says_nothing() -> None:
    done = render("--from-env", env={"NAMESPACE": "", "MODEL": ""})
    assert spec_of(done) == spec_of(render())


def test_a_bad_guide_variable_is_named() -> None:
    done = render("--from-env", env={"NAMESPACE": "Not A Name"})
    assert done.status == 2
    assert done.stderr.splitlines()[-2].startswith("error: $NAMESPACE: namespace is 'Not A Name'")


# --- MMDEPLOY_* variables


def variable_of(path: tuple[Any, ...]) -> str:
    """The name that the guides give for a field: MMDEPLOY_ and the words of its path, in capitals."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", "_".join(map(str, path)))
    return f"MMDEPLOY_{words.upper()}"


@pytest.mark.parametrize("path", FIELDS, ids=IDS)
def test_every_field_has_a_variable(path: tuple[Any, ...]) -> None:
    found = collect(file=None, options={}, settings=(), environ={variable_of(path): "1"}, from_env=False)
    assert found.unknown == []
    assert at(found.values, ".".join(map(str, path))) is not None
    assert found.origin_of(path) == f"${variable_of(path)}"


def test_no_two_fields_share_a_variable() -> None:
    assert len({variable_of(path) for path in FIELDS}) == len(FIELDS)


def test_an_unknown_variable_is_a_warning_with_the_nearest() -> None:
    done = render(env={"MMDEPLOY_TOPOLGY": "e-pd"})
    assert spec_of(done)["topology"] == "aggregation"
    assert "warning: MMDEPLOY_TOPOLGY names no field of the spec (nearest: MMDEPLOY_TOPOLOGY)" in done.stderr


def test_the_blueprints_variable_is_no_unknown_field() -> None:
    blueprints = Path(inputs.__file__).resolve().parents[1] / "blueprints"
    done = render(env={"MMDEPLOY_BLUEPRINTS": os.fspath(blueprints)})
    assert spec_of(done) == spec_of(render())
    assert "MMDEPLOY_BLUEPRINTS" not in done.stderr


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("MMDEPLOY_DECODE_REPLICAS", "many", "decode.replicas is 'many'"),
        ("MMDEPLOY_MODE", "gatway", "mode is 'gatway'"),
        ("MMDEPLOY_DECODE_TOLERATIONS", "[{key: x", ""),
        ("MMDEPLOY_MONITORING", "perhaps", "monitoring is 'perhaps'"),
    ],
)
def test_a_bad_variable_is_named(variable: str, value: str, words: str) -> None:
    done = render(env={variable: value})
    assert done.status == 2
    head = next(line for line in done.stderr.splitlines() if line.startswith("error: "))
    assert head.startswith(f"error: ${variable}")
    assert words in head


# --- --set


@pytest.mark.parametrize("path", FIELDS, ids=IDS)
def test_set_reaches_every_field(path: tuple[Any, ...]) -> None:
    dotted = ".".join(map(str, path))
    found = collect(file=None, options={}, settings=[f"{dotted}=1"], environ={}, from_env=False)
    assert str(at(found.values, dotted)) == "1"
    assert found.origin_of(path) == f"--set {dotted}"


@pytest.mark.parametrize(
    ("setting", "path", "value"),
    [
        (
            r"decode.nodeSelector.cloud\.google\.com/gke-tpu-topology=2x2x1",
            "cloud.google.com/gke-tpu-topology",
            "2x2x1",
        ),
        (r"decode.labels.example\.com/team=vision", "example.com/team", "vision"),
        (r"decode.annotations.example\.com/note=a=b, c", "example.com/note", "a=b, c"),
        (r"decode.extraEnv.A_B=x=y", "A_B", "x=y"),
    ],
)
def test_dots_of_a_key_are_escaped(setting: str, path: str, value: str) -> None:
    role = settle(setting)["decode"]
    (mapping,) = role.values()
    assert mapping == {path: value}


@pytest.mark.parametrize(
    ("setting", "path", "value"),
    [
        ("versions.routerChart=0.10", "versions.routerChart", "0.10"),
        ("versions.leaderWorkerSet=1", "versions.leaderWorkerSet", "1"),
        ("release=0.10", "release", "0.10"),
        ("name=123", "name", "123"),
        ("namespace=yes", "namespace", "yes"),
        ("decode.cpu=8", "decode.cpu", "8"),
        ("decode.image=example.com/vllm:0.30", "decode.image", "example.com/vllm:0.30"),
        ("decode.extraEnv.VERSION=0.10", "decode.extraEnv.VERSION", "0.10"),
        ("decode.extraEnv.ON=yes", "decode.extraEnv.ON", "yes"),
        ("decode.labels.build=007", "decode.labels.build", "007"),
        ("decode.labels.empty=", "decode.labels.empty", ""),
        ("hfSecret.key=0x10", "hfSecret.key", "0x10"),
    ],
)
def test_text_is_taken_as_it_is_typed(setting: str, path: str, value: str) -> None:
    assert at(settle(setting), path) == value


@pytest.mark.parametrize(
    ("setting", "path", "value"),
    [
        ("decode.replicas=3", "decode.replicas", 3),
        ("calibration.affinityThreshold=0.5", "calibration.affinityThreshold", 0.5),
        ("monitoring=true", "monitoring", True),
        ("decode.extraArgs=[--a, --b=1]", "decode.extraArgs", ["--a", "--b=1"]),
        ("decode.tolerations=[{key: x, operator: Exists}]", "decode.tolerations", [{"key": "x", "operator": "Exists"}]),
        ("decode.affinity={nodeAffinity: {}}", "decode.affinity", {"nodeAffinity": {}}),
        ("estimator={image: {mode: static}}", "estimator", {"image": {"mode": "static"}}),
        ("estimator.image.dynamic.factor=784", "estimator.image.dynamic.factor", 784),
        ("mmProcessorKwargs.max_pixels=1000000", "mmProcessorKwargs.max_pixels", 1000000),
    ],
)
def test_everything_else_is_read_as_yaml(setting: str, path: str, value: Any) -> None:
    assert at(settle(setting), path) == value


def test_a_variable_keeps_text_as_it_is_typed() -> None:
    assert settle(environ={"MMDEPLOY_VERSIONS_ROUTER_CHART": "0.10"})["versions"]["routerChart"] == "0.10"


@pytest.mark.parametrize("setting", ["decode.replcas=1", "decode.replicas.more=1", "bogus=1", "=1", "decode.replicas"])
def test_what_no_field_is_called_is_refused(setting: str) -> None:
    with pytest.raises(UsageError) as refused:
        settle(setting)
    assert refused.value.origin
    assert refused.value.origin.startswith("--set")
    assert refused.value.next_step


# --- options and settings are one


OPTIONS: dict[str, tuple[list[str], list[str]]] = {
    # option: how it is said, and the --set that means the same
    "--topology": (["e-pd"], ["topology=e-pd"]),
    "-t": (["e-p-d"], ["topology=e-p-d"]),
    "--accelerator": (["xpu"], ["accelerator=xpu"]),
    "-a": (["tpu/v7"], ["accelerator=tpu/v7"]),
    "--server": (["sglang"], ["server=sglang"]),
    "--provider": (["gke"], ["provider=gke"]),
    "-p": (["coreweave"], ["provider=coreweave"]),
    "--model": (["google/gemma-4-31B-it"], ["model=google/gemma-4-31B-it"]),
    "-m": (["Qwen/Qwen2.5-VL-7B-Instruct"], ["model=Qwen/Qwen2.5-VL-7B-Instruct"]),
    "--release": (["v0.9"], ["release=v0.9"]),
    "--workload": (["Deployment"], ["workload=Deployment"]),
    "--name": (["pictures"], ["name=pictures"]),
    "--namespace": (["vision"], ["namespace=vision"]),
    "-n": (["vision"], ["namespace=vision"]),
    "--mode": (["gateway"], ["mode=gateway"]),
    "--gateway-class": (["istio", "--mode", "gateway"], ["gateway.gatewayClass=istio", "mode=gateway"]),
    "--routing": (["precise"], ["routing=precise"]),
    "--encoder-cache-affinity": ([], ["encoderCacheAffinity=true"]),
    "--no-encoder-cache-affinity": ([], ["encoderCacheAffinity=false"]),
    "--ec-connector": (["ECMooncakeConnector", "-t", "e-pd"], ["ecConnector=ECMooncakeConnector", "topology=e-pd"]),
    "--encoder-parallelism": (["data"], ["encoderParallelism=data"]),
    "--monitoring": ([], ["monitoring=true"]),
    "--no-monitoring": ([], ["monitoring=false"]),
    "--tracing": ([], ["tracing=true"]),
    "--no-tracing": ([], ["tracing=false"]),
    "--estimator": (["{image: {dynamic: {factor: 1000}}}"], ["estimator={image: {dynamic: {factor: 1000}}}"]),
    "--allow-mismatch": ([], ["allowMismatch=true"]),
    "--processor-config": (
        ['{"processor_class": "Qwen3VLProcessor"}'],
        ['processorConfig={"processor_class": "Qwen3VLProcessor"}'],
    ),
    "--mm-processor-kwargs": (['{"max_pixels": 1000000}'], ["mmProcessorKwargs={max_pixels: 1000000}"]),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_is_short_for_a_setting(option: str) -> None:
    values, settings = OPTIONS[option]
    said = run("render", option, *values, "-o", "yaml")
    set_ = run("render", *(word for setting in settings for word in ("--set", setting)), "-o", "yaml")
    assert said.status == 0, said.stderr
    assert set_.status == 0, set_.stderr
    assert said.stdout == set_.stdout
    assert said.stderr == set_.stderr


def test_the_list_of_options_is_complete() -> None:
    """Every option of ``render`` that sets a field is compared above."""
    from typer.main import get_command

    from mmdeploy.cli.program import program

    others = {"--set", "--file", "--directory", "--output", "--check", "--force", "--explain", "--from-env", "--all"}
    others |= {"--blueprints", "--quiet", "--help", "-h", "-f", "-d", "-o", "-q"}
    render_command = get_command(program()).commands["render"]  # type: ignore[attr-defined]
    names = {name for option in render_command.params for name in (*option.opts, *option.secondary_opts)}
    assert names - others == set(OPTIONS)


def test_origins_are_kept_for_explain() -> None:
    done = run(
        "render", "--explain", "-f", "-", "-o", "json", "--name", "pictures", "--set", "decode.replicas=3",
        env={"MMDEPLOY_NAMESPACE": "vision"}, stdin="topology: e-pd\ndecode:\n  cpu: 20\n",
    )  # fmt: skip
    origins = {item["path"]: item["origin"] for item in json.loads(done.stdout)["values"]}
    assert origins["name"] == "--name"
    assert origins["namespace"] == "$MMDEPLOY_NAMESPACE"
    assert origins["decode.replicas"] == "--set decode.replicas"
    assert origins["decode.cpu"] == "<stdin>:3:3"
    assert origins["topology"].startswith("<stdin>:1:1")
    # The model comes from the row of the matrix, the shm size from a layer, the image from the release.
    assert origins["model"].startswith("blueprints/catalog/matrix.yaml:")
    assert origins["decode.shm"].startswith("blueprints/layers/topology/encode.yaml:")
