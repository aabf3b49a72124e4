"""The kubeconfig that most have: one file, a server with its authority, a token or a certificate.

Such a one is read here, because importing `kubernetes` takes longer than many a command does on the cluster (0.15 s of
the 0.9 s of an apply). Whatever else a kubeconfig may say, and whatever is wrong with it, is `kubernetes`' to
understand: `plain` says None.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mmdeploy.cluster.failures import from_config

_CLUSTER: Final = {"server", "certificate-authority", "certificate-authority-data"}
_USER: Final = {"as", "token", "client-certificate", "client-certificate-data", "client-key", "client-key-data"}
_CONTEXT: Final = {"cluster", "user", "namespace"}
_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@dataclass(frozen=True)
class Plain:
    """A context of such a kubeconfig."""

    context: str
    namespace: str
    user: str
    """The kubeconfig's name for the person."""
    server: str
    headers: Mapping[str, str]
    """Say who asks; nothing with a certificate."""
    tls: ssl.SSLContext | None
    """None for a server without TLS."""


def plain(path: Path | None, context: str | None) -> Plain | None:
    """The context of a kubeconfig (None: the current one), or None where the file or the environment says more.

    ``path`` None is what kubectl would take: KUBECONFIG, or ``~/.kube/config``.
    """
    if any(os.environ.get(name) or os.environ.get(name.upper()) for name in _PROXIES):
        return None
    said = os.environ.get("KUBECONFIG", "")
    if path is None and os.pathsep in said:
        return None
    place = path or Path(said or "~/.kube/config").expanduser()
    try:
        return _read(place, context)
    except (OSError, ValueError, TypeError, LookupError, AttributeError, ssl.SSLError, binascii.Error):
        return None


def _read(place: Path, context: str | None) -> Plain | None:
    import yaml

    try:
        document = yaml.load(place.read_text(encoding="utf-8"), yaml.CSafeLoader)
    except yaml.YAMLError:
        return None
    name = context or document["current-context"]
    about = _named(document, "contexts", name)["context"]
    cluster = _named(document, "clusters", about["cluster"])["cluster"]
    person = _named(document, "users", about["user"])["user"] or {}
    for said, known in ((about, _CONTEXT), (cluster, _CLUSTER), (person, _USER)):
        if not all(key in known and isinstance(value, str) for key, value in said.items()):
            return None
    server = cluster["server"].rstrip("/")
    tls = _tls(cluster, person, place.parent) if server.startswith("https://") else None
    if tls is None and not server.startswith("http://"):
        return None
    headers = {"authorization": f"Bearer {person['token']}"} if person.get("token") else {}
    return Plain(
        name, about.get("namespace") or "default", about["user"], server, headers | impersonation(person), tls
    )  # fmt: skip


def impersonation(person: Mapping[str, Any]) -> dict[str, str]:
    """The header for a kubeconfig's user who acts as somebody else. Raises `ClusterError` for other ways of that."""
    said = sorted(key for key in person if key == "as" or key.startswith("as-"))
    if said not in ([], ["as"]):
        raise from_config(f"its user acts as another by {said[-1]}, which mmdeploy cannot do: only by as")
    return {"Impersonate-User": str(person["as"])} if person.get("as") else {}


def _named(document: Mapping[str, Any], kind: str, name: str) -> Mapping[str, Any]:
    (found,) = [item for item in document[kind] if item["name"] == name]
    return dict(found)


def _tls(cluster: Mapping[str, str], person: Mapping[str, str], folder: Path) -> ssl.SSLContext:
    from urllib3.util.ssl_ import create_urllib3_context

    tls = create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED)
    authority = _content(cluster, "certificate-authority", folder)
    if authority:
        tls.load_verify_locations(cadata=authority.decode())
    else:
        tls.load_default_certs()
    certificate, key = (_content(person, word, folder) for word in ("client-certificate", "client-key"))
    if bool(certificate) != bool(key):
        raise ValueError("half of a certificate")
    if certificate and key:
        with tempfile.NamedTemporaryFile() as file:  # Python's ssl takes these from a file only; mode 0600
            file.write(certificate + b"\n" + key)
            file.flush()
            tls.load_cert_chain(file.name)
    return tls


def _content(said: Mapping[str, str], word: str, folder: Path) -> bytes:
    """What stands in ``WORD-data``, or in the file of ``WORD``, relative to the kubeconfig; empty for neither."""
    if said.get(f"{word}-data"):
        return base64.b64decode(said[f"{word}-data"], validate=True)
    return (folder / said[word]).read_bytes() if said.get(word) else b""


__all__ = ["Plain", "impersonation", "plain"]
