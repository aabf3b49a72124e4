"""Where an address of the cluster leads when nobody routes for us: to a pod's own address."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mmdeploy.verify.cluster.looking import Object, Seen, address, ready, selects
from mmdeploy.verify.cluster.places import Place


@dataclass(frozen=True)
class Backends:
    """Pods and Services of a namespace as they were found."""

    seen: Seen
    ports: dict[int, int]
    """Port of a Service → port of its pods, for Services that may not be seen."""

    def pod(self, place: Place) -> Place | None:
        """The pod's port that a place stands for: of a Service, one of a ready pod behind it; None for none."""
        if place.kind == "pod":
            return place
        service = self.seen.service(place.name)
        if service is None:
            return self._guessed(place)
        port = next((each for each in service["spec"].get("ports") or () if each["port"] == place.port), None)
        if port is None:
            return None
        selector = service["spec"].get("selector") or {}
        for pod in self.seen.pods:
            if selects(selector, pod) and ready(pod):
                number = _number(pod, port.get("targetPort", place.port))
                return Place("pod", place.namespace, pod["metadata"]["name"], number, place.path) if number else None
        return None

    def url(self, place: Place) -> str | None:
        """An address that works inside the cluster: of a pod its own, of a Service its virtual one."""
        if place.kind == "pod":
            found = next((pod for pod in self.seen.pods if pod["metadata"]["name"] == place.name), None)
            host = address(found) if found else ""
        else:
            service = self.seen.service(place.name)
            said = str(service["spec"].get("clusterIP") or "") if service else ""
            host = said if said not in ("", "None") else f"{place.name}.{place.namespace}.svc"
        if not host:
            return None
        return f"http://{f'[{host}]' if ':' in host else host}:{place.port}{place.path}"

    def _guessed(self, place: Place) -> Place | None:
        """The router's Service where Services may not be listed: its pods are named after it."""
        for pod in self.seen.pods:
            if pod["metadata"]["name"].startswith(f"{place.name}-") and ready(pod) and place.port in self.ports:
                name = pod["metadata"]["name"]
                return Place("pod", place.namespace, name, self.ports[place.port], place.path)
        return None


def _number(pod: Object, target: Any) -> int | None:
    """A target port as a number; a name is looked up among the pod's containers."""
    if isinstance(target, int):
        return target
    for item in [*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or ())]:
        for port in item.get("ports") or ():
            if port.get("name") == target:
                return int(port["containerPort"])
    return int(target) if str(target).isdigit() else None
