"""A validating webhook that says no to an object of one namespace, or does not answer."""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

from tests.rig import tls
from tests.rig.api import Api
from tests.rig.controlplane import ControlPlane

NAME = "refuses.rig.example"
REASON = "team label is missing"
_PATH = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
_TAKEN_UP_SECONDS = 1.5  # the API server takes up such a configuration, or its end, after a second


class _Refuses(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:  # noqa: N802 - the name is the standard library's
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
        answer = {"uid": asked["uid"], "allowed": False, "status": {"message": REASON}}
        text = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@contextlib.contextmanager
def refusing(
    plane: ControlPlane, admin: Api, namespace: str, group: str, plural: str, name: str,
    operations: Sequence[str] = ("CREATE", "UPDATE"),
) -> Iterator[None]:  # fmt: skip
    """While inside, nobody can write this object."""
    with (
        tls.serving(plane, _Refuses) as port,
        registered(plane, admin, port, namespace, (group, plural, name), operations),
    ):
        yield


@contextlib.contextmanager
def registered(
    plane: ControlPlane, admin: Api, port: int, namespace: str, what: tuple[str, str, str],
    operations: Sequence[str] = ("CREATE", "UPDATE"),
) -> Iterator[None]:  # fmt: skip
    """While inside, the API server asks whoever listens on a port of this machine about an object: group, plural and
    name."""
    group, plural, name = what
    bundle = base64.b64encode(plane.authority.read_bytes()).decode()
    rule = {"apiGroups": [group], "apiVersions": ["*"], "resources": [plural], "operations": [*operations]}
    expression = f"request.name == '{name}' && request.namespace == '{namespace}'"
    hook = {
        "name": NAME, "clientConfig": {"url": f"https://127.0.0.1:{port}/", "caBundle": bundle}, "rules": [rule],
        "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 5,
        "matchConditions": [{"name": "one", "expression": expression}],
    }  # fmt: skip
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    admin.request("POST", _PATH, {**kind, "metadata": {"name": NAME}, "webhooks": [hook]})
    time.sleep(_TAKEN_UP_SECONDS)
    try:
        yield
    finally:
        admin.delete(f"{_PATH}/{NAME}")
        time.sleep(_TAKEN_UP_SECONDS)
