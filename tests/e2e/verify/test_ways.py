"""The ways into a cluster: each proves the same, and leaves nothing behind.

The kubelet of the rig is kwok: it forwards ports to the pods' addresses, and runs commands on this machine, where the
pod network is. So curl runs here, not in its image; what the API server does on the way is real.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.e2e.verify.verifying import Deployed
from tests.rig import deploying, users
from tests.rig.api import wait
from tests.rig.simulated import Simulated

PODS = {"apiGroups": [""], "resources": ["pods", "services", "configmaps", "pods/log"], "verbs": ["get", "list"]}
POOLS = {"apiGroups": ["inference.networking.k8s.io"], "resources": ["inferencepools"], "verbs": ["list"]}
FORWARD = {"apiGroups": [""], "resources": ["pods/portforward"], "verbs": ["get", "create"]}


@pytest.fixture(scope="module")
def running(epd: Deployed) -> Iterator[Simulated]:
    with epd.simulated() as simulated:
        yield simulated


def clients(epd: Deployed) -> list[str]:
    """Pods that send requests, and are still there."""
    return [pod["metadata"]["name"] for pod in epd.pods() if pod["metadata"]["name"].startswith("mmdeploy-verify-")]


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize("way", ["proxy", "port-forward", "pod"])
def test_every_way_proves_everything(epd: Deployed, way: str) -> None:
    ran = epd.verify("--via", way)
    assert (ran.code, ran.unproved) == (0, {}), ran.out + ran.err
    assert not clients(epd)


@pytest.mark.usefixtures("running")
def test_the_entry_by_its_address_and_metrics_through_the_api_server(epd: Deployed) -> None:
    service = epd.api.get(f"/api/v1/namespaces/{epd.namespace}/services/{deploying.NAME}-epp")
    ran = epd.verify("--via", f"http://{service['spec']['clusterIP']}")
    assert (ran.code, ran.unproved) == (0, {}), ran.out + ran.err


@pytest.mark.usefixtures("running")
def test_without_the_right_to_proxy_ports_are_forwarded(epd: Deployed) -> None:
    users.grant(epd.api, epd.namespace, users.NOBODY, [PODS, POOLS, FORWARD])
    ran = epd.verify(user=users.NOBODY)
    assert (ran.code, ran.unproved) == (0, {}), ran.out + ran.err
    assert "proxy: no right to get pods/proxy" in ran.err
    assert "requests go by port-forward" in ran.err


def test_a_way_that_one_may_not_go_is_one_sentence(epd: Deployed) -> None:
    users.grant(epd.api, epd.namespace, users.NOBODY, [PODS, POOLS])
    ran = epd.verify("--via", "pod", user=users.NOBODY)
    assert ran.code == 5
    assert "no right to create pods" in ran.err
    assert "--print-rbac --via pod" in ran.err
    assert not clients(epd)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_the_client_pod_goes_when_one_interrupts(
    epd: Deployed, running: Simulated, how: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running.timings, "first_token", 5.0)
    words = [*deploying.PROGRAM, "verify", str(epd.bundle), "-n", epd.namespace, "--via", "pod"]
    with subprocess.Popen(
        words, env=epd.plane.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as program:
        assert program.stderr
        for line in program.stderr:
            if line.startswith("text to entry"):
                break
        assert len(clients(epd)) == 1
        program.send_signal(how)
        assert program.wait(30) == 130
    wait("the pod is gone", lambda: not clients(epd), seconds=10)


def test_a_client_pod_that_does_not_start_is_taken_away(epd: Deployed) -> None:
    from mmdeploy.cluster.access import Access
    from mmdeploy.cluster.session import Session
    from mmdeploy.errors import ClusterError
    from mmdeploy.verify.cluster.backends import Backends
    from mmdeploy.verify.cluster.clientpod import ClientPod
    from mmdeploy.verify.cluster.looking import Seen, facts_of
    from tests.e2e.verify.verifying import CATALOG

    facts = {**facts_of(CATALOG)["clientPod"], "cpu": "9999", "readySeconds": 2}
    session = Session.connect(Access(epd.plane.kubeconfig()))
    with pytest.raises(ClusterError, match="does not run after 2 s: .*Insufficient cpu"):
        ClientPod.started(session, epd.namespace, facts, Backends(Seen(epd.namespace), {}), time.sleep)
    wait("the pod is gone", lambda: not clients(epd), seconds=10)


def test_the_client_pod_meets_the_strictest_standard(epd: Deployed) -> None:
    from mmdeploy.verify.cluster.clientpod import manifest
    from mmdeploy.verify.cluster.looking import facts_of
    from tests.e2e.verify.verifying import CATALOG

    # The API server's own admission says whether a pod is restricted.
    name = f"{epd.namespace}-restricted"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    epd.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    where = f"/api/v1/namespaces/{name}"
    wait("the namespace has its service account", lambda: epd.api.find(f"{where}/serviceaccounts/default"))
    made = epd.api.request("POST", f"{where}/pods", manifest(name, facts_of(CATALOG)["clientPod"]))
    assert made["spec"]["automountServiceAccountToken"] is False
    epd.api.delete(where)
    epd.api.delete(f"{where}/pods")
