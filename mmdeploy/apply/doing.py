"""The stages that change the cluster, each a stream of events. What is about to be there is in the inventory before."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime

from mmdeploy import __version__
from mmdeploy.apply import crds, inventory, router, secret
from mmdeploy.apply.choices import Setting
from mmdeploy.apply.events import STAGES, Applied, Event, Failed, Waiting, Warned
from mmdeploy.apply.inventory import Entry, HelmRelease, Inventory
from mmdeploy.apply.lease import Lease, person
from mmdeploy.apply.looking import Found, owner_of
from mmdeploy.apply.namespaces import create, standing
from mmdeploy.apply.plan.plan import Step
from mmdeploy.apply.writing import VERBS, left, written
from mmdeploy.cluster.helm import WRITE_SECONDS
from mmdeploy.errors import ConflictError, DeployError, MmdeployError

WRITING = ("model-servers", "gateway", "monitoring")
"""Stages that write the bundle's objects."""
_CRD_SECONDS = 60.0


class Doing:
    """One apply at work: holds the lease, keeps the inventory, counts."""

    def __init__(self, setting: Setting, found: Found) -> None:
        self._setting = setting
        self._found = found
        self._dry = setting.choices.dry_run
        self._blind = self._dry and found.namespace.state == "absent"
        """A dry run in a namespace that is not there: the server would refuse everything."""
        self._lease: Lease | None = None
        self._held = contextlib.ExitStack()
        self._made_namespace = False
        self._early: tuple[str, ...] = ()
        """Stages that were finished before there was a namespace to note it in."""
        self.inventory = found.before or Inventory(setting.name, setting.namespace)
        self._saved = self.inventory
        self.changed = 0
        self.unchanged = 0

    # -------------------------------------------------------------------------------------------- lease and inventory

    def begin(self) -> None:
        """Take the lease and write down what may be there from now on; once, and not for a dry run."""
        if self._dry or self._lease is not None:
            return
        session, name, namespace = self._setting.session, self._setting.name, self._setting.namespace
        self._lease = self._held.enter_context(Lease(session, namespace, name))
        before = self._found.before
        # A run that was killed after this was planned may have left a helm at work.
        late = router.settled(before, self.pause)
        if late or inventory.load(session, namespace, name) != before:
            raise ConflictError(
                f"somebody changed {name} since this was planned",
                origin=f"ConfigMap {inventory.object_name(name)}",
                next_step="run the command again: it plans anew",
            )
        self.inventory = self._begun()
        self._save()

    def end(self) -> None:
        """Give the lease back: nothing more is written, and others may change the deployment."""
        self.keep()
        self._held.close()
        self._lease = None

    def safe_place(self) -> None:
        """Between two changes: raise `StoppedError`, `TimedOutError` or `ConflictError` where not to go on."""
        self._setting.stop.check()
        self._setting.deadlines.check()
        if self._lease is not None:
            self._lease.check()

    def pause(self, seconds: float) -> None:
        """Wait for somebody else; raises as `safe_place` does."""
        self._setting.stop.sleep(seconds)
        self.safe_place()

    def finished(self, stage: str) -> None:
        """A stage is done: write that down, at once where it has put something on the cluster."""
        if self._lease is None:
            self._early = (*self._early, stage)
            return
        self.inventory = replace(self.inventory, stages=(*self.inventory.stages, stage))
        if replace(self.inventory, stages=()) != replace(self._saved, stages=()) or stage == "router":
            self._save()

    def keep(self) -> None:
        """Write down what was done, if that still goes; what matters was written before."""
        with contextlib.suppress(MmdeployError):
            if self._lease is not None and self.inventory != self._saved:
                self._lease.check()
                self._save()

    def _save(self) -> None:
        inventory.save(self._setting.session, self.inventory)
        self._saved = self.inventory

    def _begun(self) -> Inventory:
        """The inventory of what may be there: what was, and what will be."""
        runs = self._setting.choices.selection.runs
        before = self.inventory
        known = {entry.key: entry for entry in before.entries}
        wanted = {entry.key: entry for entry in self._wanted()}
        entries = [replace(entry, uid=known[key].uid) if key in known else entry for key, entry in wanted.items()]
        kept = [entry for entry in before.entries if entry.key not in wanted]
        return replace(
            before,
            entries=tuple(sorted([*kept, *entries], key=lambda entry: STAGES.index(entry.stage))),
            release=self._release(before.release) if runs("router") else before.release,
            stages=(*(stage for stage in before.stages if not runs(stage)), *self._early),
            spec=self._setting.intended.spec,
            namespace_ours=before.namespace_ours or self._found.namespace.ours or self._made_namespace,
            at=self._setting.session.now().strftime("%Y-%m-%dT%H:%M:%SZ"),
            by=person(),
            version=__version__,
            ending=(),
        )

    def _wanted(self) -> Iterator[Entry]:
        name = secret.name_of(self._setting.intended)
        if self._found.own_secret and name:
            yield Entry("secret", "v1", "Secret", name)
        for step in self._found.steps():
            if step.verb != "remove" and step.stage != "secret":
                yield Entry(step.stage, step.object["apiVersion"], step.kind, step.name, step.uid)

    def _release(self, before: HelmRelease | None) -> HelmRelease:
        chart, step = self._setting.chart, self._found.plan.release
        restart = (*(before.restart if before else ()), *(step.restart if step else ()))
        return HelmRelease(self._setting.name, chart.reference, chart.version or "", tuple(dict.fromkeys(restart)))

    def _did(self, stage: str, kind: str, name: str, verb: str) -> Applied:
        if verb == "unchanged":
            self.unchanged += 1
            return Applied(stage, kind, name, verb)
        self.changed += 1
        return Applied(stage, kind, name, f"would-be-{verb}" if self._dry else verb)

    # -------------------------------------------------------------------------------------------------------- stages

    def definitions(self) -> Iterator[Event]:
        """Install what is missing from where somebody said. Raises `NotFoundError` for kinds that stay missing."""
        from mmdeploy.preflight.facts import Facts
        from mmdeploy.preflight.kinds import required

        setting = self._setting
        lacking = crds.missing(setting.session, required(setting.intended, Facts(setting.catalog)))
        for wanted in setting.definitions:
            self.safe_place()
            verb = crds.install(setting.session, wanted, lacking, dry_run=self._dry)
            yield self._did("crds", "CustomResourceDefinition", wanted.name, verb)
        coming = {kind for wanted in setting.definitions for kind in wanted.kinds}
        absent = [kind for kind in lacking if kind not in coming]
        if absent:
            raise crds.refusal(absent, setting.intended, setting.catalog)
        if lacking and not self._dry:
            crds.await_served(setting.session, lacking, setting.stop.sleep, setting.deadlines.left(_CRD_SECONDS))

    def namespace(self) -> Iterator[Event]:
        """Make it where it is missing."""
        setting = self._setting
        absent = self._found.namespace.state == "absent"
        made = absent and create(setting.session, setting.namespace, setting.name, dry_run=self._dry)
        # Another apply of this deployment may have been faster with it.
        self._made_namespace = made or (absent and standing(setting.session, setting.namespace, setting.name).ours)
        yield self._did("namespace", "Namespace", setting.namespace, "created" if made else "unchanged")
        if self._blind:
            yield Warned(
                f"namespace {setting.namespace} is not there: the server cannot be asked about what goes in it"
            )

    def secret(self) -> Iterator[Event]:
        """Write the token, or see that it is there."""
        setting = self._setting
        if self._blind:
            if setting.token is not None:
                yield self._did("secret", "Secret", secret.name_of(setting.intended), "created")
            return
        if setting.token is None:
            for each in secret.require(setting.session, setting.intended):
                if self._found.own_secret and each.name == secret.name_of(setting.intended):
                    self.inventory = self.inventory.with_uid(f"Secret/{each.name}", each.uid)
                yield self._did("secret", "Secret", each.name, "unchanged")
            return
        done = secret.write(
            setting.session, setting.intended, setting.token, adopt=setting.choices.adopt, dry_run=self._dry
        )
        if done.ours:
            self.inventory = self.inventory.with_uid(f"Secret/{done.name}", done.uid)
        yield self._did("secret", "Secret", done.name, done.verb)

    def router(self) -> Iterator[Event]:
        """Install or upgrade the release, and restart what would keep an old configuration."""
        setting, step = self._setting, self._found.plan.release
        verb = step.verb if step else "create"
        if verb != "unchanged" and not self._blind:
            yield from self._upgrade()
        yield self._did("router", "HelmRelease", setting.name, VERBS[verb])
        release = self.inventory.release
        if release is not None and release.restart:
            router.restart(setting.session, setting.namespace, release.restart)
            for deployment in release.restart:
                yield self._did("router", "Deployment", deployment, "restarted")
            self.inventory = replace(self.inventory, release=replace(release, restart=()))

    def _upgrade(self) -> Iterator[Event]:
        """Let helm do it, a second time where it could not write down that it had done it."""
        setting, choices = self._setting, self._setting.choices
        yield from self._unlock()
        for last in (False, True):
            self.safe_place()
            with router.reached(setting.chart):
                setting.helm.upgrade(
                    setting.name, setting.chart, setting.intended.values, take_over=choices.adopt, force=choices.force,
                    dry_run=self._dry, tried=choices.selection.runs("preflight"),
                    seconds=setting.deadlines.left(WRITE_SECONDS),
                )  # fmt: skip
            found = None if self._dry else router.unrecorded(setting.session, setting.namespace, setting.name)
            if found is None:
                return
            if last:
                raise router.not_recorded(found, setting.namespace)
            yield Warned(f"helm could not record what it did: the release is {found.status}; it is done once more")
            setting.helm.unlock(found, setting.deadlines.left(WRITE_SECONDS))

    def _unlock(self) -> Iterator[Event]:
        if self._dry:
            return
        setting, before = self._setting, self._found.before
        ours = before is not None and before.release is not None
        if router.unlocked(
            setting.session, setting.helm, setting.namespace, setting.name, ours=ours, pause=self.pause,
            left=setting.deadlines.left,
        ):  # fmt: skip
            yield Warned(f"the Helm release {setting.name} was locked by a helm that was interrupted; it was unlocked")

    def objects(self, stage: str) -> Iterator[Event]:
        """Write the stage's objects, then take away those that are no longer wanted."""
        steps = self._found.steps(stage)
        for step in steps:
            if step.verb != "remove":
                self.safe_place()
                self._write(step)
                yield self._did(stage, step.kind, step.name, VERBS[step.verb])
        for step in steps:
            if step.verb == "remove":
                self.safe_place()
                yield from self._remove(step)

    def _write(self, step: Step) -> None:
        setting, choices = self._setting, self._setting.choices
        key = inventory.key(step.object)
        if step.verb == "unchanged" or self._blind:
            uid = step.uid
        else:
            if step.verb == "adopt" and not self._dry:
                self._take_from(owner_of(step, self._found.others), key)
            live = written(
                setting.session, step, force=choices.force, recreate=choices.recreate, dry_run=self._dry,
                pause=setting.stop.sleep, seconds=setting.deadlines.left(WRITE_SECONDS),
            )  # fmt: skip
            uid = live["metadata"]["uid"]
        self.inventory = self.inventory.with_uid(key, uid)
        if step.kind != "Secret":
            self.inventory = replace(self.inventory, content={**self.inventory.content, key: step.object})

    def _take_from(self, owner: str, key: str) -> None:
        """Strike an object from another deployment's inventory: its removal is to leave it."""
        if not owner:
            return
        session, namespace = self._setting.session, self._setting.namespace
        with Lease(session, namespace, owner):
            other = inventory.load(session, namespace, owner)
            if other is not None:
                inventory.save(session, other.without([key]))

    def _remove(self, step: Step) -> Iterator[Event]:
        """Take away what is listed and no longer wanted, unless it is somebody else's by now."""
        session = self._setting.session
        live = None if self._dry else session.live(step.object)
        why = left(live, step.uid) if live is not None else ""
        if why:
            yield Warned(f"{step.title} is left: {why}")
        elif live is not None:
            session.delete(step.object, uid=live["metadata"]["uid"])
        if not why and (live is not None or self._dry):
            yield self._did(step.stage, step.kind, step.name, "removed")
        self.inventory = self.inventory.without([inventory.key(step.object)])

    # ------------------------------------------------------------------------------------------------------- waiting

    def wait(self, since: datetime) -> Iterator[Event]:
        """Until it serves. Raises `DeployError` where something fails for good."""
        from mmdeploy.apply.readiness import waiting

        setting = self._setting
        end = setting.deadlines.next
        failed: list[Failed] = []
        for event in waiting.wait(
            setting.session, setting.intended, setting.catalog, parts=self._parts(), begun=since,
            deadline=end[0] if end else None, limit=end[1] if end else "--timeout", follow=setting.choices.watch,
            clock=setting.deadlines.clock, sleep=setting.stop.sleep,
        ):  # fmt: skip
            if isinstance(event, Failed):
                failed.append(event)
            yield event
        if failed:
            resume = setting.choices.resume
            problem = DeployError(
                f"{failed[0].name}: {failed[0].reason}", next_step=f"mend it, then: {resume}" if resume else None
            )
            problem.more = [f"{event.name}: {event.reason}" for event in failed[1:]]
            raise problem

    def _parts(self) -> tuple[str, ...]:
        """What to wait for: what this apply has to do with."""
        runs = self._setting.choices.selection.runs
        servers, routing = runs("model-servers"), runs("router")
        found = (("model-servers", servers), ("router", routing), ("gateway", routing and runs("gateway")),
                 ("pool", routing), ("model", servers and routing))  # fmt: skip
        return tuple(part for part, wanted in found if wanted)


@dataclass
class Starting:
    """What still starts, for a person who stops waiting: a line a role, with how many of it are ready."""

    _seen: dict[tuple[str, str, str], str] = field(default_factory=dict)

    def note(self, event: Event) -> None:
        """Take the next event."""
        if isinstance(event, Waiting):
            key = (event.role, event.kind, event.name)
            self._seen[key] = event.detail if event.kind == "Role" else f"{event.phase} {event.detail}".strip()
            if event.phase == "ready":
                del self._seen[key]

    def lines(self) -> tuple[str, ...]:
        """``decode: 2 of 3 ready``; what is of no role by its own name."""
        counted = {role: detail for (role, kind, _), detail in self._seen.items() if kind == "Role"}
        others = (f"{kind}/{name}: {said}" for (role, kind, name), said in self._seen.items() if role not in counted)
        return (*(f"{role}: {detail}" for role, detail in counted.items()), *others)


__all__ = ["WRITING", "Doing", "Starting"]
