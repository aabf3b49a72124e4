"""One look at what there is in a namespace: objects by kind, who owns whom, and what was said about each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mmdeploy.errors import ForbiddenError, NotFoundError
from mmdeploy.quantities import quantity

if TYPE_CHECKING:
    from mmdeploy.cluster.session import Session

Object = Mapping[str, Any]

POD, EVENT = ("v1", "Pod"), ("v1", "Event")
DEPLOYMENT, REPLICA_SET, STATEFUL_SET = (("apps/v1", kind) for kind in ("Deployment", "ReplicaSet", "StatefulSet"))
GROUP_SET = ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")
ROLE_SET = ("disaggregatedset.x-k8s.io/v1", "DisaggregatedSet")
POOL = ("inference.networking.k8s.io/v1", "InferencePool")
SERVICE = ("v1", "Service")
GATEWAY, ROUTE = (("gateway.networking.k8s.io/v1", kind) for kind in ("Gateway", "HTTPRoute"))

ALWAYS = (POD, EVENT, DEPLOYMENT, REPLICA_SET, SERVICE, POOL)
"""What every deployment has."""
IN_FRONT = (GATEWAY, ROUTE)
"""What a deployment behind a gateway has besides."""
EVERYTHING = (*ALWAYS, STATEFUL_SET, GROUP_SET, ROLE_SET, *IN_FRONT)
"""What there may be where nobody says which workloads are meant."""
_OF_SETS: Mapping[str, Sequence[tuple[str, str]]] = {
    "StatefulSet": (STATEFUL_SET,),
    "LeaderWorkerSet": (GROUP_SET, STATEFUL_SET),
    "DisaggregatedSet": (ROLE_SET, GROUP_SET, STATEFUL_SET),
}
"""A kind of workload → it, and what it makes its pods through."""


def kinds_of(workloads: Iterable[str]) -> list[tuple[str, str]]:
    """What to read for workloads of these kinds: nobody needs a right to read more."""
    return list(dict.fromkeys([*ALWAYS, *(kind for name in workloads for kind in _OF_SETS.get(name, ()))]))


@dataclass(frozen=True)
class Said:
    """An event, whichever of the two APIs wrote it."""

    reason: str
    message: str
    warning: bool
    at: datetime | None
    """When it was said last."""


@dataclass(frozen=True)
class Seen:
    """What one look saw; the same moment for all kinds within a second or so."""

    items: Mapping[str, Sequence[Object]] = field(default_factory=dict)
    """Kind → objects."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Kind → why it could not be read."""

    def of(self, kind: str) -> Sequence[Object]:
        """Objects of a kind, by name."""
        return self.items.get(kind, ())

    def named(self, kind: str, name: str) -> Object | None:
        """One object."""
        return next((item for item in self.of(kind) if item["metadata"]["name"] == name), None)

    def owned(self, owner: Object, *kinds: str) -> list[Object]:
        """What an object owns itself, of some kinds."""
        uid = owner["metadata"].get("uid")
        return [item for kind in kinds for item in self._by_owner.get((uid, kind), ())]

    def said(self, about: Object) -> list[Said]:
        """Events about an object, the oldest first."""
        return self._events.get(str(about["metadata"].get("uid", "")), [])

    @cached_property
    def _by_owner(self) -> dict[tuple[Any, str], list[Object]]:
        found: dict[tuple[Any, str], list[Object]] = {}
        for kind, items in self.items.items():
            for item in items:
                for owner in item["metadata"].get("ownerReferences") or ():
                    found.setdefault((owner.get("uid"), kind), []).append(item)
        return found

    @cached_property
    def _events(self) -> dict[str, list[Said]]:
        found: dict[str, list[Said]] = {}
        for event in self.of("Event"):
            uid = (event.get("involvedObject") or {}).get("uid", "")
            found.setdefault(str(uid), []).append(_said(event))
        for said in found.values():
            said.sort(key=lambda each: each.at or datetime.min.replace(tzinfo=UTC))
        return found


def look(session: Session, namespace: str, kinds: Iterable[tuple[str, str]]) -> Seen:
    """Read ``kinds`` in a namespace, in parallel.

    A kind that may not be read, or that the cluster does not have, is in `Seen.unreadable`. Raises `ClusterError` where
    the cluster is out of reach, and `ForbiddenError` where not even pods may be read.
    """
    wanted = list(kinds)

    def read(kind: tuple[str, str]) -> list[Object] | str:
        try:
            return list(session.items(session.collection(*kind, namespace)))
        except NotFoundError:
            return "the cluster does not have this kind"
        except ForbiddenError as problem:
            if kind == POD:
                raise
            return problem.found

    answers = session.all([lambda kind=kind: read(kind) for kind in wanted])  # type: ignore[misc]
    items, unreadable = {}, {}
    for (_, name), answer in zip(wanted, answers, strict=True):
        if isinstance(answer, str):
            unreadable[name] = answer
        else:
            items[name] = sorted(answer, key=lambda item: str(item["metadata"]["name"]))
    return Seen(items, unreadable)


def _said(event: Object) -> Said:
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    at = next((moment(text) for text in (*times, event["metadata"].get("creationTimestamp")) if text), None)
    return Said(
        str(event.get("reason") or ""),
        " ".join(str(event.get("message") or event.get("note") or "").split()),
        event.get("type") == "Warning",
        at,
    )


def moment(text: str | None) -> datetime | None:
    """A time as Kubernetes writes it; None where there is none."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None


def condition(item: Object, kind: str) -> Mapping[str, Any]:
    """A condition of an object; empty where it has none of the kind."""
    conditions: Iterable[Mapping[str, Any]] = (item.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == kind), {})


def labels(item: Object) -> Mapping[str, str]:
    """An object's labels."""
    found: Mapping[str, str] = item["metadata"].get("labels") or {}
    return found


def notes(item: Object) -> Mapping[str, str]:
    """An object's annotations."""
    found: Mapping[str, str] = item["metadata"].get("annotations") or {}
    return found


def selects(selector: Mapping[str, str], item: Object) -> bool:
    """Whether labels match all of a selector's; an empty selector selects nothing here."""
    found = labels(item)
    return bool(selector) and all(found.get(key) == value for key, value in selector.items())


def covers(part: Any, whole: Any) -> bool:
    """Whether everything in ``part`` is also in ``whole``, which may hold more: what a controller or webhook added.

    Lists of named things are compared by name. What is empty may be missing, and a quantity be spelled otherwise: Go
    programs that pass an object on leave out the one and normalise the other.
    """
    if not part and not whole:
        return True
    if isinstance(part, Mapping):
        return isinstance(whole, Mapping) and all(covers(value, whole.get(key)) for key, value in part.items())
    if isinstance(part, list):
        if not isinstance(whole, list):
            return False
        if all(isinstance(item, Mapping) and "name" in item for item in part):
            named = {item["name"]: item for item in whole if isinstance(item, Mapping) and "name" in item}
            return all(covers(item, named.get(item["name"])) for item in part)
        return len(part) == len(whole) and all(covers(one, other) for one, other in zip(part, whole, strict=True))
    return part == whole or _same_quantity(part, whole)


def _same_quantity(one: Any, other: Any) -> bool:
    try:
        return quantity(one) == quantity(other)
    except ValueError:
        return False
