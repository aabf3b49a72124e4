"""Apply while others work: refusals, quotas, a server that restarts, two at once. After each, apply goes on."""

from __future__ import annotations

import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from mmdeploy.apply import lease
from mmdeploy.cluster.access import Access
from mmdeploy.cluster.session import Session
from mmdeploy.errors import ConflictError
from tests.rig import webhook
from tests.rig.api import Api, wait
from tests.rig.controlplane import ControlPlane
from tests.rig.deploying import NAME, Running, apply, apply_words, delete, everything, hold_token, render, succeeded

SKIP = ("--skip", "preflight", "--no-wait")
"""What comes up during apply is what these tests are about, not what the checks find before."""


@pytest.fixture
def bundle(plane: ControlPlane, admin: Api, namespace: str, tmp_path: Path, custom_resources: None) -> Path:
    hold_token(admin, namespace)
    return render(plane, tmp_path / "bundle", namespace, namePrefix="mm")


def decode(namespace: str) -> str:
    return f"/apis/apps/v1/namespaces/{namespace}/deployments/mm-decode"


def lease_path(namespace: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/mmdeploy-{NAME}"


# ------------------------------------------------------------------------------------------------------ webhooks, quota


DECODE = ("apps", "deployments", "mm-decode")


def test_a_webhook_that_refuses_is_named(plane: ControlPlane, admin: Api, namespace: str, bundle: Path) -> None:
    with webhook.refusing(plane, admin, namespace, *DECODE):
        ran = apply(plane, bundle, *SKIP)
    assert ran.code == 5
    assert webhook.NAME in ran.err
    assert webhook.REASON in ran.err
    assert ran.events[-1]["event"] == "failed"
    succeeded(apply(plane, bundle, *SKIP))
    assert admin.find(decode(namespace))


def test_a_webhook_that_is_down_is_named(plane: ControlPlane, admin: Api, namespace: str, bundle: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with webhook.registered(plane, admin, port, namespace, DECODE):
        ran = apply(plane, bundle, *SKIP)
    assert ran.code == 5
    assert webhook.NAME in ran.err
    assert "whoever runs the webhook" in ran.err
    succeeded(apply(plane, bundle, *SKIP))


def test_a_quota_that_is_hit_halfway(plane: ControlPlane, admin: Api, namespace: str, bundle: Path) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "one", "namespace": namespace},
             "spec": {"hard": {"count/deployments.apps": "1"}}}  # fmt: skip
    where = f"/api/v1/namespaces/{namespace}/resourcequotas/one"
    admin.apply(quota)
    wait("the quota counts", lambda: admin.get(where).get("status", {}).get("used"))
    ran = apply(plane, bundle, *SKIP)
    assert ran.code == 5
    assert "exceeded quota: one" in ran.err
    assert "print-rbac" not in ran.err
    there = everything(admin, namespace)
    assert f"Deployment/{NAME}-epp" in there
    assert "Deployment/mm-decode" not in there
    admin.delete(where)
    ran = succeeded(apply(plane, bundle, *SKIP))
    assert ran.applied[f"HelmRelease/{NAME}"] == "unchanged"
    assert ran.applied["Deployment/mm-decode"] == "created"
    succeeded(delete(plane, bundle))
    assert everything(admin, namespace) == {
        "Secret/llm-d-hf-token": everything(admin, namespace)["Secret/llm-d-hf-token"]
    }


# -------------------------------------------------------------------------------------------------------------- restart


@pytest.mark.parametrize("stage", ["router", "model-servers", "wait"])
def test_a_server_that_restarts(plane: ControlPlane, admin: Api, namespace: str, bundle: Path, stage: str) -> None:
    with Running(plane, *apply_words(bundle)) as running:
        running.until("stage-started", stage)
        plane.restart("kube-apiserver")
        code, said = running.end()
    assert "Traceback" not in said
    assert code in (0, 1, 5)  # helm gives up where mmdeploy's own requests are tried again
    if stage == "wait":
        assert code == 0, said
    succeeded(apply(plane, bundle, "--no-wait"))
    again = succeeded(apply(plane, bundle, "--no-wait"))
    assert set(again.applied.values()) == {"unchanged"}
    succeeded(delete(plane, bundle))


# ------------------------------------------------------------------------------------------------------------- together


def test_a_second_apply_is_told_who_is_at_work(plane: ControlPlane, admin: Api, namespace: str, bundle: Path) -> None:
    with Running(plane, *apply_words(bundle, "--no-wait")) as first:
        first.until("stage-started", "router")
        second = apply(plane, bundle, "--no-wait")
        code, said = first.end()
    assert code == 0, said
    if second.code:
        assert second.code == 5
        assert f":{first.process.pid} is changing {NAME}" in second.err or "since this was planned" in second.err
    again = succeeded(apply(plane, bundle, "--no-wait"))
    assert set(again.applied.values()) == {"unchanged"}
    assert admin.find(lease_path(namespace)) is None


def held(namespace: str, renewed: float) -> dict[str, Any]:
    """A lease of somebody else's mmdeploy, renewed so many seconds ago."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(time.time() - renewed))
    return {
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": f"mmdeploy-{NAME}", "namespace": namespace,
                     "labels": {"app.kubernetes.io/managed-by": "mmdeploy"}},
        "spec": {"holderIdentity": "ada@far-away:17", "leaseDurationSeconds": 30, "renewTime": stamp},
    }  # fmt: skip


def test_a_lease_that_lasts_is_respected_and_one_that_ended_is_not(
    plane: ControlPlane, admin: Api, namespace: str, bundle: Path
) -> None:
    admin.apply(held(namespace, renewed=5))
    for words in (("apply",), ("delete",)):
        ran = apply(plane, bundle, "--no-wait") if words == ("apply",) else delete(plane, bundle)
        if words == ("apply",):
            assert ran.code == 5
            assert "ada@far-away:17 is changing multimodal-serving; its lease ends at" in ran.err
            assert "Deployment/mm-decode" not in everything(admin, namespace)
    admin.apply(held(namespace, renewed=31))
    succeeded(apply(plane, bundle, "--no-wait"))
    assert admin.find(lease_path(namespace)) is None


def test_a_lease_of_a_clock_that_is_wrong_is_cleared_by_the_command_that_the_error_names(
    plane: ControlPlane, admin: Api, namespace: str, bundle: Path
) -> None:
    admin.apply(held(namespace, renewed=-86400))
    ran = apply(plane, bundle, "--no-wait")
    assert ran.code == 5
    assert "ada@far-away:17 holds the lease of multimodal-serving until" in ran.err
    said = " ".join(ran.err.split())
    command = said[said.index("kubectl delete lease") :].split()[:6]
    assert command == ["kubectl", "delete", "lease", f"mmdeploy-{NAME}", "--namespace", namespace]
    plane.kubectl(*command[1:])
    succeeded(apply(plane, bundle, "--no-wait"))


def test_a_lease_that_is_taken_stops_the_work(
    plane: ControlPlane, admin: Api, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.1)
    session = Session.connect(Access(plane.kubeconfig()))
    with lease.Lease(session, namespace, NAME) as mine:
        mine.check()
        first = admin.get(lease_path(namespace))["spec"]
        wait("it is renewed", lambda: admin.get(lease_path(namespace))["spec"]["renewTime"] != first["renewTime"])
        admin.merge(lease_path(namespace), {"metadata": {"labels": {"touched": "by-somebody"}}})
        time.sleep(0.5)
        mine.check()
        admin.merge(lease_path(namespace), {"spec": {"holderIdentity": "ada@far-away:17"}})
        with pytest.raises(ConflictError, match="ada@far-away:17 took it over"):
            wait("it is noticed", lambda: mine.check())
    assert admin.get(lease_path(namespace))["spec"]["holderIdentity"] == "ada@far-away:17", "not ours to give back"


def test_an_edit_between_plan_and_work_is_a_conflict(
    plane: ControlPlane, admin: Api, namespace: str, bundle: Path
) -> None:
    succeeded(apply(plane, bundle, "--no-wait"))
    file = bundle / "modelserver" / "decode-deployment.yaml"
    item = yaml.safe_load(file.read_text())
    item["spec"]["replicas"] = 2
    file.write_text(yaml.safe_dump(item))
    with Running(plane, *apply_words(bundle, *SKIP)) as running:
        running.until("stage-started", "secret")  # planned, and not yet written
        running.process.send_signal(signal.SIGSTOP)  # so that the edit comes before the writing, however slow it is
        metadata = {"name": "mm-decode", "namespace": namespace}
        edit = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"replicas": 3}}
        admin.apply(edit, manager="autoscaler")
        running.process.send_signal(signal.SIGCONT)
        code, said = running.end()
    assert code == 5
    assert "autoscaler manages" in said
    assert admin.get(decode(namespace))["spec"]["replicas"] == 3


def test_an_inventory_that_is_taken_away_meanwhile_comes_back(
    plane: ControlPlane, admin: Api, namespace: str, bundle: Path
) -> None:
    where = f"/api/v1/namespaces/{namespace}/configmaps/mmdeploy-{NAME}"
    with Running(plane, *apply_words(bundle, "--no-wait")) as running:
        running.until("stage-done", "secret")
        admin.delete(where)
        code, said = running.end()
    assert code == 0, said
    succeeded(delete(plane, bundle))
    assert set(everything(admin, namespace)) == {"Secret/llm-d-hf-token"}
