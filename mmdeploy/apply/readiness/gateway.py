"""Whether the gateway in front takes requests: what its controller has reported of the Gateway and of the router's
route.

An object that no controller has reported on, or whose report is of an older generation, is never ready.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from mmdeploy.apply.readiness.objects_seen import GATEWAY, ROUTE, Object, Seen, condition, moment, notes
from mmdeploy.apply.readiness.ownership import SILENT_SECONDS, Quiet
from mmdeploy.apply.readiness.phases import Failure
from mmdeploy.apply.readiness.startup import Startup
from mmdeploy.preflight.kinds import routed

if TYPE_CHECKING:
    from mmdeploy.apply.inventory import Inventory
    from mmdeploy.intended import Intended


@dataclass(frozen=True)
class Wanted:
    """What stands in front of a deployment."""

    release: str
    """The Helm release whose chart makes the route."""
    gateways: tuple[str, ...] = ()
    """Gateways of the bundle."""
    route: bool = False
    """Whether the chart makes a route."""


@dataclass(frozen=True)
class PartState:
    """A Gateway or a route."""

    kind: str
    name: str
    phase: str
    """absent, unread, unseen: no controller has reported; pending: it reported something that time may mend; refused:
    something that it does not; ready."""
    detail: str = ""
    since: datetime | None = None
    failure: Failure | None = None

    @property
    def ready(self) -> bool:
        """Whether nothing is left to wait for; what may not be read is not waited for."""
        return self.phase in ("ready", "unread")

    @property
    def text(self) -> str:
        """``Gateway inference-gateway is ready``, or what is the matter with it."""
        what = f"{self.kind} {self.name}".strip()
        if self.phase == "ready":
            return f"{what} is ready"
        return self.detail if what in self.detail else f"{what}: {self.detail}"


def of_intended(intended: Intended) -> Wanted | None:
    """What a bundle has in front; None where no gateway is."""
    if not routed(intended):
        return None
    own = [item for item in intended.parts.get("gateway", ()) if item["kind"] == GATEWAY[1]]
    made = bool((intended.values.get("httpRoute") or {}).get("create"))
    return Wanted(intended.name, tuple(str(item["metadata"]["name"]) for item in own), made)


def of_inventory(inventory: Inventory, release: str) -> Wanted | None:
    """What an applied deployment has in front; None where no gateway is."""
    own = tuple(entry.name for entry in inventory.entries if entry.kind == GATEWAY[1])
    behind = inventory.spec.get("mode") == "gateway"
    return Wanted(release, own, behind) if own or behind else None


def text(parts: Iterable[PartState]) -> str:
    """All of them on one line."""
    return "; ".join(part.text for part in parts)


def judge(seen: Seen, wanted: Wanted, startup: Startup, quiet: Quiet) -> list[PartState]:
    """Every Gateway that the deployment is behind, then its route.

    ``quiet``: seconds for which an object's controller has not acted on its newest generation.
    """
    return list(_Judge(seen, wanted, startup, quiet).parts())


class _Judge:
    def __init__(self, seen: Seen, wanted: Wanted, startup: Startup, quiet: Quiet) -> None:
        self._seen = seen
        self._wanted = wanted
        self._startup = startup
        self._quiet = quiet

    def parts(self) -> Iterator[PartState]:
        routes = self._routes()
        parents = [str(ref["name"]) for route in routes for ref in _parents(route) if _is_near(ref, route)]
        for name in dict.fromkeys([*self._wanted.gateways, *parents]):
            yield self._gateway(name)
        for route in routes:
            yield self._route(route)
        if not routes and self._wanted.route:
            yield self._missing(ROUTE[1], self._wanted.release)

    def _routes(self) -> list[Object]:
        """The release's: by Helm's annotation, or by the pool that they lead to where no helm applied them."""
        release, key = self._wanted.release, self._startup["releaseAnnotation"]
        return [
            item for item in self._seen.of(ROUTE[1]) if notes(item).get(key) == release or release in _pools(item)
        ]  # fmt: skip

    def _missing(self, kind: str, name: str) -> PartState:
        why = self._seen.unreadable.get(kind)
        return PartState(kind, name, "unread", f"not checked: {why}") if why else PartState(
            kind, name, "absent", "it does not exist"
        )  # fmt: skip

    def _gateway(self, name: str) -> PartState:
        item = self._seen.named(GATEWAY[1], name)
        if item is None:
            return self._missing(GATEWAY[1], name)
        return self._reported(item, item, self._class_of(name))

    def _route(self, route: Object) -> PartState:
        """The first thing that is the matter with it, over all Gateways that it is for."""
        states = [self._under(route, ref) for ref in _parents(route)]
        return next((state for state in states if not state.ready), PartState(ROUTE[1], _name(route), "ready"))

    def _under(self, route: Object, ref: Mapping[str, Any]) -> PartState:
        """A route as the controllers of one of its Gateways see it: one that is content is enough."""
        gateway = f"Gateway {ref['name']}"
        said = [
            self._reported(route, {"status": parent}, f"{self._class_of(str(ref['name']))} for {gateway}")
            for parent in (route.get("status") or {}).get("parents") or ()
            if _same(parent.get("parentRef") or {}, ref)
        ]
        silent = self._reported(route, {}, f"{self._class_of(str(ref['name']))} for {gateway}")
        return next((state for state in said if state.ready), said[0] if said else silent)

    def _class_of(self, gateway: str) -> str:
        """Whose controller has to report, in a person's words."""
        item = self._seen.named(GATEWAY[1], gateway)
        return f"gateway class {item['spec']['gatewayClassName']}" if item else "its gateway's class"

    def _reported(self, item: Object, report: Mapping[str, Any], whose: str) -> PartState:
        """The first condition that is not as it should be."""
        kind, generation = str(item["kind"]), int(item["metadata"].get("generation", 0))
        for name in self._startup["gatewayConditions"][kind]:
            found = condition(report, name)
            stale = int(found.get("observedGeneration") or generation) < generation
            if found.get("status") not in ("True", "False") or stale:
                return self._unseen(item, whose)
            if found["status"] == "False":
                return self._complaint(item, name, found)
        return PartState(kind, _name(item), "ready")

    def _unseen(self, item: Object, whose: str) -> PartState:
        created = moment(item["metadata"].get("creationTimestamp"))
        what = f"{item['kind']} {_name(item)}"
        said = f"the controller of {whose} has not reported on it yet"
        if self._quiet(item) >= SILENT_SECONDS:
            said = f"no controller of {whose} has reported on {what} for {SILENT_SECONDS:.0f} s: is it running?"
        return PartState(str(item["kind"]), _name(item), "unseen", said, created)

    def _complaint(self, item: Object, name: str, found: Mapping[str, Any]) -> PartState:
        reason, message = str(found.get("reason") or ""), " ".join(str(found.get("message") or "").split())
        meaning = self._startup.meaning("gateways", message, reason)
        said = f"{name} is False: {': '.join(filter(None, (reason, message)))}"
        failure = Failure(said, meaning.hint) if meaning and meaning.fails else None
        hint = f" ({meaning.hint})" if meaning and meaning.hint and not failure else ""
        since = moment(found.get("lastTransitionTime"))
        return PartState(
            str(item["kind"]), _name(item), "refused" if failure else "pending", f"{said}{hint}", since, failure
        )  # fmt: skip


def _name(item: Object) -> str:
    return str(item["metadata"]["name"])


def _parents(route: Object) -> Sequence[Mapping[str, Any]]:
    """The Gateways that a route is for."""
    found = (route.get("spec") or {}).get("parentRefs") or ()
    return [ref for ref in found if ref.get("kind", GATEWAY[1]) == GATEWAY[1]]


def _is_near(ref: Mapping[str, Any], route: Object) -> bool:
    """Whether a Gateway is in the route's own namespace, where it is looked at."""
    return ref.get("namespace") in (None, route["metadata"].get("namespace"))


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two references are to the same part of a Gateway; a controller may add what a route leaves out."""
    return all(one.get(key) == other[key] for key in ("name", "namespace", "sectionName", "port") if key in other)


def _pools(route: Object) -> set[str]:
    return {
        str(ref.get("name"))
        for rule in (route.get("spec") or {}).get("rules") or ()
        for ref in rule.get("backendRefs") or ()
        if ref.get("kind") == "InferencePool"
    }


__all__ = ["PartState", "Wanted", "judge", "of_intended", "of_inventory", "text"]
