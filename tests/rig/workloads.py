"""What tests put on the cluster, and how they read back what became of it."""

from __future__ import annotations

from tests.rig.api import Api, Object


def deployment(name: str, namespace: str, *, replicas: int = 1, gpus: int = 2, **behaviour: str) -> Object:
    """A model server's shape. ``ready_after="3s"`` is the annotation rig/ready-after of its pods: see stages.yaml."""
    labels = {"app": name}
    annotations = {f"rig/{key.replace('_', '-')}": value for key, value in behaviour.items()}
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    container = {"name": "modelserver", "image": "example.com/engine:1", "resources": {"limits": limits}}
    template = {"metadata": {"labels": labels, "annotations": annotations}, "spec": {"containers": [container]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


def pods(api: Api, namespace: str, **query: str) -> list[Object]:
    return api.items(f"/api/v1/namespaces/{namespace}/pods", **query)


def ready_pods(api: Api, namespace: str, count: int) -> list[Object] | None:
    """The namespace's pods, when there are so many and all are ready."""
    seen = pods(api, namespace)
    good = [pod for pod in seen if condition(pod, "Ready").get("status") == "True"]
    return seen if len(good) == len(seen) == count else None


def events(api: Api, namespace: str, reason: str) -> list[Object]:
    return api.items(f"/api/v1/namespaces/{namespace}/events", fieldSelector=f"reason={reason}")


def condition(item: Object, kind: str) -> Object:
    """A condition of an object's status; empty when it has none of the kind."""
    found = [each for each in (item.get("status", {}).get("conditions") or []) if each["type"] == kind]
    return found[0] if found else {}


def container(api: Api, namespace: str) -> Object:
    """State of a namespace's first container; empty until it has one."""
    for pod in pods(api, namespace):
        for status in pod["status"].get("containerStatuses", []):
            return status
    return {}
