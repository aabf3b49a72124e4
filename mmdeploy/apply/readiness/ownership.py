"""From a workload down to its pods: set → LeaderWorkerSet → StatefulSet or Deployment → ReplicaSet → pod.

Which pods are of the revision that was asked for is decided here, and on which level nobody has acted yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mmdeploy.apply.readiness.objects_seen import Object, Seen, condition, covers, labels, notes, selects
from mmdeploy.apply.readiness.startup import Startup

SILENT_SECONDS = 30.0
"""A controller that has not acted for so long is reported as silent."""
SETTLE_SECONDS = 10.0
"""How long a status may lag behind pods that are ready, before the pods alone are believed."""

Quiet = Callable[[Object], float]
"""Seconds for which an object's controller has not acted on its newest generation."""


@dataclass(frozen=True)
class Lagging:
    """An owner whose controller has something left to do."""

    item: Object
    phase: str
    """absent, unseen, creating, rolling, unreported."""
    detail: str


@dataclass
class Branch:
    """What hangs under a workload's role."""

    desired: int = 0
    levels: list[Object] = field(default_factory=list)
    """Owners of the current revision, the outermost first: their events say why pods are missing."""
    pods: list[Object] = field(default_factory=list)
    old: list[Object] = field(default_factory=list)
    """Pods of another revision than the one that was asked for."""
    lagging: list[Lagging] = field(default_factory=list)
    note: str = ""
    """What a person must know about how this was judged."""

    def add(self, other: Branch) -> None:
        """Take in what hangs under a child; how many pods there should be is the parent's to say."""
        for name in ("levels", "pods", "old", "lagging"):
            getattr(self, name).extend(getattr(other, name))


class Walk:
    """Follows ownership through one look."""

    def __init__(self, seen: Seen, startup: Startup, quiet: Quiet) -> None:
        self._seen = seen
        self._startup = startup
        self._quiet = quiet

    def branch(self, item: Object, role: str = "") -> Branch:
        """What hangs under a live workload; ``role`` names a part of a DisaggregatedSet."""
        if item["kind"] == "DisaggregatedSet":
            return self._role(item, role)
        if item["kind"] == "LeaderWorkerSet":
            return self._group(item)
        return self._workload(item)

    # --------------------------------------------------------------------------------------- Deployment, StatefulSet

    def _workload(self, item: Object) -> Branch:
        found = Branch(desired=int(item["spec"].get("replicas", 1)), levels=[item])
        if not observed(item):
            found.lagging.append(self._unseen(item))
        if item["kind"] == "Deployment":
            self._deployment(item, found)
        else:
            self._stateful(item, found)
        for pod in list(found.pods):  # the workers of a group of several hosts belong to its leader's pod
            for workers in self._seen.owned(pod, "StatefulSet"):
                found.add(self._workload(workers))
        for pod in list(found.old):
            for workers in self._seen.owned(pod, "StatefulSet"):
                found.old += self._seen.owned(workers, "Pod")
        return found

    def _deployment(self, item: Object, found: Branch) -> None:
        if "ReplicaSet" in self._seen.unreadable:
            chosen = item["spec"]["selector"].get("matchLabels") or {}
            found.pods += [pod for pod in self._seen.of("Pod") if selects(chosen, pod)]
            return
        for each in self._seen.owned(item, "ReplicaSet"):
            if self._is_current(each, item):
                found.levels.append(each)
                found.pods += self._seen.owned(each, "Pod")
            else:
                found.old += self._seen.owned(each, "Pod")

    def _is_current(self, replicas: Object, item: Object) -> bool:
        """Whether a ReplicaSet is the Deployment's newest: by its number, or by its pods as long as the Deployment's
        controller has not counted (kinds are read one after the other, so a ReplicaSet may be seen before that).
        """
        if observed(item):
            key = self._startup["currentReplicaSet"]
            return notes(replicas).get(key) == notes(item).get(key)
        return covers(item["spec"].get("template") or {}, replicas["spec"].get("template") or {})

    def _stateful(self, item: Object, found: Branch) -> None:
        wanted = (item.get("status") or {}).get("updateRevision")
        first = int(item["metadata"].get("generation", 1)) == 1
        for pod in self._seen.owned(item, "Pod"):
            same = wanted in (None, labels(pod).get(self._startup["podRevision"]))
            current = same if observed(item) else first  # of a set that was never changed none can be old
            (found.pods if current else found.old).append(pod)

    # --------------------------------------------------------------------------------------------------------- sets

    def _group(self, item: Object) -> Branch:
        size = int((item["spec"].get("leaderWorkerTemplate") or {}).get("size", 1))
        found = Branch(desired=int(item["spec"].get("replicas", 1)) * size, levels=[item])
        children = self._seen.owned(item, "StatefulSet", "Deployment")
        for child in children:
            found.add(self._workload(child))
        if not children:
            found.lagging.append(self._unseen(item))
        return found

    def _role(self, item: Object, role: str) -> Branch:
        spec: Mapping[str, Any] = next((each["spec"] for each in item["spec"]["roles"] if each["name"] == role), {})
        size = int((spec.get("leaderWorkerTemplate") or {}).get("size", 1))
        found = Branch(
            desired=int(spec.get("replicas", 1)) * size * int(item["spec"].get("slices", 1)), levels=[item]
        )  # fmt: skip
        children = self._children(item, role)
        current = self._current(item, spec, children)
        for child in children:
            under = self.branch(child)
            if child in current:
                found.add(under)
            else:
                found.old += [*under.pods, *under.old]
        if not current and found.desired:
            found.lagging.append(self._unseen(item))
        elif not observed(item):
            self._unreported(item, found)
        else:
            self._counted(item, role, found.desired // size, found)
        return found

    def _children(self, item: Object, role: str) -> list[Object]:
        kinds = ("LeaderWorkerSet",)
        if "LeaderWorkerSet" in self._seen.unreadable:
            name, key = item["metadata"]["name"], self._startup["setName"]
            found = [*self._seen.of("StatefulSet"), *self._seen.of("Deployment")]
            mine = [child for child in found if labels(child).get(key) == name]
        else:
            mine = self._seen.owned(item, *kinds)
        return [child for child in mine if labels(child).get(self._startup["setRole"]) == role]

    def _current(self, item: Object, spec: Mapping[str, Any], children: list[Object]) -> list[Object]:
        """The children that are made from what the set says now.

        The set's status does not tell: it stays empty on some releases, and stale without a manager. What a child is
        made from does. A set that was never changed has no others.
        """
        wanted = spec.get("leaderWorkerTemplate") or {}
        same = [child for child in children if covers(wanted, _template_of(child, wanted))]
        if same or not children:
            return same
        if int(item["metadata"].get("generation", 1)) == 1:
            return children
        if observed(item):
            newest = max(children, key=lambda child: str(child["metadata"].get("creationTimestamp", "")))
            return [newest]
        return []

    def _counted(self, item: Object, role: str, groups: int, found: Branch) -> None:
        """A set whose manager reports: it must count the role's groups as new and ready itself."""
        for each in (item.get("status") or {}).get("roleStatuses") or ():
            least = min(int(each.get("readyReplicas", 0)), int(each.get("updatedReplicas", 0)))
            if each.get("name") == role and least < groups:
                why = condition(item, "Progressing").get("reason") or "no reason"
                found.lagging.append(Lagging(item, "rolling", f"its manager counts {least} of {groups} ready ({why})"))

    def _unreported(self, item: Object, found: Branch) -> None:
        """A set whose children are as they should be, but whose status is not: some managers never write one."""
        word = "is stale" if item.get("status") else "stays empty"
        if self._quiet(item) < SETTLE_SECONDS:
            found.lagging.append(Lagging(item, "unreported", "its manager has not reported yet"))
        else:
            found.note = f"judged by its pods: the status of {_name(item)} {word}"

    def _unseen(self, item: Object) -> Lagging:
        if self._quiet(item) < SILENT_SECONDS:
            return Lagging(item, "unseen", "its controller has not acted yet")
        sets = item["kind"] in ("DisaggregatedSet", "LeaderWorkerSet")
        question = "is LeaderWorkerSet running with enableDisaggregatedSet?" if sets else "is its controller running?"
        text = f"no controller has acted on {_name(item)} for {SILENT_SECONDS:.0f} s: {question}"
        return Lagging(item, "unseen", text)


def _template_of(child: Object, wanted: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a child's pods are made from, in the shape of a set's role."""
    if child["kind"] == "LeaderWorkerSet":
        return dict(child["spec"].get("leaderWorkerTemplate") or {})
    return {**wanted, "workerTemplate": child["spec"].get("template") or {}}


def observed(item: Object) -> bool:
    """Whether the controller's status is of the newest generation."""
    status: Mapping[str, Any] = item.get("status") or {}
    conditions: Iterable[Mapping[str, Any]] = status.get("conditions") or ()
    said = [status.get("observedGeneration"), *(each.get("observedGeneration") for each in conditions)]
    newest = max((int(each) for each in said if each is not None), default=-1)
    return newest >= int(item["metadata"].get("generation", 0))


def _name(item: Object) -> str:
    return f"{item['kind']} {item['metadata']['name']}"


def owned_by_set(item: Object) -> bool:
    """Whether a set made it."""
    kinds = [owner.get("kind") for owner in item["metadata"].get("ownerReferences") or ()]
    return "DisaggregatedSet" in kinds or "LeaderWorkerSet" in kinds
