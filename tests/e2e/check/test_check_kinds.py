"""Custom resources: kinds that are missing, versions that are not served, fields that are too new."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.check.checking import Checker
from tests.rig import crds
from tests.rig.api import Api, wait

POOLS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/inferencepools.inference.networking.k8s.io"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


@contextlib.contextmanager
def without(admin: Api, *files: str) -> Iterator[None]:
    """Definitions are away for a while."""
    for file in files:
        crds.remove(admin, file)
    try:
        yield
    finally:
        crds.install(admin, *files)


def test_everything_is_served(checker: Checker) -> None:
    found = checker(topology="e-pd", monitoring=True)
    kinds = [check.name.split()[0] for check in found.checks if " is served as " in check.name]
    assert sorted(kinds) == ["DisaggregatedSet", "InferencePool", "LeaderWorkerSet", "PodMonitor", "ServiceMonitor"]
    assert all(check.result == "ok" for check in found.checks if " is served as " in check.name)


def test_a_missing_kind_comes_with_the_command_that_installs_it(checker: Checker, admin: Api) -> None:
    with without(admin, "inferencepools"):
        found = checker()["InferencePool is served"]
    assert found.result == "error"
    # llm-d-guides.md §14: the manifests' address, in the release's version (§13).
    assert found.admin == (
        "kubectl apply --server-side -f https://github.com/kubernetes-sigs/gateway-api-inference-extension/releases/"
        "download/v1.5.0/v1-manifests.yaml",
    )


def test_a_version_that_is_not_served_is_told_from_a_missing_kind(checker: Checker, admin: Api) -> None:
    kept = admin.get(POOLS)
    version = {**kept["spec"]["versions"][0], "name": "v1alpha9"}
    admin.merge(
        POOLS, {"spec": {"versions": [{**kept["spec"]["versions"][0], "served": False}, {**version, "storage": False}]}}
    )  # noqa: E501
    try:
        wait("it is served no more", lambda: admin.find("/apis/inference.networking.k8s.io/v1") is None)
        found = checker()["InferencePool is served"]
        assert found.result == "error"
        assert "serves inference.networking.k8s.io v1alpha9 only" in found.detail
    finally:
        admin.merge(POOLS, {"spec": {"versions": kept["spec"]["versions"]}})
        wait("it is served again", lambda: admin.find("/apis/inference.networking.k8s.io/v1"))


def test_gateway_mode_needs_the_gateway_api(checker: Checker, admin: Api) -> None:
    with without(admin, "gateways", "httproutes"):
        found = checker(mode="gateway")
        assert found["HTTPRoute is served"].result == "error"
        assert "gateway-api/releases/download/v1.5.1/standard-install.yaml" in found["HTTPRoute is served"].admin[0]
        assert "HTTPRoute" not in checker()


def test_monitoring_needs_the_prometheus_operator(checker: Checker, admin: Api) -> None:
    with without(admin, "podmonitors", "servicemonitors"):
        found = checker(monitoring=True)
        assert found["PodMonitor is served"].result == "error"
        assert found["ServiceMonitor is served"].result == "error"
        # Its objects are not tried, and that is said.
        assert "2 not" not in str(checker())
        assert "1 not, whose kind it does not serve" in found["the server accepts every object"].detail


def test_a_set_needs_crds_that_helm_upgrade_does_not_bring(checker: Checker, admin: Api) -> None:
    # M245: LWS upgraded by helm alone, which never touches crds/. Then an older definition: only the newest knows
    # groupIdentity (disaggregatedset-observed.md). One test, since definitions of a megabyte take their time.
    schema = "/openapi/v3/apis/disaggregatedset.x-k8s.io/v1"
    crds.remove(admin, "disaggregatedsets-groupidentity")
    try:
        missing = checker(topology="e-pd")["DisaggregatedSet is served"]
        crds.install(admin, "disaggregatedsets")
        wait("its schema is published", lambda: "groupIdentity" not in str(admin.find(schema) or "groupIdentity"))
        old = checker(topology="e-pd")
        without_it = checker(topology="e-pd", groupIdentity="none")
    finally:
        crds.remove(admin, "disaggregatedsets")
        crds.install(admin, "disaggregatedsets-groupidentity")
    assert missing.result == "error"
    assert missing.admin[1] == "kubectl apply --server-side --force-conflicts -f lws/crds"
    assert "--set enableDisaggregatedSet=true" in missing.admin[2]
    assert old["knows groupIdentity"].result == "error"
    assert old["accepts DisaggregatedSet"].result == "error"
    assert "groupIdentity" in old["accepts DisaggregatedSet"].detail
    assert without_it["accepts every object"].result == "ok"
    wait("it is back", lambda: "groupIdentity" in str(admin.find(schema)))


@pytest.fixture
def webhook(admin: Api) -> Iterator[Any]:
    """A webhook in front of DisaggregatedSets that nobody answers for."""
    name = "lws-test"
    rule = {
        "apiGroups": ["disaggregatedset.x-k8s.io"], "apiVersions": ["v1"], "operations": ["CREATE"],
        "resources": ["disaggregatedsets"],
    }  # fmt: skip
    hook = {
        "name": "vset.x-k8s.io", "admissionReviewVersions": ["v1"], "sideEffects": "None", "rules": [rule],
        "clientConfig": {"url": "https://127.0.0.1:9/validate"}, "failurePolicy": "Fail", "timeoutSeconds": 1,
    }  # fmt: skip
    item = {
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name}, "webhooks": [hook],
    }  # fmt: skip
    admin.request("POST", WEBHOOKS, item)
    yield
    admin.delete(f"{WEBHOOKS}/{name}")


def test_no_webhook_means_that_nobody_looks_after_sets(checker: Checker) -> None:
    found = checker(topology="e-pd")["looks after DisaggregatedSets"]
    assert found.result == "warning"
    assert "enableDisaggregatedSet seems to be off" in found.detail


def test_a_webhook_that_does_not_answer(checker: Checker, admin: Api, webhook: None) -> None:
    def asked() -> Any:
        found = checker(topology="e-pd")["looks after DisaggregatedSets"]
        return found if found.result == "error" else None

    found = wait("the webhook is in force", asked)
    assert "does not answer" in found.detail
    assert "lws-system" in found.hint


def test_objects_are_tried_strictly(checker: Checker) -> None:
    def misspelt(item: dict[str, Any]) -> None:
        if item["kind"] == "Deployment":
            item["spec"]["template"]["spec"]["containers"][0]["imagePulPolicy"] = "Always"

    found = checker(misspelt)["accepts Deployment"]
    assert found.result == "error"
    assert "imagePulPolicy" in found.detail
    assert checker()["accepts every object"].result == "ok"


def test_another_manager_s_field_is_named(checker: Checker, admin: Api) -> None:
    intended = checker.intended()
    deployment = next(item for item in intended.objects if item["kind"] == "Deployment")
    admin.apply(deployment, manager="mmdeploy")
    path = f"/apis/apps/v1/namespaces/{checker.namespace}/deployments/{deployment['metadata']['name']}"
    admin.request(
        "PATCH", f"{path}?fieldManager=kubectl-edit", {"spec": {"replicas": 3}}, "application/merge-patch+json"
    )
    found = checker.of(intended)["accepts Deployment"]
    assert found.result == "error"
    assert found.detail.startswith("fields of it belong to kubectl-edit")
    assert checker.of(intended, force_conflicts=True)["accepts every object"].result == "ok"
