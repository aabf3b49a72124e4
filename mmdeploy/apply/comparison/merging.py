"""How Kubernetes and the router tell the items of a list apart, and objects merged by that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

LIST_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "imagePullSecrets": ("name",),
    "resourceClaims": ("name",),
    "claims": ("name",),
    "roles": ("name",),
    "listeners": ("name",),
    "extraServicePorts": ("name",),
    "ports": ("containerPort", "port", "name"),
    "targetPorts": ("number",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "hostAliases": ("ip",),
    "conditions": ("type",),
    "ownerReferences": ("uid",),
    "plugins": ("pluginRef", "name", "type"),
    "schedulingProfiles": ("name",),
    "sources": ("pluginRef",),
    "extractors": ("pluginRef",),
    "podMetricsEndpoints": ("port",),
    "endpoints": ("port",),
}
"""List name → fields that identify an item; the first that an item has counts. A list of mappings that all have
different names is told apart by ``name``, whatever it is called."""

_PROTOCOL: Final = "TCP"
"""What a port has that says none."""

_APART: Final = frozenset({"apiVersion", "kind", "status"})


def label_of(name: str, item: Any) -> str | None:
    """What tells an item of the list called ``name`` apart; None where nothing does. Ports: number, and the protocol
    where it is not TCP."""
    if not isinstance(item, Mapping):
        return None
    for field in LIST_KEYS.get(name, ("name",)):
        value = item.get(field)
        if isinstance(value, str | int) and not isinstance(value, bool):
            protocol = str(item.get("protocol") or _PROTOCOL) if name == "ports" else _PROTOCOL
            return str(value) if protocol == _PROTOCOL else f"{value}/{protocol}"
    return None


def labelled(name: str, items: Sequence[Any]) -> dict[str, Any] | None:
    """Items by what tells them apart; None for a list whose items nothing tells apart."""
    found: dict[str, Any] = {}
    for item in items:
        label = label_of(name, item)
        if label is None or label in found:
            return None
        found[label] = item
    return found


def merged(live: Any, wanted: Any, last: Any, name: str = "") -> Any:
    """What ``live`` becomes when ``wanted`` is applied, which was ``last`` before: a three-way merge.

    Fields of ``wanted`` win, fields that only ``last`` has go away, everything else stays. Lists whose items can be
    told apart merge item by item.
    """
    if isinstance(wanted, Mapping) and isinstance(live, Mapping):
        before = last if isinstance(last, Mapping) else {}
        result = {key: value for key, value in live.items() if key in wanted or key not in before or key in _APART}
        for key, value in wanted.items():
            result[key] = merged(live.get(key), value, before.get(key), str(key))
        return {key: value for key, value in result.items() if value is not None}
    if isinstance(wanted, list) and isinstance(live, list):
        return _merged_items(live, wanted, last if isinstance(last, list) else [], name)
    return wanted


def _merged_items(live: list[Any], wanted: list[Any], last: list[Any], name: str) -> list[Any]:
    """Items by what tells them apart; else, where there are as many, by position: the server fills in defaults also in
    lists that it replaces as a whole."""
    there, new = labelled(name, live), labelled(name, wanted)
    if there is not None and new is not None:
        before = labelled(name, last) or {}
        kept = [item for label, item in there.items() if label not in new and label not in before]
        return [merged(there.get(label), item, before.get(label)) for label, item in new.items()] + kept
    if len(live) == len(wanted) and all(isinstance(item, Mapping) for item in (*live, *wanted)):
        before_items = last if len(last) == len(wanted) else [None] * len(wanted)
        return [merged(*items) for items in zip(live, wanted, before_items, strict=True)]
    return wanted


__all__ = ["LIST_KEYS", "label_of", "labelled", "merged"]
