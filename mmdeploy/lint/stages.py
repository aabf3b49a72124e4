"""Which pods the endpoint picker's profiles accept, by the role filters and label filters in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmdeploy.lint.pods import ROLE, Pod
from mmdeploy.lint.router import PickerConfig, Plugin, Profile
from mmdeploy.lint.router_facts import RouterFacts

_LABEL_FILTERS = ("label-selector-filter", "by-label-selector", "by-label")


def roles_of(known: RouterFacts, kind: str) -> frozenset[str]:
    """Values of the role label that a role filter lets through."""
    both = known.fact("stages", "both") or {}
    roles = set((known.fact("stages", "roles") or {}).get(kind, ()))
    if known.has("roleBoth") and kind in both.get("roles", ()):
        roles.add("both")
    return frozenset(roles)


def legal_roles(known: RouterFacts) -> frozenset[str]:
    """Values that some role filter lets through."""
    return frozenset().union(*(roles_of(known, kind) for kind in known.fact("stages", "roles") or {}))


def filters_of(config: PickerConfig, profile: Profile) -> list[Plugin]:
    """Plugins of a profile, in order."""
    found = (config.named(name) for name, _, _ in profile.entries)
    return [plugin for plugin in found if plugin is not None]


def role_filters(known: RouterFacts, config: PickerConfig, profile: Profile) -> list[str]:
    """Types of the role filters of a profile."""
    kinds = known.fact("stages", "roles") or {}
    return [plugin.type for plugin in filters_of(config, profile) if plugin.type in kinds]


def reads_role(config: PickerConfig) -> bool:
    """Whether a label filter looks at the role label: roles may then have names of their own."""
    return any(ROLE in str(plugin.parameters) for plugin in config.of_type(*_LABEL_FILTERS))


def accepts(known: RouterFacts, config: PickerConfig, profile: Profile, pod: Pod) -> bool:
    """Whether a pod passes every filter of a profile that looks at labels."""
    kinds = known.fact("stages", "roles") or {}
    for plugin in filters_of(config, profile):
        if plugin.type in kinds:
            if pod.role is None and plugin.type == "decode-filter":
                continue
            if pod.role not in roles_of(known, plugin.type):
                return False
        elif plugin.type == "by-label":
            value = pod.labels.get(str(plugin.parameters.get("label")))
            valid = plugin.parameters.get("validValues")
            if value is None:
                if plugin.parameters.get("allowsNoLabel") is not True:
                    return False
            elif isinstance(valid, list) and value not in map(str, valid):
                return False
        elif plugin.type in _LABEL_FILTERS and not _matches(plugin.parameters, pod):
            return False
    return True


def _matches(parameters: Mapping[str, Any], pod: Pod) -> bool:
    labels = parameters.get("matchLabels")
    if isinstance(labels, Mapping) and any(pod.labels.get(str(key)) != str(value) for key, value in labels.items()):
        return False
    expressions = parameters.get("matchExpressions")
    return all(_fits(item, pod) for item in (expressions if isinstance(expressions, list) else ())
               if isinstance(item, Mapping))  # fmt: skip


def _fits(expression: Mapping[str, Any], pod: Pod) -> bool:
    value = pod.labels.get(str(expression.get("key")))
    listed = expression.get("values")
    values = [str(item) for item in listed] if isinstance(listed, list) else []
    return {
        "In": value in values,
        "NotIn": value not in values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }.get(str(expression.get("operator")), True)
