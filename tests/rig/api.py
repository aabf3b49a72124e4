"""The Kubernetes API as plain JSON over HTTPS: what the rig itself needs, and nothing of the product's."""

from __future__ import annotations

import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

Object = dict[str, Any]
T = TypeVar("T")

# Plural and scope cannot be told from a kind; asking the server for them each time would cost a request an object.
_CLUSTER_WIDE = {
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "DeviceClass",
    "Namespace",
    "Node",
    "PriorityClass",
    "ResourceSlice",
}


class RefusedError(Exception):
    """The server answered with an error; its message is the text."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class TimedOutError(Exception):
    """What was waited for did not come; the text says what was seen last."""


@dataclass(frozen=True)
class Api:
    """The API server as one user sees it."""

    server: str
    token: str = field(repr=False)
    authority: str  # file that holds the server's certificate
    timeout: float = 30
    _tls: list[ssl.SSLContext] = field(default_factory=list, repr=False, compare=False)

    def request(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        """One request; bytes are sent as they are. JSON comes back as data, anything else as text."""
        if not self._tls:
            self._tls.append(ssl.create_default_context(cafile=self.authority))
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind, "Accept": "application/json, */*"}
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        asked = urllib.request.Request(f"{self.server}{path}", data=data, headers=headers, method=method)
        end = time.monotonic() + self.timeout
        while True:
            try:
                return self._answer(asked)
            except RefusedError as refused:
                # "Storage is (re)initializing", for a moment after a definition was installed: nothing was done.
                if refused.status != 429 or time.monotonic() > end:
                    raise
                time.sleep(0.1)

    def _answer(self, asked: urllib.request.Request) -> Any:
        try:
            with urllib.request.urlopen(asked, timeout=self.timeout, context=self._tls[0]) as answer:
                text = answer.read().decode()
                return json.loads(text) if "json" in answer.headers.get("Content-Type", "") else text
        except urllib.error.HTTPError as error:
            with error:
                raise RefusedError(error.code, _message(error.read().decode(errors="replace"))) from None

    def get(self, path: str) -> Any:
        return self.request("GET", path)

    def items(self, path: str, **query: str) -> list[Object]:
        """Objects of a list; none when the kind is not installed."""
        try:
            return self.get(f"{path}?{urllib.parse.urlencode(query)}")["items"]
        except RefusedError as refused:
            if refused.status == 404:
                return []
            raise

    def find(self, path: str) -> Object | None:
        try:
            return self.get(path)
        except RefusedError as refused:
            if refused.status == 404:
                return None
            raise

    def apply(self, item: Mapping[str, Any], *, manager: str = "rig", part: str = "") -> Object:
        """Server-side apply, strict about unknown fields; ``part`` is a subresource such as ``/status``."""
        query = urllib.parse.urlencode({"fieldManager": manager, "force": "true", "fieldValidation": "Strict"})
        return self.request("PATCH", f"{path(item)}{part}?{query}", item, "application/apply-patch+yaml")

    def merge(self, where: str, change: Mapping[str, Any]) -> Object:
        return self.request("PATCH", where, change, "application/merge-patch+json")

    def delete(self, where: str, propagation: str = "Background") -> None:
        """Ask for deletion; what is not there is fine."""
        try:
            self.request("DELETE", where, {"propagationPolicy": propagation})
        except RefusedError as refused:
            if refused.status != 404:
                raise


def _message(text: str) -> str:
    try:
        return json.loads(text)["message"]
    except (ValueError, KeyError, TypeError):
        return text


def path(item: Mapping[str, Any]) -> str:
    """Path of an object at the API server."""
    group, kind, metadata = item["apiVersion"], item["kind"], item["metadata"]
    root = f"/apis/{group}" if "/" in group else f"/api/{group}"
    plural = kind.lower() + ("es" if kind.endswith(("s", "x")) else "s")
    namespace = "" if kind in _CLUSTER_WIDE else f"/namespaces/{metadata.get('namespace', 'default')}"
    return f"{root}{namespace}/{plural}/{metadata['name']}"


def wait(what: str, look: Callable[[], T | None], seconds: float = 30, every: float = 0.1) -> T:
    """The first true answer of ``look``."""
    end = time.monotonic() + seconds
    while True:
        seen = look()
        if seen:
            return seen
        if time.monotonic() > end:
            raise TimedOutError(f"{what}: not within {seconds:.0f} s; last seen: {seen!r}")
        time.sleep(every)
