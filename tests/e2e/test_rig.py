"""The rig is what it says: real programs that accept, refuse, schedule and report as a cluster does."""

from __future__ import annotations

import http.server
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.rig import crds, fleet, users
from tests.rig.api import Api, Object, RefusedError, wait
from tests.rig.controlplane import ControlPlane, FailedError
from tests.rig.sets import GROUP, Sets
from tests.rig.workloads import condition, container, deployment, events, pods, ready_pods

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "tests" / "rig" / "chart"
OVERLAY = ROOT / "overlays" / "main" / "aggregation" / "gpu" / "vllm" / "base"


# ------------------------------------------------------------------------------------------------- control plane, nodes


def test_the_server_says_which_release_it_is(plane: ControlPlane) -> None:
    assert plane.api().get("/version")["gitVersion"].startswith("v1.35.")
    assert plane.helm("version", "--short").startswith("v4.")


def test_the_fleet_is_there_and_one_node_is_full(admin: Api) -> None:
    gpus = {
        node["metadata"]["name"]: node["status"]["allocatable"].get("nvidia.com/gpu")
        for node in admin.items("/api/v1/nodes")
    }
    assert len(gpus) == 15
    assert sorted(name for name, count in gpus.items() if count) == sorted(
        ["gpu-0", "gpu-1", "gpu-2", "gpu-tainted", "gpu-full"]
    )
    assert wait("it is busy", lambda: ready_pods(admin, "somebody-else", 1))


def test_a_restarted_server_is_the_same_server(plane: ControlPlane, admin: Api, namespace: str) -> None:
    admin.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept", "namespace": namespace}})
    plane.restart("kube-apiserver")
    assert admin.find(f"/api/v1/namespaces/{namespace}/configmaps/kept")


# --------------------------------------------------------------------------------------------------------- life of pods


def test_pods_with_gpus_are_placed_and_become_ready(admin: Api, namespace: str) -> None:
    admin.apply(deployment("engine", namespace, replicas=8))
    seen = wait("8 pods are ready", lambda: ready_pods(admin, namespace, 8))
    assert {pod["spec"]["nodeName"] for pod in seen} <= {"gpu-0", "gpu-1", "gpu-2"}
    assert len({pod["status"]["podIP"] for pod in seen}) == 8


def test_the_real_scheduler_says_why_a_pod_stays_pending(admin: Api, namespace: str) -> None:
    admin.apply(deployment("engine", namespace, gpus=16))
    (pod,) = wait("a pod", lambda: pods(admin, namespace))
    said = wait("the scheduler's word", lambda: condition(pods(admin, namespace)[0], "PodScheduled").get("message"))
    assert "Insufficient nvidia.com/gpu" in said
    assert "untolerated taint" in said
    assert pods(admin, namespace)[0]["status"]["phase"] == "Pending"
    (event,) = wait("an event", lambda: events(admin, namespace, "FailedScheduling"))
    assert event["involvedObject"]["name"] == pod["metadata"]["name"]


def test_a_slow_load_runs_before_it_is_ready(admin: Api, namespace: str) -> None:
    admin.apply(deployment("engine", namespace, ready_after="3s"))
    started = wait("running", lambda: container(admin, namespace).get("state", {}).get("running"))
    assert started
    time.sleep(1)
    assert container(admin, namespace)["ready"] is False
    wait("ready", lambda: ready_pods(admin, namespace, 1))


def test_a_slow_pull_waits_in_container_creating(admin: Api, namespace: str) -> None:
    admin.apply(deployment("engine", namespace, pull_for="2s"))
    wait("creating", lambda: _waiting(admin, namespace) == "ContainerCreating")
    time.sleep(1)
    assert _waiting(admin, namespace) == "ContainerCreating"
    wait("ready", lambda: ready_pods(admin, namespace, 1))


def _waiting(api: Api, namespace: str) -> str | None:
    return container(api, namespace).get("state", {}).get("waiting", {}).get("reason")


def test_a_missing_image_is_backed_off(admin: Api, namespace: str) -> None:
    admin.apply(deployment("engine", namespace, behaviour="image-missing"))
    wait("back-off", lambda: _waiting(admin, namespace) == "ImagePullBackOff")
    assert "example.com/engine:1" in container(admin, namespace)["state"]["waiting"]["message"]
    assert wait("an event", lambda: events(admin, namespace, "Failed"))


@pytest.mark.parametrize(
    ("behaviour", "reason", "code"), [("crash-loop", "Error", 1), ("out-of-memory", "OOMKilled", 137)]
)
def test_a_crashing_container_restarts_again_and_again(
    admin: Api, namespace: str, behaviour: str, reason: str, code: int
) -> None:
    admin.apply(deployment("engine", namespace, behaviour=behaviour))
    wait("the second restart", lambda: container(admin, namespace).get("restartCount", 0) >= 2)
    wait("back-off", lambda: _waiting(admin, namespace) == "CrashLoopBackOff")
    ended = container(admin, namespace)["lastState"]["terminated"]
    assert (ended["reason"], ended["exitCode"]) == (reason, code)


def test_a_ready_pod_can_stop_being_ready_and_recover(admin: Api, namespace: str) -> None:
    admin.apply(deployment("engine", namespace))
    (pod,) = wait("ready", lambda: ready_pods(admin, namespace, 1))
    where = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}"
    admin.merge(where, {"metadata": {"annotations": {"rig/behaviour": "unready"}}})
    wait("unready", lambda: condition(admin.get(where), "Ready")["status"] == "False")
    admin.merge(where, {"metadata": {"annotations": {"rig/behaviour": None}}})
    wait("ready again", lambda: ready_pods(admin, namespace, 1))


# --------------------------------------------------------------------------------------------------------------- users


def test_a_user_without_rights_can_do_nothing(plane: ControlPlane, namespace: str) -> None:
    for where in ("/api/v1/nodes", f"/api/v1/namespaces/{namespace}/pods"):
        with pytest.raises(RefusedError, match="403"):
            plane.api(users.NOBODY).get(where)


def test_a_viewer_reads_and_does_not_write(plane: ControlPlane, namespace: str) -> None:
    viewer = plane.api(users.VIEWER)
    assert viewer.get("/api/v1/nodes")["items"]
    with pytest.raises(RefusedError, match="403"):
        viewer.apply(deployment("engine", namespace))
    with pytest.raises(RefusedError, match="403"):
        viewer.get(f"/api/v1/namespaces/{namespace}/secrets")


def test_a_deployer_deploys_in_one_namespace_only(plane: ControlPlane, namespace: str, deployer: str) -> None:
    api = plane.api(deployer)
    api.apply(deployment("engine", namespace, gpus=0))
    for forbidden in ("default", "somebody-else"):
        with pytest.raises(RefusedError, match="403"):
            api.apply(deployment("engine", forbidden, gpus=0))
    with pytest.raises(RefusedError, match="403"):
        api.get("/api/v1/nodes")


# -------------------------------------------------------------------------------------------------------- pod addresses


class Echo(http.server.BaseHTTPRequestHandler):
    """Answers with the address that was asked: one process is every pod."""

    def do_GET(self) -> None:  # noqa: N802 - the name is the standard library's
        text = f"{self.connection.getsockname()[0]} {self.path}".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@pytest.fixture
def echo(pod_network: None) -> Iterator[None]:
    with http.server.ThreadingHTTPServer(("0.0.0.0", 8000), Echo) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield
        server.shutdown()
        thread.join()


def test_the_proxy_reaches_each_pod_by_its_own_address(admin: Api, namespace: str, echo: None) -> None:
    admin.apply(deployment("engine", namespace, replicas=3))
    for pod in wait("3 pods are ready", lambda: ready_pods(admin, namespace, 3)):
        answer = admin.get(f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}:8000/proxy/metrics")
        assert answer == f"{pod['status']['podIP']} /metrics"


def test_the_proxy_reaches_a_service(admin: Api, namespace: str, echo: None) -> None:
    admin.apply(deployment("engine", namespace))
    spec = {"selector": {"app": "engine"}, "ports": [{"name": "http", "port": 80, "targetPort": 8000}]}
    metadata = {"name": "engine", "namespace": namespace}
    admin.apply({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
    (pod,) = wait("ready", lambda: ready_pods(admin, namespace, 1))
    where = f"/api/v1/namespaces/{namespace}/services/engine:http/proxy/v1/models"
    assert wait("an endpoint", lambda: _answer(admin, where)) == f"{pod['status']['podIP']} /v1/models"


def _answer(api: Api, where: str) -> str | None:
    try:
        return api.get(where)
    except RefusedError as refused:
        if "no endpoints available" in str(refused):
            return None
        raise


def test_a_pod_s_log_is_what_a_test_wrote(
    plane: ControlPlane, namespace: str, deployer: str, pod_network: None
) -> None:
    plane.api().apply(deployment("engine", namespace))
    (pod,) = wait("ready", lambda: ready_pods(plane.api(), namespace, 1))
    name = pod["metadata"]["name"]
    assert plane.kubectl("logs", name, "-n", namespace, user=deployer) == ""
    plane.write_log(namespace, name, "one", "two", previous=("before",))
    asked = ("logs", name, "-n", namespace, "--tail=1")
    wait("the log", lambda: plane.kubectl(*asked, user=deployer) == "two\n")
    assert plane.kubectl("logs", name, "-n", namespace, "--previous", user=deployer) == "before\n"


# ------------------------------------------------------------------------------------------------ bundles, charts, sets


def test_helm_installs_the_chart_under_the_real_one_s_names(
    plane: ControlPlane, namespace: str, deployer: str, custom_resources: None
) -> None:
    values = OVERLAY / "router" / "values.yaml"
    plane.helm("upgrade", "--install", "mm", CHART, "--namespace", namespace, "-f", values, user=deployer)
    names = plane.kubectl(
        "get", "deploy,svc,sa,cm,role,rolebinding,inferencepool", "-n", namespace, "-o", "name", user=deployer
    ).split()
    ours = {name for name in names if name.rpartition("/")[2].startswith(("mm", "envoy"))}
    assert ours == {
        "deployment.apps/mm-epp",
        "service/mm-epp",
        "serviceaccount/mm-epp",
        "configmap/mm-epp",
        "configmap/envoy",
        "role.rbac.authorization.k8s.io/mm-epp-sa",
        "role.rbac.authorization.k8s.io/mm-epp-non-sa",
        "rolebinding.rbac.authorization.k8s.io/mm-epp-sa",
        "rolebinding.rbac.authorization.k8s.io/mm-epp-non-sa",
        "inferencepool.inference.networking.k8s.io/mm",
    }
    wait("the router is ready", lambda: ready_pods(plane.api(), namespace, 1))
    with pytest.raises(FailedError, match="envoy"):  # two standalone releases collide, as with the real chart
        plane.helm("install", "mm2", CHART, "--namespace", namespace, "-f", values)
    plane.helm("uninstall", "mm", "--namespace", namespace, user=deployer)


def test_the_chart_has_monitoring_and_a_route_when_asked(
    plane: ControlPlane, namespace: str, custom_resources: None
) -> None:
    wanted = {
        "router": {
            "modelServers": {"matchLabels": {"llm-d.ai/guide": "aggregation"}},
            "monitoring": {"prometheus": {"enabled": True}},
        },
        "httpRoute": {"create": True, "inferenceGatewayName": "inference-gateway"},
    }
    values = plane.directory / "asked.yaml"
    values.write_text(yaml.safe_dump(wanted), encoding="utf-8")
    plane.helm("install", "mm", CHART, "--namespace", namespace, "-f", values)
    kinds = "httproute,servicemonitor,secret"
    names = plane.kubectl("get", kinds, "-n", namespace, "-o", "name").split()
    assert {name for name in names if "helm.release" not in name} == {
        "httproute.gateway.networking.k8s.io/mm",
        "servicemonitor.monitoring.coreos.com/mm-epp-monitor",
        "secret/inference-gateway-sa-metrics-reader-secret",
    }
    assert plane.kubectl("get", "clusterrole", f"mm-{namespace}-epp")
    plane.helm("uninstall", "mm", "--namespace", namespace)


def in_namespace(overlay: Path, namespace: str, tmp_path: Path) -> Path:
    """A kustomization that puts a shipped overlay's model servers into a test's namespace."""
    lines = {"resources": [os.path.relpath(overlay / "modelserver", tmp_path)], "namespace": namespace}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(lines), encoding="utf-8")
    return tmp_path


def apply_strictly(plane: ControlPlane, directory: Path, user: str = users.ADMIN) -> None:
    plane.kubectl("apply", "--server-side", "--validate=strict", "-k", directory, user=user)


def test_a_shipped_overlay_is_accepted_strictly_and_becomes_ready(
    plane: ControlPlane, namespace: str, deployer: str, tmp_path: Path
) -> None:
    apply_strictly(plane, in_namespace(OVERLAY, namespace, tmp_path), deployer)
    plane.kubectl("rollout", "status", "deployment", "-n", namespace, "--timeout=60s", user=deployer)
    assert ready_pods(plane.api(), namespace, 8)


def test_devices_of_a_driver_are_handed_out(plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    overlay = ROOT / "overlays" / "main" / "aggregation" / "xpu" / "vllm" / "base"
    apply_strictly(plane, in_namespace(overlay, namespace, tmp_path))
    seen = wait("2 pods are ready", lambda: ready_pods(plane.api(), namespace, 2))
    assert {pod["spec"]["nodeName"] for pod in seen} <= {"xpu-0", "xpu-1"}
    claims = plane.api().items(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims")
    assert [len(claim["status"]["allocation"]["devices"]["results"]) for claim in claims] == [2, 2]


def test_tpu_pods_are_placed_by_their_slice(plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    overlay = ROOT / "overlays" / "main" / "aggregation" / "tpu" / "v7" / "vllm" / "gke"
    apply_strictly(plane, in_namespace(overlay, namespace, tmp_path))
    seen = wait("8 pods are ready", lambda: ready_pods(plane.api(), namespace, 8))
    assert len({pod["spec"]["nodeName"] for pod in seen}) == 8


SET = "e-pd-disaggregation-nvidia-gpu-vllm"


@pytest.fixture
def set_path(namespace: str) -> str:
    return f"/apis/{GROUP}/v1/namespaces/{namespace}/disaggregatedsets/{SET}"


@pytest.fixture
def set_overlay(namespace: str, tmp_path: Path) -> Path:
    return in_namespace(ROOT / "overlays" / "main" / "e-pd" / "gpu" / "vllm" / "base", namespace, tmp_path)


def test_a_set_is_accepted_and_its_children_become_ready(
    plane: ControlPlane, namespace: str, sets: Sets, set_overlay: Path, set_path: str
) -> None:
    api = plane.api()
    apply_strictly(plane, set_overlay)
    plane.kubectl("wait", "--for=condition=Available", f"disaggregatedset/{SET}", "-n", namespace, "--timeout=60s")
    seen = pods(api, namespace)
    roles = [pod["metadata"]["labels"][f"{GROUP}/role"] for pod in seen]
    assert sorted(roles) == ["decode"] * 8 + ["encode"] * 2
    assert {pod["metadata"]["labels"]["llm-d.ai/role"] for pod in seen} == {"decode", "encode"}
    assert {pod["metadata"]["ownerReferences"][0]["kind"] for pod in seen} == {"ReplicaSet"}
    status = api.get(set_path)["status"]
    assert [(each["name"], each["readyReplicas"]) for each in status["roleStatuses"]] == [("encode", 2), ("decode", 8)]
    names = [each["metadata"]["name"] for each in api.items(f"/api/v1/namespaces/{namespace}/services")]
    assert sum(name.endswith("-prv") for name in names) == 2
    assert len(names) == 4

    api.delete(set_path)  # and the real garbage collector takes the rest
    wait("everything is gone", lambda: not pods(api, namespace) and not _groups(api, namespace))


def _groups(api: Api, namespace: str) -> list[Object]:
    return api.items(f"/apis/leaderworkerset.x-k8s.io/v1/namespaces/{namespace}/leaderworkersets")


def test_ordinal_children_are_stateful(plane: ControlPlane, namespace: str, sets: Sets, set_overlay: Path) -> None:
    # A StatefulSet's pods carry its name and ten characters more in a label, so it must not have 63 of its own.
    change = [{"op": "replace", "path": "/metadata/name", "value": "mm-epd"}]
    for role in (0, 1):
        change.append({"op": "replace", "path": f"/spec/roles/{role}/spec/groupIdentity", "value": "Ordinal"})
    patch = {"target": {"kind": "DisaggregatedSet"}, "patch": yaml.safe_dump(change)}
    file = set_overlay / "kustomization.yaml"
    file.write_text(file.read_text() + yaml.safe_dump({"patches": [patch]}), encoding="utf-8")
    apply_strictly(plane, set_overlay)
    seen = wait("10 pods are ready", lambda: ready_pods(plane.api(), namespace, 10))
    assert {pod["metadata"]["ownerReferences"][0]["kind"] for pod in seen} == {"StatefulSet"}
    assert sorted(pod["metadata"]["name"].rpartition("-encode-")[2] for pod in seen)[:2] == ["0", "1"]


def test_a_change_rolls_all_roles_beside_the_old_ones(
    plane: ControlPlane, namespace: str, sets: Sets, set_overlay: Path, set_path: str
) -> None:
    api = plane.api()
    apply_strictly(plane, set_overlay)
    wait("10 pods are ready", lambda: ready_pods(api, namespace, 10))
    before = {group["metadata"]["name"] for group in _groups(api, namespace)}
    worker = "/spec/leaderWorkerTemplate/workerTemplate/spec/containers/0/image"
    patch = [{"op": "replace", "path": f"/spec/roles/0{worker}", "value": "example.com/engine:2"}]
    plane.kubectl("patch", "disaggregatedset", SET, "-n", namespace, "--type=json", "-p", yaml.safe_dump(patch))
    wait("new children beside the old", lambda: len(_groups(api, namespace)) == 4)
    assert condition(api.get(set_path), "Available").get("observedGeneration") != 2
    wait("only new children", lambda: before.isdisjoint(_names(_groups(api, namespace))), seconds=60)
    wait("10 pods are ready", lambda: ready_pods(api, namespace, 10))


def _names(items: list[Object]) -> set[str]:
    return {item["metadata"]["name"] for item in items}


def test_a_manager_that_reports_nothing(
    plane: ControlPlane, namespace: str, sets: Sets, set_overlay: Path, set_path: str
) -> None:
    api = plane.api()
    with sets.being("silent"):
        apply_strictly(plane, set_overlay)
        wait("10 pods are ready", lambda: ready_pods(api, namespace, 10))
        assert not api.get(set_path).get("status")
    wait("a status at last", lambda: condition(api.get(set_path), "Available"))
    with sets.being("away"):
        api.merge(set_path, {"spec": {"slices": 1, "roles": _scaled(api.get(set_path), 1)}})
        time.sleep(1)
        item = api.get(set_path)
        assert item["status"]["observedGeneration"] < item["metadata"]["generation"]


def _scaled(item: Object, replicas: int) -> list[Object]:
    return [{**role, "spec": {**role["spec"], "replicas": replicas}} for role in item["spec"]["roles"]]


def test_what_the_manager_cannot_make_is_an_event_on_the_child(
    plane: ControlPlane, namespace: str, sets: Sets, set_overlay: Path
) -> None:
    labels = "/spec/roles/0/spec/leaderWorkerTemplate/workerTemplate/metadata/labels"
    change = [{"op": "add", "path": f"{labels}/bad", "value": "no label: has blanks"}]
    patch = {"target": {"kind": "DisaggregatedSet"}, "patch": yaml.safe_dump(change)}
    file = set_overlay / "kustomization.yaml"
    file.write_text(file.read_text() + yaml.safe_dump({"patches": [patch]}), encoding="utf-8")
    apply_strictly(plane, set_overlay)
    (event,) = wait("an event", lambda: events(plane.api(), namespace, "FailedCreate"))
    assert event["involvedObject"]["kind"] == "LeaderWorkerSet"
    assert "no label: has blanks" in event["message"]
    wait("the other role is ready", lambda: len(pods(plane.api(), namespace)) == 8)


def test_a_definition_can_be_taken_away_and_put_back(
    plane: ControlPlane, admin: Api, namespace: str, custom_resources: None
) -> None:
    crds.remove(admin, "podmonitors")
    with pytest.raises(FailedError, match="could not find the requested resource|doesn't have a resource"):
        plane.kubectl("get", "podmonitors", "-n", namespace)
    crds.install(admin, "podmonitors")
    assert plane.kubectl("get", "podmonitors", "-n", namespace) == ""


def test_a_node_can_be_added_and_taken_away(admin: Api, namespace: str) -> None:
    fleet.post(admin, fleet.gpu_node("gpu-more"))
    wait("the node is ready", lambda: condition(admin.get("/api/v1/nodes/gpu-more"), "Ready").get("status") == "True")
    admin.delete("/api/v1/nodes/gpu-more")


# ----------------------------------------------------------------------------------------------------- nothing is left


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whatever_ends_the_tests_ends_the_programs(how: signal.Signals, tmp_path: Path) -> None:
    script = tmp_path / "holds_a_plane.py"
    script.write_text(
        "import signal, sys, time\n"
        "from pathlib import Path\n"
        "from tests.rig.programs import Program\n"
        "signal.signal(signal.SIGTERM, signal.default_int_handler)\n"
        f"each = Program('sleep', ['/bin/sleep', '600'], Path({str(tmp_path)!r}) / 'log')\n"
        "each.start()\n"
        "print(each.pid, flush=True)\n"
        "try:\n"
        "    time.sleep(600)\n"
        "finally:\n"
        "    each.stop()\n",
        encoding="utf-8",
    )
    command = [sys.executable, str(script)]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as holder:
        assert holder.stdout
        child = int(holder.stdout.readline())
        assert Path(f"/proc/{child}").exists()
        holder.send_signal(how)
        holder.wait(10)
        wait("the program has ended", lambda: not _alive(child), seconds=10)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
