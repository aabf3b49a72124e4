"""The Secrets that pods refer to by name: which, and which of their keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mmdeploy.preflight.pods import containers

if TYPE_CHECKING:
    from mmdeploy.intended import Intended


def referred(intended: Intended) -> dict[str, set[str]]:
    """Secret → the keys that containers cannot start without. An optional reference needs nothing."""
    found: dict[str, set[str]] = {}
    epp = ((intended.values.get("router") or {}).get("epp") or {}).get("env") or ()
    boxes = [box for pod in intended.templates() for box in containers(pod["spec"])]
    variables = [item for box in boxes for item in box.get("env") or ()]
    for variable in [*variables, *epp]:
        reference = _reference(variable)
        if reference and reference.get("name") and not reference.get("optional"):
            found.setdefault(str(reference["name"]), set()).add(str(reference.get("key", "")))
    for pod in intended.templates():
        for name in pod["spec"].get("imagePullSecrets") or ():
            found.setdefault(str(name["name"]), set())
    return found


def _reference(variable: Mapping[str, Any]) -> Mapping[str, Any] | None:
    source: Mapping[str, Any] = variable.get("valueFrom") or {}
    return source.get("secretKeyRef")
