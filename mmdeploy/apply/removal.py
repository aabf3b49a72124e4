"""Taking a deployment away: what its inventory lists and nothing else, in reverse order, until it is gone.

The render is not needed. CRDs and LeaderWorkerSet stay: others may use them. The inventory goes last, so that whatever
ends a removal, running it again finishes it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from mmdeploy.apply import inventory, router
from mmdeploy.apply.events import (
    Applied,
    Event,
    Failed,
    Finished,
    Interrupted,
    Planned,
    StageDone,
    StageStarted,
    Target,
    Waiting,
    Warned,
)
from mmdeploy.apply.interrupts import Stop
from mmdeploy.apply.inventory import Ending, Entry, Inventory
from mmdeploy.apply.lease import Lease
from mmdeploy.apply.namespaces import standing
from mmdeploy.apply.stages import Deadlines
from mmdeploy.apply.writing import left
from mmdeploy.cluster.helm import WRITE_SECONDS, Helm
from mmdeploy.cluster.releases import Stored, stored
from mmdeploy.errors import ConflictError, MmdeployError, StoppedError, TimedOutError, UsageError
from mmdeploy.preflight.facts import Facts

if TYPE_CHECKING:
    from mmdeploy.catalog import Catalog
    from mmdeploy.cluster.session import Session

STAGES = ("monitoring", "gateway", "model-servers", "router", "secret", "wait", "namespace")
"""In the order in which they run."""
_LOOK_SECONDS = 0.5
_SET_LABELS = (("set", "nameLabel"), ("group", "groupLabel"))
"""Kinds whose managers put a label with their name on every pod: names of the catalog's ``preflight.yaml``."""
_LABEL_LENGTH = 63
"""Characters that a label's value may have (Kubernetes)."""


@dataclass(frozen=True)
class Choices:
    """What a person chose."""

    delete_namespace: bool = False
    """Also the namespace, where mmdeploy made it."""
    dry_run: bool = False
    again: str = ""
    """The command that goes on after an interrupt."""


@dataclass(frozen=True)
class _Item:
    """One listed object as it stands."""

    entry: Entry
    live: Any
    """None where it is gone."""
    left: str = ""
    """Why it is not touched."""


def found(session: Session, namespace: str, name: str | None) -> dict[str, Inventory]:
    """The namespace's inventories, whether or not ``name`` is among them. Raises `UsageError` that lists them where
    there are some and nobody says which."""
    inventories = inventory.all_in(session, namespace)
    if name is None and inventories:
        there = sorted(inventories)
        origin = f"namespace {namespace}"
        raise UsageError("say which deployment", origin=origin, nearest=there, next_step=f"--name {there[0]}")
    return inventories


class Removal:
    """One removal of one deployment."""

    def __init__(
        self, session: Session, catalog: Catalog, inventories: Mapping[str, Inventory], name: str, choices: Choices,
        stop: Stop, deadlines: Deadlines,
    ) -> None:  # fmt: skip
        self._session = session
        self._facts = Facts(catalog)
        self._inventory = inventories[name]
        self._others = {other: each for other, each in inventories.items() if other != name}
        self._choices = choices
        self._stop = stop
        self._deadlines = deadlines
        self._helm = Helm(session.access, self._inventory.namespace)
        self._items: list[_Item] = []
        self._release: Stored | None = None
        self._drop_namespace = False
        self._stage = ""
        self._done: list[str] = []
        self._counts = {"changed": 0, "unchanged": 0}
        self._starting: tuple[str, ...] = ()
        self._held: Lease | None = None

    # ------------------------------------------------------------------------------------------------------- looking

    def look(self) -> Iterator[Event]:
        """What would be taken away, and what would be left and why. Changes nothing."""
        where, kept = self._session.where, self._inventory
        yield Target("delete", kept.name, where.context, where.server, kept.namespace)
        yield from self._guarded(self._looking())

    def _looking(self) -> Iterator[Event]:
        kept = self._inventory
        read: list[Any] = self._session.all([
            lambda: standing(self._session, kept.namespace, kept.name),
            self._stored,
            *(partial(self._item, entry) for entry in kept.entries),
        ])  # fmt: skip
        namespace, self._release, *self._items = read
        for stage in STAGES:
            if stage == "router" and kept.release:
                yield Planned("router", "HelmRelease", kept.release.name, "remove" if self._release else "gone")
            for item in self._of(stage):
                verb = "left" if item.left else "remove" if item.live else "gone"
                yield Planned(stage, item.entry.kind, item.entry.name, verb, needs=item.left)
        yield from self._namespace_said(kept.namespace_ours or namespace.ours)

    def _namespace_said(self, ours: bool) -> Iterator[Event]:
        name = self._inventory.namespace
        if not self._choices.delete_namespace:
            if ours and not self._others:  # afterwards nobody knows any more that mmdeploy made it
                yield Planned("namespace", "Namespace", name, "left", needs="--delete-namespace takes it away, too")
            return
        why = ""
        if not ours:
            why = "mmdeploy did not make it"
        elif self._others:
            why = f"other deployments are in it: {', '.join(sorted(self._others))}"
        self._drop_namespace = not why
        yield Planned("namespace", "Namespace", name, "left" if why else "remove", needs=why)

    def _item(self, entry: Entry) -> _Item:
        live = self._session.live(entry.item(self._inventory.namespace))
        if live is None:
            return _Item(entry, None)
        owner = next((name for name, other in self._others.items() if other.entry(entry.key)), "")
        if owner:
            return _Item(entry, live, f"it is part of {owner} now")
        if entry.kind == "Secret" and entry.stage == "secret":
            users = [name for name, other in self._others.items() if _secret_of(other) == entry.name]
            if users:
                return _Item(entry, live, f"{', '.join(users)} uses it")
        return _Item(entry, live, left(live, entry.uid))

    def _of(self, stage: str) -> list[_Item]:
        return [item for item in reversed(self._items) if item.entry.stage == stage]

    # --------------------------------------------------------------------------------------------------------- doing

    def act(self) -> Iterator[Event]:
        """Take it away, and return when it is gone. Raises as `mmdeploy.apply.engine.Apply.act` does."""
        yield from self._guarded(self._acting())

    def _acting(self) -> Iterator[Event]:
        begun = self._deadlines.clock()
        self._deadlines.start()
        kept = self._inventory
        with Lease(self._session, kept.namespace, kept.name) as self._held:
            if inventory.load(self._session, kept.namespace, kept.name) != kept:
                raise ConflictError(
                    f"somebody changed {kept.name} since this was listed",
                    origin=f"ConfigMap {kept.configmap}",
                    next_step="run the command again: it lists anew",
                )
            if router.settled(kept, self._pause):
                yield Warned("a helm that was left behind by an mmdeploy that was killed has ended")
                self._release = self._stored()
            self._inventory = replace(kept, ending=tuple(self._endings()), stages=())
            inventory.save(self._session, self._inventory)
            for stage in ("monitoring", "gateway", "model-servers"):
                yield from self._run(stage, partial(self._delete, stage), bool(self._of(stage)))
            yield from self._run("router", self._uninstall, kept.release is not None)
            yield from self._run("secret", partial(self._delete, "secret"), bool(self._of("secret")))
            yield from self._run("wait", self._wait, True)
            yield from self._again(kept)
            if self._drop_namespace:
                yield from self._run("namespace", self._delete_namespace, True)
            else:
                inventory.remove(self._session, self._inventory)
        yield Finished(self._counts["changed"], self._counts["unchanged"], self._deadlines.clock() - begun)

    def _again(self, kept: Inventory) -> Iterator[Event]:
        """Take away a release that came meanwhile: of a helm on another machine whose mmdeploy was killed, and which
        took longer than the lease."""
        if kept.release is None or "router" in kept.stages:
            return
        self._release = self._stored()
        if self._release is not None:
            self._inventory = replace(self._inventory, ending=tuple(self._endings()))
            inventory.save(self._session, self._inventory)
            yield from self._run("router", self._uninstall, True)
            yield from self._run("wait", self._wait, True)

    def _stored(self) -> Stored | None:
        kept = self._inventory
        return stored(self._session, kept.namespace, kept.release.name) if kept.release else None

    def _endings(self) -> Iterator[Ending]:
        """The pods that have to be gone: noted before, or read off what is there now."""
        seen = list(self._inventory.ending)
        items = [item.live or self._inventory.content.get(item.entry.key) for item in self._items if not item.left]
        for item in (*items, *(self._release.manifest if self._release else ())):
            found = self._ending(item) if item else None
            if found and found not in seen:
                seen.append(found)
        yield from seen

    def _ending(self, item: Mapping[str, Any]) -> Ending | None:
        name = item["metadata"]["name"]
        sets = {self._facts.kind(kind)[1]: self._facts["sets"][label] for kind, label in _SET_LABELS}
        if item["kind"] in sets:
            # A name that is no label value is on no pod, and no selector may hold it.
            return Ending({sets[item["kind"]]: name}) if len(name) <= _LABEL_LENGTH else None
        if item["kind"] in ("Deployment", "StatefulSet"):
            labels = (item["spec"].get("selector") or {}).get("matchLabels")
            return Ending(labels, name) if labels else None
        return None

    def _run(self, stage: str, work: Callable[[], Iterable[Event]], wanted: bool) -> Iterator[Event]:
        self._stage = stage
        self._safe_place()
        if not wanted:
            return
        begun = self._deadlines.clock()
        self._deadlines.enter(stage)
        yield StageStarted(stage)
        yield from work()
        self._done.append(stage)
        yield StageDone(stage, self._deadlines.clock() - begun)

    def _pause(self, seconds: float) -> None:
        self._stop.sleep(seconds)
        self._safe_place()

    def _safe_place(self) -> None:
        self._stop.check()
        self._deadlines.check()
        if self._held is not None:
            self._held.check()

    def _delete(self, stage: str) -> Iterator[Event]:
        namespace = self._inventory.namespace
        for item in self._of(stage):
            self._safe_place()
            entry = item.entry
            if item.left:
                yield Warned(f"{entry.kind}/{entry.name} is left: {item.left}")
            elif item.live is None:
                yield self._did(stage, entry.kind, entry.name, "gone")
            else:
                self._session.delete(entry.item(namespace), uid=item.live["metadata"]["uid"])
                yield self._did(stage, entry.kind, entry.name, "removed")

    def _uninstall(self) -> Iterator[Event]:
        release = self._inventory.release
        assert release is not None
        namespace = self._inventory.namespace
        if router.unlocked(
            self._session, self._helm, namespace, release.name, ours=True, pause=self._pause, left=self._deadlines.left
        ):
            yield Warned(f"the Helm release {release.name} was locked by a helm that was interrupted; it was unlocked")
        self._safe_place()
        there = stored(self._session, namespace, release.name) is not None
        if there:
            self._helm.uninstall(release.name, self._deadlines.left(WRITE_SECONDS))
        yield self._did("router", "HelmRelease", release.name, "removed" if there else "gone")

    def _wait(self) -> Iterator[Event]:
        """Until the objects and their pods are gone."""
        said: tuple[str, ...] = ()
        while True:
            self._starting = tuple(self._remaining())
            if not self._starting:
                return
            if self._starting != said:
                said = self._starting
                yield Waiting("ending", "Role", self._inventory.name, "stopping", ", ".join(said))
            try:
                self._safe_place()
            except TimedOutError as problem:
                problem.found += f": {', '.join(self._starting)} still there"
                problem.next_step = f"run it again: {self._choices.again}" if self._choices.again else None
                raise
            self._stop.sleep(_LOOK_SECONDS)

    def _remaining(self) -> Iterator[str]:
        """What is still there, in words."""
        namespace = self._inventory.namespace
        items = [item for item in self._items if item.live is not None and not item.left]
        path = f"/api/v1/namespaces/{namespace}/pods"
        read: list[Any] = self._session.all([
            *(partial(self._session.live, item.entry.item(namespace)) for item in items),
            *(partial(_names, self._session, path, ending) for ending in self._inventory.ending),
        ])  # fmt: skip
        for item, live in zip(items, read, strict=False):
            if live is not None and live["metadata"]["uid"] == item.live["metadata"]["uid"]:
                held = live["metadata"].get("finalizers") or []
                plain = [name for name in held if name not in ("foregroundDeletion", "orphan")]
                yield f"{item.entry.kind}/{item.entry.name}" + (f" (held by {', '.join(plain)})" if plain else "")
        pods = {name for names in read[len(items) :] for name in names}
        if pods:
            yield f"{len(pods)} pod{'s' * (len(pods) != 1)}"

    def _delete_namespace(self) -> Iterator[Event]:
        """With the inventory in it: what is gone then is everything."""
        name = self._inventory.namespace
        self._session.delete({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        yield self._did("namespace", "Namespace", name, "removed")
        while self._session.find(f"/api/v1/namespaces/{name}") is not None:
            self._starting = (f"Namespace/{name}",)
            self._stop.check()
            self._deadlines.check()
            self._stop.sleep(_LOOK_SECONDS)

    def _did(self, stage: str, kind: str, name: str, verb: str) -> Applied:
        self._counts["unchanged" if verb == "gone" else "changed"] += 1
        return Applied(stage, kind, name, verb)

    # --------------------------------------------------------------------------------------------------- what ends it

    def _guarded(self, events: Iterator[Event]) -> Iterator[Event]:
        with contextlib.closing(events):  # type: ignore[type-var]
            try:
                yield from events
            except StoppedError:
                again = self._choices.again
                yield Interrupted(self._stage or STAGES[0], tuple(self._done), self._starting, again, again)
                raise
            except MmdeployError as problem:
                yield Failed(self._stage, problem.origin or "", problem.found, hint=problem.next_step or "")
                raise


def _secret_of(other: Inventory) -> str:
    return str((other.spec.get("hfSecret") or {}).get("name", ""))


def _names(session: Session, path: str, ending: Ending) -> list[str]:
    selector = ",".join(f"{key}={value}" for key, value in ending.labels.items())
    return [str(pod["metadata"]["name"]) for pod in session.items(path, labelSelector=selector) if ending.has(pod)]


__all__ = ["STAGES", "Choices", "Removal", "found"]
