"""What the tests here look at: every overlay, and renders of every option on every release.

A case is read back from the texts of its bundle, as kubectl and helm would read them, never from objects in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import yaml

from mmdeploy.catalog import Catalog
from mmdeploy.render.bundle import Bundle
from mmdeploy.render.bundle import render as render_bundle
from mmdeploy.render.overlays import path_of
from mmdeploy.render.resolve import Resolver
from mmdeploy.spec import DeploymentSpec

ROOT = Path(__file__).resolve().parents[2]
OVERLAYS = ROOT / "overlays"
CATALOG = Catalog(ROOT / "blueprints")

ROLE = "llm-d.ai/role"


def parse(text: str) -> Any:
    """One YAML document."""
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


@cache
def _resolver() -> Resolver:
    return Resolver(CATALOG)


def render(**said: Any) -> Bundle:
    """The bundle of what a person says."""
    return render_bundle(CATALOG, _resolver().resolve(DeploymentSpec.model_validate(said)))


@dataclass(frozen=True)
class Role:
    """One role as its workload object declares it."""

    name: str
    kind: str
    replicas: int
    labels: Mapping[str, str]
    """Labels of the pods."""
    pod: Mapping[str, Any]
    workload: Mapping[str, Any]
    """The Deployment, StatefulSet or DisaggregatedSet, whole."""
    selector: Mapping[str, str] | None
    """matchLabels of the workload; None in a DisaggregatedSet, which makes its own."""

    @property
    def engine(self) -> Mapping[str, Any]:
        """The container of the model server."""
        return next(item for item in self.pod["containers"] if item["name"] == "modelserver")

    @property
    def sidecar(self) -> Mapping[str, Any] | None:
        """The routing sidecar, where there is one."""
        return next((item for item in self.pod.get("initContainers", []) if item["name"] == "routing-proxy"), None)

    @property
    def argv(self) -> list[str]:
        """The words that start the engine: command and arguments, a shell's one line taken apart."""
        command, args = self.engine["command"], self.engine["args"]
        if command[0] == "bash":
            return str(args[0]).partition("exec ")[2].split()
        return [*command, *args]

    @property
    def env(self) -> dict[str, Any]:
        """The engine's environment: the value, or the source of the value."""
        return {item["name"]: item.get("value", item.get("valueFrom")) for item in self.engine.get("env", [])}

    @property
    def containers(self) -> Iterator[Mapping[str, Any]]:
        """Every container of the pod, init containers first."""
        yield from self.pod.get("initContainers", [])
        yield from self.pod["containers"]


@dataclass(frozen=True, repr=False)
class Case:
    """A render with a name."""

    id: str
    said: Mapping[str, Any]

    def __repr__(self) -> str:
        return self.id

    @cached_property
    def bundle(self) -> Bundle:
        """The bundle, rendered when it is first asked for."""
        return render(**self.said)

    @cached_property
    def spec(self) -> dict[str, Any]:
        """The resolved spec."""
        return parse(self.bundle.files["mmdeploy.yaml"])

    @cached_property
    def objects(self) -> dict[str, dict[str, Any]]:
        """Kubernetes objects by file, kustomizations left out."""
        return {
            path: parse(text)
            for path, text in self.bundle.files.items()
            if path.partition("/")[0] in ("modelserver", "monitoring", "gateway") and "kustomization" not in path
        }

    @cached_property
    def kustomizations(self) -> dict[str, dict[str, Any]]:
        """Kustomizations by directory."""
        return {
            path.partition("/")[0]: parse(text) for path, text in self.bundle.files.items() if "kustomization" in path
        }

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """Objects of one kind."""
        return [item for item in self.objects.values() if item["kind"] == kind]

    @cached_property
    def values(self) -> dict[str, Any]:
        """The router's Helm values."""
        return parse(self.bundle.files["router/values.yaml"])

    @cached_property
    def config(self) -> dict[str, Any]:
        """The endpoint picker's configuration, out of the values."""
        epp = self.values["router"]["epp"]
        return parse(epp["pluginsCustomConfig"][epp["pluginsConfigFile"]])

    @cached_property
    def roles(self) -> dict[str, Role]:
        """Roles by name."""
        return {role.name: role for item in self.objects.values() for role in _roles(item)}


def _roles(workload: Mapping[str, Any]) -> Iterator[Role]:
    spec = workload.get("spec", {})
    if workload["kind"] in ("Deployment", "StatefulSet"):
        template = spec["template"]
        labels = template["metadata"]["labels"]
        selector = spec["selector"]["matchLabels"]
        yield Role(labels[ROLE], workload["kind"], spec["replicas"], labels, template["spec"], workload, selector)
    if workload["kind"] == "DisaggregatedSet":
        for role in spec["roles"]:
            template = role["spec"]["leaderWorkerTemplate"]["workerTemplate"]
            labels = template["metadata"]["labels"]
            yield Role(
                role["name"], workload["kind"], role["spec"]["replicas"], labels, template["spec"], workload, None
            )


def _axes(combination: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in combination.items() if key != "status"}


COMBINATIONS = list(CATALOG.combinations())
SHIPPED = [Case(path_of(combination, CATALOG).as_posix(), _axes(combination)) for combination in COMBINATIONS]
"""Every overlay."""


@dataclass(frozen=True)
class Option:
    """Something said on top of a combination, and the combinations on which it works."""

    said: Mapping[str, Any]
    where: Callable[[Mapping[str, str]], bool] = lambda combination: True


def _is_vllm(combination: Mapping[str, str]) -> bool:
    return combination["server"] == "vllm"


def _has_ec(combination: Mapping[str, str]) -> bool:
    return _is_vllm(combination) and combination["topology"] != "aggregation"


def _has_sets(combination: Mapping[str, str]) -> bool:
    return _has_ec(combination) and combination["release"] != "v0.8"


def _has_new_ec(combination: Mapping[str, str]) -> bool:
    return _has_ec(combination) and combination["release"] == "main"


def _is_aggregated(combination: Mapping[str, str]) -> bool:
    return combination["topology"] == "aggregation"


_ON_031 = {"image": "docker.io/vllm/vllm-openai:v0.31.0"}
_OWN = {
    "replicas": 3,
    "extraArgs": ["--max-model-len=32768"],
    "extraEnv": {"VLLM_LOGGING_LEVEL": "DEBUG"},
    "labels": {"team": "vision"},
    "annotations": {"example.com/why": "a long text, with spaces"},
    "nodeSelector": {"pool": "a"},
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {"podAntiAffinity": {}},
    "priorityClassName": "high",
    "serviceAccountName": "mine",
}

OPTIONS: dict[str, Option] = {
    "monitoring": Option({"monitoring": True}),
    "tracing": Option({"tracing": True}),
    "gateway-none": Option({"mode": "gateway"}),
    "gateway-gke": Option({"mode": "gateway", "gateway": {"gatewayClass": "gke"}}),
    "gateway-istio": Option({"mode": "gateway", "gateway": {"gatewayClass": "istio"}}),
    "gateway-agentgateway": Option({"mode": "gateway", "gateway": {"gatewayClass": "agentgateway"}}),
    "precise": Option({"routing": "precise"}, _is_vllm),
    "encoder-cache-affinity": Option({"encoderCacheAffinity": True}, _is_aggregated),
    "encoder-data-parallel": Option({"encoderParallelism": "data"}, _is_vllm),
    "processor-kwargs": Option({"mmProcessorKwargs": {"max_pixels": 1003520}}, _has_ec),
    "as-deployments": Option({"workload": "Deployment"}, _has_ec),
    "as-set": Option({"workload": "DisaggregatedSet"}, _has_sets),
    "as-set-hash": Option({"workload": "DisaggregatedSet", "groupIdentity": "Hash"}, _has_sets),
    "as-set-no-identity": Option({"workload": "DisaggregatedSet", "groupIdentity": "none"}, _has_sets),
    "example-connector": Option({"ecConnector": "ECExampleConnector"}, _has_ec),
    "mooncake-connector": Option({"ecConnector": "ECMooncakeConnector"}, _has_new_ec),
    "mooncake-shared-store": Option(
        {
            "ecConnector": "ECMooncakeConnector",
            "mooncake": {"crossEncoderCache": True},
            **dict.fromkeys(("encode", "decode"), _ON_031),
        },
        lambda combination: _has_new_ec(combination) and combination["topology"] == "e-pd",
    ),
    "metadata-handoff": Option({"mediaHandoff": "metadata"}, _has_new_ec),
    "other-names": Option({"name": "vision", "namespace": "other", "monitoring": True}),
    "own-settings": Option({"decode": _OWN}, _is_vllm),
    "own-image": Option(
        dict.fromkeys(("encode", "decode"), _ON_031),
        lambda combination: _has_new_ec(combination) and combination["topology"] == "e-pd",
    ),
    "everything": Option(
        {
            "monitoring": True,
            "tracing": True,
            "routing": "precise",
            "mode": "gateway",
            "gateway": {"gatewayClass": "istio"},
            "encoderParallelism": "data",
        },
        _is_vllm,
    ),
}

_ON_EVERY_ACCELERATOR = ("monitoring", "own-settings", "everything")

_SEEN: set[tuple[str, ...]] = set()


def _one_provider(combination: Mapping[str, str]) -> bool:
    """Options do not look at the provider: the first of each row stands for all."""
    key = tuple(combination[axis] for axis in ("release", "topology", "accelerator", "server", "model"))
    new = key not in _SEEN
    _SEEN.add(key)
    return new


OPTIONED = [
    Case(f"{path_of(combination, CATALOG).as_posix()}+{name}", {**_axes(combination), **option.said})
    for combination in COMBINATIONS
    if _one_provider(combination)
    for name, option in OPTIONS.items()
    if option.where(combination) and (name in _ON_EVERY_ACCELERATOR or combination["accelerator"] == "gpu")
]
"""Every option on every combination that takes it, with one provider each; XPU and TPU differ by devices alone."""

CASES = [*SHIPPED, *OPTIONED]


def names(case: Case) -> str:
    """How a case is called in a test's name."""
    return case.id
