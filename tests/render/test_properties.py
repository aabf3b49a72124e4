"""What holds for every valid spec, whatever it says. HYPOTHESIS_PROFILE=explore looks at more and other ones."""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, assume, currently_in_test_context, event, given, settings
from hypothesis import strategies as st

from mmdeploy.cli import blueprints
from mmdeploy.errors import BlueprintError, MmdeployError
from mmdeploy.render.bundle import Bundle, manifests
from mmdeploy.render.bundle import render as render_bundle
from mmdeploy.render.deployment import Deployment
from mmdeploy.render.resolve import Resolver
from mmdeploy.render.summary import summary
from mmdeploy.spec import DeploymentSpec, Role, fields_of

common: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck)}
settings.register_profile("ci", max_examples=150, derandomize=True, database=None, **common)
settings.register_profile("explore", max_examples=2_000, **common)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

CATALOG = blueprints.load()
RESOLVER = Resolver(CATALOG)
COMBINATIONS = [{axis: value for axis, value in row.items() if axis != "status"} for row in CATALOG.combinations()]

# Kubernetes: Labels and Selectors, Syntax and character set.
LABEL_KEY = re.compile(r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
                       r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")  # fmt: skip
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
# Kubernetes: Object Names and IDs. Services and what their names are made from start with a letter (RFC 1035).
OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


# --- specs


names = st.from_regex(r"[a-z]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)
quantities = st.builds("{}{}".format, st.integers(1, 400), st.sampled_from(["Gi", "Mi", "G", ""]))
texts = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=20)
env_names = st.from_regex(r"[A-Z][A-Z0-9_]{0,10}", fullmatch=True)
label_keys = st.sampled_from(
    ["team", "example.com/team", "llm-d.ai/role", "app.kubernetes.io/name", "app.kubernetes.io/component", "a b", "t\n"]
)
label_values = st.one_of(st.sampled_from(["vision", "v-1_2.3", "", "a" * 63, "a" * 64, "vision\n"]), texts)
plain_json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-10, 10), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(texts, inner, max_size=2)),
    max_leaves=5,
)

ROLE_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "replicas": st.integers(1, 12),
    "tensorParallelSize": st.sampled_from([1, 2, 4, 8]),
    "accelerator": st.sampled_from(["gpu", "xpu", "tpu/v7"]),
    "accelerators": st.sampled_from([1, 2, 4, 8]),
    "cpu": st.one_of(st.integers(1, 64).map(str), st.just("500m")),
    "cpuRequest": st.one_of(st.integers(1, 64).map(str), st.just("500m")),
    "memory": quantities,
    "memoryRequest": quantities,
    "shm": quantities,
    "ecCacheBytes": st.one_of(quantities, st.integers(1, 1 << 36).map(str)),
    "processorCacheGb": st.one_of(st.integers(0, 64), st.sampled_from([0.5, 2.5])),
    "image": st.sampled_from(
        ["docker.io/vllm/vllm-openai:v0.31.0", "example.com:5000/vllm@sha256:" + "0" * 64, "vllm", "{{ spec }}"]
    ),
    "extraArgs": st.lists(
        st.sampled_from(
            ["--max-model-len=8192", "--enforce-eager", "--no-enable-prefix-caching", "--port=1", "-O3", "--seed", "7"]
            + ["--limit-mm-per-prompt", '{"image": 3}', "--data-parallel-size=2", "{{ spec.name }}", "$(POD_IP)"]
        ),
        max_size=3,
    ),
    "extraEnv": st.dictionaries(
        st.one_of(env_names, st.sampled_from(["HF_TOKEN", "POD_IP", "VLLM_EC_SIDE_CHANNEL_HOST", "USER"])),
        st.one_of(texts, st.just({"valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}})),
        max_size=2,
    ),
    "labels": st.dictionaries(label_keys, label_values, max_size=2),
    "annotations": st.dictionaries(label_keys, texts, max_size=2),
    "nodeSelector": st.dictionaries(
        st.one_of(label_keys, st.just("cloud.google.com/gke-tpu-topology")),
        st.one_of(label_values, st.sampled_from(["2x2x1", "2x2x2", "2x4"])),
        max_size=2,
    ),
    "tolerations": st.lists(st.just({"key": "nvidia.com/gpu", "operator": "Exists"}), max_size=2),
    "affinity": st.dictionaries(texts, plain_json, max_size=2),
    "priorityClassName": names,
    "serviceAccountName": names,
    "hfSecret": st.fixed_dictionaries({}, optional={"name": names, "key": env_names}),
}

SPEC_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "workload": st.sampled_from(["Deployment", "DisaggregatedSet"]),
    "name": names,
    "namePrefix": st.one_of(names, st.sampled_from(["", "a" * 41, "a" * 42])),
    "namespace": names,
    "mode": st.sampled_from(["standalone", "gateway"]),
    "gateway": st.fixed_dictionaries(
        {},
        optional={
            "gatewayClass": st.sampled_from(["none", "gke", "istio", "agentgateway"]),
            "name": names,
            "requestTimeout": st.sampled_from(["0s", "30s", "1h30m"]),
        },
    ),
    "routing": st.sampled_from(["approximate", "precise"]),
    "encoderCacheAffinity": st.booleans(),
    "ecConnector": st.sampled_from(["ECCPUConnector", "ECMooncakeConnector", "ECExampleConnector"]),
    "mooncake": st.fixed_dictionaries(
        {},
        optional={
            "protocol": st.sampled_from(["rdma", "tcp"]),
            "crossEncoderCache": st.booleans(),
            "storeMaxPendingItems": st.integers(1, 100),
            "storeMaxPendingBytes": quantities,
            "storeReadBufferBytes": quantities,
        },
    ),
    "sharedStorage": st.fixed_dictionaries({}, optional={"claimName": names, "path": st.just("/cache")}),
    "mediaHandoff": st.sampled_from(["raw", "metadata"]),
    "encoderParallelism": st.sampled_from(["weights", "data"]),
    "monitoring": st.booleans(),
    "tracing": st.booleans(),
    "tracingEndpoint": st.sampled_from(
        ["http://collector:4317", "https://collector.example.com:4317", "collector:4317"]
    ),
    "estimator": st.one_of(
        st.builds(
            lambda factor: {"image": {"mode": "dynamic", "dynamic": {"factor": factor}}},
            st.sampled_from([1024, 784, 1000, 0, -1]),
        ),
        st.builds(
            lambda tokens: {"image": {"mode": "static", "static": {"staticToken": tokens}}},
            st.sampled_from([280, 260, 880]),
        ),
        st.just({}),
        st.just({"image": None, "video": {"maxVideoTokens": 100}}),
        st.dictionaries(st.sampled_from(["image", "video", "audio"]), plain_json, max_size=2),
    ),
    "allowMismatch": st.booleans(),
    "processorConfig": st.one_of(
        st.just({"processor_class": "Qwen3VLProcessor"}),
        st.just({"image_processor_type": "Gemma4ImageProcessor", "max_soft_tokens": 140}),
        st.dictionaries(texts, plain_json, max_size=2),
    ),
    "mmProcessorKwargs": st.one_of(
        st.just({"max_pixels": 1_000_000}),
        st.just({"max_soft_tokens": 560}),
        st.dictionaries(st.one_of(texts, st.sampled_from(["min_pixels", "images_kwargs"])), plain_json, max_size=2),
    ),
    "calibration": st.fixed_dictionaries(
        {},
        optional={
            "peakPrefillThroughput": st.integers(1, 100_000),
            "affinityThreshold": st.sampled_from([0.1, 0.6, 1]),
            "maxTTFTPenaltyMs": st.integers(0, 100_000),
        },
    ),
    "hfSecret": st.fixed_dictionaries({}, optional={"name": names, "key": env_names}),
    "groupIdentity": st.sampled_from(["Hash", "Ordinal", "none"]),
    "versions": st.fixed_dictionaries(
        {},
        optional={
            "routerChart": st.sampled_from(["v0.10.0", "0.10"]),
            "sidecarImage": st.sampled_from(["example.com/sidecar:v1", "example.com/sidecar:main"]),
            "inferenceExtension": st.just("v1.5.0"),
            "gatewayApi": st.just("v1.5.1"),
            "leaderWorkerSet": st.just("0.11.1"),
        },
    ),
}


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    """A spec that is well formed: some axes of a supported combination, and a few fields that often go with it."""
    combination = draw(st.sampled_from(COMBINATIONS))
    kept = draw(st.sets(st.sampled_from(sorted(combination)), min_size=2))
    spec: dict[str, Any] = {axis: combination[axis] for axis in combination if axis in kept}
    if draw(st.integers(0, 9)) == 0:
        spec["model"] = draw(st.sampled_from([*CATALOG.models, "acme/vl-7b"]))
    for field in draw(st.lists(st.sampled_from(sorted(SPEC_FIELDS)), max_size=3, unique=True)):
        spec[field] = draw(SPEC_FIELDS[field])
    roles = CATALOG.topologies[combination["topology"]]["roles"]
    for role in draw(st.lists(st.sampled_from(roles), max_size=2, unique=True)):
        fields = draw(st.lists(st.sampled_from(sorted(ROLE_FIELDS)), min_size=1, max_size=3, unique=True))
        spec[role] = {field: draw(ROLE_FIELDS[field]) for field in fields}
    return spec


def test_the_strategy_knows_every_field() -> None:
    axes = set(COMBINATIONS[0])
    assert set(SPEC_FIELDS) | axes | {"schemaVersion", "encode", "prefill", "decode"} == set(
        DeploymentSpec.model_fields
    )
    assert set(ROLE_FIELDS) == {str(path[0]) for path in fields_of(Role)}


def render(said: Mapping[str, Any]) -> Bundle | None:
    """The bundle, or None for a spec that is refused as it should be. Anything but an MmdeployError gets out."""
    spec = DeploymentSpec.model_validate(copy.deepcopy(dict(said)))
    refused: MmdeployError | None = None
    try:
        return render_bundle(CATALOG, RESOLVER.resolve(spec))
    except MmdeployError as problem:
        refused = problem
    assert refused.exit_code == 2
    assert refused.found
    assert not isinstance(refused, BlueprintError), f"blames the blueprints for what a person wrote: {refused}"
    if currently_in_test_context():
        event(f"refused: {type(refused).__name__}")
    return None


@cache
def combination_bundle(index: int) -> Bundle:
    bundle = render(COMBINATIONS[index])
    assert bundle is not None
    return bundle


# --- properties


@given(specs())
def test_renders_or_is_refused_and_always_the_same(said: dict[str, Any]) -> None:
    first = render(said)
    second = render(said)
    assert (first is None) == (second is None)
    if first is not None and second is not None:
        event("rendered")
        assert first.files == second.files
        assert first.sums() == second.sums()
        assert manifests(first.deployment) == manifests(second.deployment)


@given(specs())
def test_the_resolved_spec_renders_to_the_same_bytes(said: dict[str, Any]) -> None:
    bundle = render(said)
    assume(bundle is not None)
    assert bundle is not None
    again = render(yaml.safe_load(bundle.files["mmdeploy.yaml"]))
    assert again is not None, "the resolved spec is refused"
    assert again.files == bundle.files


@given(specs())
def test_selectors_match_pods_and_labels_are_legal(said: dict[str, Any]) -> None:
    bundle = render(said)
    assume(bundle is not None)
    assert bundle is not None
    check_objects(bundle)


@given(specs())
def test_every_document_is_machine_readable(said: dict[str, Any]) -> None:
    """YAML files are read back as what they were written from, and the summary is strict JSON."""
    bundle = render(said)
    assume(bundle is not None)
    assert bundle is not None
    for name, text in bundle.files.items():
        if name.endswith(".yaml"):
            assert yaml.safe_load(text) is not None
    json.loads(json.dumps(summary(bundle), allow_nan=False))
    config = yaml.safe_load(bundle.files["router/values.yaml"])["router"]["epp"]["pluginsCustomConfig"]
    ((_, content),) = config.items()
    assert yaml.safe_load(content)["kind"] == "EndpointPickerConfig"


FOUND: dict[str, dict[str, Any]] = {
    # Found by the tests above (with other seeds), and made small.
    "roles with secrets of their own": {"decode": {"hfSecret": {"key": "TOKEN"}}},
    "every role with a secret of its own": {
        "topology": "e-pd",
        "encode": {"hfSecret": {"name": "a", "key": "b"}},
        "decode": {"hfSecret": {"name": "c", "key": "d"}},
    },
    "no tolerations": {"decode": {"tolerations": []}},
    "no affinity": {"decode": {"affinity": {}}},
    "no labels": {"decode": {"labels": {}, "annotations": {}, "nodeSelector": {}, "extraEnv": {}, "extraArgs": []}},
    "estimator of defaults": {"estimator": {}},
    "nothing in processor kwargs": {"mmProcessorKwargs": {}},
    "token from a variable": {"decode": {"extraEnv": {"HF_TOKEN": "x"}}},
    "metadata hand-off": {"topology": "e-pd", "mediaHandoff": "metadata"},
    "mooncake": {"topology": "e-pd", "ecConnector": "ECMooncakeConnector"},
    "mooncake with a reused cache": {
        "topology": "e-p-d",
        "ecConnector": "ECMooncakeConnector",
        "mooncake": {"crossEncoderCache": True},
        "encode": {"image": "docker.io/vllm/vllm-openai:v0.31.0"},
        "decode": {"image": "docker.io/vllm/vllm-openai:v0.31.0"},
        "prefill": {"image": "docker.io/vllm/vllm-openai:v0.31.0"},
    },
    "a mismatch that was insisted on": {
        "allowMismatch": True,
        "estimator": {"image": {"mode": "static", "static": {"staticToken": 880}}},
    },
    "an expression in an image": {"decode": {"image": "{{ spec }}"}},
    "an expression in an argument": {"decode": {"extraArgs": ["--x={{ 1 / 0 }}", "{% raw %}"]}},
    "a service account of one role": {"topology": "e-pd", "decode": {"serviceAccountName": "mine"}},
    "no name prefix": {"topology": "e-pd", "workload": "Deployment", "namePrefix": ""},
    "the longest names": {"topology": "e-p-d", "name": "n" * 40, "monitoring": True, "mode": "gateway"},
}


NULLS: dict[str, dict[str, Any]] = {
    "in processor kwargs": {"mmProcessorKwargs": {"max_pixels": None}},
    "further down in processor kwargs": {"mmProcessorKwargs": {"images_kwargs": {"do_resize": None}}},
    "in an affinity": {"decode": {"affinity": {"nodeAffinity": None}}},
    "in an estimator": {"estimator": {"image": None}},
}


@pytest.mark.parametrize("said", NULLS.values(), ids=NULLS)
def test_a_null_of_a_person_is_no_layer_s(said: dict[str, Any]) -> None:
    """In a layer a null takes away what another one said; in a free field of a spec it is the person's own value."""
    bundle = render(said)
    if bundle is not None:
        again = render(yaml.safe_load(bundle.files["mmdeploy.yaml"]))
        assert again is not None
        assert again.files == bundle.files


@pytest.mark.parametrize("said", FOUND.values(), ids=FOUND)
def test_specs_that_are_easy_to_get_wrong(said: dict[str, Any]) -> None:
    bundle = render(said)
    assert bundle is not None, "is refused"
    check_objects(bundle)
    json.loads(json.dumps(summary(bundle), allow_nan=False))
    again = render(yaml.safe_load(bundle.files["mmdeploy.yaml"]))
    assert again is not None, "the resolved spec is refused"
    assert again.files == bundle.files


def test_the_same_holds_for_every_row_of_the_matrix() -> None:
    for index, combination in enumerate(COMBINATIONS):
        bundle = combination_bundle(index)
        check_objects(bundle)
        again = render(yaml.safe_load(bundle.files["mmdeploy.yaml"]))
        assert again is not None, combination
        assert again.files == bundle.files, combination


# --- what objects owe each other


def check_objects(bundle: Bundle) -> None:
    objects = [item.content for item in bundle.deployment.objects]
    pods = list(pod_templates(objects))
    assert pods
    for labels in all_labels(objects):
        for key, value in labels.items():
            assert LABEL_KEY.fullmatch(key), key
            assert isinstance(value, str)
            assert LABEL_VALUE.fullmatch(value), (key, value)
    for item in objects:
        assert OBJECT_NAME.fullmatch(item["metadata"]["name"])
        assert len(item["metadata"]["name"]) <= 63
        selector = item.get("spec", {}).get("selector") if item["kind"] in ("Deployment", "StatefulSet") else None
        if selector is not None:
            own = item["spec"]["template"]["metadata"]["labels"]
            assert selector["matchLabels"].items() <= own.items(), item["metadata"]["name"]
    check_router(bundle.deployment, [labels for labels, _ in pods])
    for item in objects:
        if item["kind"] == "Service":
            assert sum(item["spec"]["selector"].items() <= labels.items() for labels, _ in pods) == 1
        if item["kind"] == "PodMonitor":
            wanted = item["spec"]["selector"]["matchLabels"]
            assert sum(wanted.items() <= labels.items() for labels, _ in pods) == 1
    for _, pod in pods:
        check_pod(pod, objects)


def check_router(deployment: Deployment, pods: list[Mapping[str, str]]) -> None:
    """The pool holds every pod that serves clients, and targets the port that they listen on."""
    servers = deployment.router.values["router"]["modelServers"]
    in_pool = [labels for labels in pods if servers["matchLabels"].items() <= labels.items()]
    roles = {labels["llm-d.ai/role"] for labels in in_pool}
    assert "decode" in roles
    if deployment.spec["server"] == "vllm":
        assert roles == {role.name for role in deployment.roles}, "the router picks among all roles"
    else:
        assert roles == {"decode"}, "SGLang's language server calls the encode pods itself"


def check_pod(pod: Mapping[str, Any], objects: list[Mapping[str, Any]]) -> None:
    """What the API server refuses in a pod."""
    volumes = [volume["name"] for volume in pod.get("volumes", ())]
    assert len(volumes) == len(set(volumes))
    claims = {claim["name"] for claim in pod.get("resourceClaims", ())}
    ports: list[int] = []
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        assert container["image"]
        assert all(isinstance(argument, str) for argument in container.get("args", ()))
        names_of_env = [variable["name"] for variable in container.get("env", ())]
        assert len(names_of_env) == len(set(names_of_env))
        for variable in container.get("env", ()):
            assert not {"value", "valueFrom"} <= set(variable), f"{variable['name']} has two sources"
        mounts = [mount["mountPath"] for mount in container.get("volumeMounts", ())]
        assert len(mounts) == len(set(mounts))
        assert {mount["name"] for mount in container.get("volumeMounts", ())} <= set(volumes)
        assert {claim["name"] for claim in container.get("resources", {}).get("claims", ())} <= claims
        ports += [port["containerPort"] for port in container.get("ports", ())]
    assert len(ports) == len(set(ports)), "two containers share the pod's network"
    templates = {item["metadata"]["name"] for item in objects if item["kind"] == "ResourceClaimTemplate"}
    assert {claim["resourceClaimTemplateName"] for claim in pod.get("resourceClaims", ())} <= templates


def pod_templates(objects: list[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, str], Mapping[str, Any]]]:
    """Labels and spec of every pod template, wherever a kind keeps it."""
    for item in objects:
        if item["kind"] in ("Deployment", "StatefulSet"):
            template = item["spec"]["template"]
            yield template["metadata"]["labels"], template["spec"]
        elif item["kind"] == "DisaggregatedSet":
            for role in item["spec"]["roles"]:
                template = role["spec"]["leaderWorkerTemplate"]["workerTemplate"]
                yield template["metadata"]["labels"], template["spec"]


def all_labels(value: Any) -> Iterator[Mapping[str, Any]]:
    """Every mapping that Kubernetes reads as labels, anywhere in the objects."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key in ("labels", "matchLabels", "nodeSelector") and isinstance(item, Mapping):
                yield item
            elif key != "affinity":  # what a person writes there is Kubernetes' to judge
                yield from all_labels(item)
    elif isinstance(value, list):
        for item in value:
            yield from all_labels(item)
