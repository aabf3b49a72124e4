"""Putting a deployment on a cluster: stages, one after the other, as a stream of events.

Two streams: `Apply.look` reads and tells what would be done; `Apply.act` does it. Both may be closed at any event, and
whatever ends them, also SIGKILL, the inventory lists all that may be on the cluster: running them again goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from mmdeploy.apply import crds, looking, router
from mmdeploy.apply.choices import Choices, Setting, Verify
from mmdeploy.apply.doing import WRITING, Doing, Starting
from mmdeploy.apply.events import (
    Event,
    Failed,
    Finished,
    Interrupted,
    Planned,
    StageDone,
    StageSkipped,
    StageStarted,
    Target,
    Warned,
)
from mmdeploy.apply.interrupts import Stop
from mmdeploy.apply.looking import Found
from mmdeploy.apply.plan.plan import Plan, with_namespace
from mmdeploy.apply.stages import Deadlines
from mmdeploy.cluster import helm
from mmdeploy.cluster.parallel import begin
from mmdeploy.errors import DeployError, MmdeployError, StoppedError

if TYPE_CHECKING:
    from mmdeploy.catalog import Catalog
    from mmdeploy.cluster.session import Session
    from mmdeploy.intended import Intended


class Apply:
    """One apply of one deployment."""

    def __init__(
        self, session: Session, intended: Intended, catalog: Catalog, choices: Choices, stop: Stop, deadlines: Deadlines
    ) -> None:
        """Raises `UsageError` for a token, chart or definitions that are not where the choices say."""
        self._setting = Setting.of(session, intended, catalog, choices, stop, deadlines)
        self._found = Found(Plan(intended.name, intended.namespace, ()))
        self._doing = Doing(self._setting, self._found)
        self._stage = "preflight"
        self._starting = Starting()

    @property
    def plan(self) -> Plan:
        """What would be done; known once `look` has ended."""
        made = self._found.namespace.state == "absent" and self._setting.choices.selection.runs("namespace")
        return with_namespace(self._found.plan) if made else self._found.plan

    @property
    def different(self) -> bool:
        """Whether anything would change, so that somebody should be asked."""
        setting = self._setting
        more = setting.token is not None or bool(setting.definitions) or self._found.namespace.state == "absent"
        return more or self.plan.different

    # ------------------------------------------------------------------------------------------------- the two streams

    def look(self) -> Iterator[Event]:
        """Check, and work out what would be done. Changes nothing.

        Raises `DeployError` where a check fails, `ConflictError` and `RejectedError` where an option is missing for
        what is there, and what reading raises.
        """
        setting = self._setting
        where = setting.session.where
        yield Target("apply", setting.name, where.context, where.server, setting.namespace)
        setting.deadlines.start()
        yield from self._guarded(self._looking())

    def _looking(self) -> Iterator[Event]:
        setting, doing = self._setting, self._doing
        with helm.heeding(doing.safe_place):
            found = begin(partial(looking.look, setting))  # nothing that the checks find changes what there is
            try:
                yield from self._run("preflight", lambda: looking.checks(setting))
            except DeployError:
                doing.safe_place()  # a helm that was ended is no reason to say that something is wrong with it
                if found.exception() is None:  # an option is a better answer than a check that knows none
                    looking.require_options(found.result())
                raise
            self._found = found.result()
            doing.safe_place()
            if router.settled(self._found.before, doing.pause):
                yield Warned("a helm that was left behind by an mmdeploy that was killed has ended")
                self._found = looking.look(setting)
        self._doing = Doing(setting, self._found)
        yield from looking.told(self._found)
        looking.require_options(self._found)

    def act(self) -> Iterator[Event]:
        """Do what `look` told of. Raises what writing raises; the last event before says where it stopped.

        `StoppedError` after `Interrupted` where somebody asked to stop, `TimedOutError` that names the limit,
        `DeployError` where something that was applied fails for good.
        """
        self._setting.deadlines.start()
        try:
            yield from self._guarded(self._acting(self._setting.deadlines.clock()))
        finally:
            self._doing.end()

    def _acting(self, begun: float) -> Iterator[Event]:
        doing, choices = self._doing, self._setting.choices
        since = self._setting.session.now()
        if self._found.namespace.state != "absent":
            doing.begin()
        yield from self._run("crds", doing.definitions)
        yield from self._run("namespace", doing.namespace)
        doing.begin()
        yield from self._run("secret", doing.secret)
        yield from self._run("router", doing.router)
        for stage in WRITING:
            yield from self._run(stage, partial(doing.objects, stage))
        doing.end()
        if not choices.dry_run:
            yield from self._run("wait", lambda: doing.wait(since))
            if choices.verify is not None:
                yield from self._run("verify", choices.verify)
        took = self._setting.deadlines.clock() - begun
        yield Finished(doing.changed, doing.unchanged, took, () if choices.dry_run else choices.next)

    # ----------------------------------------------------------------------------------------------------- one stage

    def _run(self, stage: str, work: Callable[[], Iterable[Event]]) -> Iterator[Event]:
        """Whether a stage runs, its events, and that it is done."""
        clock = self._setting.deadlines.clock
        self._stage = stage
        self._doing.safe_place()
        why_not = self._setting.choices.selection.why_not(stage) or self._idle(stage)
        if why_not:
            yield StageSkipped(stage, why_not)
            return
        begun = clock()
        self._setting.deadlines.enter(stage)
        yield StageStarted(stage)
        for event in work():
            self._starting.note(event)
            yield event
        self._doing.finished(stage)
        yield StageDone(stage, clock() - begun)

    def _idle(self, stage: str) -> str:
        """Why a stage has nothing to do; empty where it has."""
        if stage == "wait" and not self._setting.choices.wait:
            return "--no-wait"
        if stage in WRITING and not self._found.steps(stage):
            return "the deployment has none"
        return ""

    def _guarded(self, events: Iterator[Event]) -> Iterator[Event]:
        """The events, and one that says how they ended where that was before their end."""
        choices = self._setting.choices
        try:
            yield from events
        except StoppedError:
            self._doing.keep()
            done = self._doing.inventory.stages
            yield Interrupted(self._stage, done, self._starting.lines(), choices.resume, choices.remove)
            raise
        except MmdeployError as problem:
            self._doing.keep()
            yield Failed(self._stage, problem.origin or "", problem.found, hint=problem.next_step or "")
            raise


def listed(intended: Intended, catalog: Catalog, choices: Choices) -> Iterator[Event]:
    """What would be applied, in order, without a cluster."""
    runs = choices.selection.runs
    if choices.definitions and runs("crds"):
        for wanted in crds.read(choices.definitions):
            yield Planned("crds", "CustomResourceDefinition", wanted.name, "apply")
    if runs("namespace"):
        yield Planned("namespace", "Namespace", intended.namespace, "apply")
    if runs("secret") and choices.token is not None and choices.token.form != "existing":
        yield Planned("secret", "Secret", str(intended.spec["hfSecret"]["name"]), "apply")
    if runs("router"):
        chart = router.chart_of(intended, catalog, choices.chart)
        yield Planned("router", "HelmRelease", f"{intended.name} ({chart})", "apply")
    for stage, directory in zip(WRITING, ("modelserver", "gateway", "monitoring"), strict=True):
        items = intended.model_servers if directory == "modelserver" else intended.parts.get(directory, ())
        for item in items if runs(stage) else ():
            yield Planned(stage, item["kind"], item["metadata"]["name"], "apply")


__all__ = ["WRITING", "Apply", "Choices", "Verify", "listed"]
