"""Steps of rollouts, listeners, quotas and pod security: small rules with tables of their own."""

from __future__ import annotations

from typing import Any

import pytest

from mmdeploy.preflight.changes import steps
from mmdeploy.preflight.gateways import closed_listeners
from mmdeploy.preflight.quota import charged
from mmdeploy.preflight.security import violations


@pytest.mark.parametrize(
    ("strategy", "replicas", "expected"),
    [
        ({}, 8, (2, 2)),  # Kubernetes' defaults: 25 %, surge rounded up, unavailable rounded down
        ({}, 3, (1, 0)),
        ({}, 1, (1, 0)),
        ({"type": "Recreate"}, 8, (0, 8)),
        ({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}, 8, (0, 1)),
        ({"rollingUpdate": {"maxSurge": "50%", "maxUnavailable": "50%"}}, 3, (2, 1)),
    ],
)
def test_steps_of_a_rollout(strategy: dict[str, Any], replicas: int, expected: tuple[int, int]) -> None:
    assert steps({"strategy": strategy}, replicas) == expected


def gateway(**selector: Any) -> dict[str, Any]:
    namespaces = {"from": "Selector", "selector": selector} if selector else {"from": "All"}
    return {"spec": {"listeners": [{"name": "http", "allowedRoutes": {"namespaces": namespaces}}]}}


@pytest.mark.parametrize(
    ("item", "labels", "closed"),
    [
        (gateway(), {}, []),
        (gateway(matchLabels={"a": "b"}), {"a": "b"}, []),
        (gateway(matchLabels={"a": "b"}), {"a": "c"}, [("listener http wants a=b", "a=b")]),
        (
            gateway(matchExpressions=[{"key": "a", "operator": "In", "values": ["b", "c"]}]),
            {},
            [("listener http wants a In b c", "")],
        ),
        (gateway(matchExpressions=[{"key": "a", "operator": "Exists"}]), {"a": ""}, []),
        (gateway(matchExpressions=[{"key": "a", "operator": "NotIn", "values": ["b"]}]), {}, []),
        ({"spec": {"listeners": [{"name": "http"}]}}, {}, []),
    ],
)
def test_listeners(item: dict[str, Any], labels: dict[str, str], closed: list[tuple[str, str]]) -> None:
    assert closed_listeners(item, labels) == closed


def test_what_a_quota_charges_for_a_pod() -> None:
    # Kubernetes, "Resource quotas": cpu and requests.cpu are the same; extended resources have requests alone.
    resources = {"limits": {"cpu": "4", "nvidia.com/gpu": "2"}, "requests": {"cpu": "1"}}
    found = charged({"containers": [{"resources": resources}]}, {"gpu.intel.com devices": 2000})
    assert found == {
        "pods": 1000, "count/pods": 1000, "cpu": 1000, "requests.cpu": 1000, "limits.cpu": 4000,
        "requests.nvidia.com/gpu": 2000, "gpu.intel.com.deviceclass.resource.k8s.io/devices": 2000,
    }  # fmt: skip


def test_levels_of_pod_security() -> None:
    # Kubernetes, "Pod security standards".
    context = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    good = {
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "a", "securityContext": context}],
    }
    assert not list(violations(good, "restricted"))
    bare = {"containers": [{"name": "a"}], "volumes": [{"name": "host", "hostPath": {"path": "/"}}], "hostIPC": True}
    assert list(violations(bare, "baseline")) == ["hostIPC is set", "volume host is a hostPath"]
    assert "container a lacks allowPrivilegeEscalation: false" in list(violations(bare, "restricted"))[-1]
