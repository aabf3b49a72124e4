"""Works out a plan: every object of the bundle, the router's release, and what is no longer wanted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from mmdeploy.apply.inventory import Inventory, key
from mmdeploy.apply.plan.plan import Object, Plan, ReleaseStep, Step
from mmdeploy.apply.plan.releaseplan import release_step
from mmdeploy.apply.plan.secretplan import STAGE, Planned, secret_steps
from mmdeploy.apply.plan.steps import Allowed, Known, step_for
from mmdeploy.cluster.helm import Chart, Helm

if TYPE_CHECKING:
    from mmdeploy.cluster.session import Session
    from mmdeploy.intended import Intended

STAGE_OF: Final = {"modelserver": "model-servers", "gateway": "gateway", "monitoring": "monitoring"}
"""Directory of a bundle → the stage that applies its objects."""
_BY_DATA: Final = (
    "the server may not be asked what the changes come to (no right to patch): they are worked out from the data alone"
)


def plan(
    session: Session,
    intended: Intended,
    inventory: Inventory | None,
    *,
    chart: Chart,
    others: Iterable[Inventory] = (),
    adopt: bool = False,
    recreate: bool = False,
    force: bool = False,
    stages: Collection[str] | None = None,
    namespace_exists: bool = True,
    token: str | None = None,
) -> Plan:
    """What apply would do. ``others`` are the inventories of other deployments in the namespace; ``stages`` (default
    all) are the ones to look at; ``token`` is what the Secret would be given.

    Raises `RejectedError` for an object that the server refuses, `ForbiddenError` where something may not be read.
    """
    allowed = Allowed(adopt, recreate, force)
    wanted = [(stage, item) for stage, item in _wanted(intended) if stages is None or stage in stages]
    if not namespace_exists:
        secrets, notes = _secrets(session, intended, token, adopt, stages, there=False)
        steps = (*secrets, *(Step(stage, item, "create") for stage, item in wanted))
        router = ReleaseStep(intended.name, intended.namespace, str(chart), "create")
        release = router if _looks_at("router", stages) else None
        return Plan(intended.name, intended.namespace, steps, release, notes=tuple(notes))
    elsewhere = {entry.key: other.name for other in others for entry in other.entries}
    calls: list[Callable[[], Any]] = [
        partial(step_for, session, stage, item, _known(item, inventory, elsewhere), allowed) for stage, item in wanted
    ]
    if _looks_at("router", stages):
        ours = inventory is not None and inventory.release is not None
        helm = Helm(session.access, intended.namespace)
        calls.append(partial(release_step, session, helm, intended, chart, ours=ours, allowed=allowed))
    gone = _unwanted(intended, inventory, stages)
    calls += [partial(session.live, step.object) for step in gone]
    calls.append(partial(_secrets, session, intended, token, adopt, stages))
    *found, (secrets, notes) = session.all(calls)
    there = found[len(found) - len(gone) :]
    left = [step for step, live in zip(gone, there, strict=True) if live is not None]
    answered = found[: len(wanted)]
    asked = all(answer for _, answer in answered)
    return Plan(
        intended.name,
        intended.namespace,
        (*secrets, *(step for step, _ in answered), *left),
        found[len(wanted)] if _looks_at("router", stages) else None,
        asked,
        (*(() if asked else (_BY_DATA,)), *notes),
    )


def _secrets(
    session: Session, intended: Intended, token: str | None, adopt: bool, stages: Collection[str] | None,
    *, there: bool = True,
) -> Planned:  # fmt: skip
    if not _looks_at(STAGE, stages):
        return [], []
    return secret_steps(session, intended, token, adopt=adopt, namespace_exists=there)


def _looks_at(stage: str, stages: Collection[str] | None) -> bool:
    return stages is None or stage in stages


def _wanted(intended: Intended) -> Iterator[tuple[str, Object]]:
    yield from (("model-servers", item) for item in intended.model_servers)
    for directory in ("gateway", "monitoring"):
        yield from ((STAGE_OF[directory], item) for item in intended.parts.get(directory, ()))


def _known(item: Object, inventory: Inventory | None, elsewhere: dict[str, str]) -> Known:
    name = key(item)
    entry = inventory.entry(name) if inventory else None
    if inventory is None or entry is None:
        return Known(elsewhere=elsewhere.get(name, ""))
    return Known(inventory.content.get(name), entry.uid)


def _unwanted(intended: Intended, inventory: Inventory | None, stages: Collection[str] | None) -> list[Step]:
    """What the inventory lists and nobody wants any more, the last first."""
    if inventory is None:
        return []
    wanted = {key(item) for item in intended.objects}
    return [
        Step(entry.stage, entry.item(inventory.namespace), "remove", uid=entry.uid)
        for entry in reversed(inventory.entries)
        if entry.stage in STAGE_OF.values() and entry.key not in wanted and _looks_at(entry.stage, stages)
    ]


__all__ = ["STAGE_OF", "plan"]
