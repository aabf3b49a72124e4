"""Everything rendered is known to the programs that read it: charts, endpoint picker, sidecar, engines, by version."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from tests.fidelity import tables
from tests.fidelity.renders import CASES, Case, Role, names

every_case = pytest.mark.parametrize("case", CASES, ids=names)

# router.md §0, first table: which router belongs to which llm-d release.
ROUTER_OF = {"v0.8": "v0.9.0", "v0.9": "v0.10.0", "main": "main"}

# Engines whose tags say no version. The fork was built for the release it is pinned by; its base is not published,
# so the flags are held against that release's own vLLM (llm-d-guides.md §2.2, router.md §9).
FORK = "ghcr.io/llm-d/vllm-openai:ec-cpu-connector-support"
FORK_BASE = {"v0.8": "0.23.0", "v0.9": "0.26.0"}
# The XPU encoder's image is named by commit; it speaks to the PD image's release (llm-d-guides.md §8).
SGLANG_BY_COMMIT = "ghcr.io/llm-d/llm-d-xpu-sglang:sha-e119543"


def router_of(case: Case) -> str:
    return ROUTER_OF[case.spec["release"]]


def chart_version(case: Case) -> str:
    """The table's name of the chart version: v0 floats with main (llm-d-guides.md §13, §19.15)."""
    chart = case.spec["versions"]["routerChart"]
    return "main" if chart == "v0" else str(chart)


def sidecar_version(role: Role) -> str:
    assert role.sidecar is not None
    return str(role.sidecar["image"].rpartition(":")[2])


def engine_release(role: Role, case: Case) -> str:
    """The engine's version by its image's tag (a digest and a build suffix such as -cu130 put aside)."""
    image = role.engine["image"].partition("@")[0]
    if image == FORK:
        return FORK_BASE[case.spec["release"]]
    if image == SGLANG_BY_COMMIT:
        return "0.5.15.post1"
    found = re.fullmatch(r".*:v(\d+(?:\.\d+)*(?:\.post\d+)?)(?:-\w+)?", image)
    assert found, f"no release in the tag of {image}"
    return found[1]


def is_fork(role: Role) -> bool:
    return bool(role.engine["image"] == FORK)


@every_case
def test_the_chart_knows_every_router_value(case: Case) -> None:
    assert list(tables.chart(case.values, case.spec["mode"], chart_version(case))) == []


@every_case
def test_chart_and_picker_are_of_one_version(case: Case) -> None:
    # The chart names the endpoint picker's image (llm-d-guides.md §10.2): its version is the router's.
    assert chart_version(case) == router_of(case)


@every_case
def test_the_picker_knows_every_flag(case: Case) -> None:
    assert list(tables.picker_flags(case.values, router_of(case))) == []


@every_case
def test_the_picker_knows_every_field_of_its_configuration(case: Case) -> None:
    assert list(tables.picker_config(case.config, router_of(case))) == []


@every_case
def test_the_picker_knows_every_plugin(case: Case) -> None:
    assert list(tables.plugins(case.config, case.values["router"]["epp"]["flags"], router_of(case))) == []


@every_case
def test_each_plugin_knows_its_parameters(case: Case) -> None:
    assert list(tables.parameters(case.config, router_of(case))) == []


@every_case
def test_plugins_and_profiles_make_sense_together(case: Case) -> None:
    assert list(tables.picker_sense(case.config, router_of(case))) == []


@every_case
def test_the_sidecar_knows_every_flag(case: Case) -> None:
    for role in case.roles.values():
        if role.sidecar:
            assert sidecar_version(role) == router_of(case)
            assert list(tables.sidecar(role.sidecar["args"], sidecar_version(role))) == []


@every_case
def test_the_sidecar_serves_without_tls(case: Case) -> None:
    # router-observed.md: with TLS left on, scrapes fail and requests get 400; the flag's name is the release's.
    flag = {"v0.8": "--secure-proxy", "v0.9": "--secure-proxy", "main": "--secure-serving"}[case.spec["release"]]
    for role in case.roles.values():
        if role.sidecar:
            assert f"{flag}=false" in role.sidecar["args"]


@every_case
def test_the_engine_knows_every_flag_and_key(case: Case) -> None:
    for role in case.roles.values():
        release = engine_release(role, case)
        if case.spec["server"] == "vllm":
            assert role.argv[:2] == ["vllm", "serve"]
            assert list(tables.vllm(role.argv[2:], release, is_fork(role))) == [], role.name
        else:
            words = role.argv[role.argv.index("sglang.launch_server") + 1 :]
            assert list(tables.sglang(words, release)) == [], role.name


@every_case
def test_the_engine_reads_every_variable_of_its_own(case: Case) -> None:
    for role in case.roles.values():
        if case.spec["server"] == "vllm":
            assert list(tables.vllm_env(role.env, engine_release(role, case), is_fork(role))) == [], role.name


@every_case
def test_the_v2_runner_is_asked_for_where_the_connector_needs_it_and_nowhere_else(case: Case) -> None:
    # model-servers.md §0.3: mandatory for ECCPUConnector from 0.30, rejected with EC transfer in 0.20 to 0.27.
    for role in case.roles.values():
        carries = any("ec_connector" in word for word in role.argv)
        wanted = carries and not is_fork(role) and tables.Version(engine_release(role, case)) >= tables.Version("0.30")
        assert ("VLLM_USE_V2_MODEL_RUNNER" in role.env) == wanted, role.name


# ---------------------------------------------------------------------------------------- the checks themselves bite


def _case(case_id: str) -> Case:
    return next(case for case in CASES if case.id == case_id)


def _changed(tree: Any, path: str, value: Any) -> Any:
    """A copy of a tree with one value set; a number in the path is an index."""
    copied = copy.deepcopy(tree)
    *above, last = path.split("/")
    place = copied
    for step in above:
        place = place[int(step)] if isinstance(place, list) else place.setdefault(step, {})
    place[int(last) if isinstance(place, list) else last] = value
    return copied


@pytest.mark.parametrize(
    ("path", "value", "kind", "version"),
    [
        ("router/epp/parser", "x", "standalone", "v0.10.0"),  # not read (table, last rows)
        ("router/epp/pluginsConfig", {}, "standalone", "v0.10.0"),  # not read
        ("router/epp/podAnnotations", {"a": "b"}, "standalone", "v0.9.0"),  # from v0.10.0
        ("httpRoute/create", True, "standalone", "main"),  # gateway chart alone
        ("router/proxy/proxyType", "envoy", "gateway", "main"),  # standalone chart alone
        ("inferencePool", {"x": 1}, "standalone", "main"),  # refused
        ("router/epp/replicas", "1", "standalone", "main"),  # not an int
        ("router/epp/pluginsConfigFile", "other.yaml", "standalone", "main"),  # names no file
        ("router/modelServers/matchLabels", {}, "standalone", "main"),  # required
    ],
)
def test_a_value_the_chart_does_not_read_is_found(path: str, value: Any, kind: str, version: str) -> None:
    values = _case("main/e-pd/gpu/vllm/base").values
    assert list(tables.chart(_changed(values, path, value), kind, version)) != []


@pytest.mark.parametrize(
    ("check", "path", "value", "version"),
    [
        ("picker_config", "apiVersion", "llm-d.ai/v1", "v0.10.0"),
        ("picker_config", "apiVersion", "llm-d.ai/v1alpha1", "main"),
        ("picker_config", "dataLayer", {"crossReplicaSyncInterval": "1s"}, "v0.9.0"),  # from v0.10.0
        ("picker_config", "parser", {"pluginRef": "x"}, "main"),  # deprecated
        ("picker_config", "schedulingProfiles/0/plugins/0/config", {}, "main"),  # no such field
        ("plugins", "plugins/3/type", "session-affinity-filter", "main"),  # alpha
        ("plugins", "plugins/3/type", "by-label-selector", "main"),  # gone after v0.10
        ("plugins", "plugins/3/type", "nothing-filter", "main"),
        ("plugins", "plugins/2/parameters", {"x": 1}, "main"),  # encode-filter ignores them
        ("parameters", "plugins/4/parameters/estimate/video", {"maxVideoTokens": 1}, "v0.9.0"),  # from v0.10.0
        ("parameters", "plugins/4/parameters/estimate/image/factor", 784, "main"),  # belongs under dynamic
        ("parameters", "plugins/4/parameters/estimate/image/mode", "Dynamic", "main"),
        ("parameters", "plugins/7/parameters/affinityThreshold", 1.5, "main"),
        ("parameters", "plugins/7/parameters/peakPrefillThroughput", "15751", "main"),
        ("picker_sense", "schedulingProfiles/1/plugins/0/pluginRef", "prefill-filter", "main"),  # dangling
        ("picker_sense", "plugins/4/name", "my-tokens", "main"),
        ("picker_sense", "plugins/10/type", "random-scorer", "main"),
        ("picker_sense", "plugins/1/parameters/deciders/encode", "always-disagg-pd-decider", "main"),
        ("picker_sense", "plugins/7/parameters/prefixMatchInfoProducerName", "nobody", "main"),
        ("picker_sense", "schedulingProfiles/0/name", "encoding", "main"),
    ],
)
def test_a_configuration_the_picker_does_not_take_is_found(check: str, path: str, value: Any, version: str) -> None:
    case = _case("main/e-pd/gpu/vllm/base")
    config = _changed(case.config, path, value)
    arguments = (config, {}, version) if check == "plugins" else (config, version)
    assert list(getattr(tables, check)(*arguments)) != []


def test_an_alpha_plugin_passes_with_its_flag() -> None:
    config = {"plugins": [{"type": "session-affinity-filter"}]}
    assert list(tables.plugins(config, {"allow-experimental-plugins": True}, "main")) == []


@pytest.mark.parametrize(
    ("args", "version"),
    [
        (["--secure-serving=false"], "v0.10.0"),
        (["--secure-serving", "false"], "main"),
        (["--connector=nixlv2"], "v0.10.0"),  # removed in v0.10.0
        (["--model-server-port=8200"], "v0.9.0"),  # from v0.10.0
        (["--vllm-port=8200"], "v0.10.0"),  # deprecated alias from v0.10.0
        (["--ec-connector=ec-mooncake"], "main"),
        (["--kv-connector=offloading"], "v0.9.0"),  # from v0.10.0
    ],
)
def test_a_flag_the_sidecar_does_not_have_is_found(args: list[str], version: str) -> None:
    assert list(tables.sidecar(args, version)) != []


@pytest.mark.parametrize(
    ("words", "release"),
    [
        (["--mm-encoder-only=true"], "0.30.0"),  # bools take no value
        (["--mm-encoder-only"], "0.14.1"),  # from 0.15.1
        (["--disable-prefix-caching"], "0.30.0"),  # an alias from 0.33.0
        (["--mm-encoder-tp-mode=both"], "0.30.0"),
        (["--mm-processor-cache-gb", "20G"], "0.30.0"),
        (["--tensor-parallel-size"], "0.30.0"),
        (["--mm-encoder-onlly"], "0.30.0"),
        (["stray"], "0.30.0"),
        (["--ec-transfer-config", "{'ec_role': 'ec_producer'}"], "0.30.0"),
        (["--ec-transfer-config", '{"ec_connector": "ECNixlConnector", "ec_role": "ec_producer"}'], "0.30.0"),
        (["--ec-transfer-config", '{"ec_connector": "ECCPUConnector", "ec_role": "ec_producer"}'], "0.30.0"),
        (["--ec-transfer-config", '{"ec_role": "ec_both", "ec_rank": 0}'], "0.33.0"),  # ec_rank until 0.31.0
        (["--ec-transfer-config", '{"ec_role": "producer"}'], "0.30.0"),
        (
            [
                "--ec-transfer-config",
                '{"ec_connector": "ECCPUConnector", "ec_role": "ec_producer", '
                '"ec_connector_extra_config": {"ec_cpu_bytes": 1, "num_ec_blocks": 1}}',
            ],
            "0.30.0",
        ),
    ],
)
def test_a_flag_or_key_the_engine_does_not_know_is_found(words: list[str], release: str) -> None:
    assert list(tables.vllm(["model", *words], release)) != []


def test_the_fork_is_held_to_its_own_key() -> None:
    text = '{"ec_connector": "ECCPUConnector", "ec_role": "ec_producer", "ec_connector_extra_config": {%s}}'
    mine, theirs = text % '"num_ec_blocks": 5', text % '"ec_cpu_bytes": 5'
    assert list(tables.vllm(["model", "--ec-transfer-config", mine], "0.26.0", fork=True)) == []
    assert list(tables.vllm(["model", "--ec-transfer-config", theirs], "0.26.0", fork=True)) != []


def test_a_variable_or_flag_that_came_later_is_found() -> None:
    assert list(tables.vllm_env(["VLLM_NOTHING"], "0.30.0")) != []
    assert list(tables.sglang(["--encoder-only", "--not-a-flag"], "0.5.15.post1")) != []
    assert list(tables.sglang(["--encoder-transfer-backend=carrier-pigeon"], "0.5.15.post1")) != []
