"""Fields that cannot be changed once an object is there, so that the object has to be made anew."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from mmdeploy.apply.comparison.differences import Path, differences, shown

_FIXED: Final[Mapping[str, tuple[str, ...]]] = {
    "Deployment": ("spec.selector",),
    "StatefulSet": ("spec.selector", "spec.serviceName", "spec.podManagementPolicy", "spec.volumeClaimTemplates"),
    "RoleBinding": ("roleRef",),
    "ClusterRoleBinding": ("roleRef",),
    "ResourceClaimTemplate": ("spec",),
    "PersistentVolumeClaim": ("spec.accessModes", "spec.storageClassName", "spec.selector", "spec.volumeName"),
    "LeaderWorkerSet": ("spec.groupIdentity",),
}
"""By kind. Kubernetes' own validation (llm-d-guides.md §18: a selector that moved between releases). A set takes a new
groupIdentity by rolling out anew, a LeaderWorkerSet does not (disaggregatedset-observed.md)."""

_PROBLEM: Final = re.compile(r"(?:^|[\s\[])([A-Za-z][\w.\[\]]*): (?:Invalid value|Forbidden|Required value)")
_WORDS: Final = re.compile(r"immutable|may not change once set|cannot change roleRef|updates to statefulset spec")


def refused(message: str) -> tuple[str, ...] | None:
    """Fields that the server will not change, from its refusal; None for a refusal with another reason.

    Only the names of fields: the rest of such a message quotes their values.
    """
    if not _WORDS.search(message):
        return None
    problems = _PROBLEM.split(message)[1:]  # field, what is wrong with it, field, …
    fields = [field for field, what in zip(problems[::2], problems[1::2], strict=True) if _WORDS.search(what)]
    return tuple(dict.fromkeys(fields))


def changed(live: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[str, ...]:
    """Fields that cannot be changed and would be, by what is known of the kind; without asking the server."""
    kind = str(wanted.get("kind", ""))
    fixed = list(_fixed(kind))
    found = (field for path in _differing(live, wanted) for field in fixed if path[: len(field)] == field)
    return tuple(dict.fromkeys(map(shown, found)))


def _fixed(kind: str) -> Iterable[Path]:
    return (tuple(field.split(".")) for field in _FIXED.get(kind, ()))


def _differing(live: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterable[Path]:
    """What ``wanted`` says otherwise than the live object, or no longer says in a selector."""
    for item in differences(live, wanted):
        if item.after is not None or "selector" in item.path:
            yield item.path


def sentence(fields: Iterable[str]) -> str:
    """What a person should know."""
    named = ", ".join(fields) or "a field"
    return f"{named} cannot be changed once the object is there"


__all__ = ["changed", "refused", "sentence"]
