"""Quantities as the API server reads them, and what a pod asks for."""

from __future__ import annotations

from typing import Any

import pytest

from mmdeploy.preflight.amounts import milli, said
from mmdeploy.preflight.pods import claims, limits, requests

GI = 1024**3


@pytest.mark.parametrize(
    ("text", "thousandths"),
    [
        ("2", 2000),
        ("500m", 500),
        (0.5, 500),
        ("1e3", 1_000_000),
        ("1E", 10**18 * 1000),
        ("128Gi", 128 * GI * 1000),
        ("4Ti", 4096 * GI * 1000),
        ("1.5Gi", 3 * GI * 500),
        ("100u", 1),  # rounded up, as the API server does
        ("1k", 1_000_000),
        ("nonsense", 0),
        ("", 0),
    ],
)
def test_quantities(text: str | float, thousandths: int) -> None:
    # Kubernetes, "resource.Quantity": suffixes n u m k M G T P E, Ki to Ei, and decimal exponents.
    assert milli(text) == thousandths


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("memory", 256 * GI * 1000, "256Gi"),
        ("requests.memory", 1536 * GI * 1000, "1.5Ti"),
        ("cpu", 7500, "7.5"),
        ("nvidia.com/gpu", 16000, "16"),
    ],
)
def test_for_a_person(resource: str, amount: int, text: str) -> None:
    assert said(resource, amount) == text


def box(cpu: str, always: bool = False) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": cpu}}, **({"restartPolicy": "Always"} if always else {})}


def test_containers_sidecars_and_what_starts_before_them() -> None:
    # Kubernetes, "Sidecar containers", resource sharing: the larger of everything that runs at the end, and of each
    # init container with the sidecars that were started before it.
    pod = {"initContainers": [box("1", always=True), box("9")], "containers": [box("2"), box("3")]}
    assert requests(pod)["cpu"] == 10_000  # 1 + 9 while starting; 1 + 2 + 3 later
    pod["initContainers"] = [box("9"), box("1", always=True)]
    assert requests(pod)["cpu"] == 9_000  # the sidecar starts after it
    pod["initContainers"] = [box("1", always=True)]
    assert requests(pod)["cpu"] == 6_000


def test_a_limit_without_a_request_is_a_request() -> None:
    pod = {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "2", "cpu": "4"}, "requests": {"cpu": "1"}}}]}
    assert requests(pod) == {"nvidia.com/gpu": 2000, "cpu": 1000}
    assert limits(pod)["cpu"] == 4000


def test_devices_of_claims() -> None:
    request = {"name": "intel", "exactly": {"deviceClassName": "gpu.intel.com", "count": 2}}
    template = {
        "spec": {"spec": {"devices": {"requests": [request, {"name": "n", "exactly": {"deviceClassName": "nic"}}]}}}
    }
    pod = {"resourceClaims": [{"name": "a", "resourceClaimTemplateName": "t"}, {"name": "b", "resourceClaimName": "x"}]}
    assert claims(pod, {"t": template}) == {"gpu.intel.com": 2000, "nic": 1000}
