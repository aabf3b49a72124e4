"""Before anything changes: the checks, what stands on the cluster, and the plan. Reads and dry runs only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from mmdeploy.apply import inventory, secret
from mmdeploy.apply.choices import Setting
from mmdeploy.apply.events import STAGES, Checked, Event, Planned, Warned
from mmdeploy.apply.inventory import Inventory, key
from mmdeploy.apply.namespaces import Standing, ending, standing
from mmdeploy.apply.plan.plan import Plan, Step
from mmdeploy.errors import ConflictError, DeployError, MmdeployError, RejectedError


@dataclass(frozen=True)
class Found:
    """What stands on the cluster, and what would be done."""

    plan: Plan
    namespace: Standing = Standing("unknown")
    before: Inventory | None = None
    """The deployment's inventory as it was."""
    others: Mapping[str, Inventory] = field(default_factory=dict)
    """Inventories of the namespace's other deployments."""
    own_secret: bool = False
    """Whether the token's Secret is this deployment's, or will be."""

    def steps(self, stage: str | None = None) -> list[Step]:
        """The steps, of one stage or of all, in order."""
        return [step for step in self.plan.steps if stage in (None, step.stage)]


def checks(setting: Setting) -> Iterator[Event]:
    """The preflight checks. Raises `DeployError` where one finds an error."""
    from mmdeploy.preflight.check import Options
    from mmdeploy.preflight.run import run

    choices = setting.choices
    made = (("namespace", True), ("secret", setting.token is not None), ("crds", bool(setting.definitions)))
    creates = frozenset(name for name, yes in made if yes and choices.selection.runs(name))
    options = Options(
        setting.catalog, creates, setting.chart, setting.token, adopt=choices.adopt, force_conflicts=choices.force,
        recreate=choices.recreate, autoscaled=choices.autoscaled, kubectl=False,
    )  # fmt: skip
    failed = 0
    for check in run(setting.session, setting.intended, options):
        yield Checked(check.category, check.name, check.result, check.detail, check.hint)
        setting.stop.check()
        failed += check.result == "error"
    if failed:
        raise DeployError(
            f"{failed} check{'s' * (failed != 1)} failed: nothing was changed",
            origin="preflight",
            next_step="mend what they say, or go on regardless with --skip preflight",
        )


def look(setting: Setting) -> Found:
    """Read what stands there and work out the plan. Raises `ConflictError` for a namespace that is being deleted."""
    session, namespace, name = setting.session, setting.namespace, setting.name
    runs = setting.choices.selection.runs
    token = setting.token is not None and runs("secret")
    read: list[Any] = session.all([
        partial(standing, session, namespace, name),
        partial(inventory.all_in, session, namespace),
        partial(secret.own, session, setting.intended, given=token) if runs("secret") else bool,
    ])  # fmt: skip
    place, inventories, own_secret = read
    if place.state == "ending":
        raise ending(namespace)
    before = inventories.pop(name, None)
    return Found(_planned(setting, before, inventories, place), place, before, inventories, own_secret)


def _planned(setting: Setting, before: Inventory | None, others: Mapping[str, Inventory], place: Standing) -> Plan:
    from mmdeploy.apply.plan.planning import plan

    choices = setting.choices
    return plan(
        setting.session, setting.intended, before, chart=setting.chart, others=others.values(), adopt=choices.adopt,
        recreate=choices.recreate, force=choices.force,
        stages=[stage for stage in STAGES if choices.selection.runs(stage)],
        namespace_exists=place.state != "absent", token=setting.token,
    )  # fmt: skip


def told(found: Found) -> Iterator[Event]:
    """The plan as events."""
    release = found.plan.release
    if release is not None:
        paths = tuple(change.path for change in release.values)
        paths += tuple(f"{step.title} {change.path}" for step in release.objects for change in step.changes)
        yield Planned("router", "HelmRelease", release.name, release.verb, paths, release.needs)
    for step in found.plan.steps:
        yield Planned(
            step.stage, step.kind, step.name, step.verb, tuple(each.path for each in step.changes), step.needs
        )
    for note in (*(release.notes if release else ()), *found.plan.notes):
        yield Warned(note)


# ------------------------------------------------------------------------------------------------------------- refusals


def require_options(found: Found) -> None:
    """Raise for what is there and will not be touched without an option: `ConflictError`, `RejectedError`."""
    refused = found.plan.refused
    if refused:
        raise _refusal(refused, found.others)
    release = found.plan.release
    if release is not None and release.needs:
        raise ConflictError(
            f"a Helm release {release.name} is there that mmdeploy did not install",
            origin=f"namespace {release.namespace}",
            next_step=f"{release.needs} takes it over; another name in the spec leaves it alone",
        )


def _refusal(refused: Sequence[Step], others: Mapping[str, Inventory]) -> MmdeployError:
    """One error, with the others of the same kind in it."""
    said = [_reason(step, others) for step in refused]
    kind = RejectedError if refused[0].needs == "--recreate" else ConflictError
    options = " ".join(dict.fromkeys(step.needs for step in refused))
    problem = kind(said[0], next_step=f"apply with {options}, or change what the deployment wants")
    problem.more = said[1:]
    if isinstance(problem, ConflictError):
        problem.managers = tuple(dict.fromkeys(name for step in refused for name in step.managers))
    return problem


def _reason(step: Step, others: Mapping[str, Inventory]) -> str:
    if step.needs == "--recreate":
        return f"{step.title} cannot be changed as it stands: {step.immutable}; --recreate deletes and makes it anew"
    if step.needs == "--force-conflicts":
        paths = ", ".join(change.path for change in step.changes[:3])
        return f"{step.title}: {', '.join(step.managers)} manages {paths}; --force-conflicts takes that over"
    owner = owner_of(step, others)
    whose = f"it is part of {owner}" if owner else "mmdeploy did not make it"
    return f"{step.title} is there already, and {whose}; --adopt takes it over"


def owner_of(step: Step, others: Mapping[str, Inventory]) -> str:
    """The deployment that has the object of a step; empty for none."""
    wanted = key(step.object)
    return next((name for name, each in others.items() if each.entry(wanted)), "")


__all__ = ["Found", "checks", "look", "owner_of", "require_options", "told"]
