"""What apply would do to the router's Helm release: values and chart against what is deployed, and the live objects
against what helm installed.

helm is asked to render only where the answer may be another one: other values, another chart, or a chart that may have
changed under the same name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from mmdeploy.apply.comparison.differences import Difference, Path, differences, shown
from mmdeploy.apply.comparison.fieldowners import EMPTY, FieldOwners
from mmdeploy.apply.comparison.masks import masked
from mmdeploy.apply.comparison.merging import merged
from mmdeploy.apply.inventory import key
from mmdeploy.apply.plan.drift import bare, foreign
from mmdeploy.apply.plan.plan import Change, Object, ReleaseStep, Step
from mmdeploy.apply.plan.steps import Allowed
from mmdeploy.apply.router import reached
from mmdeploy.cluster.helm import Chart, Helm
from mmdeploy.cluster.releases import Stored, stored
from mmdeploy.errors import ForbiddenError

if TYPE_CHECKING:
    from mmdeploy.cluster.session import Session
    from mmdeploy.intended import Intended

HELM: Final = "helm"
"""helm's field manager."""
_HOOK: Final = "helm.sh/hook"
_STAMPED: Final = ("meta.helm.sh/", "helm.sh/chart", "app.kubernetes.io/managed-by")
"""What helm, or the chart's name and version alone, writes into metadata."""
_EXACT: Final = re.compile(r"v?\d+\.\d+\.\d+.*")


def release_step(
    session: Session, helm: Helm, intended: Intended, chart: Chart, ours: bool, allowed: Allowed
) -> ReleaseStep:
    """What apply would do to the release. ``ours``: the inventory lists it.

    Raises `ForbiddenError` where helm's records may not be read, `DeployError` where the chart refuses the values.
    """
    found = stored(session, intended.namespace, intended.name)
    step = ReleaseStep(intended.name, intended.namespace, str(chart), "create")
    if found is None:
        return step
    values = tuple(_plain(item) for item in differences(dict(found.values), dict(intended.values)))
    same = not values and found.status == "deployed" and _same_chart(found, chart)
    before = _objects(found.manifest)
    after = before
    if not same:
        with reached(chart):
            after = _objects(helm.template(intended.name, chart, intended.values))
    live = _live(session, before, intended.namespace)
    steps = tuple(_steps(before, after, live, intended.namespace, allowed.force))
    changed = bool(values) or any(step.different for step in steps) or found.status != "deployed"
    return replace(
        step,
        verb="update" if changed else "unchanged",
        deployed=found.chart,
        status=found.status,
        values=values,
        objects=steps,
        restart=tuple(_stale(before, after, steps)),
        needs="" if ours or allowed.adopt else "--adopt",
        notes=tuple(_notes(values, steps, found, live)),
    )


def edited(session: Session, namespace: str, name: str) -> tuple[tuple[Step, ...], tuple[str, ...]] | None:
    """Objects of a deployed release that are not as helm left them, ``create`` for one that is gone; then those that
    may not be read. None where there is no release.

    Raises `ForbiddenError` where helm's records may not be read.
    """
    found = stored(session, namespace, name)
    if found is None:
        return None
    before = _objects(found.manifest)
    live = _live(session, before, namespace)
    return tuple(_steps(before, before, live, namespace, force=True)), live.unseen


def _same_chart(found: Stored, chart: Chart) -> bool:
    """Whether the deployed chart is that very one. A path and a rolling version may hold something new each time."""
    if chart.version is None or not _EXACT.fullmatch(chart.version):
        return False
    name = chart.reference.rstrip("/").rpartition("/")[2]
    return found.chart.replace(f"{name}-v", f"{name}-") == f"{name}-{chart.version.removeprefix('v')}"


def _objects(manifest: Sequence[Any]) -> dict[str, Object]:
    """Objects by what they are; no hooks, which helm runs and forgets."""
    named = (item for item in manifest if isinstance(item, Mapping) and (item.get("metadata") or {}).get("name"))
    return {key(item): item for item in named if _HOOK not in (item["metadata"].get("annotations") or {})}


@dataclass(frozen=True)
class _Live:
    """The release's objects on the cluster."""

    items: Mapping[str, Any]
    """None for one that is not there."""
    unseen: tuple[str, ...] = ()
    """Those that the person may not read."""


def _live(session: Session, objects: Mapping[str, Object], namespace: str) -> _Live:
    def look(item: Object) -> Any:
        try:
            return session.live(_placed(item, namespace))
        except ForbiddenError:
            return _FORBIDDEN

    items = dict(zip(objects, session.all([partial(look, item) for item in objects.values()]), strict=True))
    unseen = tuple(name for name, item in items.items() if item is _FORBIDDEN)
    return _Live({name: item for name, item in items.items() if item is not _FORBIDDEN}, unseen)


_FORBIDDEN: Final = object()


def _placed(item: Object, namespace: str) -> Object:
    metadata = item["metadata"]
    return {**item, "metadata": {**metadata, "namespace": metadata.get("namespace") or namespace}}


def _steps(
    before: Mapping[str, Object], after: Mapping[str, Object], live: _Live, namespace: str, force: bool
) -> Iterator[Step]:
    """Objects that a helm upgrade would change, and those that are not as helm left them."""
    for name in [*after, *(name for name in before if name not in after)]:
        old, new = before.get(name), after.get(name)
        item = _reference(new or old or {}, namespace)
        there = live.items.get(name, _FORBIDDEN)
        if new is None:
            yield Step("router", item, "remove")
        elif old is None or there is None:
            yield Step("router", item, "create")
        else:
            yield from _compared(old, new, None if there is _FORBIDDEN else there, item, force)


def _compared(old: Object, new: Object, live: Any, item: Object, force: bool) -> Iterator[Step]:
    """A step for an object that is rendered otherwise, or was edited; nothing for one that is not. ``live`` is None
    where it may not be read."""
    rendered = [found for found in differences(old, new) if not _stamp(found.path)]
    changes = [_plain(found, str(new["kind"])) for found in rendered]
    beside: tuple[Change, ...] = ()
    clashes = False
    if live is not None:
        owners = FieldOwners.of(live)
        changes = _with_drift(changes, old, live, owners)
        beside = foreign(live, old, owners, HELM)
        clashes = owners.applied_by(HELM)  # helm 4 applies as the server does it, and meets conflicts; helm 3 does not
    managers = tuple(dict.fromkeys(change.manager for change in changes if change.manager))
    if changes and managers and clashes and not force:
        yield Step("router", item, "conflict", tuple(changes), beside, managers, needs="--force-conflicts")
    elif changes:
        yield Step("router", item, "update", tuple(changes), beside, managers)
    elif beside:
        yield Step("router", item, "unchanged", foreign=beside)


def _reference(item: Object, namespace: str) -> Object:
    metadata = {"name": item["metadata"]["name"], "namespace": item["metadata"].get("namespace") or namespace}
    return {"apiVersion": item["apiVersion"], "kind": item["kind"], "metadata": metadata}


def _with_drift(changes: list[Change], installed: Object, live: Any, owners: FieldOwners) -> list[Change]:
    """The rendered changes and the edits of the live object; one that is both is told once."""
    found = {change.path: change for change in changes}
    for edit in _edits(installed, live, owners):
        rendered = found.get(edit.path)
        found[edit.path] = edit if rendered is None else replace(
            rendered, before=edit.before, cause="both", manager=edit.manager
        )  # fmt: skip
    return list(found.values())


def _edits(installed: Object, live: Any, owners: FieldOwners) -> list[Change]:
    """Fields of the installed object that are not as helm left them.

    A field that helm still owns is as it left it: the server wrote it in its own way. What is missing and says nothing
    (an empty mapping) was never kept.
    """
    plain = bare(live)
    edits = []
    for item in differences(plain, merged(plain, _said(installed), None)):
        managers = owners.managers(item.path)
        if HELM in managers or _stamp(item.path) or (item.before is None and item.after in EMPTY):
            continue
        others = [name for name in managers if name != HELM]
        edits.append(replace(_plain(item, str(installed["kind"])), cause="drift", manager=others[0] if others else ""))
    return edits


def _said(value: Any) -> Any:
    """Without what says nothing: nulls, and empty mappings and lists, which the server does not keep everywhere."""
    if isinstance(value, Mapping):
        said = {key: _said(item) for key, item in value.items()}
        return {key: item for key, item in said.items() if item is not None and item not in ({}, [])}
    return [_said(item) for item in value] if isinstance(value, list) else value


def _stamp(path: Path) -> bool:
    return path[-1].startswith(_STAMPED) or path[-2:] == ("metadata", "namespace")


def _plain(item: Difference, kind: str = "") -> Change:
    hidden = masked(item, kind)
    return Change(shown(hidden.path), hidden.before, hidden.after, "render", hidden.lines)


def _stale(before: Mapping[str, Object], after: Mapping[str, Object], steps: Sequence[Step]) -> list[str]:
    """Deployments that mount a ConfigMap which changes while their pods do not: the pods keep the old configuration
    (router.md §4.2, charts up to v0.10.0)."""
    changed = {step.name for step in steps if step.kind == "ConfigMap" and step.changes}
    restarted = {
        step.name
        for step in steps
        if step.kind == "Deployment" and any(change.path.startswith("spec.template") for change in step.changes)
    }
    stale = []
    for name, item in after.items():
        if item["kind"] != "Deployment" or item["metadata"]["name"] in restarted or name not in before:
            continue
        volumes = item["spec"]["template"]["spec"].get("volumes") or ()
        if changed & {(volume.get("configMap") or {}).get("name") for volume in volumes}:
            stale.append(str(item["metadata"]["name"]))
    return stale


def _notes(values: Sequence[Change], steps: Sequence[Step], found: Stored, live: _Live) -> list[str]:
    notes = []
    if found.status != "deployed":
        notes.append(f"the release is {found.status}: the last helm did not finish")
    if values and not any(step.different for step in steps):
        notes.append("no object changes: the chart makes nothing of the values that do")
    if live.unseen:
        notes.append(f"may not be read, so edits of it are not seen: {', '.join(live.unseen)}")
    return notes


__all__ = ["edited", "release_step"]
