"""Gateway mode: class, gateway, namespace selector, istiod, sidecar injection, routes that came too early."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.check.checking import Checker, label
from tests.rig.api import Api, wait
from tests.rig.workloads import deployment

ISTIO = {"mode": "gateway", "gateway": {"gatewayClass": "istio"}}
CLASSES = "/apis/gateway.networking.k8s.io/v1/gatewayclasses"
SWITCH = "ENABLE_GATEWAY_API_INFERENCE_EXTENSION"


@pytest.fixture
def classes(admin: Api, custom_resources: None) -> Iterator[None]:
    """The kind GatewayClass, of which the rig has no real definition."""
    name = "gatewayclasses.gateway.networking.k8s.io"
    names = {"kind": "GatewayClass", "plural": "gatewayclasses", "singular": "gatewayclass"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    spec = {"group": "gateway.networking.k8s.io", "scope": "Cluster", "names": names, "versions": [version]}
    metadata = {"name": name, "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"}}
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    item = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": metadata}
    admin.request("POST", path, {**item, "spec": spec})
    wait("it is served", lambda: admin.find(CLASSES))
    yield
    admin.delete(f"{path}/{name}")
    wait("it is gone", lambda: admin.find(CLASSES) is None)


def gateway_class(admin: Api, name: str, accepted: str) -> None:
    item = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": {"name": name}}
    status = {"conditions": [{"type": "Accepted", "status": accepted, "message": "said the controller"}]}
    admin.delete(f"{CLASSES}/{name}")
    admin.request("POST", CLASSES, {**item, "spec": {"controllerName": "rig/none"}, "status": status})


def test_the_gateway_s_class(checker: Checker, admin: Api, classes: None) -> None:
    assert checker(**ISTIO)["GatewayClass istio"].result == "error"
    gateway_class(admin, "istio", "True")
    assert checker(**ISTIO)["GatewayClass istio"].result == "ok"
    gateway_class(admin, "istio", "False")
    assert "said the controller" in checker(**ISTIO)["GatewayClass istio"].detail
    gateway_class(admin, "istio", "Unknown")
    assert checker(**ISTIO)["GatewayClass istio"].result == "warning"


def test_no_gateway_no_checks_of_one(checker: Checker) -> None:
    assert not [check for check in checker().checks if check.category == "gateway"]


def selecting(item: dict[str, Any]) -> None:
    """M164: the listener takes routes from namespaces with a label."""
    if item["kind"] == "Gateway":
        selector = {"matchLabels": {"team": "models"}}
        item["spec"]["listeners"][0]["allowedRoutes"]["namespaces"] = {"from": "Selector", "selector": selector}


def test_a_listener_that_selects_other_namespaces(checker: Checker, admin: Api, namespace: str) -> None:
    name = f"takes routes from namespace {namespace}"
    found = checker(selecting, **ISTIO)[name]
    assert found.result == "error"
    assert found.admin == (f"kubectl label namespace {namespace} team=models",)
    label(admin, namespace, {"team": "models"})
    assert checker(selecting, **ISTIO)[name].result == "ok"
    assert checker(**ISTIO)[name].result == "ok"


def test_somebody_else_s_gateway_must_be_there(checker: Checker, admin: Api, namespace: str) -> None:
    name = f"takes routes from namespace {namespace}"
    assert checker(mode="gateway")[name].result == "error"
    gateway = next(item for item in checker.intended(selecting, **ISTIO).objects if item["kind"] == "Gateway")
    admin.apply(gateway)
    assert "team=models" in checker(mode="gateway")[name].detail
    label(admin, namespace, {"team": "models"})
    assert checker(mode="gateway")[name].result == "ok"


def test_istiod_must_know_pools(checker: Checker, admin: Api, namespace: str) -> None:
    assert checker(**ISTIO)["istiod understands"].result == "warning"  # there is none
    istiod = deployment("istiod", namespace, gpus=0)
    istiod["metadata"]["labels"] = {"app": "istiod"}
    admin.apply(istiod)
    off = checker(**ISTIO)["istiod understands"]
    assert off.result == "error"
    assert off.admin == (f"kubectl set env deployment/istiod --namespace {namespace} {SWITCH}=true",)
    istiod["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": SWITCH, "value": "true"}]
    admin.apply(istiod)
    assert checker(**ISTIO)["istiod understands"].result == "ok"
    agent = {"mode": "gateway", "gateway": {"gatewayClass": "agentgateway"}}
    assert "istiod understands" not in checker(**agent)


def test_no_proxy_in_the_picker_s_pod(checker: Checker, admin: Api, namespace: str) -> None:
    name = "no proxy into the endpoint picker's pod"
    assert name not in checker(**ISTIO)
    label(admin, namespace, {"istio-injection": "enabled"})
    assert checker(**ISTIO)[name].result == "error"

    def out(values: dict[str, Any]) -> None:
        values["router"]["epp"]["podAnnotations"] = {"sidecar.istio.io/inject": "false"}

    assert checker(values=out, **ISTIO)[name].result == "ok"
    label(admin, namespace, {"istio-injection": "disabled"})
    assert name not in checker(**ISTIO)


def test_a_route_that_came_before_its_pool(checker: Checker, admin: Api, namespace: str) -> None:
    # M169: some controllers look for the pool once.
    route = {
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"name": "multimodal-serving", "namespace": namespace},
        "spec": {"rules": [{"backendRefs": [{"group": "inference.networking.k8s.io", "kind": "InferencePool",
                                             "name": "multimodal-serving"}]}]},
    }  # fmt: skip
    assert "comes after its pool" not in checker(mode="gateway")
    admin.apply(route)
    early = checker(mode="gateway")["comes after its pool"]
    assert early.result == "warning"
    assert "touched=again" in early.hint
    metadata = {"name": "multimodal-serving", "namespace": namespace}
    spec = {
        "targetPorts": [{"number": 8000}], "selector": {"matchLabels": {"a": "b"}},
        "endpointPickerRef": {"name": "multimodal-serving-epp", "port": {"number": 9002}},
    }  # fmt: skip
    pool = {"apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool"}
    admin.apply({**pool, "metadata": metadata, "spec": spec})
    assert "comes after its pool" not in checker(mode="gateway")
