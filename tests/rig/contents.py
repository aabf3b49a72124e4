"""All that is in a namespace, of whatever kind the server knows, to compare what was before with what is after."""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.rig.api import Api, Object

# What controllers write beside what somebody asked for, and take away in their own time.
DERIVED = {"Event", "Endpoints", "EndpointSlice"}
_WIDE = ("clusterroles", "clusterrolebindings")
_RBAC = "/apis/rbac.authorization.k8s.io/v1"


@dataclass
class Contents:
    """What is in the namespaces of one API server. One connection for all its requests: a look takes about fifty."""

    api: Api
    _kinds: list[tuple[str, str, str]] = field(default_factory=list)
    _connection: http.client.HTTPSConnection | None = None

    def of(self, namespace: str, *, derived: bool = False) -> dict[str, Object]:
        """``Kind.group/name`` → object; with ``derived`` also events, and the addresses behind Services."""
        found = {}
        for root, plural, kind in self._all_kinds():
            if derived or kind.partition(".")[0] not in DERIVED:
                for item in self._items(f"{root}/namespaces/{namespace}/{plural}"):
                    found[f"{kind}/{item['metadata']['name']}"] = item
        return found | self.wide(namespace)

    def wide(self, namespace: str) -> dict[str, Object]:
        """Objects outside of namespaces that a Helm release of the namespace has there."""
        return {
            f"{plural}/{item['metadata']['name']}": item
            for plural in _WIDE
            for item in self._items(f"{_RBAC}/{plural}")
            if (item["metadata"].get("annotations") or {}).get("meta.helm.sh/release-namespace") == namespace
        }

    def uids(self, namespace: str) -> dict[str, str]:
        """``Kind.group/name`` → uid."""
        return {name: item["metadata"]["uid"] for name, item in self.of(namespace).items()}

    def _all_kinds(self) -> list[tuple[str, str, str]]:
        if not self._kinds:
            self._kinds = list(self._discovered())
        return self._kinds

    def _discovered(self) -> Iterator[tuple[str, str, str]]:
        groups = [each["preferredVersion"]["groupVersion"] for each in self._get("/apis")["groups"]]
        for root in ("/api/v1", *(f"/apis/{version}" for version in groups)):
            group = root.split("/")[2] if root != "/api/v1" else ""
            for each in self._get(root)["resources"]:
                if each["namespaced"] and "list" in each["verbs"] and each["kind"] not in ("Event",):
                    yield root, each["name"], each["kind"] + (f".{group}" if group else "")
        yield "/api/v1", "events", "Event"  # served under two groups, the same objects

    def _items(self, path: str) -> list[Object]:
        return self._get(path).get("items") or []  # none of a kind that a test has taken away

    def _get(self, path: str) -> Any:
        for attempt in (1, 2):
            try:
                return self._asked(path)
            except (OSError, http.client.HTTPException):  # the server was restarted, or closed what was idle
                self.close()
                if attempt == 2:
                    raise
        raise AssertionError("the loop returns or raises")

    def _asked(self, path: str) -> Any:
        if self._connection is None:
            server = urllib.parse.urlsplit(self.api.server)
            assert server.hostname
            context = ssl.create_default_context(cafile=self.api.authority)
            self._connection = http.client.HTTPSConnection(server.hostname, server.port, timeout=30, context=context)
        self._connection.request("GET", path, headers={"Authorization": f"Bearer {self.api.token}"})
        return json.loads(self._connection.getresponse().read())

    def close(self) -> None:
        """End the connection; the next look opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
