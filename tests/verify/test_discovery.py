"""A deployment is found in what a namespace holds: the same with its bundle in hand as without."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mmdeploy.verify.cluster import discovery, routers
from mmdeploy.verify.cluster.looking import Seen
from mmdeploy.verify.cluster.places import place
from tests.verify import clusters
from tests.verify.clusters import CATALOG, ROOT, bundle, seen

OVERLAYS = sorted(str(path.parent.relative_to(ROOT / "overlays")) for path in ROOT.glob("overlays/**/mmdeploy.yaml"))


def found(there: Seen, overlay: str | None = None, name: str | None = None, **more: object) -> discovery.Found:
    meant = bundle(overlay) if overlay else None
    return discovery.discover(there, routers.find(there, CATALOG, name), CATALOG, meant=meant, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("overlay", OVERLAYS)
@pytest.mark.parametrize("known", [True, False])
def test_every_shipped_overlay_is_found(overlay: str, known: bool) -> None:
    meant = bundle(overlay)
    result = found(seen(meant), overlay if known else None)
    targets = result.targets
    assert (targets.topology, targets.server, targets.model) == tuple(
        meant.spec[key] for key in ("topology", "server", "model")
    )
    wanted = Counter({role: meant.spec[role]["replicas"] for role in meant.roles})
    assert Counter(pod.role for pod in targets.pods) == wanted
    assert all(pod.ready for pod in targets.pods)
    assert targets.entry.url == f"service://{meant.name}-epp.{meant.namespace}:80"
    assert [picker.url for picker in targets.pickers] == [
        f"pod://{meant.name}-epp-7c-x2x4z.{meant.namespace}:9090/metrics"
    ]
    assert targets.configuration["picker"] == clusters.picker_configuration(meant)
    assert not [item for item in result.observations if item.numbers.get("symptom")]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_requests_go_to_the_port_of_the_pool_and_metrics_are_read_from_the_engine(overlay: str) -> None:
    meant = bundle(overlay)
    behind = {pod.name: pod for pod in found(seen(meant)).targets.pods}
    for pod in seen(meant).pods:
        containers = [*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())]
        if pod["metadata"]["name"] not in behind:
            continue
        sidecar = any("sidecar" in item["image"] for item in containers)
        named = [port["containerPort"] for item in containers for port in item.get("ports", ())
                 if port["name"] == "modelserver"]  # fmt: skip
        target = behind[pod["metadata"]["name"]]
        front, page = place(target.api.url), place(target.metrics.url)
        assert front is not None
        assert page is not None
        assert (front.port, page.port, page.path) == (8000, named[0], "/metrics")
        assert named[0] == (8200 if sidecar else 8000)  # blueprints/catalog/ports.yaml
        assert (target.engine is not None) == sidecar
        assert target.address == f"{pod['status']['podIP']}:8000"


def test_a_router_without_a_pool_is_found_by_its_own_selector() -> None:
    meant = bundle("main/e-pd/gpu/vllm/base")
    there = seen(meant, pool=False)
    picker = next(pod for pod in there.pods if "epp" in pod["metadata"]["name"])
    picker["spec"]["containers"][0]["args"] += [  # router.md §4.3: what the chart passes with create=false
        "--endpoint-selector=llm-d.ai/guide=e-disaggregation", "--endpoint-target-ports=8000",
    ]  # fmt: skip
    targets = found(there).targets
    assert Counter(pod.role for pod in targets.pods) == {"encode": 2, "decode": 8}


def test_the_release_is_told_by_the_images() -> None:
    result = found(seen(bundle("v0.9/e-pd/gpu/vllm/base")))
    assert result.targets.release == "v0.9"  # the picker's image is v0.10.0, which catalog/releases/v0.9.yaml pins
    assert any("by the images" in item.detail for item in result.observations)


def test_the_gateway_is_addressed_by_the_service_of_its_controller() -> None:
    meant = bundle("main/e-pd/gpu/vllm/base")
    there = seen(meant)
    service = {
        "metadata": {"name": "inference-gateway-istio", "labels": {"gateway.networking.k8s.io/gateway-name": "gw"}},
        "spec": {"ports": [{"name": "status", "port": 15021}, {"name": "http", "port": 80}]},
    }
    route = {
        "metadata": {"name": meant.name, "namespace": meant.namespace},
        "spec": {
            "parentRefs": [{"name": "gw"}],
            "rules": [
                {"backendRefs": [{"kind": "InferencePool", "name": meant.name}], "timeouts": {"request": "300s"}}
            ],
        },
    }
    gateway = {"metadata": {"name": "gw"}, "spec": {"listeners": [{"name": "http", "protocol": "HTTP", "port": 80}]}}
    picker = {**there.services[0], "spec": {**there.services[0]["spec"], "ports": []}}
    there = Seen(**{**vars(there), "services": [picker, service], "routes": [route], "gateways": [gateway]})
    targets = found(there).targets
    url = f"service://inference-gateway-istio.{meant.namespace}:80"
    assert targets.gateway is not None
    assert (targets.entry.url, targets.gateway.url) == (url, url)
    assert targets.configuration["mode"] == "gateway"
    assert targets.configuration["requestTimeout"] == "300s"


def condition(type: str, status: str, reason: str = "") -> dict[str, str]:
    return {"type": type, "status": status, "reason": reason, "message": "no such pool" if status == "False" else ""}


@pytest.mark.parametrize("known", [True, False])
def test_the_route_of_the_cluster_says_what_holds_and_not_the_bundle_s(known: bool) -> None:
    """Types and places of the conditions: Gateway API v1, RouteParentStatus."""
    meant = bundle("main/e-pd/gpu/vllm/base")
    there = seen(meant)
    rules: list[dict[str, Any]] = [
        {"backendRefs": [{"kind": "InferencePool", "name": meant.name}], "timeouts": {"request": said}}
        for said in ("0s", "300s", "15s")
    ]
    good, bad = condition("Accepted", "True"), condition("ResolvedRefs", "False", "BackendNotFound")
    status = {"parents": [{"parentRef": {"name": "gw"}, "conditions": [good, bad]}]}
    route = {
        "metadata": {"name": "mm", "namespace": meant.namespace},
        "spec": {"parentRefs": [{"name": "gw"}], "rules": rules},
        "status": status,
    }
    there = Seen(**{**vars(there), "routes": [route]})
    result = discovery.discover(there, routers.find(there, CATALOG, None), CATALOG, meant=meant if known else None)
    assert result.targets.configuration["requestTimeout"] == "15s"  # the shortest; 0s is none
    assert result.targets.configuration["requestTimeoutOf"] == "HTTPRoute mm"
    told = {item.detail: item.numbers["symptom"] for item in result.observations if item.about == "route"}
    assert told == {
        "HTTPRoute mm under gw is not ResolvedRefs (BackendNotFound: no such pool)": "unresolved",
        f"no controller has said anything of InferencePool {meant.name}": "",
    }


def test_a_gateway_without_a_service_here_is_addressed_as_its_status_says() -> None:
    meant = bundle("main/aggregation/gpu/vllm/base")
    there = seen(meant)
    route = {
        "metadata": {"name": meant.name, "namespace": meant.namespace},
        "spec": {"parentRefs": [{"name": "gw"}],
                 "rules": [{"backendRefs": [{"kind": "InferencePool", "name": meant.name}]}]},
    }  # fmt: skip
    gateway = {
        "metadata": {"name": "gw"},
        "spec": {"listeners": [{"protocol": "HTTP", "port": 8080}]},
        "status": {"addresses": [{"value": "203.0.113.7"}]},
    }
    there = Seen(**{**vars(there), "routes": [route], "gateways": [gateway]})
    targets = found(there).targets
    assert targets.gateway is not None
    assert targets.gateway.url == "http://203.0.113.7:8080"


def test_an_address_that_was_said_takes_the_place_of_the_service(tmp_path: Path) -> None:
    targets = found(seen(bundle("main/aggregation/gpu/vllm/base")), entry="https://models.example.com/").targets
    assert targets.entry.url == "https://models.example.com"
    assert targets.gateway is None
    assert all(pod.metrics.url.startswith("pod://") for pod in targets.pods)


def test_a_token_goes_only_to_a_picker_that_asks_for_one() -> None:
    there = seen(bundle("main/aggregation/gpu/vllm/base"))
    assert [picker.token for picker in found(there, token="env:TOKEN").targets.pickers] == ["env:TOKEN"]
    picker = next(pod for pod in there.pods if "epp" in pod["metadata"]["name"])
    picker["spec"]["containers"][0]["args"].append("--metrics-endpoint-auth=false")  # router.md §4.4
    assert [picker.token for picker in found(there, token="env:TOKEN").targets.pickers] == [""]
