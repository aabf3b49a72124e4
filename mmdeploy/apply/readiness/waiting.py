"""Waiting until a deployment serves: what changed, as events, until everything is ready or something fails for good."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from mmdeploy.apply.events import Event, Failed, Ready, Waiting, Warned
from mmdeploy.apply.readiness import gateway, objects_seen, podlogs, pools, readiness, serving
from mmdeploy.apply.readiness.gateway import PartState
from mmdeploy.apply.readiness.objects_seen import Object, Seen
from mmdeploy.apply.readiness.ownership import SILENT_SECONDS
from mmdeploy.apply.readiness.phases import Failure, Moment
from mmdeploy.apply.readiness.podlogs import PodLogs
from mmdeploy.apply.readiness.readiness import ROUTER, Judge, RoleState, Workload
from mmdeploy.apply.readiness.startup import Startup
from mmdeploy.errors import ClusterError, ForbiddenError, TimedOutError
from mmdeploy.intended import Intended

if TYPE_CHECKING:
    from mmdeploy.catalog import Catalog
    from mmdeploy.cluster.session import Session

STAGE = "wait"
LOOK_SECONDS = 1.5
"""Between two looks at the cluster; more where one look takes long."""
SIGN_SECONDS = 30.0
"""After so long without an event, whatever waits is told again."""
OUTAGE_SECONDS = 180.0
"""How long the API server may be away, as when it is upgraded."""
BEFORE = timedelta(seconds=30)
"""How long before the first look an apply began, where nobody says."""
SURE_SECONDS = 10.0
"""How long something that does not mend by itself must last before it is believed: proxies and caches lag."""

PARTS = ("model-servers", "router", "gateway", "pool", "model")
"""What can be waited for, in the order in which it is reported ready."""


def wait(
    session: Session,
    intended: Intended,
    catalog: Catalog,
    *,
    parts: Collection[str] = PARTS,
    begun: datetime | None = None,
    deadline: float | None = None,
    limit: str = "--timeout",
    follow: str = "",
    clock: Callable[[], float] = time.monotonic,
    now: Callable[[], datetime] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Event]:
    """Wait until the deployment serves.

    Yields `Waiting` when something changes (and after `SIGN_SECONDS` without change), `Warned` for what cannot be
    seen, `Ready` for each role, then for the router, the pool and the model, and for a gateway in front whenever its
    controller has reported; ends when all are. Where
    something fails for good it yields `Failed`, once for each reason, and ends: the last event tells which it was. May
    be closed at any yield.

    ``parts`` says what to wait for, of `PARTS`. ``begun`` is when the apply began, by the API server's clock
    (`Session.now`): complaints from before then are history. ``deadline`` is in ``clock``'s seconds; ``limit`` is what
    the message calls it. ``follow`` is the command that goes on looking.

    Raises `TimedOutError` that says what still starts, `ClusterError` where the cluster stays away.
    """
    tell = now or session.now
    watch = _Watch(session, intended, catalog, tuple(part for part in PARTS if part in parts), clock, tell,
                   begun or tell() - BEFORE)  # fmt: skip
    last_event = clock()
    while True:
        looked_at = clock()
        for event in watch.look():
            last_event = clock()
            yield event
        if watch.over:
            return
        if clock() - last_event >= SIGN_SECONDS:
            last_event = clock()
            yield from watch.signs()
        if deadline is not None and clock() >= deadline:
            command = follow or f"mmdeploy status --watch --namespace {intended.namespace} --name {intended.name}"
            raise TimedOutError(
                f"not ready within {limit}: {watch.remaining()}",
                next_step=f"what starts goes on starting: {command} follows it, and mmdeploy apply waits for it again",
            )
        pause = max(LOOK_SECONDS, clock() - looked_at)
        sleep(pause if deadline is None else max(0.0, min(pause, deadline - clock())))


@dataclass
class _Watch:
    """What a wait remembers from look to look."""

    session: Session
    intended: Intended
    catalog: Catalog
    parts: tuple[str, ...]
    clock: Callable[[], float]
    now: Callable[[], datetime]
    begun: datetime

    def __post_init__(self) -> None:
        self.over = False
        self._startup = Startup(self.catalog)
        self._workloads = readiness.workloads_of(self.intended)
        self._logs = PodLogs(self.session, self.intended.namespace, self.clock)
        self._states: list[RoleState] = []
        self._front = gateway.of_intended(self.intended) if "gateway" in self.parts else None
        self._in_front: list[PartState] = []
        self._told: dict[tuple[str, str, str], tuple[str, str]] = {}
        self._ready: set[str] = set()
        self._warned: set[str] = set()
        self._since: dict[tuple[str, object], float] = {}
        self._existed: set[str] = set()
        self._left: dict[str, str] = {}
        self._away_since: float | None = None

    # ------------------------------------------------------------------------------------------------------ one look

    def look(self) -> Iterator[Event]:
        """What changed since the last look; sets ``over`` at the end of all looks."""
        try:
            seen = objects_seen.look(self.session, self.intended.namespace, self._kinds())
        except ForbiddenError:
            raise
        except ClusterError as problem:
            yield from self._outage(problem)
            return
        self._away_since = None
        self._states = self._judged(seen)
        self._in_front = gateway.judge(seen, self._front, self._startup, self._quiet) if self._front else []
        yield from self._unreadable(seen)
        failed = list(self._failed())
        for state in self._states:
            yield from self._changes(state)
        yield from self._gateway()
        if failed:
            self.over = True
            yield from failed
            return
        yield from self._readiness(seen)

    def _kinds(self) -> list[tuple[str, str]]:
        kinds = objects_seen.kinds_of(workload.kind for workload in self._workloads)
        return [*kinds, *objects_seen.IN_FRONT] if self._front else kinds

    def _judged(self, seen: Seen) -> list[RoleState]:
        when = Moment(self.now(), self.begun)
        wanted = list(self._workloads) if "model-servers" in self.parts else []
        if "router" in self.parts:
            wanted += readiness.routers(seen, self.intended.name, self._startup) or [
                Workload(ROUTER, "Deployment", f"{self.intended.name} (a Helm release)")
            ]

        def judged() -> list[RoleState]:
            judge = Judge(seen, self._startup, when, self._quiet, self._logs.lines)
            return [judge.role(workload) for workload in wanted]

        states = judged()
        return judged() if self._logs.refresh(readiness.wanting_logs(states)) else states

    def _quiet(self, item: Object) -> float:
        return self._lasting("quiet", (item["metadata"].get("uid"), item["metadata"].get("generation")))

    def _lasting(self, what: str, key: object = "") -> float:
        """Seconds since this was first asked."""
        return self.clock() - self._since.setdefault((what, key), self.clock())

    def _outage(self, problem: ClusterError) -> Iterator[Event]:
        """The API server may be away for a while, as when it is upgraded; what is wrong for good is raised."""
        if not self._away():
            raise problem
        if self._away_since is None:
            self._away_since = self.clock()
            yield Warned(f"{problem.found}; waiting goes on")
        elif self.clock() - self._away_since >= OUTAGE_SECONDS:
            raise problem

    def _away(self) -> bool:
        try:
            return self.session.once("GET", "/version", timeout=5).status >= 429
        except ClusterError:
            return True

    # ------------------------------------------------------------------------------------------------- what is told

    def _unreadable(self, seen: Seen) -> Iterator[Event]:
        """What cannot be seen, once each: reasons may then be missing."""
        texts = [f"{kind}s cannot be read: {why}" for kind, why in seen.unreadable.items() if "forbidden" in why]
        if self._logs.refused:
            texts.append(f"logs cannot be read: {self._logs.refused}")
        for text in texts:
            if text not in self._warned:
                self._warned.add(text)
                yield Warned(text)

    def _changes(self, state: RoleState) -> Iterator[Event]:
        role = state.role
        for owner in state.owners:
            yield from self._changed(role, owner.kind, owner.name, owner.phase, owner.detail, owner.since)
        for pod in state.pods:
            known = (role, "Pod", pod.name) in self._told
            if known or not pod.ready:
                phase = pod.phase
                yield from self._changed(role, "Pod", pod.name, phase.name, phase.detail, phase.since)
        yield from self._settled(state)
        if state.item is not None and (not state.done or (role, "Role", state.workload.name) in self._told):
            least = "ready" if state.done else _phase_of(state)
            yield from self._changed(role, "Role", state.workload.name, least, state.summary, None)

    def _gateway(self) -> Iterator[Event]:
        """How far the gateway is: it does not wait for the model servers, nor they for it."""
        for part in self._in_front:
            known = ("gateway", part.kind, part.name) in self._told
            if known or not part.ready:
                yield from self._changed("gateway", part.kind, part.name, part.phase, part.detail, part.since)
        if not all(part.ready for part in self._in_front):
            self._ready.discard("gateway")
        elif self._in_front and "gateway" not in self._ready:
            self._ready.add("gateway")
            yield Ready("gateway", self._in_front[0].name, gateway.text(self._in_front))

    def _settled(self, state: RoleState) -> Iterator[Event]:
        """What was told of and is over: an owner has done its work, a pod is gone."""
        there = {("Pod", pod.name) for pod in state.pods} | {(owner.kind, owner.name) for owner in state.owners}
        for role, kind, name in list(self._told):
            if role == state.role and kind != "Role" and (kind, name) not in there:
                del self._told[role, kind, name]
                yield Waiting(role, kind, name, "gone" if kind == "Pod" else "ready")

    def _changed(
        self, role: str, kind: str, name: str, phase: str, detail: str, since: datetime | None
    ) -> Iterator[Event]:
        if self._told.get((role, kind, name)) != (phase, detail):
            self._told[role, kind, name] = (phase, detail)
            yield Waiting(role, kind, name, phase, detail, self._seconds(since))

    def _seconds(self, since: datetime | None) -> float:
        return max(0.0, round((self.now() - since).total_seconds(), 1)) if since else 0.0

    def signs(self) -> Iterator[Event]:
        """A sign of life from each role that is not ready."""
        for state in self._states:
            if not state.done:
                waiting = [pod.phase.since for pod in state.pods if not pod.ready and pod.phase.since]
                since = self._seconds(min(waiting, default=None))
                yield Waiting(state.role, "Role", state.workload.name, _phase_of(state), state.summary, since)
        for part in self._in_front:
            if not part.ready:
                since = self._seconds(part.since)
                yield Waiting("gateway", part.kind, part.name, part.phase, part.detail, since)

    def remaining(self) -> str:
        """What still starts, on one line."""
        parts = []
        for state in self._states:
            if not state.done:
                why = next((owner.detail for owner in state.owners), "") or next(
                    (pod.phase.detail for pod in state.pods if not pod.ready and pod.phase.detail), ""
                )
                parts.append(f"{state.role}: {state.summary}" + (f" ({why})" if why else ""))
        parts += [part.text for part in self._in_front if not part.ready]
        parts += [f"{part}: {why}" for part, why in self._left.items() if part not in self._ready]
        return "; ".join(parts) or "nothing could be seen"

    # ----------------------------------------------------------------------------------------------------- failures

    def _failed(self) -> Iterator[Event]:
        """What fails for good, each reason of a role once."""
        grouped: dict[tuple[str, str], list[tuple[str, Failure]]] = {}
        for state in self._states:
            for kind, name, failure in self._failures(state):
                grouped.setdefault((state.role, failure.reason), []).append((f"{kind} {name}", failure))
        for part in self._in_front:
            if part.failure and self._lasting("refused", (part.kind, part.name, part.detail)) >= SURE_SECONDS:
                grouped["gateway", part.failure.reason] = [(f"{part.kind} {part.name}", part.failure)]
        for (role, reason), found in grouped.items():
            name, failure = found[0]
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            yield Failed(STAGE, f"{role}: {name}{more}", reason, podlogs.shown(failure.log), failure.hint)

    def _failures(self, state: RoleState) -> Iterator[tuple[str, str, Failure]]:
        yield from state.failures
        workload = state.workload
        if state.item is not None:
            self._existed.add(workload.name)
        elif workload.name in self._existed:
            yield workload.kind, workload.name, Failure("it is gone: somebody deleted it", "apply again")
        elif self._lasting("absent", workload) >= SILENT_SECONDS:
            yield workload.kind, workload.name, Failure("it does not exist", "apply again")

    # ---------------------------------------------------------------------------------------------------- readiness

    def _readiness(self, seen: Seen) -> Iterator[Event]:
        """`Ready` for what became so; the router after the roles, the pool after it, the model last."""
        for state in self._states:
            if not state.done:
                self._ready.discard(state.role)
        roles = [state for state in self._states if state.role != ROUTER]
        router = [state for state in self._states if state.role == ROUTER]
        for state in roles:
            yield from self._now_ready(state)
        if not all(state.done for state in roles):
            return
        for state in router:
            yield from self._now_ready(state)
        if all(state.done for state in router):
            yield from self._last_parts(seen, roles, router)

    def _now_ready(self, state: RoleState) -> Iterator[Event]:
        if state.done and state.role not in self._ready:
            self._ready.add(state.role)
            detail = "; ".join(filter(None, (f"{state.ready} of {state.desired}", state.note)))
            yield Ready(state.role, state.workload.name, detail)

    def _last_parts(self, seen: Seen, roles: Sequence[RoleState], router: Sequence[RoleState]) -> Iterator[Event]:
        item = router[0].item if router else None
        if "pool" in self.parts and "pool" not in self._ready:
            yield from self._pool(seen, roles, item)
            if "pool" not in self._ready:
                return
        if "model" in self.parts and "model" not in self._ready:
            yield from self._model(seen, roles)
            if "model" not in self._ready:
                return
        self.over = all(part.ready for part in self._in_front)

    def _pool(self, seen: Seen, roles: Sequence[RoleState], router: Object | None) -> Iterator[Event]:
        servers = (self.intended.values.get("router") or {}).get("modelServers") or {}
        given = servers.get("matchLabels") or {}
        expected = {
            workload.role
            for item in self.intended.workloads
            for workload in self._workloads
            if workload.name == item["metadata"]["name"]
            and given.items() <= readiness.template_labels(item, workload.role).items()
        }
        wanted = [state.role for state in roles if state.role in expected] if expected else None
        pool = pools.judge(seen, self.intended.name, router, roles, self._startup, wanted, given)
        if not pool.missing:
            self._ready.add("pool")
            yield Ready("pool", pool.name, pool.text)
        elif self._lasting("pool") >= SURE_SECONDS:
            self.over = True
            hint = "the router's values and the model servers' labels differ: mmdeploy lint says where"
            yield Failed(STAGE, f"pool: {pool.name}", pool.text, hint=hint)
        else:
            self._left["pool"] = pool.text
            yield from self._changed("pool", "InferencePool", pool.name, "selecting", pool.text, None)

    def _model(self, seen: Seen, roles: Sequence[RoleState]) -> Iterator[Event]:
        serves = next((state for state in roles if state.role == serving.CONSUMER), None)
        model = serving.expected_name(serves.item if serves else None, str(self.intended.spec["model"]), self._startup)
        served = serving.ask(
            self.session, self.intended.namespace, seen, self.intended.name, roles, self._startup, self._port()
        )
        sure = self._lasting("model") >= SURE_SECONDS
        if served.names is not None and model in served.names:
            self._ready.add("model")
            yield Ready("model", model, f"listed by {served.by}")
        elif served.names is None and (served.forbidden or sure):
            self._ready.add("model")
            yield Ready("model", model, f"not checked: {served.why}")
        elif served.names is not None and sure:
            self.over = True
            others = ", ".join(served.names) or "no model"
            yield Failed(STAGE, f"model: {model}", f"{served.by} serves {others} and not {model}")
        else:
            why = served.why or f"{served.by} does not list it yet"
            self._left["model"] = why
            yield from self._changed("model", "Model", model, "asking", why, None)

    def _port(self) -> int:
        servers = (self.intended.values.get("router") or {}).get("modelServers") or {}
        ports = servers.get("targetPorts") or [{}]
        return int(ports[0].get("number", self.catalog.ports["modelServer"]))


_ORDER = ("unschedulable", "scheduling", "scheduled", "pulling", "starting", "restarting", "loading", "compiling",
          "unready", "ready")  # fmt: skip


def _phase_of(state: RoleState) -> str:
    """How far the pod is that has the longest way to go."""
    names = [pod.phase.name for pod in state.pods if not pod.ready]
    if names:
        return min(names, key=lambda name: _ORDER.index(name) if name in _ORDER else 0)
    return next((owner.phase for owner in state.owners), "rolling" if state.old else "ready")


__all__ = ["LOOK_SECONDS", "PARTS", "SIGN_SECONDS", "wait"]
