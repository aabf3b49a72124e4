"""What apply would do, object by object, worked out before anything changes.

A plan is made of steps. Each compares what is wanted with what is there, tells somebody's edit (``drift``) from a new
render, and names the option without which apply will not do it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal

Object = Mapping[str, Any]

Verb = Literal["create", "update", "unchanged", "recreate", "adopt", "conflict", "remove"]
Cause = Literal["render", "drift", "both", "other-manager"]

VERBS: tuple[Verb, ...] = ("create", "update", "unchanged", "recreate", "adopt", "conflict", "remove")


@dataclass(frozen=True)
class Change:
    """One difference between what is there and what apply would leave; values are plain data, secrets masked."""

    path: str
    """As people write it: ``spec.template.spec.containers[modelserver].args[--tensor-parallel-size]``."""
    before: Any
    """What is there; None for nothing."""
    after: Any
    """What apply would leave; None for nothing."""
    cause: Cause = "render"
    """``render``: what is wanted is not what was last applied. ``drift``: somebody changed the object since. ``both``:
    one and the other. ``other-manager``: somebody else's field, which apply leaves alone."""
    lines: tuple[str, ...] = ()
    """For a long text: the lines that differ, with ``-``, ``+`` or a space before each, instead of whole values."""
    manager: str = ""
    """The field manager that somebody changed it with, where the server tells."""


@dataclass(frozen=True)
class Step:
    """What apply would do to one object."""

    stage: str
    """One of `mmdeploy.apply.events.STAGES`."""
    object: Object
    """What is wanted, as it would be applied; for ``remove`` only apiVersion, kind, name and namespace."""
    verb: Verb
    """``unchanged``: nothing that means anything would change, so that apply need not write it.

    ``conflict``: somebody else manages fields that would change; with ``--force-conflicts`` it is ``update``.
    ``recreate``: a field that cannot be changed; the object is deleted and made anew."""
    changes: tuple[Change, ...] = ()
    foreign: tuple[Change, ...] = ()
    """What other managers added and apply would leave as it is: no difference, but good to know."""
    managers: tuple[str, ...] = ()
    """Field managers whose fields would be taken over."""
    immutable: str = ""
    """For ``recreate``: which fields cannot change, as a sentence."""
    needs: str = ""
    """The option without which apply refuses this step: ``--adopt``, ``--recreate``, ``--force-conflicts``, for the
    token's Secret ``--hf-token-from``; empty where it is given or not needed."""
    uid: str = ""
    """The live object's uid, so that a recreate or removal meets that very object."""

    @property
    def kind(self) -> str:
        """The object's kind."""
        return str(self.object["kind"])

    @property
    def name(self) -> str:
        """The object's name."""
        return str(self.object["metadata"]["name"])

    @property
    def title(self) -> str:
        """``Kind/name``."""
        return f"{self.kind}/{self.name}"

    @property
    def different(self) -> bool:
        """Whether apply would do anything."""
        return self.verb != "unchanged"


@dataclass(frozen=True)
class ReleaseStep:
    """What apply would do to the router's Helm release."""

    name: str
    namespace: str
    chart: str
    """As helm would be told, with the version."""
    verb: Literal["create", "update", "unchanged"]
    deployed: str = ""
    """Name and version of the chart that is deployed; empty where none is."""
    status: str = ""
    """helm's word for it: ``deployed``, ``failed``, ``pending-upgrade``; empty where there is no release."""
    values: tuple[Change, ...] = ()
    """Values that differ from the ones that the release was given."""
    objects: tuple[Step, ...] = ()
    """Objects of the chart that would change, or that somebody changed; none for a release that is new."""
    restart: tuple[str, ...] = ()
    """Deployments whose pods read a configuration that changes, while nothing makes the pods start anew."""
    needs: str = ""
    """``--adopt`` for a release that somebody else installed under that name, where it is not given."""
    notes: tuple[str, ...] = ()

    stage: ClassVar[str] = "router"

    @property
    def different(self) -> bool:
        """Whether apply would call helm, or take the release over."""
        return self.verb != "unchanged" or bool(self.needs)


@dataclass(frozen=True)
class Plan:
    """Everything that apply would do, in its order."""

    name: str
    namespace: str
    steps: tuple[Step, ...]
    release: ReleaseStep | None = None
    dry_run: bool = True
    """Whether the server was asked what each change comes to; without that right the plan rests on the data alone."""
    notes: tuple[str, ...] = ()

    @property
    def different(self) -> bool:
        """Whether apply would do anything at all."""
        return any(step.different for step in self.steps) or (self.release is not None and self.release.different)

    @property
    def refused(self) -> tuple[Step, ...]:
        """Steps that apply will not do without an option that was not given; objects of the release among them. What
        a Secret needs is said by the checks and by its own stage."""
        release = self.release.objects if self.release else ()
        return tuple(step for step in (*self.steps, *release) if step.needs and step.stage != "secret")

    def stage(self, name: str) -> tuple[Step, ...]:
        """The steps of one stage, in order."""
        return tuple(step for step in self.steps if step.stage == name)

    @property
    def counts(self) -> Mapping[str, int]:
        """Steps by verb. Of the release's objects only those in conflict are counted: they stop an apply too."""
        clashing = [step for step in (self.release.objects if self.release else ()) if step.verb == "conflict"]
        steps = (*self.steps, *clashing)
        return {verb: count for verb in VERBS if (count := sum(step.verb == verb for step in steps))}


def with_namespace(plan: Plan) -> Plan:
    """The same with the namespace that has to be made first."""
    item = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": plan.namespace}}
    return replace(plan, steps=(Step("namespace", item, "create"), *plan.steps))


def as_data(plan: Plan) -> dict[str, Any]:
    """A plan as plain data, without the content of objects."""
    return {
        "schemaVersion": 1,
        "kind": "Differences",
        "name": plan.name,
        "namespace": plan.namespace,
        "different": plan.different,
        "counts": dict(plan.counts),
        "dryRun": plan.dry_run,
        "release": _release(plan.release) if plan.release else None,
        "objects": [_step(step) for step in plan.steps],
        "notes": list(plan.notes),
    }


def _release(step: ReleaseStep) -> dict[str, Any]:
    return {
        "name": step.name,
        "namespace": step.namespace,
        "chart": step.chart,
        "deployed": step.deployed,
        "status": step.status,
        "verb": step.verb,
        "values": [_change(item) for item in step.values],
        "objects": [_step(item) for item in step.objects],
        "restart": list(step.restart),
        "needs": step.needs,
        "notes": list(step.notes),
    }


def _step(step: Step) -> dict[str, Any]:
    return {
        "stage": step.stage,
        "apiVersion": step.object["apiVersion"],
        "kind": step.kind,
        "name": step.name,
        "namespace": step.object["metadata"].get("namespace", ""),
        "verb": step.verb,
        "changes": [_change(item) for item in step.changes],
        "foreign": [_change(item) for item in step.foreign],
        "managers": list(step.managers),
        "immutable": step.immutable,
        "needs": step.needs,
    }


def _change(change: Change) -> dict[str, Any]:
    return {**asdict(change), "lines": list(change.lines)}


__all__ = ["VERBS", "Cause", "Change", "Object", "Plan", "ReleaseStep", "Step", "Verb", "as_data", "with_namespace"]
