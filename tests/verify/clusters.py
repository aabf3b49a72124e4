"""Namespaces as the API server would list them, made from shipped bundles: for discovery, which is pure."""

from __future__ import annotations

import copy
import functools
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from mmdeploy import intended
from mmdeploy.catalog import Catalog
from mmdeploy.intended import Intended, role_of
from mmdeploy.verify.cluster.looking import Seen

ROOT = Path(__file__).resolve().parents[2]
CATALOG = Catalog(ROOT / "blueprints")
READY = [{"type": "Ready", "status": "True"}]

Object = dict[str, Any]


@functools.cache
def bundle(path: str) -> Intended:
    """A shipped overlay."""
    return intended.read(ROOT / "overlays" / path, CATALOG)


def seen(meant: Intended, *, pool: bool = True) -> Seen:
    """The namespace when all of the bundle runs."""
    namespace, name = meant.namespace, meant.name
    pods = [*model_pods(meant), picker_pod(meant)]
    return Seen(
        namespace,
        pods=pods,
        services=[picker_service(meant)],
        pools=[pool_of(meant)] if pool else [],
        configurations={f"{name}-epp": configuration_of(meant)},
    )


def model_pods(meant: Intended) -> Iterator[Object]:
    """Pods as their controllers name and label them: Kubernetes and disaggregatedset-observed.md, "Objects"."""
    number = 0
    for item in meant.workloads:
        kind, name = item["kind"], item["metadata"]["name"]
        for role, replicas, template in _templates(item):
            for index in range(replicas):
                number += 1
                pod = copy.deepcopy(dict(template))
                metadata = pod.setdefault("metadata", {})
                metadata["labels"] = dict(metadata.get("labels", {}))
                if kind == "DisaggregatedSet":
                    owner = f"{name}-0-0123abcd-{role}"
                    metadata["labels"] |= {
                        "disaggregatedset.x-k8s.io/name": name,
                        "disaggregatedset.x-k8s.io/role": role,
                        "pod-template-hash": "5d8f",
                    }
                    metadata["ownerReferences"] = [{"kind": "ReplicaSet", "name": f"{owner}-5d8f"}]
                    metadata["name"] = f"{owner}-5d8f-{_letters(number)}"
                elif kind == "StatefulSet":
                    metadata["ownerReferences"] = [{"kind": "StatefulSet", "name": name}]
                    metadata["name"] = f"{name}-{index}"
                else:
                    metadata["labels"]["pod-template-hash"] = "5d8f"
                    metadata["ownerReferences"] = [{"kind": "ReplicaSet", "name": f"{name}-5d8f"}]
                    metadata["name"] = f"{name}-5d8f-{_letters(number)}"
                pod["status"] = {"phase": "Running", "podIP": f"10.244.0.{number + 1}", "conditions": READY}
                yield pod


def _templates(item: Any) -> Iterator[tuple[str, int, Any]]:
    if item["kind"] == "DisaggregatedSet":
        for role in item["spec"]["roles"]:
            yield role["name"], role["spec"]["replicas"], role["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    else:
        yield role_of(item) or "decode", item["spec"]["replicas"], item["spec"]["template"]


def _letters(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()[:5]


def picker_pod(meant: Intended) -> Object:
    """As the chart makes it: router.md §4.1, §4.3."""
    file = meant.values["router"]["epp"]["pluginsConfigFile"]
    container = {
        "name": "epp",
        "image": "ghcr.io/llm-d/llm-d-router-endpoint-picker:v0.10.0",
        "args": [f"--pool-name={meant.name}", f"--config-file=/config/{file}"],
        "ports": [{"name": "grpc", "containerPort": 9002}, {"name": "metrics", "containerPort": 9090}],
        "volumeMounts": [{"name": "plugins-config", "mountPath": "/config"}],
    }
    volume = {"name": "plugins-config", "configMap": {"name": f"{meant.name}-epp"}}
    return {
        "metadata": {
            "name": f"{meant.name}-epp-7c-x2x4z",
            "labels": {f"llm-d-router-{meant.mode}": f"{meant.name}-epp"},
        },
        "spec": {"containers": [container], "volumes": [volume]},
        "status": {"phase": "Running", "podIP": "10.244.9.9", "conditions": READY},
    }


def picker_service(meant: Intended) -> Object:
    """router.md §4.3: without Envoy in gateway mode."""
    ports = [{"name": "grpc-ext-proc", "port": 9002}, {"name": "http-metrics", "port": 9090}]
    if meant.mode == "standalone":
        ports += meant.values["router"]["extraServicePorts"]
    selector = {f"llm-d-router-{meant.mode}": f"{meant.name}-epp"}
    return {"metadata": {"name": f"{meant.name}-epp"}, "spec": {"selector": selector, "ports": ports}}


def pool_of(meant: Intended) -> Object:
    servers = meant.values["router"]["modelServers"]
    return {
        "metadata": {"name": meant.name, "annotations": {"meta.helm.sh/release-name": meant.name}},
        "spec": {
            "selector": {"matchLabels": servers["matchLabels"]},
            "targetPorts": servers["targetPorts"],
            "endpointPickerRef": {"name": f"{meant.name}-epp"},
        },
    }


def configuration_of(meant: Intended) -> Object:
    return {
        "metadata": {"name": f"{meant.name}-epp"},
        "data": dict(meant.values["router"]["epp"]["pluginsCustomConfig"]),
    }


def picker_configuration(meant: Intended) -> Any:
    """What the values say, read here."""
    picker = meant.values["router"]["epp"]
    return yaml.safe_load(picker["pluginsCustomConfig"][picker["pluginsConfigFile"]])
