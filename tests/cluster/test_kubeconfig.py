"""Kubeconfigs that are read without `kubernetes` mean what they mean to it; all others are left to it."""

from __future__ import annotations

import copy
import http.server
import json
import shutil
import ssl
import subprocess
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mmdeploy.cluster.access import Access
from mmdeploy.cluster.kubeconfig import plain
from mmdeploy.cluster.session import Session
from mmdeploy.errors import ClusterError

SIMPLE: dict[str, Any] = {
    "apiVersion": "v1", "kind": "Config", "current-context": "here",
    "contexts": [
        {"name": "here", "context": {"cluster": "c", "user": "me", "namespace": "mine"}},
        {"name": "there", "context": {"cluster": "d", "user": "nobody"}},
    ],
    "clusters": [
        {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}},
        {"name": "d", "cluster": {"server": "http://127.0.0.1:2/clusters/of/many/"}},
    ],
    "users": [{"name": "me", "user": {"token": "sesame"}}, {"name": "nobody", "user": {}}],
}  # fmt: skip


def written(content: Any, folder: Path) -> Path:
    path = folder / "config"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize("context", [None, "here", "there"])
def test_it_means_the_same_to_the_library(tmp_path: Path, context: str | None) -> None:
    path = written(SIMPLE, tmp_path)
    found = plain(path, context)
    assert found is not None
    api, where = Access(path, context).client()
    assert (found.context, found.server, found.namespace, found.user) == (
        where.context, where.server, where.namespace, where.user,
    )  # fmt: skip
    header: dict[str, str] = {}
    api.update_params_for_auth(header, [], ["BearerToken"], "", "GET", None)
    assert header == Access(path, context).connection().credentials()


def edited(change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    content = copy.deepcopy(SIMPLE)
    change(content)
    return content


USER = {
    "exec": {"exec": {"command": "login", "apiVersion": "client.authentication.k8s.io/v1"}},
    "auth-provider": {"auth-provider": {"name": "oidc"}},
    "tokenFile": {"tokenFile": "/token"},
    "as-groups": {"token": "sesame", "as": "somebody", "as-groups": ["some"]},
    "password": {"username": "me", "password": "sesame"},
    "a token that is no text": {"token": 1},
}
CLUSTER = {
    "proxy-url": {"proxy-url": "http://127.0.0.1:3"},
    "insecure": {"insecure-skip-tls-verify": True},
    "tls-server-name": {"tls-server-name": "another"},
    "half a certificate": {"server": "https://127.0.0.1:1", "certificate-authority-data": "bm90IG9uZQ=="},
    "no base64": {"server": "https://127.0.0.1:1", "certificate-authority-data": "%"},
    "no file": {"server": "https://127.0.0.1:1", "certificate-authority": "absent.crt"},
    "another scheme": {"server": "unix:///run/it"},
}
OTHERS: dict[str, Any] = {
    **{name: edited(lambda it, user=user: it["users"][0].update(user=user)) for name, user in USER.items()},
    **{name: edited(lambda it, more=more: it["clusters"][0]["cluster"].update(more)) for name, more in CLUSTER.items()},
    "half a pair": edited(
        lambda it: (
            it["clusters"][0]["cluster"].update(server="https://127.0.0.1:1"),
            it["users"][0].update(user={"client-key-data": "a2V5"}),
        )
    ),
    "no such cluster": edited(lambda it: it.update(clusters=[])),
    "no such user": edited(lambda it: it.update(users=[])),
    "two of a name": edited(lambda it: it["users"].append(it["users"][0])),
    "no current context": edited(lambda it: it.pop("current-context")),
    "no YAML": "a: [",
    "a list": "- a",
    "nothing": "",
}


@pytest.mark.parametrize("name", OTHERS)
def test_whatever_else_is_left_to_the_library(tmp_path: Path, name: str) -> None:
    assert plain(written(OTHERS[name], tmp_path), None) is None


def test_an_unknown_context_is_left_to_the_library(tmp_path: Path) -> None:
    path = written(SIMPLE, tmp_path)
    assert plain(path, "theer") is None
    with pytest.raises(ClusterError) as caught:
        Session.connect(Access(path, "theer"))
    assert caught.value.nearest[0] == "there"


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "NO_PROXY"])
def test_a_proxy_is_left_to_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    path = written(SIMPLE, tmp_path)
    assert plain(path, None) is not None
    monkeypatch.setenv(name, "http://127.0.0.1:3")
    assert plain(path, None) is None


def test_kubeconfig_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(SIMPLE, tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(path))
    found = plain(None, "there")
    assert found is not None
    assert found.server == "http://127.0.0.1:2/clusters/of/many"
    monkeypatch.setenv("KUBECONFIG", f"{path}:{path}")
    assert plain(None, "there") is None


# ---------------------------------------------------------------------------------------------------------- with TLS


@dataclass(frozen=True)
class Site:
    """A server behind TLS that lets only its own people in, and answers with who asked."""

    folder: Path
    port: int


def openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not here, which makes the certificates")
    folder = tmp_path_factory.mktemp("certificates")
    openssl(folder, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
            "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.crt",
            "-addext", "keyUsage=critical,keyCertSign,digitalSignature")  # fmt: skip
    for name, usage in (("server", "serverAuth"), ("person", "clientAuth")):
        (folder / "extensions").write_text(f"extendedKeyUsage={usage}\nsubjectAltName=IP:127.0.0.1\n")
        openssl(folder, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
                "-keyout", f"{name}.key", "-out", f"{name}.csr")  # fmt: skip
        openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
                "-days", "2", "-extfile", "extensions", "-out", f"{name}.crt")  # fmt: skip
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(folder / "ca.crt"))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    with _Server(("127.0.0.1", 0), _Answers) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield Site(folder, server.server_port)
        finally:
            server.shutdown()
            thread.join()


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Somebody who is not let in is no error."""


class _Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:  # noqa: N802 - the name is the standard library's
        certificate: Any = self.connection.getpeercert()  # type: ignore[attr-defined]
        text = json.dumps({"gitVersion": dict(entry[0] for entry in certificate["subject"])["commonName"]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


def kubeconfig(site: Site, form: str) -> Path:
    """As files beside the kubeconfig, or with everything in it."""

    def said(word: str, file: str) -> dict[str, str]:
        if form == "files":
            return {word: file}
        return {f"{word}-data": b64encode((site.folder / file).read_bytes()).decode()}

    content = edited(
        lambda it: (
            it["clusters"][0]["cluster"].update(
                {"server": f"https://127.0.0.1:{site.port}", **said("certificate-authority", "ca.crt")}
            ),
            it["users"][0].update(
                user={**said("client-certificate", "person.crt"), **said("client-key", "person.key")}
            ),
        )
    )
    return written(content, site.folder)


@pytest.mark.parametrize("form", ["files", "data"])
@pytest.mark.parametrize("by", ["itself", "the library"])
def test_a_certificate_lets_in(site: Site, form: str, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Either way the server sees the person of the certificate."""
    path = kubeconfig(site, form)
    if by == "itself":
        assert plain(path, None) is not None
    else:
        monkeypatch.setattr("mmdeploy.cluster.access.plain", lambda *_: None)
    assert Session.connect(Access(path)).version == "person"


def test_another_authority_is_not_trusted(site: Site) -> None:
    path = kubeconfig(site, "files")
    content = json.loads(path.read_text())
    content["clusters"][0]["cluster"]["certificate-authority"] = "person.crt"
    path.write_text(json.dumps(content))
    assert plain(path, None) is not None
    with pytest.raises(ClusterError, match="certificate is not trusted"):
        Session.connect(Access(path)).get("/version")


def test_a_name_that_the_certificate_lacks_is_not_trusted(site: Site) -> None:
    path = kubeconfig(site, "files")
    content = json.loads(path.read_text())
    content["clusters"][0]["cluster"]["server"] = f"https://localhost:{site.port}"
    path.write_text(json.dumps(content))
    assert plain(path, None) is not None
    with pytest.raises(ClusterError, match="certificate is for another name|certificate is not trusted"):
        Session.connect(Access(path)).get("/version")


# ------------------------------------------------------------------------------------------------- as somebody else


@pytest.mark.parametrize("by", ["itself", "the library"])
def test_who_acts_as_another_says_so(tmp_path: Path, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The header of https://kubernetes.io/docs/reference/access-authn-authz/user-impersonation/; `kubernetes` leaves it
    out."""
    path = written(edited(lambda it: it["users"][0]["user"].update({"as": "somebody"})), tmp_path)
    if by == "the library":
        monkeypatch.setattr("mmdeploy.cluster.access.plain", lambda *_: None)
    assert Access(path).connection().credentials() == {
        "authorization": "Bearer sesame", "Impersonate-User": "somebody",
    }  # fmt: skip


def test_who_acts_as_another_in_a_way_that_is_not_known_is_told(tmp_path: Path) -> None:
    path = written(OTHERS["as-groups"], tmp_path)
    with pytest.raises(ClusterError, match="as-groups, which mmdeploy cannot do"):
        Access(path).connection()
