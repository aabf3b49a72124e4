"""How far a pod is on its way to serving, and whether it can still get there: a judgement over plain documents.

Nothing here asks a cluster or a clock. What is no failure (field.md §5.2): waiting for capacity or an autoscaler, a
long download, a slow registry, a first crash.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from mmdeploy.apply.readiness.crashes import Ended, ended
from mmdeploy.apply.readiness.objects_seen import Object, Said, condition, moment
from mmdeploy.apply.readiness.startup import Meaning, Startup

PATIENCE = timedelta(seconds=330)
"""What was wrong before an apply began may be mended: a kubelet tries again at least every 300 s."""
SLACK = timedelta(seconds=2)
"""Times of a cluster are in whole seconds."""
RESTARTS = 2
"""A container that crashes after so many restarts is in a crash loop (field.md §5.4)."""


@dataclass(frozen=True)
class Failure:
    """Why something fails for good."""

    reason: str
    hint: str = ""
    log: tuple[str, ...] = ()


@dataclass(frozen=True)
class Phase:
    """Where a pod is."""

    name: str
    """scheduling, unschedulable, scheduled, pulling, starting, loading, compiling, ready; unready after it was ready;
    restarting after a crash; ended for a pod that will not run again; stopping for one that is being deleted."""
    detail: str = ""
    since: datetime | None = None
    failure: Failure | None = None


@dataclass(frozen=True)
class Moment:
    """When a judgement is made."""

    now: datetime
    begun: datetime | None = None
    """When the apply began; None counts everything as new."""

    def fresh(self, at: datetime | None) -> bool:
        """Whether something is of this apply, or has stayed for so long that it will not mend."""
        if self.begun is None or self.now - self.begun >= PATIENCE:
            return True
        return at is not None and at >= self.begun - SLACK


@dataclass(frozen=True)
class LogWanted:
    """Which log tells more about a pod."""

    container: str
    previous: bool
    """The log of the run before."""


class PodJudge:
    """Judges one pod."""

    def __init__(
        self, pod: Object, said: Sequence[Said], startup: Startup, when: Moment, *, engine: bool = True
    ) -> None:
        """``said``: events about the pod, the oldest first. ``engine``: whether it is a model server."""
        self.pod = pod
        self._said = said
        self._startup = startup
        self._when = when
        self._engine = engine
        self._status: Mapping[str, Any] = pod.get("status") or {}
        self._created = moment(pod["metadata"].get("creationTimestamp"))

    def log_wanted(self) -> LogWanted | None:
        """Whose log tells more: of a container that crashed, or of an engine that starts."""
        if self._over() or condition(self.pod, "Ready").get("status") == "True":
            return None
        for status in self._containers():
            crash = ended(status)
            if crash:
                return LogWanted(str(status["name"]), previous=crash.before)
        starting = self._starting() if self._engine else None
        return LogWanted(str(starting["name"]), previous=False) if starting else None

    def phase(self, log: Sequence[str] = ()) -> Phase:
        """Where the pod is; ``log`` is the end of the log that `log_wanted` named, oldest line first."""
        ready = condition(self.pod, "Ready")
        over = self._over()
        if over:
            return over
        if ready.get("status") == "True":
            return Phase("ready", since=moment(ready.get("lastTransitionTime")))
        if not (self.pod.get("spec") or {}).get("nodeName"):
            return self._unplaced()
        return self._crashed(log) or self._held() or self._running(log) or self._before_containers()

    # ------------------------------------------------------------------------------------------- not on a node, or gone

    def _over(self) -> Phase | None:
        gone = self.pod["metadata"].get("deletionTimestamp")
        if gone:
            return Phase("stopping", since=moment(gone))
        if self._status.get("phase") in ("Failed", "Succeeded"):
            words = (self._status.get("reason"), self._status.get("message"))
            return Phase("ended", ": ".join(str(word).strip() for word in words if word), self._created)
        return None

    def _unplaced(self) -> Phase:
        placed = condition(self.pod, "PodScheduled")
        since = moment(placed.get("lastTransitionTime")) or self._created
        if placed.get("status") != "False":
            return Phase("scheduling", "the scheduler has not looked at it yet", since)
        if placed.get("reason") == "SchedulingGated":
            gates = ", ".join(str(gate.get("name")) for gate in self.pod["spec"].get("schedulingGates") or ())
            return Phase("unschedulable", f"held by a scheduling gate: {gates}", since)
        detail = self._startup.scheduling(str(placed.get("message") or ""))
        told = self._told()
        return Phase("unschedulable", "; ".join(filter(None, (detail, told.said if told else ""))), since)

    # ------------------------------------------------------------------------------------------- crashes and refusals

    def _crashed(self, log: Sequence[str]) -> Phase | None:
        for status in self._containers():
            crash = ended(status)
            if crash and self._counts(crash):
                return self._crash(status, crash, log)
        return None

    def _counts(self, crash: Ended) -> bool:
        """Whether a crash says something about the run that is under way: one of days ago does not."""
        return not crash.runs_again or not crash.started or self._when.now - (crash.at or self._when.now) < PATIENCE

    def _crash(self, status: Mapping[str, Any], crash: Ended, log: Sequence[str]) -> Phase:
        fresh = self._when.fresh(crash.at)
        meaning = crash.meaning(self._startup, self._limit(str(status["name"])))
        words = None if meaning else self._startup.newest("lastWords", log)
        if words:
            meaning = Meaning(words[0].said, fails=True, hint=words[0].hint)
        if meaning is None and crash.restarts >= RESTARTS and not crash.lost:
            hint = "the end of its log says why" if log else "kubectl logs --previous shows its log, where there is one"
            said = f"it crashes again and again: {crash.how}"
            meaning = Meaning(said, fails=True, hint=hint)
        if meaning and meaning.fails and fresh:
            return Phase("restarting", meaning.said, crash.at, self._failure(status, meaning, log))
        before = "" if fresh else ", before this apply began"
        return Phase("restarting", f"{crash.how}{before}; restart {crash.restarts + (not crash.runs_again)}", crash.at)

    def _held(self) -> Phase | None:
        """A container that the kubelet does not start: its image, or what it refers to."""
        for status in self._containers():
            waiting = (status.get("state") or {}).get("waiting") or {}
            rule = self._startup.containers.get(str(waiting.get("reason", "")))
            if rule is None or rule.phase and not rule.read:
                continue
            message = " ".join(str(waiting.get("message") or "").split())
            if rule.read:
                meaning = self._read(rule.read, message)
            else:
                meaning = Meaning(f"{waiting['reason']}: {message}" if message else str(waiting["reason"]), True, "",
                                  rule.hint)  # fmt: skip
            if meaning is None:
                return Phase(
                    rule.phase or "starting", f"{waiting['reason']}: {message}".rstrip(": "), self._placed_at()
                )
            said = f"{meaning.said}: {_image(status)}" if rule.phase == "pulling" else meaning.said
            # An image is as wrong as before; a Secret may have come since the kubelet looked last.
            fresh = rule.read != "configs" or self._fresh()
            told = Meaning(said, meaning.fails, hint=meaning.hint)
            failure = self._failure(status, told, ()) if meaning.fails and fresh else None
            return Phase(rule.phase or "starting", said, self._placed_at(), failure)
        return None

    def _read(self, section: str, message: str) -> Meaning | None:
        """What a state's message means; the kubelet's last complaint, where the state says nothing of it."""
        meaning = self._startup.meaning(section, message)
        if meaning:
            return meaning
        complaints = [each.message for each in self._said if each.reason in ("Failed", "ErrImagePull") and each.message]
        return next((found for text in reversed(complaints) if (found := self._startup.meaning(section, text))), None)

    def _fresh(self) -> bool:
        failed = [each.at for each in self._said if each.warning]
        return self._when.fresh(self._created) or any(self._when.fresh(at) for at in failed)

    def _failure(self, status: Mapping[str, Any], meaning: Meaning, log: Sequence[str]) -> Failure:
        names = [str(each["name"]) for each in self._containers()]
        inside = f"container {status['name']}: " if len(names) > 1 else ""
        return Failure(f"{inside}{meaning.said}", meaning.hint, tuple(log))

    # ----------------------------------------------------------------------------------------------- on its way

    def _running(self, log: Sequence[str]) -> Phase | None:
        status = self._starting()
        if status is None:
            return None
        since = moment(status["state"]["running"].get("startedAt"))
        if status.get("started") and self._probed(str(status["name"])):
            complaint = self._newest("Unhealthy")
            lost = moment(condition(self.pod, "Ready").get("lastTransitionTime"))
            return Phase("unready", complaint or "its readiness probe fails", lost or since)
        found = self._startup.newest("logs", log) if self._engine else None
        if found is None:
            return Phase("loading" if self._engine else "starting", "", since)
        meaning, line = found
        at = moment(line.split(" ", 1)[0]) if meaning.phase != "loading" else None
        return Phase(meaning.phase, meaning.said, at or since)

    def _before_containers(self) -> Phase:
        told = self._told()
        if told:
            failure = Failure(told.said, told.hint) if told.fails and self._fresh() else None
            return Phase("scheduled", told.said, self._placed_at(), failure)
        pulling = [each for each in self._said if each.reason in ("Pulling", "Pulled")]
        waiting = [status for status in self._containers() if (status.get("state") or {}).get("waiting")]
        if waiting and pulling and pulling[-1].reason == "Pulling":
            return Phase("pulling", _image(waiting[0]), pulling[-1].at or self._placed_at())
        if waiting and not self._said:  # events may be out of sight: then this is the likeliest
            return Phase("pulling", _image(waiting[0]), self._placed_at())
        return Phase("scheduled", "", self._placed_at())

    def _starting(self) -> Mapping[str, Any] | None:
        """The container that runs and is not ready: the first that is no finished step."""
        for status in self._containers():
            if (status.get("state") or {}).get("running") and not status.get("ready"):
                return status
        return None

    # ----------------------------------------------------------------------------------------------------- readings

    def _containers(self) -> Iterator[Mapping[str, Any]]:
        yield from self._status.get("initContainerStatuses") or ()
        yield from self._status.get("containerStatuses") or ()

    def _spec_of(self, name: str) -> Mapping[str, Any]:
        spec = self.pod.get("spec") or {}
        every = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
        return next((each for each in every if each.get("name") == name), {})

    def _limit(self, name: str) -> str:
        return str(((self._spec_of(name).get("resources") or {}).get("limits") or {}).get("memory", ""))

    def _probed(self, name: str) -> bool:
        return bool(self._spec_of(name).get("startupProbe"))

    def _placed_at(self) -> datetime | None:
        return moment(condition(self.pod, "PodScheduled").get("lastTransitionTime")) or self._created

    def _told(self) -> Meaning | None:
        """The newest event that means something for a pod that does not run."""
        for each in reversed(self._said):
            meaning = self._startup.meaning("pods", each.message, each.reason)
            if meaning:
                return meaning
        return None

    def _newest(self, reason: str) -> str:
        return next((each.message for each in reversed(self._said) if each.reason == reason), "")


def _image(status: Mapping[str, Any]) -> str:
    return str(status.get("image", ""))
