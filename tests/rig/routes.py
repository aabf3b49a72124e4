"""Stands in for the controller of Gateways: it writes the status that one writes, and serves nothing.

It takes every Gateway and every HTTPRoute whose Gateway is there. Not like a real one: every class is its own,
listeners are not looked at, and no Service or address comes of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tests.rig.api import Object, path
from tests.rig.standin import StandIn

CONTROLLER = "rig.example/gateways"
_GROUP = "/apis/gateway.networking.k8s.io/v1"


@dataclass
class Gateways(StandIn):
    """The stand-in."""

    every: float = 0.5
    refused: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """Name of an object → the condition that is False, its reason and message."""

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Nobody looks after Gateways for a while."""
        self.mode = "away"
        try:
            yield
        finally:
            self.mode = "reporting"

    @contextlib.contextmanager
    def refusing(self, name: str, condition: str, reason: str, message: str) -> Iterator[None]:
        """It finds something wrong with an object for a while."""
        self.refused[name] = (condition, reason, message)
        try:
            yield
        finally:
            del self.refused[name]

    def _look(self) -> None:
        gateways = self.api.items(f"{_GROUP}/gateways")
        there = {(item["metadata"]["namespace"], item["metadata"]["name"]) for item in gateways}
        for item in gateways:
            self._write(item, "Gateway", {"conditions": self._conditions(item, "Accepted", "Programmed")})
        for item in self.api.items(f"{_GROUP}/httproutes") if there else ():
            here = item["metadata"]["namespace"]
            refs = item["spec"].get("parentRefs") or []
            parents = [
                {"parentRef": ref, "controllerName": CONTROLLER,
                 "conditions": self._conditions(item, "Accepted", "ResolvedRefs")}
                for ref in refs if (ref.get("namespace", here), ref["name"]) in there
            ]  # fmt: skip
            self._write(item, "HTTPRoute", {"parents": parents})

    def _conditions(self, item: Object, *kinds: str) -> list[Object]:
        wrong, reason, message = self.refused.get(item["metadata"]["name"], ("", "", ""))
        return [
            {"type": kind, "status": "False" if kind == wrong else "True", "reason": reason if kind == wrong else kind,
             "message": message if kind == wrong else "", "observedGeneration": item["metadata"]["generation"],
             "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
            for kind in kinds
        ]  # fmt: skip

    def _write(self, item: Object, kind: str, status: Object) -> None:
        """Only what differs, times aside."""
        if _timeless(item.get("status") or {}) != _timeless({**(item.get("status") or {}), **status}):
            where = path({"apiVersion": "gateway.networking.k8s.io/v1", "kind": kind, "metadata": item["metadata"]})
            self.api.merge(f"{where}/status", {"status": status})


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(item) for key, item in value.items() if key != "lastTransitionTime"}
    return [_timeless(item) for item in value] if isinstance(value, list) else value
