"""The fake machines: enough for every row of the support matrix, and each kind of node that a check must understand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.rig.api import Api, Object, path

_HOST = {"cpu": "192", "memory": "2Ti", "pods": "110", "ephemeral-storage": "4Ti"}
_GPU = {
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.product": "NVIDIA-H200",
    "nvidia.com/gpu.count": "8",
    "cloud.google.com/gke-accelerator": "nvidia-h200-141gb",
}
_TPU = {"cloud.google.com/gke-tpu-accelerator": "tpu7x", "cloud.google.com/gke-tpu-topology": "2x2x1"}
_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
XPUS_A_NODE = 4


def gpu_node(name: str, **spec: Any) -> Object:
    """Eight H200, with InfiniBand."""
    return _node(name, _GPU, {"nvidia.com/gpu": "8", "rdma/ib": "8"}, **spec)


def _node(name: str, labels: dict[str, str], resources: dict[str, str], **spec: Any) -> Object:
    amounts = {**_HOST, **resources}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **labels}},
        "spec": spec,
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def nodes() -> Iterator[Object]:
    """3 x 8 H200, one more that is tainted and one that is full, 2 x 4 XPU, 8 x 4 TPU."""
    for index in range(3):
        yield gpu_node(f"gpu-{index}")
    yield gpu_node("gpu-tainted", taints=[_TAINT])
    yield gpu_node("gpu-full")
    for index in range(2):
        yield _node(f"xpu-{index}", {"intel.feature.node.kubernetes.io/gpu": "true"}, {})
    for index in range(8):
        yield _node(f"tpu-{index}", _TPU, {"google.com/tpu": "4"})


def _devices(node: str) -> Object:
    """What a driver for dynamic resource allocation says of a node's XPUs; the real scheduler hands them out."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": f"card{index}"} for index in range(XPUS_A_NODE)]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-gpu.intel.com"},
        "spec": {"driver": "gpu.intel.com", "nodeName": node, "pool": pool, "devices": devices},
    }


def _device_class() -> Object:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu.intel.com"},
        "spec": {"selectors": [{"cel": {"expression": 'device.driver == "gpu.intel.com"'}}]},
    }


def _priority() -> Object:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "medium"},
        "value": 1000,
    }


def _occupant() -> list[Object]:
    """Somebody else's pod, which holds all eight GPUs of the full node."""
    container = {
        "name": "busy",
        "image": "example.com/somebody-else:1",
        "resources": {"limits": {"nvidia.com/gpu": "8"}},
    }
    metadata = {"name": "busy", "namespace": "somebody-else"}
    spec = {
        "nodeName": "gpu-full",
        "serviceAccountName": "busy",
        "automountServiceAccountToken": False,
        "containers": [container],
    }
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "somebody-else"}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec},
    ]


def create(api: Api) -> None:
    """Put the machines, and what else a cluster's administrators have set up, on an API server."""
    machines = list(nodes())
    slices = [_devices(node["metadata"]["name"]) for node in machines if node["metadata"]["name"].startswith("xpu-")]
    for item in [*machines, _device_class(), *slices, _priority(), *_occupant()]:
        post(api, item)


def post(api: Api, item: Object) -> Object:
    """Create an object. Not apply: a Node's status is taken at its creation alone, as from a kubelet."""
    collection = path(item).rpartition("/")[0]
    return api.request("POST", collection, item)
