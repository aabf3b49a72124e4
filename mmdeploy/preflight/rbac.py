"""The rights as manifests that an administrator can apply."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from mmdeploy.errors import UsageError
from mmdeploy.preflight.rights import Right

Object = dict[str, Any]
_GROUP = "rbac.authorization.k8s.io"
PLACEHOLDER = "SOMEBODY"


def subject(text: str | None) -> Object:
    """Who is meant by ``NAME``, ``group:NAME`` or ``serviceaccount:NAMESPACE:NAME``. Raises `UsageError`."""
    if text is None:
        return {"apiGroup": _GROUP, "kind": "User", "name": PLACEHOLDER}
    word, _, rest = text.partition(":")
    if word == "group" and rest:
        return {"apiGroup": _GROUP, "kind": "Group", "name": rest}
    if word == "serviceaccount":
        match = re.fullmatch(r"([a-z0-9.-]+):([a-z0-9.-]+)", rest)
        if match is None:
            raise UsageError(
                f"{text!r} names no service account", origin="--for", nearest=["serviceaccount:NAMESPACE:NAME"]
            )
        return {"kind": "ServiceAccount", "namespace": match[1], "name": match[2]}
    if not text.strip():
        raise UsageError(
            "names nobody", origin="--for", nearest=["NAME", "group:NAME", "serviceaccount:NAMESPACE:NAME"]
        )
    return {"apiGroup": _GROUP, "kind": "User", "name": rest if word == "user" and rest else text}


def manifests(rights: Iterable[Right], name: str, namespace: str, who: str | None) -> list[Object]:
    """A Role with its binding, and a ClusterRole with its binding for what is not in the namespace."""
    found = list(rights)
    given = subject(who)
    inside = [right for right in found if not right.wide]
    wide = [right for right in found if right.wide]
    local = {"name": f"mmdeploy-{name}", "namespace": namespace}
    result = [*_pair("Role", local, inside, given)]
    if wide:
        result += _pair("ClusterRole", {"name": f"mmdeploy-{namespace}-{name}"}, wide, given)
    return result


def _pair(kind: str, metadata: Mapping[str, str], rights: list[Right], given: Object) -> list[Object]:
    version = {"apiVersion": f"{_GROUP}/v1"}
    labels = {"app.kubernetes.io/managed-by": "mmdeploy"}
    return [
        {**version, "kind": kind, "metadata": {**metadata, "labels": labels}, "rules": rules(rights)},
        {
            **version,
            "kind": f"{kind}Binding",
            "metadata": {**metadata, "labels": dict(labels)},
            "roleRef": {"apiGroup": _GROUP, "kind": kind, "name": metadata["name"]},
            "subjects": [dict(given)],
        },
    ]


def rules(rights: Iterable[Right]) -> list[Object]:
    """Rules as short as they get without granting more: resources of a group with the same verbs and names together."""
    grouped: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    urls: list[Object] = []
    for right in rights:
        if not right.resource:
            urls.append({"nonResourceURLs": list(right.names), "verbs": list(right.verbs)})
            continue
        resources = grouped.setdefault((right.group, right.verbs, right.names), [])
        if right.resource not in resources:
            resources.append(right.resource)
    found = [
        {"apiGroups": [group], "resources": resources, **({"resourceNames": list(names)} if names else {}),
         "verbs": list(verbs)}
        for (group, verbs, names), resources in grouped.items()
    ]  # fmt: skip
    return [*found, *urls]


__all__ = ["PLACEHOLDER", "manifests", "rules", "subject"]
