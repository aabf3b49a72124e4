"""What a pod asks for, as the scheduler and the quota count it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mmdeploy.preflight.amounts import Amounts, add, amounts, greatest, total

Pod = Mapping[str, Any]
"""A pod's ``spec``."""


def containers(pod: Pod) -> Iterator[Mapping[str, Any]]:
    """All of a pod's containers, init containers among them."""
    yield from pod.get("initContainers") or ()
    yield from pod.get("containers") or ()


def requests(pod: Pod) -> Amounts:
    """What must be free on a node. A limit without a request is a request."""
    return _summed(pod, _requests)


def limits(pod: Pod) -> Amounts:
    """What its containers may take."""
    return _summed(pod, lambda container: amounts((container.get("resources") or {}).get("limits")))


def _requests(container: Mapping[str, Any]) -> Amounts:
    resources = container.get("resources") or {}
    return amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _summed(pod: Pod, of: Any) -> Amounts:
    """Containers run together, and native sidecars with them; init containers one after the other, beside the
    sidecars that were started before them (Kubernetes, sidecar containers)."""
    running = total(of(container) for container in pod.get("containers") or ())
    sidecars: Amounts = {}
    starting: list[Amounts] = []
    for container in pod.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            add(sidecars, of(container))
            starting.append(dict(sidecars))
        else:
            starting.append(total([sidecars, of(container)]))
    add(running, sidecars)
    result = greatest([running, *starting])
    add(result, amounts(pod.get("overhead")))
    return result


def natively_sided(pods: Iterable[Pod]) -> bool:
    """Whether one of the pods has an init container that keeps running."""
    return any(item.get("restartPolicy") == "Always" for pod in pods for item in pod.get("initContainers") or ())


def claims(pod: Pod, templates: Mapping[str, Any]) -> Amounts:
    """Devices that the pod's claims ask for, by device class in thousandths; ``templates`` are the bundle's
    ResourceClaimTemplates by name."""
    result: Amounts = {}
    for claim in pod.get("resourceClaims") or ():
        template = templates.get(claim.get("resourceClaimTemplateName", ""), {})
        devices = ((template.get("spec") or {}).get("spec") or {}).get("devices") or {}
        for request in devices.get("requests") or ():
            exactly = request.get("exactly") or request
            if exactly.get("deviceClassName"):
                add(result, {exactly["deviceClassName"]: 1000 * int(exactly.get("count", 1))})
    return result


__all__ = ["claims", "containers", "limits", "natively_sided", "requests"]
