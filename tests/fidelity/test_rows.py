"""Every row of the guide's matrix, in the Deployment form on release main, against the guide's own manifests.

The expected values are written out here from ``facts/llm-d-guides.md``; § names its section. Nothing is taken from
mmdeploy's blueprints. Where mmdeploy differs from the guide on purpose, the expected value is mmdeploy's, and a comment
that starts with DIFFERS says what the guide has and why.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.fidelity.renders import ROLE, Case, Role

QWEN = "Qwen/Qwen3-VL-32B-Instruct"
GEMMA = "google/gemma-4-31B-it"
KIMI = "moonshotai/Kimi-VL-A3B-Instruct"

# ------------------------------------------------------------------------------- what every vLLM pod shares (§2.4)

TOKEN = {"HF_TOKEN": {"secretKeyRef": {"name": "llm-d-hf-token", "key": "HF_TOKEN"}}}  # §2.4
ACCESS_LOG = "--disable-access-log-for-endpoints=/health,/metrics,/v1/models"  # §3, §6, §7
POD_IP = {"fieldRef": {"fieldPath": "status.podIP"}}  # §6, §7

PROBES = {  # §2.4, ports by name
    "startupProbe": {
        "httpGet": {"path": "/v1/models", "port": "modelserver"},
        "initialDelaySeconds": 15,
        "periodSeconds": 30,
        "timeoutSeconds": 5,
        "failureThreshold": 120,
    },
    "livenessProbe": {
        "httpGet": {"path": "/health", "port": "modelserver"},
        "periodSeconds": 10,
        "timeoutSeconds": 5,
        "failureThreshold": 3,
    },
    "readinessProbe": {
        "httpGet": {"path": "/v1/models", "port": "modelserver"},
        "periodSeconds": 5,
        "timeoutSeconds": 2,
        "failureThreshold": 3,
    },
}


def volumes(shm: str, config: str) -> dict[str, Any]:
    """Mount path → (volume, its source): /dev/shm in memory and three scratch directories (§2.4)."""
    return {
        "/dev/shm": ("shm", {"emptyDir": {"medium": "Memory", "sizeLimit": shm}}),
        "/.cache": ("torch-compile-cache", {"emptyDir": {}}),
        "/.triton": ("triton-cache", {"emptyDir": {}}),
        "/.config": (config, {"emptyDir": {}}),  # §2.4: vllm-config in aggregation, config-cache in e-*
    }


def labels(role: str, guide: str, model: str, variant: str, vendor: str, engine: str | None = None) -> dict[str, str]:
    """Labels of objects, selectors and pods (§2.4); the engine's kind only in e-*."""
    found = {
        "llm-d.ai/role": role,
        "llm-d.ai/guide": guide,
        "llm-d.ai/model": model,  # the short name (§19.15)
        "llm-d.ai/accelerator-variant": variant,
        "llm-d.ai/accelerator-vendor": vendor,
    }
    return {**found, "llm-d.ai/engine-type": engine} if engine else found


# §6: the routing sidecar, the same in E/PD and E/P/D (§7). The tag and the pull policy are the nightly component's.
SIDECAR = {
    "name": "routing-proxy",
    "image": "ghcr.io/llm-d/llm-d-router-disagg-sidecar:main",
    "imagePullPolicy": "Always",
    "restartPolicy": "Always",
    "args": [
        "--port=8000",
        "--kv-connector=nixlv2",  # §19.14: also in E/PD, where no KV cache moves
        "--ec-connector=ec-nixl",
        "--zap-log-level=1",
        "--secure-serving=false",  # §6: the newest of two texts; the other still says --secure-proxy
    ],
    "ports": [{"name": "sidecar", "containerPort": 8000, "protocol": "TCP"}],
    "resources": {},
    "securityContext": {"allowPrivilegeEscalation": False, "runAsNonRoot": True},
}


@dataclass(frozen=True)
class Expected:
    """One role as the guide has it."""

    name: str
    labels: Mapping[str, str]
    replicas: int
    image: str
    args: Sequence[Any]
    """Words of the engine; a mapping stands for JSON."""
    env: Mapping[str, Any]
    ports: Mapping[str, int]
    limits: Mapping[str, str]
    requests: Mapping[str, str]
    volumes: Mapping[str, Any]
    service_account: str
    kind: str = "Deployment"
    command: Sequence[str] = ("vllm", "serve")
    probes: Mapping[str, Any] = field(default_factory=lambda: PROBES)
    # DIFFERS §6, §19.3: the guide's E/PD decode engine has imagePullPolicy Always, other vLLM pods none; a version
    # tag does not move, so none has it here.
    pull: str | None = None
    claims: Mapping[str, Any] = field(default_factory=dict)
    """Claim → (template, its request)."""
    pod_security: Mapping[str, Any] | None = None
    node_selector: Mapping[str, str] | None = None
    priority_class: str | None = None
    sidecar: Mapping[str, Any] | None = None
    init: Sequence[str] = ()
    """Names of further init containers."""
    grace: int | None = None
    workload: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the workload's spec."""


# DIFFERS §2.1, §2.4: the guide leaves progressDeadlineSeconds at 600 s although its startup probe allows
# 15 + 30 × 120 s, so a slow load is called a failed rollout; here the probe's time and that margin are added up.
WAITS = {"progressDeadlineSeconds": 15 + 30 * 120 + 600}


def aggregated(prefix: str, **given: Any) -> Expected:
    """What the aggregated rows share (§3; §4 and §5 say what differs)."""
    given.setdefault("volumes", volumes("20Gi", "vllm-config"))  # §3; §5 states no size, its base is the same
    return Expected(
        name=f"{prefix}-decode", ports={"modelserver": 8000}, service_account=f"{prefix}-sa", workload=WAITS, **given
    )


def serve(model: str, tensor_parallel: int) -> list[str]:
    """The five words of aggregated serving (§3, §4, §5)."""
    return [model, ACCESS_LOG, f"--tensor-parallel-size={tensor_parallel}", "--mm-processor-cache-gb", "20"]


# ------------------------------------------------------------------------------------------- aggregation (§3, §4, §5)

GPU = aggregated(
    "mm-baseline-nvidia-gpu-vllm",
    labels=labels("decode", "aggregation", "Qwen3-VL-32B-Instruct", "gpu", "nvidia"),
    replicas=8,
    image="docker.io/vllm/vllm-openai:v0.27.1",  # §2.2, §3: the newest stored; the guide's own is probably later
    args=serve(QWEN, 2),
    env={**TOKEN, "USER": "llm-d"},
    limits={"cpu": "16", "memory": "256Gi", "nvidia.com/gpu": "2"},
    requests={"cpu": "8", "memory": "128Gi", "nvidia.com/gpu": "2"},
)
NCCL = {"NCCL_TUNER_PLUGIN": "none", "NCCL_NET_PLUGIN": ""}  # §2.3, §3

XPU = aggregated(
    "mm-baseline-xpu-vllm",
    labels=labels("decode", "aggregation", "Qwen3-VL-32B-Instruct", "xpu", "intel"),
    replicas=2,
    image="docker.io/vllm/vllm-openai-xpu:v0.27.1",  # §2.2
    args=serve(QWEN, 2),
    env={**TOKEN, "USER": "llm-d"},
    limits={"cpu": "8", "memory": "24Gi"},
    requests={"cpu": "4", "memory": "12Gi"},
    claims={
        "intel-decode-claim": (
            "mm-baseline-xpu-vllm-intel-claim-template-decode",
            {"name": "intel", "exactly": {"deviceClassName": "gpu.intel.com", "count": 2}},
        )
    },
    pod_security={"fsGroup": 107, "supplementalGroups": [107]},
)

TPU = aggregated(
    "mm-baseline-tpu-v7-vllm",
    labels=labels("decode", "aggregation", "Qwen3-VL-32B-Instruct", "tpu", "google"),
    replicas=8,
    image="docker.io/vllm/vllm-tpu:v0.27.0",
    args=serve(QWEN, 4),
    env={**TOKEN, "MODEL_IMPL_TYPE": "vllm", "SKIP_JAX_PRECOMPILE": "1"},  # no USER, no NCCL
    limits={"cpu": "16", "memory": "256Gi", "google.com/tpu": "4"},
    requests={"cpu": "8", "memory": "128Gi", "google.com/tpu": "4"},
    node_selector={"cloud.google.com/gke-tpu-topology": "2x2x1", "cloud.google.com/gke-tpu-accelerator": "tpu7x"},
    priority_class="medium",
)
GEMMA_TPU = replace(
    TPU,
    name="mm-baseline-tpu-v7-vllm-gemma4-decode",
    service_account="mm-baseline-tpu-v7-vllm-gemma4-sa",
    labels=labels("decode", "aggregation", "gemma-4-31B-it", "tpu", "google"),
    args=serve(GEMMA, 4),
    env=TOKEN,
)

# ------------------------------------------------------------------------------------------------ E/PD, vLLM (§6)

V030 = "docker.io/vllm/vllm-openai:v0.30.0"  # §2.2, §6, §7: pinned by the overlays themselves
V2 = {"VLLM_USE_V2_MODEL_RUNNER": "1"}


def ec(role: str, gibibytes: int) -> dict[str, Any]:
    """The EC configuration (§6, §7)."""
    return {
        "ec_connector": "ECCPUConnector",
        "ec_role": role,
        "ec_connector_extra_config": {"ec_enable_nixl": True, "ec_cpu_bytes": gibibytes * 2**30},
    }


def disaggregated(prefix: str, role: str, **given: Any) -> Expected:
    """What the roles of E/PD and E/P/D share (§6, §7)."""
    return Expected(
        name=f"{prefix}-{role}",
        labels=labels(role, "e-disaggregation", "Qwen3-VL-32B-Instruct", "gpu", "nvidia", engine="vllm"),
        image=V030,
        service_account=f"{prefix}-sa",
        workload=WAITS,
        **given,
    )


def encode(prefix: str) -> Expected:
    """The encode pods, the same in E/PD and E/P/D (§6, §7)."""
    size = {"cpu": "8", "memory": "128Gi", "nvidia.com/gpu": "2"}
    return disaggregated(
        prefix,
        "encode",
        replicas=2,
        args=[
            *serve(QWEN, 2),
            # DIFFERS §6, §7, §19.4: the guide has --trust-remote-code before --mm-processor-cache-gb, on encode pods
            # alone. Qwen3-VL is vLLM's own code; a flag that lets a repository run code on half of the pods is a slip.
            "--mm-encoder-only",
            "--enforce-eager",
            "--no-enable-prefix-caching",
            "--ec-transfer-config",
            ec("ec_producer", 40),
        ],
        env={
            # DIFFERS §7, §19.1: the guide's E/P/D encode renders USER twice; once here.
            **TOKEN,
            **V2,
            "USER": "llm-d",
            "VLLM_EC_SIDE_CHANNEL_HOST": POD_IP,
            "VLLM_EC_SIDE_CHANNEL_PORT": "5610",
        },
        ports={"modelserver": 8000, "ec-nixl": 5610},
        limits=size,
        requests=size,
        volumes=volumes("90Gi", "config-cache"),
    )


E_PD = "e-pd-disaggregation-nvidia-gpu-vllm"
PD = disaggregated(
    E_PD,
    "decode",
    replicas=8,
    args=[*serve(QWEN, 2), "--port=8200", "--ec-transfer-config", ec("ec_consumer", 4)],
    env={**TOKEN, **V2, "USER": "llm-d"},
    ports={"modelserver": 8200, "nixl": 5600},
    limits={"cpu": "16", "memory": "256Gi", "nvidia.com/gpu": "2"},
    requests={"cpu": "8", "memory": "128Gi", "nvidia.com/gpu": "2"},  # §19.5: half of the limits, here alone
    volumes=volumes("20Gi", "config-cache"),
    sidecar=SIDECAR,
)

# ----------------------------------------------------------------------------------------------- E/P/D, vLLM (§7)

E_P_D = "e-p-d-disaggregation-nvidia-gpu-vllm"
KV = {
    "kv_connector": "NixlConnector",
    "kv_role": "kv_both",
    "kv_connector_extra_config": {"kv_lease_duration": 300},
}
NIXL_HOST = {"VLLM_NIXL_SIDE_CHANNEL_HOST": POD_IP}  # §7: its port stays vLLM's 5600 and is never set

_PREFILL_SIZE = {"cpu": "8", "memory": "256Gi", "nvidia.com/gpu": "2"}
PREFILL = disaggregated(
    E_P_D,
    "prefill",
    replicas=4,
    args=[
        *serve(QWEN, 2),
        "--kv-transfer-config",
        KV,
        "--no-disable-hybrid-kv-cache-manager",
        "--gpu-memory-utilization=0.75",
        "--ec-transfer-config",
        ec("ec_consumer", 40),
    ],
    env={**TOKEN, **V2, **NIXL_HOST, "USER": "llm-d"},
    ports={"modelserver": 8000, "nixl": 5600},
    limits=_PREFILL_SIZE,
    requests=_PREFILL_SIZE,
    volumes=volumes("90Gi", "config-cache"),
)
_DECODE_SIZE = {"cpu": "16", "memory": "256Gi", "nvidia.com/gpu": "2"}
DECODE = disaggregated(
    E_P_D,
    "decode",
    replicas=4,
    args=[
        *serve(QWEN, 2),
        "--kv-transfer-config",
        KV,
        "--no-disable-hybrid-kv-cache-manager",
        "--port=8200",
    ],  # no EC configuration
    env={**TOKEN, **NIXL_HOST, "USER": "llm-d"},  # no V2 runner
    ports={"modelserver": 8200, "nixl": 5600},
    limits=_DECODE_SIZE,
    requests=_DECODE_SIZE,
    volumes=volumes("20Gi", "config-cache"),
    sidecar=SIDECAR,
)

# ---------------------------------------------------------------------------------------------- E/PD, SGLang (§8)


def sglang_labels(component: str, role: str, variant: str, vendor: str) -> dict[str, str]:
    """§8, Labels."""
    found = labels(role, "e-disaggregation", "Kimi-VL-A3B-Instruct", variant, vendor, engine="sglang")
    return {
        **found,
        "app.kubernetes.io/name": "sglang-xpu-encode-gpu-pd",
        "app.kubernetes.io/component": component,
    }


def sglang_probes(way: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """§8, Probes: delay, period, timeout, failures; encoders by TCP, the PD pod by HTTP, the numbers are the same."""
    return {
        "startupProbe": {
            **way("/v1/models"),
            "initialDelaySeconds": 15,
            "periodSeconds": 10,
            "timeoutSeconds": 30,
            "failureThreshold": 180,
        },
        "readinessProbe": {
            **way("/v1/models"),
            "periodSeconds": 10,
            "timeoutSeconds": 30,
            "failureThreshold": 6,
        },
        "livenessProbe": {
            **way("/health"),
            "initialDelaySeconds": 1800,
            "periodSeconds": 30,
            "timeoutSeconds": 30,
            "failureThreshold": 10,
        },
    }


SGLANG_ENCODE = Expected(
    name="encode",  # no prefix: the DNS names must be stable
    kind="StatefulSet",
    labels=sglang_labels("encode", "encode", "xpu", "intel"),
    replicas=4,
    image="ghcr.io/llm-d/llm-d-xpu-sglang:sha-e119543"
    "@sha256:53254b75d39a87b00bb6e9309acbe125dc0453d00860aea539d10fe55621a276",
    pull="IfNotPresent",
    command=("python3", "-m", "sglang.launch_server"),  # after the oneAPI variables, in a login shell: tested below
    args=[
        f"--model-path={KIMI}",
        f"--served-model-name={KIMI}",
        "--host=0.0.0.0",
        "--port=8000",
        "--trust-remote-code",
        "--enable-multimodal",
        "--encoder-only",
        "--encoder-transfer-backend=zmq_to_scheduler",
        "--skip-tokenizer-init",
        "--device=xpu",
        "--tensor-parallel-size=1",
        "--mm-attention-backend=xpu_attn",
        "--log-level=info",
        "--enable-metrics",
        "--uvicorn-access-log-exclude-prefixes=/metrics",
    ],
    env={
        **TOKEN,
        "SGLANG_USE_SGL_XPU": "1",
        "ONEAPI_DEVICE_SELECTOR": "level_zero:0",
        "ZE_AFFINITY_MASK": "0",
        "SYCL_CACHE_PERSISTENT": "1",
        "PYTHONUNBUFFERED": "1",
    },
    ports={"modelserver": 8000},
    limits={"cpu": "32", "memory": "160Gi"},
    requests={"cpu": "8", "memory": "96Gi"},
    claims={"xpu": ("xpu-encoder", {"name": "xpu", "exactly": {"deviceClassName": "gpu.intel.com", "count": 1}})},
    probes=sglang_probes(lambda path: {"tcpSocket": {"port": "modelserver"}}),
    volumes={"/dev/shm": ("shm", {"emptyDir": {"medium": "Memory", "sizeLimit": "32Gi"}})},
    pod_security={"fsGroup": 107, "supplementalGroups": [107]},
    service_account="sa",
    grace=120,
    workload={"serviceName": "encode", "podManagementPolicy": "Parallel"},
)
SGLANG_PD = Expected(
    name="decode",
    labels=sglang_labels("pd", "decode", "gpu", "nvidia"),
    replicas=1,
    image="docker.io/lmsysorg/sglang:v0.5.15.post1-cu130"
    "@sha256:00c53fe4c31bf22d7b37537f28bbdfd924c02de13cdfb4bff7378c9c34d75ab2",
    pull="IfNotPresent",  # §8 says so of the encoder's image alone; it is Kubernetes' default for a tag like this
    command=("/opt/nvidia/nvidia_entrypoint.sh", "python3", "-m", "sglang.launch_server"),
    args=[
        f"--model-path={KIMI}",
        f"--served-model-name={KIMI}",
        "--host=0.0.0.0",
        "--port=8000",
        "--trust-remote-code",
        "--enable-multimodal",
        "--skip-server-warmup",
        "--language-only",
        "--encoder-transfer-backend=zmq_to_scheduler",
        "--encoder-urls",
        *(f"http://encode-{n}.encode:8000" for n in range(4)),
        "--dtype=auto",
        "--kv-cache-dtype=fp8_e4m3",
        "--tensor-parallel-size=1",
        "--mem-fraction-static=0.80",
        "--prefill-max-requests=8",
        "--max-running-requests=32",
        "--chunked-prefill-size=65536",
        "--max-prefill-tokens=65536",
        "--max-total-tokens=262144",
        "--page-size=64",
        "--disable-radix-cache",
        "--log-level=info",
        "--enable-metrics",
        "--uvicorn-access-log-exclude-prefixes=/metrics",
    ],
    env={**TOKEN, "SGLANG_ENCODER_BOOTSTRAP_HEALTH_CHECK_INTERVAL": "0", "PYTHONUNBUFFERED": "1"},
    ports={"modelserver": 8000},
    limits={"cpu": "32", "memory": "160Gi", "nvidia.com/gpu": "1"},
    requests={"cpu": "16", "memory": "96Gi", "nvidia.com/gpu": "1"},
    probes=sglang_probes(lambda path: {"httpGet": {"path": path, "port": "modelserver"}}),
    volumes={"/dev/shm": ("shm", {"emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}})},
    service_account="sa",
    grace=120,
    init=("wait-for-encoders",),
    workload={"strategy": {"type": "Recreate"}, "progressDeadlineSeconds": 7200},
)

# ------------------------------------------------------------------------------------------------------- the matrix


def with_nccl(role: Expected) -> Expected:
    """What gke adds on GPUs (§2.3, §3, §6, §7)."""
    return replace(role, env={**role.env, **NCCL})


def with_rdma(role: Expected) -> Expected:
    """What coreweave adds, in limits and requests of every role (§6, §7)."""
    rdma = {"rdma/ib": "1"}
    return replace(role, limits={**role.limits, **rdma}, requests={**role.requests, **rdma})


@dataclass(frozen=True)
class Row:
    """A row of §1: what is asked for, and the roles expected, in the order in which media pass them."""

    said: Mapping[str, Any]
    roles: Sequence[Expected]
    name: str = "multimodal-serving"
    namespace: str = "llm-d-multimodal-serving"  # §14


def _row(topology: str, accelerator: str, provider: str, *roles: Expected, **more: Any) -> Row:
    said = {"release": "main", "workload": "Deployment", "server": "vllm", "model": QWEN}
    extra = more.pop("said", {})
    return Row({**said, "topology": topology, "accelerator": accelerator, "provider": provider, **extra}, roles, **more)


E_PD_ROLES = (encode(E_PD), PD)
E_P_D_ROLES = (encode(E_P_D), PREFILL, DECODE)

ROWS: dict[str, Row] = {  # §1
    "aggregation-gpu-base": _row("aggregation", "gpu", "base", GPU),
    "aggregation-gpu-gke": _row("aggregation", "gpu", "gke", with_nccl(GPU)),
    "aggregation-xpu-base": _row("aggregation", "xpu", "base", XPU),
    "aggregation-tpu-gke": _row("aggregation", "tpu/v7", "gke", TPU),
    "aggregation-tpu-gke-gemma4": _row("aggregation", "tpu/v7", "gke", GEMMA_TPU, said={"model": GEMMA}),
    "e-pd-gpu-base": _row("e-pd", "gpu", "base", *E_PD_ROLES),
    "e-pd-gpu-gke": _row("e-pd", "gpu", "gke", *map(with_nccl, E_PD_ROLES)),
    "e-pd-gpu-coreweave": _row("e-pd", "gpu", "coreweave", *map(with_rdma, E_PD_ROLES)),
    "e-p-d-gpu-base": _row("e-p-d", "gpu", "base", *E_P_D_ROLES),
    "e-p-d-gpu-gke": _row("e-p-d", "gpu", "gke", *map(with_nccl, E_P_D_ROLES)),
    "e-p-d-gpu-coreweave": _row("e-p-d", "gpu", "coreweave", *map(with_rdma, E_P_D_ROLES)),
    "e-pd-sglang": _row(
        "e-pd",
        "gpu",
        "base",
        SGLANG_ENCODE,
        SGLANG_PD,
        said={"server": "sglang", "model": KIMI},
        name="sglang-xpu-encode-gpu-pd",  # §8: a profile with variables of its own
        namespace="llm-d-sglang-xpu-gpu-e-pd",
    ),
}
RENDERED = {name: Case(name, row.said) for name, row in ROWS.items()}

every_row = pytest.mark.parametrize("row", ROWS)
every_role = pytest.mark.parametrize(
    ("row", "expected"),
    [pytest.param(name, role, id=f"{name}-{role.labels[ROLE]}") for name, row in ROWS.items() for role in row.roles],
)


def rendered(row: str, expected: Expected) -> Role:
    return RENDERED[row].roles[expected.labels[ROLE]]


# ------------------------------------------------------------------------------------------------- the model servers


@every_row
def test_a_row_has_the_objects_of_the_guide_and_no_others(row: str) -> None:
    # §2.4: no Service, PodDisruptionBudget or HPA; §8: a headless Service in front of the encoders.
    wanted = [(role.kind, role.name) for role in ROWS[row].roles]
    wanted += sorted({("ServiceAccount", role.service_account) for role in ROWS[row].roles})
    wanted += [("ResourceClaimTemplate", name) for role in ROWS[row].roles for name, _ in role.claims.values()]
    if row == "e-pd-sglang":
        wanted.append(("Service", "encode"))
    found = [(item["kind"], item["metadata"]["name"]) for item in RENDERED[row].objects.values()]
    assert sorted(found) == sorted(wanted)


@every_row
def test_a_row_has_the_guide_s_roles_and_names(row: str) -> None:
    case = RENDERED[row]
    assert sorted(case.roles) == sorted(role.labels[ROLE] for role in ROWS[row].roles)
    assert (case.spec["name"], case.spec["namespace"]) == (ROWS[row].name, ROWS[row].namespace)


@every_role
def test_the_workload(row: str, expected: Expected) -> None:
    role = rendered(row, expected)
    assert (role.kind, role.workload["metadata"]["name"]) == (expected.kind, expected.name)
    assert role.replicas == expected.replicas
    given = {"replicas", "selector", "template"}
    assert {key: value for key, value in role.workload["spec"].items() if key not in given} == expected.workload


@every_role
def test_labels_stand_on_object_selector_and_pods(row: str, expected: Expected) -> None:
    # §2.4: the kustomize transformer writes them in all three places.
    role = rendered(row, expected)
    assert role.workload["metadata"]["labels"] == expected.labels
    assert role.selector == expected.labels
    assert role.labels == expected.labels


@every_role
def test_the_image(row: str, expected: Expected) -> None:
    role = rendered(row, expected)
    assert (role.engine["image"], role.engine.get("imagePullPolicy")) == (expected.image, expected.pull)


@every_role
def test_the_arguments_in_order(row: str, expected: Expected) -> None:
    wanted = [*expected.command, *expected.args]
    found = [json.loads(word) if word.startswith("{") else word for word in rendered(row, expected).argv]
    assert found == wanted


@every_role
def test_the_environment(row: str, expected: Expected) -> None:
    # As a map: nothing in it refers to another variable, so that the order says nothing.
    role = rendered(row, expected)
    assert len(role.env) == len(role.engine["env"])  # no name twice (§19.1)
    assert role.env == expected.env


@every_role
def test_the_ports(row: str, expected: Expected) -> None:
    found = rendered(row, expected).engine["ports"]
    assert {port["name"]: port["containerPort"] for port in found} == expected.ports
    assert {port["protocol"] for port in found} == {"TCP"}  # §2.1


@every_role
def test_the_probes(row: str, expected: Expected) -> None:
    engine = rendered(row, expected).engine
    assert {key: value for key, value in engine.items() if key.endswith("Probe")} == expected.probes


@every_role
def test_the_resources(row: str, expected: Expected) -> None:
    resources = rendered(row, expected).engine["resources"]
    assert resources["limits"] == expected.limits
    assert resources["requests"] == expected.requests
    assert [claim["name"] for claim in resources.get("claims", [])] == list(expected.claims)


@every_role
def test_the_device_claims(row: str, expected: Expected) -> None:
    role = rendered(row, expected)
    claims = {claim["name"]: claim["resourceClaimTemplateName"] for claim in role.pod.get("resourceClaims", [])}
    assert claims == {name: template for name, (template, _) in expected.claims.items()}
    for template, request in expected.claims.values():
        (item,) = [
            item for item in RENDERED[row].of_kind("ResourceClaimTemplate") if item["metadata"]["name"] == template
        ]
        assert item["apiVersion"] == "resource.k8s.io/v1"  # §4
        assert item["metadata"]["labels"] == expected.labels  # §4: the template carries the role too
        assert item["spec"]["spec"]["devices"]["requests"] == [request]


@every_role
def test_the_volumes(row: str, expected: Expected) -> None:
    role = rendered(row, expected)
    sources = {volume["name"]: {k: v for k, v in volume.items() if k != "name"} for volume in role.pod["volumes"]}
    found = {mount["mountPath"]: (mount["name"], sources[mount["name"]]) for mount in role.engine["volumeMounts"]}
    assert found == expected.volumes


@every_role
def test_the_pod(row: str, expected: Expected) -> None:
    pod = rendered(row, expected).pod
    assert pod["serviceAccountName"] == expected.service_account
    assert pod.get("securityContext") == expected.pod_security
    assert pod.get("nodeSelector") == expected.node_selector
    assert pod.get("priorityClassName") == expected.priority_class
    assert pod.get("terminationGracePeriodSeconds") == expected.grace
    # §2.4: no toleration, affinity, container security context or anything else that is not named above.
    named = {"serviceAccountName", "securityContext", "nodeSelector", "priorityClassName", "volumes", "containers"}
    assert set(pod) <= named | {"terminationGracePeriodSeconds", "resourceClaims", "initContainers"}
    (engine,) = pod["containers"]
    named = {"name", "image", "imagePullPolicy", "command", "args", "env", "ports", "resources", "volumeMounts"}
    assert set(engine) <= named | {"startupProbe", "livenessProbe", "readinessProbe"}


@every_role
def test_the_sidecar_and_other_init_containers(row: str, expected: Expected) -> None:
    role = rendered(row, expected)
    found = role.pod.get("initContainers", [])
    assert [item["name"] for item in found] == [*expected.init, *(["routing-proxy"] if expected.sidecar else [])]
    assert role.sidecar == expected.sidecar


@every_row
def test_the_service_account(row: str) -> None:
    # §2.1: no token is mounted. §2.4: it carries every label that the roles share, and none of a role.
    (item,) = RENDERED[row].of_kind("ServiceAccount")
    assert item["automountServiceAccountToken"] is False
    first, *others = [role.labels for role in ROWS[row].roles]
    shared = {key: value for key, value in first.items() if key != ROLE and all(o.get(key) == value for o in others)}
    assert item["metadata"]["labels"] == shared


def test_the_xpu_encoder_starts_in_a_login_shell_after_the_oneapi_variables() -> None:
    # §8, Command: bash -lc, source setvars, then the server.
    engine = RENDERED["e-pd-sglang"].roles["encode"].engine
    assert engine["command"] == ["bash", "-lc"]
    (line,) = engine["args"]
    assert line.startswith("source /opt/intel/oneapi/setvars.sh")
    assert " python3 -m sglang.launch_server " in line


def test_the_pd_pod_waits_for_its_four_encoders() -> None:
    # §8, Other: a socket check of the encoders, up to 1800 s, with the sizes given there.
    (waits,) = RENDERED["e-pd-sglang"].roles["decode"].pod["initContainers"]
    assert waits["resources"] == {
        "requests": {"cpu": "100m", "memory": "128Mi"},
        "limits": {"cpu": "1", "memory": "512Mi"},
    }
    text = json.dumps(waits)
    assert "1800" in text
    assert all(f"encode-{n}.encode" in text for n in range(4))
    assert "encode-4" not in text


def test_the_encoders_have_a_headless_service() -> None:
    # §8, Kind.
    (service,) = RENDERED["e-pd-sglang"].of_kind("Service")
    assert service["spec"]["clusterIP"] == "None"
    assert [(port["name"], port["port"]) for port in service["spec"]["ports"]] == [("modelserver", 8000)]


# -------------------------------------------------------------------------------------------------------- the router

RESOURCES = {"requests": {"cpu": "4", "memory": "8Gi"}, "limits": {"memory": "16Gi"}}  # §10.1, picker and proxy alike

SHARED_VALUES: Mapping[str, Any] = {  # §10.1
    "epp": {"replicas": 1, "flags": {"v": 2}, "resources": RESOURCES},
    "inferencePool": {"failureMode": "FailOpen"},
    # §10.3: port 80 of the Service instead of the chart's 8081.
    "extraServicePorts": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8081}],
    "proxy": {
        "proxyType": "envoy",
        "args": [
            "--service-node",
            "envoy-sidecar",
            "--log-level",
            "warn",
            "--concurrency",
            "8",
            "--drain-strategy",
            "immediate",
            "--drain-time-s",
            "60",
            "-c",
            "/etc/envoy/envoy.yaml",
        ],
        "resources": RESOURCES,
    },
    # DIFFERS §10.1: the guide's base values also spell endpoint, sampler and argument of tracing. They are the chart's
    # own defaults (router-chart-values.csv), and nothing reads them while tracing is off.
    "tracing": {"enabled": False},
}
# DIFFERS §10.1: the guide leaves the pool's port to the chart; here it is written out, the same 8000.
TARGET_PORTS = [{"number": 8000}]

SIZE_720P = {"width": 1280, "height": 720}
QWEN_ESTIMATE = {  # §10.3
    "image": {"mode": "dynamic", "defaultResolution": SIZE_720P, "dynamic": {"factor": 1024}},
    "video": {
        "defaultResolution": SIZE_720P,
        "defaultDuration": 10,
        "maxVideoTokens": 12288,
        "tokensPerFrame": {"mode": "dynamic", "dynamic": {"factor": 1024}},
        "frames": {
            "mode": "sampled",
            "minFrames": 4,
            "maxFrames": 768,
            "sampled": {"sampleFPS": 2, "temporalPatchSize": 2},
        },
    },
}
GEMMA_ESTIMATE = {  # §10.3, the block that the guide ships commented out
    "image": {"mode": "static", "static": {"staticToken": 280}},
    "video": {
        "defaultResolution": SIZE_720P,
        "defaultDuration": 10,
        "maxVideoTokens": 12288,
        "tokensPerFrame": {"mode": "static", "static": {"numTokensPerFrame": 280}},
        "frames": {"mode": "strided", "minFrames": 1, "maxFrames": 8, "strided": {"frameStride": 4}},
    },
}


def plugin(kind: str, parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {"type": kind, "parameters": dict(parameters)} if parameters else {"type": kind}


def profile(name: str, *refs: str | tuple[str, int]) -> dict[str, Any]:
    pairs = [(ref, None) if isinstance(ref, str) else ref for ref in refs]
    entries = [{"pluginRef": ref} | ({"weight": weight} if weight else {}) for ref, weight in pairs]
    return {"name": name, "plugins": entries}


# §10.3: the same numbers in all vLLM values files. DIFFERS in a comment of the values file alone: XPU, TPU and Gemma 4
# have no measurement of their own (§10.4), which the guide does not say.
AFFINITY = plugin(
    "prefix-cache-affinity-filter",
    {"peakPrefillThroughput": 15751, "affinityThreshold": 0.6, "maxTTFTPenaltyMs": 36000},
)


def tokens(estimate: Mapping[str, Any]) -> dict[str, Any]:
    return plugin("token-producer", {"estimate": estimate})


PREFIX = [plugin("approx-prefix-cache-producer"), plugin("inflight-load-producer"), AFFINITY]


def aggregation(estimate: Mapping[str, Any]) -> tuple[str, list[Any], list[Any]]:
    """Configuration file, plugins in declared order, profiles (§10.3)."""
    declared = [tokens(estimate), *PREFIX, plugin("token-load-scorer")]
    return (
        "aggregation-plugins.yaml",
        declared,
        [profile("default", "prefix-cache-affinity-filter", "token-load-scorer")],
    )


ENCODING = profile("encode", "encode-filter", ("queue-scorer", 2), "max-score-picker")
PREFIXED = ("prefix-cache-affinity-filter", "token-load-scorer", "max-score-picker")
MULTIMODAL, ALWAYS_PD = "always-disagg-multimodal-decider", "always-disagg-pd-decider"

# DIFFERS §10.3: the guide's e-pd and e-p-d values have no video block, so that its router prices every video with its
# own default of another resolution and factor; the estimate belongs to the model and is the same in every topology.
E_PD_CONFIG = (
    "e-pd-config.yaml",
    [
        plugin(MULTIMODAL),
        plugin("disagg-profile-handler", {"deciders": {"encode": MULTIMODAL}}),
        plugin("encode-filter"),
        plugin("decode-filter"),
        tokens(QWEN_ESTIMATE),
        *PREFIX,
        plugin("token-load-scorer"),
        plugin("queue-scorer"),
        plugin("max-score-picker"),
    ],
    [ENCODING, profile("decode", "decode-filter", *PREFIXED)],
)
E_P_D_CONFIG = (
    "e-p-d-config.yaml",
    [
        plugin(MULTIMODAL),
        plugin(ALWAYS_PD),
        plugin("disagg-profile-handler", {"deciders": {"encode": MULTIMODAL, "prefill": ALWAYS_PD}}),
        plugin("encode-filter"),
        plugin("prefill-filter"),
        plugin("decode-filter"),
        tokens(QWEN_ESTIMATE),
        *PREFIX,
        plugin("token-load-scorer"),
        plugin("active-request-scorer"),
        plugin("queue-scorer"),
        plugin("max-score-picker"),
    ],
    [
        ENCODING,
        profile("prefill", "prefill-filter", *PREFIXED),
        profile("decode", "decode-filter", "active-request-scorer", "max-score-picker"),
    ],
)
SGLANG_CONFIG = (
    "e-pd-config.yaml",
    [plugin("queue-scorer"), plugin("kv-cache-utilization-scorer")],
    [profile("default", ("queue-scorer", 2), ("kv-cache-utilization-scorer", 2))],
)

GUIDE = "llm-d.ai/guide"


def router_of(row: str) -> tuple[tuple[str, list[Any], list[Any]], dict[str, str]]:
    """Configuration and matchLabels of a row (§10.3)."""
    if row == "e-pd-sglang":
        selector = {GUIDE: "e-disaggregation", "llm-d.ai/engine-type": "sglang", "llm-d.ai/role": "decode"}
        return SGLANG_CONFIG, selector
    if row.startswith("aggregation"):
        # DIFFERS §10.3, §19.9: the guide has one values file and leaves Gemma 4's block for the person to uncomment.
        return aggregation(GEMMA_ESTIMATE if row.endswith("gemma4") else QWEN_ESTIMATE), {GUIDE: "aggregation"}
    return (E_P_D_CONFIG if row.startswith("e-p-d") else E_PD_CONFIG), {GUIDE: "e-disaggregation"}


@every_row
def test_the_router_s_values(row: str) -> None:
    (config_file, _, _), match_labels = router_of(row)
    router = {
        key: dict(value) if isinstance(value, dict) else value for key, value in RENDERED[row].values["router"].items()
    }
    texts = router["epp"].pop("pluginsCustomConfig")
    assert list(texts) == [config_file]
    wanted = {key: value for key, value in SHARED_VALUES.items() if key != "epp"}
    wanted["epp"] = {**SHARED_VALUES["epp"], "pluginsConfigFile": config_file}
    wanted["modelServers"] = {"protocol": "http", "targetPorts": TARGET_PORTS, "matchLabels": match_labels}
    if row == "e-pd-sglang":
        # DIFFERS: not in the guide's values (§10.3); the chart's own name for the engine, read by its built-in
        # configuration only (router-chart-values.csv, router.modelServers.type).
        wanted["modelServers"]["type"] = "sglang"
    assert router == wanted
    assert list(RENDERED[row].values) == ["router"]


@every_row
def test_the_plugins_in_declared_order(row: str) -> None:
    (_, declared, _), _ = router_of(row)
    assert RENDERED[row].config["plugins"] == declared


@every_row
def test_the_scheduling_profiles(row: str) -> None:
    (_, _, profiles), _ = router_of(row)
    assert RENDERED[row].config["schedulingProfiles"] == profiles


@every_row
def test_the_configuration_is_of_the_release(row: str) -> None:
    # §10.3: llm-d.ai/v1. DIFFERS for e-p-d, whose newest stored values still say v1alpha1 (router.md §0, last
    # paragraph): one router cannot be of two versions.
    config = RENDERED[row].config
    assert (config["apiVersion"], config["kind"]) == ("llm-d.ai/v1", "EndpointPickerConfig")
    assert set(config) == {"apiVersion", "kind", "plugins", "schedulingProfiles"}


# ----------------------------------------------------------------------------------- monitoring, tracing, the gateway


@every_row
def test_monitoring(row: str) -> None:
    case = Case(row, {**ROWS[row].said, "monitoring": True})
    # §9: features/monitoring.values.yaml.
    assert case.values["router"]["monitoring"] == {
        "interval": "10s",
        "prometheus": {"enabled": True, "auth": {"enabled": False}},
    }
    wanted = {role.labels[ROLE]: role for role in ROWS[row].roles}
    # DIFFERS §9, §19.12: the guide has monitors for decode and prefill alone; encode pods get one too.
    monitors = {item["metadata"]["labels"][ROLE]: item for item in case.of_kind("PodMonitor")}
    assert set(monitors) == set(wanted)
    for name, monitor in monitors.items():
        endpoint = {"port": "modelserver", "path": "/metrics", "interval": "30s"}  # §9
        # DIFFERS §9: the guide's monitors are called by the role and select by it alone, every guide of a namespace
        # at once; these carry the deployment's name and labels, and select its guide too.
        selector = {ROLE: name, GUIDE: wanted[name].labels[GUIDE]}
        assert monitor["spec"] == {"podMetricsEndpoints": [endpoint], "selector": {"matchLabels": selector}}
        assert monitor["metadata"] == {"name": wanted[name].name, "labels": wanted[name].labels}


@pytest.mark.parametrize("row", ["aggregation-gpu-base", "e-p-d-gpu-base"])
def test_tracing(row: str) -> None:
    case = Case(row, {**ROWS[row].said, "tracing": True})
    assert case.values["router"]["tracing"] == {  # §10.1, features/tracing.values.yaml
        "enabled": True,
        "otelExporterEndpoint": "http://otel-collector:4317",
        "sampling": {"sampler": "parentbased_traceidratio", "samplerArg": "0.05"},
    }
    for role in case.roles.values():
        # §3, Optional: commented out in the guide, which has them for aggregation alone.
        assert role.argv[-2:] == ["--otlp-traces-endpoint=http://otel-collector:4317", "--collect-detailed-traces=all"]
        assert any(name.startswith("OTEL_") for name in role.env)


@pytest.mark.parametrize(
    ("gateway_class", "in_cluster", "labelled"),
    [  # §15: classes of recipes/gateway
        ("gke", "gke-l7-rilb", {}),
        ("istio", "istio", {"istio.io/enable-inference-extproc": "true"}),
        ("agentgateway", "agentgateway", {}),
        ("none", None, {}),
    ],
)
def test_the_gateway(gateway_class: str, in_cluster: str | None, labelled: dict[str, str]) -> None:
    said = {"mode": "gateway", "gateway": {"gatewayClass": gateway_class}}
    case = Case(gateway_class, {**ROWS["e-pd-gpu-base"].said, **said})
    assert case.values["provider"] == {"name": gateway_class}
    # §15: features/httproute-flags.yaml; without it the route ends requests after 300 s.
    assert case.values["httpRoute"] == {
        "create": True,
        "inferenceGatewayName": "llm-d-inference-gateway",
        "requestTimeout": "0s",
    }
    gateways = case.of_kind("Gateway")
    assert len(gateways) == (in_cluster is not None)
    for item in gateways:
        assert item["metadata"] == {"name": "llm-d-inference-gateway"} | ({"labels": labelled} if labelled else {})
        assert item["spec"]["gatewayClassName"] == in_cluster
        (listener,) = item["spec"]["listeners"]
        assert (listener["port"], listener["protocol"]) == (80, "HTTP")
        assert listener["allowedRoutes"] == {"namespaces": {"from": "All"}}
