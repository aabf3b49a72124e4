"""Addresses inside a cluster as one word: ``pod://NAME.NAMESPACE:PORT/path`` and ``service://NAME.NAMESPACE:PORT``."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

SCHEMES = ("pod", "service")


@dataclass(frozen=True)
class Place:
    """A port of a pod or Service, and a path on it."""

    kind: str
    """``pod`` or ``service``."""
    namespace: str
    name: str
    port: int
    path: str = ""

    def proxied(self, path: str = "") -> str:
        """Where the API server's proxy has it."""
        return f"/api/v1/namespaces/{self.namespace}/{self.kind}s/{self.name}:{self.port}/proxy{self.path}{path}"


def pod_url(namespace: str, name: str, port: int, path: str = "") -> str:
    """The address of a pod's port."""
    return f"pod://{name}.{namespace}:{port}{path}"


def service_url(namespace: str, name: str, port: int) -> str:
    """The address of a Service's port."""
    return f"service://{name}.{namespace}:{port}"


def place(url: str) -> Place | None:
    """What an address names; None for one that is not of a cluster. Namespaces hold no dots, names may."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        return None
    name, _, namespace = (parts.hostname or "").rpartition(".")
    return Place(parts.scheme, namespace, name, parts.port or 0, parts.path)
