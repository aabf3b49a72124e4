"""Whether roles and router are ready, what each still waits for, and what fails for good: pure, over one look."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mmdeploy.apply.readiness.objects_seen import Object, Said, Seen, condition, labels, moment, notes
from mmdeploy.apply.readiness.ownership import Branch, Lagging, Quiet, Walk
from mmdeploy.apply.readiness.phases import Failure, LogWanted, Moment, Phase, PodJudge
from mmdeploy.apply.readiness.startup import Startup
from mmdeploy.intended import Intended, role_of

ROUTER = "router"
"""The router's place among the roles."""

Logs = Mapping[str, Sequence[str]]
"""Pod's uid → the end of the log that was wanted."""


@dataclass(frozen=True)
class Workload:
    """Something that makes pods of one role."""

    role: str
    kind: str
    name: str


@dataclass(frozen=True)
class PodState:
    """A pod of the revision that was asked for."""

    pod: Object
    phase: Phase
    log_wanted: LogWanted | None = None

    @property
    def name(self) -> str:
        """The pod's name."""
        return str(self.pod["metadata"]["name"])

    @property
    def uid(self) -> str:
        """The pod's uid."""
        return str(self.pod["metadata"].get("uid", ""))

    @property
    def ready(self) -> bool:
        """Whether it counts."""
        return self.phase.name == "ready"


@dataclass(frozen=True)
class OwnerState:
    """An owner that has something left to do, or cannot do it."""

    kind: str
    name: str
    phase: str
    """absent, unseen, unreported, creating, rolling, scaled-down: it shall have no pods; or refused: somebody refuses
    the pods it makes."""
    detail: str
    since: datetime | None = None
    failure: Failure | None = None


@dataclass(frozen=True)
class RoleState:
    """A role, or the router."""

    workload: Workload
    item: Object | None
    """The live object; None where it does not exist."""
    desired: int
    pods: tuple[PodState, ...] = ()
    owners: tuple[OwnerState, ...] = ()
    old: int = 0
    """Pods of another revision that still run."""
    note: str = ""
    needed: int = 0
    """How many ready pods are enough: fewer than desired where some are spares that are never ready."""

    @property
    def role(self) -> str:
        """encode, prefill, decode or router."""
        return self.workload.role

    @property
    def ready(self) -> int:
        """Pods of the right revision that are ready."""
        return sum(pod.ready for pod in self.pods)

    @property
    def done(self) -> bool:
        """Whether nothing is left to wait for."""
        return self.item is not None and not self.owners and not self.old and self.ready >= self.needed

    @property
    def failures(self) -> Iterator[tuple[str, str, Failure]]:
        """Kind, name and reason of everything that fails for good."""
        for owner in self.owners:
            if owner.failure:
                yield owner.kind, owner.name, owner.failure
        for pod in self.pods:
            if pod.phase.failure:
                yield "Pod", pod.name, pod.phase.failure

    @property
    def summary(self) -> str:
        """How many are ready, and where the others are: ``5 of 8 ready, 2 loading, 1 pulling``."""
        counted: dict[str, int] = {}
        for pod in self.pods:
            if not pod.ready:
                counted[pod.phase.name] = counted.get(pod.phase.name, 0) + 1
        parts = [f"{self.ready} of {self.desired} ready", *(f"{count} {name}" for name, count in counted.items())]
        if self.old:
            parts.append(f"{self.old} of the old revision")
        return ", ".join(parts)


def workloads_of(intended: Intended) -> tuple[Workload, ...]:
    """What makes the pods of each role, in the order of the roles."""
    found = []
    for item in intended.workloads:
        kind, name = str(item["kind"]), str(item["metadata"]["name"])
        if kind == "DisaggregatedSet":
            found += [Workload(str(role["name"]), kind, name) for role in item["spec"]["roles"]]
        else:
            found.append(Workload(role_of(item) or "decode", kind, name))
    return tuple(found)


def routers(seen: Seen, release: str, startup: Startup) -> list[Workload]:
    """The Deployments of a Helm release: by Helm's annotation, or by the chart's label where no helm applied it."""
    found = [item for item in seen.of("Deployment") if notes(item).get(startup["releaseAnnotation"]) == release]
    if not found and release:
        found = [item for item in seen.of("Deployment") if release in _router_names(item, startup)]
    return [Workload(ROUTER, "Deployment", str(item["metadata"]["name"])) for item in found]


def _router_names(item: Object, startup: Startup) -> set[str]:
    chosen = (item["spec"].get("selector") or {}).get("matchLabels") or {}
    names = {str(chosen[key]) for key in startup["routerLabels"] if key in chosen}
    return names | {name.removesuffix(f"-{startup['pickerContainer']}") for name in names}


class Judge:
    """Judges one look."""

    def __init__(self, seen: Seen, startup: Startup, when: Moment, quiet: Quiet, logs: Logs | None = None) -> None:
        self._seen = seen
        self._startup = startup
        self._when = when
        self._logs = logs or {}
        self._walk = Walk(seen, startup, quiet)

    def role(self, workload: Workload) -> RoleState:
        """Where a role stands."""
        item = self._seen.named(workload.kind, workload.name)
        if item is None:
            why = self._seen.unreadable.get(workload.kind, "it does not exist")
            return RoleState(workload, None, 0, owners=(OwnerState(workload.kind, workload.name, "absent", why),))
        branch = self._walk.branch(item, workload.role)
        engine = workload.role != ROUTER
        pods = [self._pod(pod, engine) for pod in branch.pods]
        counted = tuple(pod for pod in pods if pod.phase.name not in ("stopping", "ended"))
        # Of several endpoint pickers one leads; the others are never ready (router.md §4.2). A role without a pod is
        # not played, whoever scaled it down.
        needed = max(1, branch.desired) if engine else min(1, branch.desired)
        owners = self._owners(branch, counted, needed) if branch.desired else self._scaled_down(item)
        return RoleState(
            workload, item, branch.desired, counted, tuple(owners) if engine or branch.desired else (),
            sum(1 for pod in branch.old if not pod["metadata"].get("deletionTimestamp")), branch.note, needed,
        )  # fmt: skip

    def _pod(self, pod: Object, engine: bool) -> PodState:
        judge = PodJudge(pod, self._seen.said(pod), self._startup, self._when, engine=engine)
        return PodState(
            pod, judge.phase(self._logs.get(str(pod["metadata"].get("uid", "")), ())), judge.log_wanted()
        )  # fmt: skip

    def _owners(self, branch: Branch, pods: Sequence[PodState], needed: int) -> Iterator[OwnerState]:
        """What each level has left to do; a refusal of its pods is the reason for their absence."""
        refused = list(self._refused(branch)) if len(pods) < branch.desired else []
        yield from refused
        all_ready = sum(pod.ready for pod in pods) >= needed
        for lag in branch.lagging:
            if lag.phase != "rolling" or all_ready:
                yield self._lagging(lag)
        if len(pods) < needed and not refused and not branch.lagging and not branch.old:
            last = branch.levels[-1]
            text = f"{len(pods)} of {branch.desired} pods are there"
            yield OwnerState(str(last["kind"]), str(last["metadata"]["name"]), "creating", text)

    def _scaled_down(self, item: Object) -> Iterator[OwnerState]:
        failure = Failure("it is scaled to 0 pods: nobody plays the role", "set its replicas to 1 or more, in the "
                          "bundle too, and apply again")  # fmt: skip
        yield OwnerState(
            str(item["kind"]), str(item["metadata"]["name"]), "scaled-down", "it is scaled to 0 pods", failure=failure
        )

    def _lagging(self, lag: Lagging) -> OwnerState:
        metadata = lag.item["metadata"]
        since = moment(metadata.get("creationTimestamp"))
        return OwnerState(str(lag.item["kind"]), str(metadata["name"]), lag.phase, lag.detail, since)

    def _refused(self, branch: Branch) -> Iterator[OwnerState]:
        """What owners were told when they made pods, of the innermost level that was told anything."""
        for level in reversed(branch.levels):
            complaint = self._complaint(level)
            meaning = complaint and self._startup.meaning("owners", complaint.message, complaint.reason)
            if not complaint or not meaning:
                continue
            fresh = self._when.fresh(complaint.at)
            failure = Failure(meaning.said, meaning.hint) if meaning.fails and fresh else None
            name, kind = str(level["metadata"]["name"]), str(level["kind"])
            said = meaning.said if fresh else f"{meaning.said} (before this apply began)"
            yield OwnerState(kind, name, "refused", said, complaint.at, failure)
            return

    def _complaint(self, level: Object) -> Said | None:
        """The newest thing that an owner was told, unless it has made a pod since."""
        told = [each for each in self._seen.said(level) if each.reason.startswith(("Failed", "SuccessfulCreate"))]
        if told:
            # Times are whole seconds: of the same second, the refusal counts.
            newest = max(told, key=lambda each: (each.at or self._when.now, each.warning))
            return newest if newest.warning else None
        failed = condition(level, "ReplicaFailure")
        if failed.get("status") != "True":
            return None
        return Said(str(failed.get("reason")), str(failed.get("message")), True, moment(failed["lastTransitionTime"]))


def template_labels(item: Object, role: str) -> Mapping[str, str]:
    """Labels of the pods that a workload makes."""
    spec: Mapping[str, Any] = item["spec"]
    if item["kind"] == "DisaggregatedSet":
        spec = next((each["spec"] for each in spec["roles"] if each["name"] == role), {})
    group = spec.get("leaderWorkerTemplate") or {}
    template = group.get("leaderTemplate") or group.get("workerTemplate") or spec.get("template") or {}
    return labels({"metadata": template.get("metadata") or {}})


def wanting_logs(states: Iterable[RoleState]) -> list[PodState]:
    """Pods whose log would tell more."""
    return [pod for state in states for pod in state.pods if pod.log_wanted]
