"""The room that talks to a cluster, against a real API server: how it logs in, what it says when it cannot."""

from __future__ import annotations

import json
import re
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from mmdeploy.cluster.access import Access
from mmdeploy.cluster.session import Session
from mmdeploy.errors import ClusterError, ConflictError, ForbiddenError, NotFoundError, RejectedError
from tests.rig import users
from tests.rig.controlplane import ControlPlane


def kubeconfig(plane: ControlPlane, tmp_path: Path, **changes: Any) -> Path:
    """The administrator's kubeconfig, with its cluster or user changed."""
    content = json.loads(plane.kubeconfig().read_text())
    content["clusters"][0]["cluster"] |= changes.get("cluster", {})
    if "user" in changes:
        content["users"][0]["user"] = changes["user"]
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(content))
    return path


def connected(path: Path, context: str | None = None) -> Session:
    session = Session.connect(Access(path, context))
    assert session.version.startswith("v1.")
    return session


@pytest.fixture
def session(plane: ControlPlane) -> Session:
    return Session.connect(Access(plane.kubeconfig()))


def config_map(namespace: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "namespace": namespace}, "data": data}


# ---------------------------------------------------------------------------------------------------------- logging in


def test_unknown_context_names_the_nearest(plane: ControlPlane, tmp_path: Path) -> None:
    with pytest.raises(ClusterError) as caught:
        connected(kubeconfig(plane, tmp_path), "rigg")
    assert "rigg" in caught.value.found
    assert caught.value.nearest == ("rig",)


def test_missing_kubeconfig(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="there is no kubeconfig"):
        connected(tmp_path / "absent")


def test_kubeconfig_that_is_no_yaml(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("{contexts: [")
    with pytest.raises(ClusterError) as caught:
        connected(path)
    assert "\n" not in caught.value.found


def test_wrong_token(plane: ControlPlane, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="credentials are not accepted") as caught:
        connected(kubeconfig(plane, tmp_path, user={"token": "of-nobody"})).get("/api/v1/nodes")
    assert "of-nobody" not in str(caught.value)


def test_nothing_listens(plane: ControlPlane, tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    path = kubeconfig(plane, tmp_path, cluster={"server": f"https://127.0.0.1:{port}"})
    session = Session.connect(Access(path))
    session._sleep = lambda _: None
    with pytest.raises(ClusterError, match="nothing listens there"):
        session.get("/version")


def test_certificate_of_another_authority(plane: ControlPlane, tmp_path: Path) -> None:
    system = Path("/etc/ssl/certs/ca-certificates.crt")
    if not system.is_file():
        pytest.skip("needs a bundle of certificate authorities")
    path = kubeconfig(plane, tmp_path, cluster={"certificate-authority": str(system)})
    with pytest.raises(ClusterError, match="certificate is not trusted"):
        connected(path)


def test_plain_http_port(plane: ControlPlane, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(1024)
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        server.settimeout(20)
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        path = kubeconfig(plane, tmp_path, cluster={"server": f"https://127.0.0.1:{server.getsockname()[1]}"})
        with pytest.raises(ClusterError, match="does not speak TLS"):
            connected(path)
        thread.join()


def test_proxy_that_is_away(plane: ControlPlane, tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    path = kubeconfig(plane, tmp_path, cluster={"proxy-url": f"http://127.0.0.1:{port}"})
    session = Session.connect(Access(path))
    session._sleep = lambda _: None
    with pytest.raises(ClusterError, match="the proxy"):
        session.get("/version")


def plugin(tmp_path: Path, script: str) -> dict[str, Any]:
    """A user that logs in with a program, as `kubectl` runs it."""
    program = tmp_path / "login"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    version = "client.authentication.k8s.io/v1"
    return {"exec": {"apiVersion": version, "command": str(program), "interactiveMode": "Never"}}


def test_login_program(plane: ControlPlane, tmp_path: Path) -> None:
    token = json.loads(plane.kubeconfig().read_text())["users"][0]["user"]["token"]
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": token},
    }  # fmt: skip
    (tmp_path / "credential").write_text(json.dumps(credential))
    user = plugin(tmp_path, f"cat {tmp_path}/credential")
    assert connected(kubeconfig(plane, tmp_path, user=user)).get("/api/v1/nodes")["items"]


def test_login_program_that_fails(plane: ControlPlane, tmp_path: Path) -> None:
    user = plugin(tmp_path, "echo 'your session has ended' >&2; exit 1")
    with pytest.raises(ClusterError, match="logging in to context 'rig' failed") as caught:
        connected(kubeconfig(plane, tmp_path, user=user))
    assert "\n" not in caught.value.found


def test_login_program_that_is_missing(plane: ControlPlane, tmp_path: Path) -> None:
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-login"}}
    with pytest.raises(ClusterError) as caught:
        connected(kubeconfig(plane, tmp_path, user=user))
    assert "no-such-login" in caught.value.found


# -------------------------------------------------------------------------------------------------------------- objects


def test_apply_read_delete(session: Session, namespace: str) -> None:
    item = config_map(namespace, colour="red")
    assert session.live(item) is None
    session.apply(item)
    assert session.live(item)["data"] == {"colour": "red"}
    session.delete(item, policy="Background")
    assert session.live(item) is None
    session.delete(item)


def test_dry_run_changes_nothing(session: Session, namespace: str) -> None:
    assert session.apply(config_map(namespace, colour="red"), dry_run=True)["data"] == {"colour": "red"}
    assert session.live(config_map(namespace)) is None


def test_unknown_field_is_refused(session: Session, namespace: str) -> None:
    with pytest.raises(RejectedError, match="colour"):
        session.apply({**config_map(namespace), "colour": "red"})


def test_conflict_names_the_manager(session: Session, plane: ControlPlane, namespace: str) -> None:
    item = config_map(namespace, colour="red")
    plane.kubectl("apply", "--server-side", "--field-manager=gitops", "-f", "-", stdin=json.dumps(item))
    changed = config_map(namespace, colour="blue")
    with pytest.raises(ConflictError) as caught:
        session.apply(changed)
    assert caught.value.managers == ("gitops",)
    assert session.apply(changed, force=True)["data"] == {"colour": "blue"}


def test_forbidden(plane: ControlPlane, namespace: str) -> None:
    session = Session.connect(Access(plane.kubeconfig(users.NOBODY)))
    with pytest.raises(ForbiddenError, match="cannot list resource"):
        session.get(f"/api/v1/namespaces/{namespace}/pods")
    assert not session.review({"verb": "list", "resource": "pods", "namespace": namespace})


def test_kind_that_is_not_served(session: Session, namespace: str) -> None:
    item = {"apiVersion": "example.com/v1", "kind": "Nothing", "metadata": {"name": "one", "namespace": namespace}}
    assert session.live(item) is None
    with pytest.raises(NotFoundError, match=re.escape("Nothing (example.com/v1)")):
        session.apply(item)


def test_pages(session: Session, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mmdeploy.cluster.session.PAGE", 2)
    for number in range(5):
        item = config_map(namespace)
        item["metadata"]["name"] = f"page-{number}"
        item["metadata"]["labels"] = {"page": "yes"}
        session.apply(item)
    path = session.collection("v1", "ConfigMap", namespace)
    found = list(session.items(path, labelSelector="page=yes"))
    assert [item["metadata"]["name"] for item in found] == [f"page-{number}" for number in range(5)]
    assert {item["kind"] for item in found} == {"ConfigMap"}


def test_restarted_server_is_waited_for(session: Session, plane: ControlPlane, namespace: str) -> None:
    session.apply(config_map(namespace, colour="red"))
    plane.restart("kube-apiserver")
    assert session.live(config_map(namespace))["data"] == {"colour": "red"}


def test_trace_tells_no_secrets(plane: ControlPlane, namespace: str) -> None:
    lines: list[str] = []
    session = Session.connect(Access(plane.kubeconfig()), trace=lines.append)
    session.apply(config_map(namespace, colour="unspeakable"))
    token = json.loads(plane.kubeconfig().read_text())["users"][0]["user"]["token"]
    assert any(line.startswith("PATCH /api/v1/") and " 201 " in line for line in lines)
    assert not any("unspeakable" in line or token in line for line in lines)
