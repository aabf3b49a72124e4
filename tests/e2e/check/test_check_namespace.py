"""The namespace and what is in it: Secrets, quotas, limit ranges, pod security, volumes, what others have put there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mmdeploy.preflight.check import Check
from tests.e2e.check.checking import Checker, label, token
from tests.rig import users
from tests.rig.api import Api, wait
from tests.rig.controlplane import ControlPlane
from tests.rig.workloads import pods

ENFORCE = "pod-security.kubernetes.io/enforce"
PRE = {"creates": frozenset({"namespace", "secret"})}


def core(kind: str, name: str, namespace: str, **content: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}, **content}


# ------------------------------------------------------------------------------------------------- namespace, Secrets


def test_a_namespace_that_is_not_there(checker: Checker) -> None:
    found = checker(namespace="not-there")
    assert found["namespace not-there exists"].result == "error"
    assert found["namespace not-there exists"].admin == ("kubectl create namespace not-there",)
    assert found["Secret llm-d-hf-token"].result == "error"
    before = checker(namespace="not-there", options=PRE)
    assert before["namespace not-there exists"].detail == "not yet: will be created by apply"
    assert before["Secret llm-d-hf-token"].result == "ok"
    assert not before.bad
    tried = f"{len(checker.intended().objects)} tried in namespace default, as not-there is not there yet"
    assert before["accepts every object"].detail.startswith(tried)


def test_a_namespace_that_is_going(checker: Checker, admin: Api) -> None:
    where = "/api/v1/namespaces/check-ending"
    admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "check-ending"}})
    held = core("ConfigMap", "held", "check-ending")
    admin.apply({**held, "metadata": {**held["metadata"], "finalizers": ["rig/held"]}})
    admin.delete(where)
    try:
        wait("it is going", lambda: admin.get(where)["status"]["phase"] == "Terminating")
        assert checker(namespace="check-ending")["namespace check-ending exists"].result == "error"
    finally:
        admin.merge(f"{where}/configmaps/held", {"metadata": {"finalizers": None}})


def test_a_secret_and_its_key(checker: Checker, admin: Api, namespace: str) -> None:
    assert checker()["Secret llm-d-hf-token has key HF_TOKEN"].result == "ok"
    admin.delete(f"/api/v1/namespaces/{namespace}/secrets/llm-d-hf-token")
    missing = checker()["Secret llm-d-hf-token"]
    assert (missing.result, missing.detail) == ("error", "it does not exist")
    token(admin, namespace, key="token")
    other = checker()
    assert other["Secret llm-d-hf-token"].result == "error"
    assert "it has token, not HF_TOKEN" in other["Secret llm-d-hf-token"].detail
    assert "--set hfSecret.key=token" in other["Secret llm-d-hf-token"].hint
    assert "hf_of-nobody" not in str(other)
    assert checker(hfSecret={"key": "token"})["Secret llm-d-hf-token"].result == "ok"


def test_a_secret_that_may_not_be_read(checker: Checker) -> None:
    found = checker(user=users.VIEWER)["Secret llm-d-hf-token"]
    assert found.result == "warning"
    assert "nobody knows whether it is there" in found.detail


# -------------------------------------------------------------------------------------------- quotas and limit ranges


def test_quota_arithmetic(checker: Checker, admin: Api, namespace: str) -> None:
    # 8 pods × 2 GPUs = 16; 8 × 8 cores and the router's 8 = 72; 8 × 128Gi and 16Gi = 1040Gi = 1.0Ti.
    gpus = {"requests.nvidia.com/gpu": "16"}
    admin.apply(core("ResourceQuota", "team", namespace, spec={"hard": {**gpus, "requests.cpu": "71", "pods": "9"}}))
    where = f"/api/v1/namespaces/{namespace}/resourcequotas/team"
    wait("it is counted", lambda: (admin.get(where).get("status") or {}).get("hard"))
    found = checker()["quota team leaves room"]
    assert found.result == "error"
    assert found.detail == "requests.cpu: needs 72 of 71 left (hard 71, used 0)"
    admin.apply(core("ResourceQuota", "team", namespace, spec={"hard": {**gpus, "requests.cpu": "72", "pods": "9"}}))
    wait("it is counted", lambda: admin.get(where)["status"]["hard"]["requests.cpu"] == "72")
    assert checker()["quota team leaves room"].result == "ok"


def test_the_quota_s_word_is_the_real_one(checker: Checker, admin: Api, namespace: str) -> None:
    # The real admission refuses the ninth pod of eight allowed, and check had said so.
    admin.apply(core("ResourceQuota", "team", namespace, spec={"hard": {"pods": "7"}}))
    where = f"/api/v1/namespaces/{namespace}/resourcequotas/team"
    wait("it is counted", lambda: (admin.get(where).get("status") or {}).get("hard"))
    intended = checker.intended()
    found = checker.of(intended)["quota team leaves room"]
    assert found.detail == "pods: needs 9 of 7 left (hard 7, used 0)"  # with the router's pod
    for item in intended.objects:
        admin.apply(item)
    wait("seven pods", lambda: len(pods(admin, namespace)) == 7)
    again = checker.of(intended)["quota team leaves room"]
    assert again.detail == "pods: needs 9 of 7 left (hard 7, used 7, 7 of it by this deployment)"


def test_a_quota_refuses_what_says_nothing(checker: Checker, admin: Api, namespace: str) -> None:
    admin.apply(core("ResourceQuota", "team", namespace, spec={"hard": {"limits.cpu": "1k"}}))
    wait("it is there", lambda: admin.find(f"/api/v1/namespaces/{namespace}/resourcequotas/team"))
    found = checker()["quota team leaves room"]
    assert found.result == "error"
    assert "container epp (router) sets no limits.cpu" in found.detail
    limit = {"type": "Container", "default": {"cpu": "4"}}
    admin.apply(core("LimitRange", "defaults", namespace, spec={"limits": [limit]}))
    assert checker()["quota team leaves room"].result == "ok"


def test_a_limit_range(checker: Checker, admin: Api, namespace: str) -> None:
    # A model server's container may take 256Gi (llm-d-guides.md §3).
    limit = {"type": "Container", "max": {"memory": "200Gi"}}
    admin.apply(core("LimitRange", "bounds", namespace, spec={"limits": [limit]}))
    found = checker()["limit range bounds"]
    assert found.result == "error"
    assert found.detail == "container modelserver (decode): 256Gi memory is over 200Gi"
    assert checker(decode={"memory": "200Gi"})["limit range bounds"].result == "ok"


# ------------------------------------------------------------------------------------------------------- pod security


def test_pod_security_is_tried_with_a_pod(checker: Checker, admin: Api, namespace: str) -> None:
    assert "pod security" not in checker()
    label(admin, namespace, {ENFORCE: "restricted"})
    found = checker()["decode pods meet the namespace's pod security level restricted"]
    assert found.result == "error"
    assert "allowPrivilegeEscalation" in found.detail
    label(admin, namespace, {ENFORCE: "baseline"})
    assert checker()["pod security level baseline"].detail == "tried with a pod"


def test_pod_security_without_the_right_to_try(checker: Checker, admin: Api, namespace: str) -> None:
    label(admin, namespace, {ENFORCE: "restricted"})
    role = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]}
    users.grant(admin, namespace, users.NOBODY, [role])
    found = checker(user=users.NOBODY)["pod security level restricted"]
    assert found.result == "error"
    assert "container modelserver lacks allowPrivilegeEscalation: false" in found.detail


@pytest.fixture
def openshift(admin: Api) -> Iterator[None]:
    """A cluster that serves OpenShift's group of security constraints."""
    name = "securitycontextconstraints.security.openshift.io"
    names = {"kind": "SecurityContextConstraints", "plural": name.partition(".")[0], "singular": "scc"}
    schema = {"openAPIV3Schema": {"type": "object"}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    spec = {"group": "security.openshift.io", "scope": "Cluster", "names": names, "versions": [version]}
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    item = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name}}
    admin.request("POST", path, {**item, "spec": spec})
    wait("it is served", lambda: admin.find("/apis/security.openshift.io/v1"))
    yield
    admin.delete(f"{path}/{name}")
    wait("it is gone", lambda: admin.find("/apis/security.openshift.io/v1") is None)


def without_triton(item: dict[str, Any]) -> None:
    """M210: the cache at /.triton is mounted no more."""
    if item["kind"] == "Deployment":
        container = item["spec"]["template"]["spec"]["containers"][0]
        container["volumeMounts"] = [each for each in container["volumeMounts"] if each["mountPath"] != "/.triton"]


def as_root(item: dict[str, Any]) -> None:
    without_triton(item)
    if item["kind"] == "Deployment":
        item["spec"]["template"]["spec"]["containers"][0]["securityContext"] = {"runAsUser": 0}


def test_openshift_wants_a_volume_wherever_the_engine_writes(checker: Checker, openshift: None) -> None:
    found = checker(without_triton)["can write where the engine writes"]
    assert found.result == "error"
    assert "no volume at /.triton" in found.detail
    assert checker(as_root)["can write where the engine writes"].result == "ok"
    assert checker()["can write where the engine writes"].result == "ok"


def test_elsewhere_nobody_asks(checker: Checker) -> None:
    assert "OpenShift" not in checker(without_triton)


# ------------------------------------------------------------------------------------------ priority classes, volumes


def test_a_priority_class(checker: Checker, admin: Api) -> None:
    spec = {"accelerator": "tpu/v7", "provider": "gke"}
    assert checker(**spec)["PriorityClass medium"].result == "ok"
    where = "/apis/scheduling.k8s.io/v1/priorityclasses/medium"
    admin.delete(where)
    try:
        found = checker(**spec)["PriorityClass medium"]
        assert found.result == "error"
        assert found.admin == ("kubectl create priorityclass medium --value=1000",)
    finally:
        admin.apply({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "medium"},
                     "value": 1000})  # fmt: skip


def test_a_volume_s_claim(checker: Checker, admin: Api, namespace: str) -> None:
    spec = {"topology": "e-pd", "workload": "Deployment", "ecConnector": "ECExampleConnector"}
    assert checker(**spec)["PersistentVolumeClaim encoder-cache"].result == "error"
    found = _with_claim(checker, admin, "none", ["ReadWriteOnce"], spec)
    assert found.result == "error"
    assert "ReadWriteOnce" in found.detail
    found = _with_claim(checker, admin, "none", ["ReadWriteMany"], spec)
    assert (found.result, found.detail) == ("error", "it is not bound, and there is no storage class none")
    item = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "shared"}}
    classes = "/apis/storage.k8s.io/v1/storageclasses"
    late = {**item, "provisioner": "rig/nothing", "volumeBindingMode": "WaitForFirstConsumer"}
    admin.request("POST", classes, late)
    try:
        assert _with_claim(checker, admin, "shared", ["ReadWriteMany"], spec).result == "ok"
    finally:
        admin.delete(f"{classes}/shared")


def _with_claim(checker: Checker, admin: Api, storage: str, modes: list[str], spec: dict[str, Any]) -> Check:
    """What is said of the claim while it is there."""
    content = {"resources": {"requests": {"storage": "1Gi"}}, "storageClassName": storage, "accessModes": modes}
    admin.apply(core("PersistentVolumeClaim", "encoder-cache", checker.namespace, spec=content))
    path = f"/api/v1/namespaces/{checker.namespace}/persistentvolumeclaims/encoder-cache"
    try:
        return checker(**spec)["PersistentVolumeClaim encoder-cache"]
    finally:
        admin.delete(path)
        wait("it is gone", lambda: admin.find(path) is None)


# ---------------------------------------------------------------------------------------------------------- collisions

CHART = Path(__file__).resolve().parents[2] / "rig" / "chart"


def install(plane: ControlPlane, checker: Checker, name: str, values: Path, **spec: Any) -> None:
    import yaml

    values.write_text(yaml.safe_dump(dict(checker.intended(**spec).values)), encoding="utf-8")
    plane.helm("upgrade", "--install", name, CHART, "--namespace", checker.namespace, "-f", values)


def test_a_second_router_in_a_namespace(checker: Checker, plane: ControlPlane, tmp_path: Path) -> None:
    assert checker()["ConfigMap envoy is free"].result == "ok"
    install(plane, checker, "first", tmp_path / "values.yaml")
    found = checker(name="second")["ConfigMap envoy is free"]
    assert found.result == "error"
    assert "helm release first" in found.detail
    assert checker(name="first")["ConfigMap envoy is free"].result == "ok"


def test_two_deployments_that_share_a_label(checker: Checker, admin: Api, plane: ControlPlane, tmp_path: Path) -> None:
    # llm-d-guides.md §10.3: E/PD and E/P/D carry the same guide label.
    spec = {"workload": "Deployment", "topology": "e-pd"}
    intended = checker.intended(**spec)
    for item in intended.objects:
        admin.apply(item, manager="mmdeploy")
    install(plane, checker, "multimodal-serving", tmp_path / "values.yaml", **spec)
    wait("pods", lambda: len(pods(admin, checker.namespace)) >= 10)
    assert checker.of(checker.intended(**spec))["pool selects no foreign pods"].result == "ok"
    other = checker(topology="e-p-d", workload="Deployment", name="other", namePrefix="other")
    assert other["pool selects no foreign pods"].result == "error"
    assert "10 pods" in other["pool selects no foreign pods"].detail
    assert other["InferencePool multimodal-serving selects none"].result == "error"
    # Aggregation has a label of its own.
    assert checker(name="third", namePrefix="third")["pool selects no foreign pods"].result == "ok"


def test_objects_of_somebody_else(checker: Checker, admin: Api) -> None:
    intended = checker.intended()
    assert checker.of(intended)["this deployment's own"].detail == "none exists yet"
    for item in intended.objects:
        admin.apply(item, manager="kubectl")
    found = checker.of(intended)["this deployment's own"]
    assert found.result == "error"
    assert "made by kubectl" in found.detail
    assert "--adopt" in found.hint
    assert checker.of(intended, adopt=True)["this deployment's own"].result == "warning"


def test_objects_of_another_deployment_of_mmdeploy(checker: Checker, admin: Api, namespace: str) -> None:
    from mmdeploy.apply.inventory import Entry, Inventory, configmap

    intended = checker.intended()
    for item in intended.objects:
        admin.apply(item, manager="mmdeploy")
    entries = tuple(
        Entry("model-servers", item["apiVersion"], item["kind"], item["metadata"]["name"]) for item in intended.objects
    )
    assert checker.of(intended)["this deployment's own"].result == "ok"
    admin.apply(configmap(Inventory("first", namespace, entries)))
    found = checker.of(intended)["this deployment's own"]
    assert found.result == "error"
    assert "(deployment first)" in found.detail
