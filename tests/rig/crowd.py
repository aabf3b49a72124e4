"""A big cluster: hundreds of nodes and thousands of somebody else's pods, for measuring what lists cost."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.rig import fleet
from tests.rig.api import Api, Object

NAMESPACE = "crowd"
WRITERS = 8


def gather(api: Api, nodes: int = 500, pods: int = 5_000) -> None:
    """Make them. Stop kwok first: nobody has to run these pods, and each would cost it several requests."""
    fleet.post(api, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    account = {"name": "busy", "namespace": NAMESPACE}
    fleet.post(api, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(lambda index: fleet.post(api, _node(index)), range(nodes)))
        list(pool.map(lambda index: fleet.post(api, _pod(index, nodes)), range(pods)))


def _node(index: int) -> Object:
    node = fleet.gpu_node(f"crowd-{index}")
    conditions = [
        {"type": kind, "status": "False", "reason": f"KubeletHasNo{kind}", "message": f"the kubelet has no {kind}"}
        for kind in ("MemoryPressure", "DiskPressure", "PIDPressure")
    ]
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "the kubelet is posting ready"}
    images = [{"names": [f"example.com/image-{number}:1"], "sizeBytes": 10_000_000} for number in range(40)]
    node["status"] |= {"conditions": [*conditions, ready], "images": images}
    return node


def _pod(index: int, nodes: int) -> Object:
    """A pod as people have them: a few containers, probes, mounts."""
    limits = {"cpu": "1", "memory": "2Gi", "nvidia.com/gpu": "1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"busy-{index}",
            "namespace": NAMESPACE,
            "labels": {"app": f"busy-{index % 97}", "app.kubernetes.io/managed-by": "somebody"},
        },
        "spec": {
            "nodeName": f"crowd-{index % nodes}",
            "serviceAccountName": "busy",
            "automountServiceAccountToken": False,
            "containers": [_container("main", limits), _container("sidecar", {"cpu": "100m", "memory": "128Mi"})],
            "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}}],
        },
    }


def _container(name: str, limits: dict[str, str]) -> dict[str, Any]:
    probe = {"httpGet": {"path": "/health", "port": 8000}, "periodSeconds": 10, "failureThreshold": 3}
    return {
        "name": name,
        "image": f"example.com/{name}:1",
        "args": ["--listen=0.0.0.0:8000", "--log-level=info", "--workers=4"],
        "env": [{"name": f"SETTING_{number}", "value": f"value-{number}"} for number in range(10)],
        "ports": [{"containerPort": 8000, "name": "http"}] if name == "main" else [],
        "resources": {"limits": limits, "requests": limits},
        "readinessProbe": probe,
        "livenessProbe": probe,
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
    }
