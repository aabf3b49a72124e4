"""What a deployment is like now, as one document: roles, router, pool, images, release, drift, what still starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from mmdeploy.apply import discovery, drifted, inventory, lease, secret
from mmdeploy.apply.discovery import Subject
from mmdeploy.apply.inventory import Inventory
from mmdeploy.apply.lease import Holder
from mmdeploy.apply.readiness import gateway, objects_seen, podlogs, pools, readiness, serving
from mmdeploy.apply.readiness.gateway import PartState
from mmdeploy.apply.readiness.objects_seen import Object, Seen, moment
from mmdeploy.apply.readiness.phases import Failure, Moment
from mmdeploy.apply.readiness.podlogs import PodLogs
from mmdeploy.apply.readiness.readiness import ROUTER, Judge, PodState, RoleState
from mmdeploy.apply.readiness.startup import Startup
from mmdeploy.errors import ForbiddenError

if TYPE_CHECKING:
    from mmdeploy.catalog import Catalog
    from mmdeploy.cluster.session import Session
    from mmdeploy.intended import Intended

SCHEMA_VERSION = 1
_IN_FRONT = {kind for _, kind in objects_seen.IN_FRONT}


class Status:
    """Looks at one deployment, as often as asked."""

    def __init__(
        self, session: Session, catalog: Catalog, namespace: str, *, name: str | None = None,
        intended: Intended | None = None, now: Callable[[], datetime] | None = None,
        clock: Callable[[], float],
    ) -> None:  # fmt: skip
        """``name``: which of several. ``intended``: a bundle, instead of what the namespace tells."""
        self._session = session
        self._catalog = catalog
        self._namespace = namespace
        self._name = name
        self._intended = intended
        self._startup = Startup(catalog)
        self._now = now or session.now
        self._logs = PodLogs(session, namespace, clock)

    def document(self) -> dict[str, Any]:
        """How it is now.

        Raises `MmdeployError` for a deployment that is not there, `UsageError` where a name must be said, and
        `ClusterError` for a cluster that cannot be reached.
        """
        seen = objects_seen.look(self._session, self._namespace, self._kinds())
        inventories, why = self._inventories()
        subject = self._subject(seen, inventories)
        states = self._judged(seen, subject)
        roles = [state for state in states if state.role != ROUTER]
        router = next((state for state in states if state.role == ROUTER), None)
        pool = pools.judge(
            seen, subject.release, router.item if router else None, roles, self._startup,
            fallback=_given(subject.values),
        )  # fmt: skip
        model = self._model(seen, subject, roles)
        at_work, unread = self._at_work(subject)
        drift, unseen = drifted.look(self._session, subject.inventory)
        front = self._front(seen, subject)
        ready = all(state.done for state in states) and not pool.missing and model["served"] is not False
        ready = ready and all(part.ready for part in front)
        return {
            "schemaVersion": SCHEMA_VERSION,
            "kind": "Status",
            "name": subject.name,
            "namespace": self._namespace,
            "context": self._session.where.context,
            "foundBy": subject.by,
            "ready": bool(roles) and ready,
            "release": self._release(subject, states),
            "lastApply": _last_apply(subject.inventory),
            "lease": _lease(at_work),
            "roles": [self._role(state, self._spec(subject)) for state in roles],
            "router": self._router(router) if router else None,
            "pool": {"name": pool.name, "selector": pool.selector, "ready": dict(pool.counted), "detail": pool.text},
            "gateway": _gateway(front),
            "model": model,
            "drift": drift,
            "notes": [
                *_unfinished(subject.inventory, at_work, unread),
                *self._notes(seen, subject, states),
                *([why] if why else []),
                *unseen,
                *self._secret(subject),
            ],
        }

    # --------------------------------------------------------------------------------------------------- what is meant

    def _inventories(self) -> tuple[dict[str, Inventory], str]:
        try:
            return inventory.all_in(self._session, self._namespace), ""
        except ForbiddenError:
            return {}, "the inventory may not be read: what was applied last, and drift, are not known"

    def _kinds(self) -> Sequence[tuple[str, str]]:
        """What to read: of a bundle what it has, otherwise whatever there may be."""
        if self._intended is None:
            return objects_seen.EVERYTHING
        kinds = objects_seen.kinds_of(workload.kind for workload in readiness.workloads_of(self._intended))
        return [*kinds, *objects_seen.IN_FRONT] if gateway.of_intended(self._intended) else kinds

    def _spec(self, subject: Subject) -> Mapping[str, Any]:
        """The spec that was applied, else the bundle's; empty where nobody knows it."""
        if subject.inventory:
            return subject.inventory.spec
        return self._intended.spec if self._intended else {}

    def _subject(self, seen: Seen, inventories: Mapping[str, Inventory]) -> Subject:
        if self._intended is None:
            return discovery.from_cluster(
                seen, inventories, self._namespace, self._name, self._catalog, self._startup
            )  # fmt: skip
        subject = discovery.from_intended(self._intended, inventories.get(self._intended.name))
        there = any(seen.named(each.kind, each.name) for each in subject.workloads)
        if not there and subject.inventory is None and not readiness.routers(seen, subject.release, self._startup):
            discovery.absent(subject)
        return subject

    def _judged(self, seen: Seen, subject: Subject) -> list[RoleState]:
        wanted = [*subject.workloads, *readiness.routers(seen, subject.release, self._startup)]

        def judged() -> list[RoleState]:
            judge = Judge(seen, self._startup, Moment(self._now()), self._quiet, self._logs.lines)
            return [judge.role(workload) for workload in wanted]

        states = judged()
        return judged() if self._logs.refresh(readiness.wanting_logs(states)) else states

    def _quiet(self, item: Object) -> float:
        """Seconds since somebody last wrote the object's spec."""
        written = [
            moment(entry.get("time"))
            for entry in item["metadata"].get("managedFields") or () if entry.get("subresource") != "status"
        ]  # fmt: skip
        times = [at for at in (*written, moment(item["metadata"].get("creationTimestamp"))) if at]
        return (self._now() - max(times)).total_seconds() if times else 0.0

    def _front(self, seen: Seen, subject: Subject) -> list[PartState]:
        """How far the gateway is; nothing where none is in front."""
        if self._intended is not None:
            wanted = gateway.of_intended(self._intended)
        elif subject.inventory is not None:
            wanted = gateway.of_inventory(subject.inventory, subject.release)
        else:  # whoever applied it: what its router's route says
            wanted = gateway.Wanted(subject.release) if subject.release else None
        return gateway.judge(seen, wanted, self._startup, self._quiet) if wanted else []

    # ------------------------------------------------------------------------------------------------------ its parts

    def _role(self, state: RoleState, spec: Mapping[str, Any]) -> dict[str, Any]:
        wanted = spec.get(state.role) if state.item is None else None
        return {
            "role": state.role,
            "kind": state.workload.kind,
            "workload": state.workload.name,
            "desired": int(wanted.get("replicas", 0)) if isinstance(wanted, Mapping) else state.desired,
            "ready": state.ready,
            "old": state.old,
            "images": _images(state),
            "done": state.done,
            "note": state.note,
            "starting": [*self._owners(state), *self._pods(state)],
        }

    def _owners(self, state: RoleState) -> Iterator[dict[str, Any]]:
        for owner in state.owners:
            yield self._starting(owner.kind, owner.name, owner.phase, owner.detail, owner.since, owner.failure)

    def _pods(self, state: RoleState) -> Iterator[dict[str, Any]]:
        for pod in state.pods:
            if not pod.ready:
                phase = pod.phase
                yield self._starting("Pod", pod.name, phase.name, phase.detail, phase.since, phase.failure)

    def _starting(
        self, kind: str, name: str, phase: str, detail: str, since: datetime | None, failure: Failure | None
    ) -> dict[str, Any]:
        return {
            "kind": kind,
            "name": name,
            "phase": phase,
            "detail": detail,
            "since": since.strftime("%Y-%m-%dT%H:%M:%SZ") if since else None,
            "seconds": max(0, round((self._now() - since).total_seconds())) if since else None,
            "fails": failure is not None,
            "hint": failure.hint if failure else "",
            "log": list(podlogs.shown(failure.log)) if failure else [],
        }

    def _router(self, state: RoleState) -> dict[str, Any]:
        found = self._role(state, {})
        picker = self._startup["pickerContainer"]
        found["picker"] = next((image for name, image in _containers(state.item) if name == picker), None)
        return found

    def _model(self, seen: Seen, subject: Subject, roles: list[RoleState]) -> dict[str, Any]:
        """Whether the model is listed: True, False, or None where that is not known."""
        serves = next((state for state in roles if state.role == serving.CONSUMER), None)
        name = serving.expected_name(serves.item if serves else None, subject.model, self._startup)
        if not serves or not serves.ready:
            return {"name": name, "served": None, "detail": "not asked: no pod that serves it is ready"}
        port = _port(subject.values) or self._catalog.ports["modelServer"]
        served = serving.ask(self._session, self._namespace, seen, subject.release, roles, self._startup, port)
        if served.names is None:
            return {"name": name, "served": None, "detail": f"not checked: {served.why}"}
        if not name:
            name = served.names[0] if served.names else ""
        listed = name in served.names
        others = ", ".join(served.names) or "no model"
        detail = f"listed by {served.by}" if listed else f"{served.by} serves {others}"
        return {"name": name, "served": listed, "detail": detail}

    def _release(self, subject: Subject, states: list[RoleState]) -> dict[str, Any]:
        """Which llm-d release this is: by what it was rendered for, else by the endpoint picker's image."""
        spec = self._spec(subject)
        if spec.get("release"):
            return {"name": spec["release"], "by": "the spec it was applied with"}
        picker = self._startup["pickerContainer"]
        images = [image for state in states for name, image in _containers(state.item) if name == picker]
        for image in images:
            tag = image.partition("@")[0].rpartition(":")[2]
            for name in self._catalog.release_names:
                if self._catalog.release(name).routerVersion == tag:
                    return {"name": name, "by": f"the endpoint picker's image {image}"}
        return {"name": None, "by": "no release of the catalog has these images"}

    def _at_work(self, subject: Subject) -> tuple[Holder | None, bool]:
        """Who changes it now, and whether that may not be known."""
        if subject.inventory is None:
            return None, False
        try:
            return lease.read(self._session, self._namespace, subject.inventory.name), False
        except ForbiddenError:
            return None, True

    def _secret(self, subject: Subject) -> list[str]:
        """What is wrong with the Secret of the token. What is in it is not looked at."""
        said = self._spec(subject).get("hfSecret") or {}
        name, key = said.get("name"), said.get("key")
        if not name or not key:
            return []
        try:
            live = self._session.find(secret.path(self._namespace, name))
        except ForbiddenError:
            return [f"Secret/{name} was not checked: there is no right to read it"]
        if live is not None and key in (live.get("data") or {}):
            return []
        what = "is missing" if live is None else f"has no key {key}"
        return [f"Secret/{name} {what}: no pod can start anew; mmdeploy apply with {secret.OPTION} writes it"]

    def _notes(self, seen: Seen, subject: Subject, states: list[RoleState]) -> list[str]:
        unread = [(kind, why) for kind, why in seen.unreadable.items() if kind not in _IN_FRONT]  # said of the gateway
        if subject.by != "labels":  # then it is known which kinds it has, and others need not be read
            needed = {name for _, name in objects_seen.kinds_of(each.kind for each in subject.workloads)}
            unread = [(kind, why) for kind, why in unread if kind in needed]
        found = [f"{kind}s cannot be read: {why}" for kind, why in unread if "forbidden" in why]
        if self._logs.refused:
            found.append(f"logs cannot be read: {self._logs.refused}")
        return [*found, *dict.fromkeys(state.note for state in states if state.note)]


def _containers(item: Object | None) -> list[tuple[str, str]]:
    """Names and images of a workload's containers, sidecars too."""
    if item is None:
        return []
    spec = (item["spec"].get("template") or {}).get("spec") or {}
    every = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    return [(str(each["name"]), str(each.get("image", ""))) for each in every]


def _images(state: RoleState) -> list[str]:
    """Images of the role's pods; of the workload's template where no pod is there."""
    found = [image for pod in state.pods for image in _images_of(pod)]
    return list(dict.fromkeys(found or [image for _, image in _containers(state.item)]))


def _images_of(pod: PodState) -> list[str]:
    spec: Mapping[str, Any] = pod.pod.get("spec") or {}
    return [
        str(each.get("image", "")) for each in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
    ]


def _given(values: Mapping[str, Any] | None) -> Mapping[str, str] | None:
    servers = ((values or {}).get("router") or {}).get("modelServers") or {}
    return servers.get("matchLabels")


def _port(values: Mapping[str, Any] | None) -> int | None:
    servers = ((values or {}).get("router") or {}).get("modelServers") or {}
    ports = servers.get("targetPorts") or [{}]
    number = ports[0].get("number")
    return int(number) if number else None


def _last_apply(found: Inventory | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "at": found.at or None,
        "by": found.by,
        "version": found.version,
        "stages": list(found.stages),
        "finished": found.finished,
    }


def _gateway(parts: Sequence[PartState]) -> dict[str, Any] | None:
    if not parts:
        return None
    listed = [{"kind": part.kind, "name": part.name, "phase": part.phase, "detail": part.detail} for part in parts]
    return {"ready": all(part.ready for part in parts), "parts": listed, "detail": gateway.text(parts)}


def _lease(found: Holder | None) -> dict[str, Any] | None:
    if found is None:
        return None
    since = f"{found.since:%Y-%m-%dT%H:%M:%SZ}" if found.since else None
    return {"holder": found.name, "since": since, "until": f"{found.until:%Y-%m-%dT%H:%M:%SZ}"}


def _unfinished(found: Inventory | None, at_work: Holder | None, unread: bool) -> list[str]:
    """What somebody changes now, and what a command that was stopped left to do."""
    if at_work:
        since = f" since {at_work.since:%H:%M:%S} UTC" if at_work.since else ""
        what = "taking it away" if found is not None and found.ending else "changing it"
        return [f"{at_work.name} is {what}{since}; its lease ends at {at_work.until:%H:%M:%S} UTC unless it is renewed"]
    if found is None or found.finished:
        return []
    perhaps = ", or is under way (the lease may not be read)" if unread else ""
    if found.ending:
        return [f"the last delete did not finish{perhaps}: mmdeploy delete again takes the rest away"]
    done = ", ".join(found.stages) or "none"
    return [f"the last apply did not finish{perhaps} (stages done: {done}): mmdeploy apply again goes on"]
