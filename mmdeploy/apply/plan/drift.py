"""Whose doing a change is: a new render, somebody's edit of the live object, or both."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mmdeploy.apply.comparison.differences import Difference, Label, Path, as_told, differences, shown
from mmdeploy.apply.comparison.fieldowners import EMPTY, OURS, FieldOwners, Fields
from mmdeploy.apply.comparison.masks import masked
from mmdeploy.apply.comparison.merging import label_of, labelled
from mmdeploy.apply.plan.plan import Cause, Change, Object

_KEPT_BY_SERVER: Final = frozenset({
    "managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "selfLink", "deletionTimestamp",
    "deletionGracePeriodSeconds",
})  # fmt: skip
_ANNOTATIONS: Final = ("kubectl.kubernetes.io/", "deployment.kubernetes.io/", "control-plane.alpha.kubernetes.io/")
"""What kubectl and controllers note for themselves."""
_WHOLE: Final = frozenset({"affinity", "nodeSelector", "tolerations"})
_WORTH_KNOWING: Final = _WHOLE | {
    "replicas", "args", "command", "image", "limits", "requests", "labels", "annotations", "data",
}  # fmt: skip
"""Fields that mean something when somebody else set them; besides whole items of lists, such as a container."""


def bare(live: Any) -> dict[str, Any]:
    """A live object without what the server and its controllers write: status, versions, owners of fields."""
    metadata = {key: value for key, value in (live.get("metadata") or {}).items() if key not in _KEPT_BY_SERVER}
    noted = metadata.get("annotations") or {}
    said = {key: value for key, value in noted.items() if not key.startswith(_ANNOTATIONS)}
    metadata = {key: value for key, value in metadata.items() if key != "annotations"}
    plain = {key: value for key, value in live.items() if key not in ("status", "metadata")}
    return {**plain, "metadata": {**metadata, **({"annotations": said} if said else {})}}


@dataclass(frozen=True)
class History:
    """What a change is judged by: the object as it is, as it was last applied, as it is wanted, and who set what."""

    live: Object
    wanted: Object
    last: Object | None
    owners: FieldOwners

    def changes(self, after: Object) -> tuple[Change, ...]:
        """Every change from the live object to ``after``, with its cause; secrets masked."""
        found = [item for item in differences(bare(self.live), bare(after)) if not self._left_out(item)]
        if not found:
            return ()
        anew = _paths(self.last, self.wanted)
        edited = _paths(self.last, bare(self.live))
        kind = str(self.wanted.get("kind", ""))
        return tuple(self._change(masked(item, kind), item.path, anew, edited) for item in found)

    def _left_out(self, item: Difference) -> bool:
        """Whether the server keeps the value by leaving it out."""
        return item.before is None and item.after in EMPTY and OURS in self.owners.managers(item.path)

    def _change(self, item: Difference, path: Path, anew: Sequence[Path], edited: Sequence[Path]) -> Change:
        managers = self.owners.managers(path)
        others = [name for name in managers if name != OURS]
        cause = self._cause(OURS in managers, bool(others), _touches(path, anew), _touches(path, edited))
        manager = others[0] if others and cause != "render" else ""
        return Change(shown(path), item.before, item.after, cause, item.lines, manager)

    def _cause(self, ours: bool, theirs: bool, anew: bool, edited: bool) -> Cause:
        """A field that is still ours has the value that we gave it, so nobody edited it."""
        if ours or not self.owners.ours:
            return "render"
        if self.last is None:
            return "drift" if theirs else "render"
        if not edited:
            return "render"
        return "both" if anew else "drift"


def _paths(before: Object | None, after: Object) -> list[Path]:
    return [] if before is None else [item.path for item in differences(before, after)]


def _touches(path: Path, paths: Sequence[Path]) -> bool:
    """Whether one of the paths is this one, a part of it, or what it is a part of."""
    return any(other[: len(path)] == path or path[: len(other)] == other for other in paths)


def foreign(live: Object, wanted: Object, owners: FieldOwners, manager: str = OURS) -> tuple[Change, ...]:
    """What others than ``manager`` set that ``wanted`` says nothing about, and that means something: it is left
    alone."""
    found: dict[str, Change] = {}
    kind = str(wanted.get("kind", ""))
    plain = bare(live)
    for owner in owners.besides(manager):
        for path, value in _set_by(owner.fields, plain, wanted, ()):
            item = masked(Difference(path, None, as_told(value, path)), kind)
            found.setdefault(
                shown(path), Change(shown(path), item.after, item.after, "other-manager", manager=owner.manager)
            )
    return tuple(found.values())


def _set_by(fields: Fields, live: Any, wanted: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Values that a tree of fields sets and ``wanted`` lacks, as high up as they are wholly that manager's."""
    name = path[-1] if path else ""
    for key, below in fields.items():
        step = _step(key, name)
        value = _below(live, step, name) if step is not None else None
        if step is None or value is None or step.startswith(_ANNOTATIONS):
            continue
        inner, here = _below(wanted, step, name), (*path, step)
        whole = isinstance(step, Label) and "." in below
        if inner is None and (whole or not below or step in _WHOLE):
            if whole or _WORTH_KNOWING & set(here):
                yield here, value
        elif below:
            yield from _set_by(below, value, inner, here)


def _step(key: str, name: str) -> str | None:
    sign, _, text = key.partition(":")
    if sign == "f":
        return text
    label = label_of(name, json.loads(text)) if sign == "k" else None
    return None if label is None else Label(label)


def _below(value: Any, step: str, name: str) -> Any:
    """What stands under a step of a path, in a value called ``name``; None for nothing."""
    if isinstance(value, Mapping):
        return value.get(step)
    return (labelled(name, value) or {}).get(step) if isinstance(value, list) else None


__all__ = ["History", "bare", "foreign"]
