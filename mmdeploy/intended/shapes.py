"""What the program relies on in files that a person may have edited: where a mapping, a list, text or a number stands.

Only what is read here is checked, and only its shape: whether a value makes sense the API server and the chart say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mmdeploy.documents import KeyPath

_SHOWN: Final = 40
"""Characters of a value that a message repeats."""
_LARGEST: Final = 2**31 - 1
"""Kubernetes' counts are 32 bits wide."""


@dataclass(frozen=True)
class Leaf:
    """A value that holds no others."""

    said: str
    """In a person's words: ``text``."""
    fits: Callable[[Any], bool]


@dataclass(frozen=True)
class MapOf:
    """A mapping whose keys are the person's own."""

    values: Any


@dataclass(frozen=True)
class Misfit:
    """The first thing that has not the shape it must have."""

    path: KeyPath
    found: str
    """One sentence."""


# A dict is a mapping with these fields among others, "name!" one that must be there; a list holds items of one shape.
Shape = Any

ANY: Final = Leaf("anything", lambda value: True)
TEXT: Final = Leaf("text", lambda value: isinstance(value, str))
TRUTH: Final = Leaf("true or false", lambda value: isinstance(value, bool))
SCALAR: Final = Leaf("text or a number", lambda value: isinstance(value, str | int | float))
AMOUNT: Final = Leaf("an amount", lambda value: isinstance(value, str | int | float) and not isinstance(value, bool))
WHOLE: Final = Leaf(
    "a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST
)
COUNT: Final = Leaf("a whole number", lambda value: WHOLE.fits(value) or (isinstance(value, str) and _is_digits(value)))
"""A number of values, which charts print as it stands, so that its text will do."""

_LABELS: Final = MapOf(SCALAR)
_SELECTOR: Final = {
    "matchLabels": _LABELS,
    "matchExpressions": [{"key!": TEXT, "operator!": TEXT, "values": [SCALAR]}],
}
_TERM: Final = {
    "matchExpressions": [{"key!": TEXT, "operator!": TEXT, "values": [TEXT]}],
    "matchFields": [{"key!": TEXT, "operator!": TEXT, "values": [TEXT]}],
}
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_SCHEDULING: Final = {
    "nodeSelector": _LABELS,
    "tolerations": [{"key": TEXT, "operator": TEXT, "value": SCALAR, "effect": TEXT}],
    "affinity": {
        "nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [_TERM]}},
        "podAffinity": {_REQUIRED: [{}]},
        "podAntiAffinity": {_REQUIRED: [{}]},
    },
}
_RESOURCES: Final = {"requests": MapOf(AMOUNT), "limits": MapOf(AMOUNT)}
_VARIABLES: Final = [{"name!": TEXT, "valueFrom": {"secretKeyRef": {"name!": TEXT, "key!": TEXT, "optional": TRUTH}}}]
_CONTEXT: Final = {
    "capabilities": {"add": [TEXT], "drop": [TEXT]},
    "seccompProfile": {},
    "runAsUser": WHOLE,
    "runAsGroup": WHOLE,
}
_CONTAINER: Final = {
    "name!": TEXT,
    "image": TEXT,
    "command": [SCALAR],
    "args": [SCALAR],
    "env": _VARIABLES,
    "ports": [{"name": TEXT, "containerPort": WHOLE, "hostPort": WHOLE}],
    "resources": {**_RESOURCES, "claims": [{}]},
    "restartPolicy": TEXT,
    "securityContext": _CONTEXT,
    "volumeMounts": [{"name": TEXT, "mountPath": TEXT}],
}
_POD: Final = {
    "metadata": {"labels": _LABELS, "annotations": _LABELS},
    "spec!": {
        **_SCHEDULING,
        "containers!": [_CONTAINER],
        "initContainers": [_CONTAINER],
        "volumes": [{"name": TEXT, "persistentVolumeClaim": {"claimName!": TEXT}, "emptyDir": {}, "hostPath": {}}],
        "imagePullSecrets": [{"name!": TEXT}],
        "overhead": MapOf(AMOUNT),
        "priorityClassName": TEXT,
        "serviceAccountName": TEXT,
        "resourceClaims": [{"name": TEXT, "resourceClaimTemplateName": TEXT, "resourceClaimName": TEXT}],
        "securityContext": _CONTEXT,
        "topologySpreadConstraints": [{"whenUnsatisfiable": TEXT}],
    },
}
_SINGLE: Final = {
    "spec!": {
        "replicas": WHOLE,
        "selector": _SELECTOR,
        "strategy": {"type": TEXT, "rollingUpdate": {"maxSurge": SCALAR, "maxUnavailable": SCALAR}},
        "template!": _POD,
    }
}
_GROUPS: Final = {
    "replicas": WHOLE,
    "groupIdentity": TEXT,
    "rolloutStrategy": {"rollingUpdateConfiguration": {}},
    "leaderWorkerTemplate!": {"size": WHOLE, "leaderTemplate": _POD, "workerTemplate!": _POD},
}
_REQUEST: Final = {"deviceClassName": TEXT, "count": WHOLE}

OBJECT: Final[Shape] = {
    "apiVersion!": TEXT,
    "kind!": TEXT,
    "metadata!": {"name!": TEXT, "namespace": TEXT, "labels": _LABELS, "annotations": _LABELS},
}
"""Every object."""

KINDS: Final[Mapping[str, Shape]] = {
    "Deployment": _SINGLE,
    "StatefulSet": _SINGLE,
    "LeaderWorkerSet": {"spec!": _GROUPS},
    "DisaggregatedSet": {"spec!": {"slices": WHOLE, "roles!": [{"name!": TEXT, "spec!": _GROUPS}]}},
    "Gateway": {
        "spec": {
            "gatewayClassName": TEXT,
            "listeners": [{"name": TEXT, "allowedRoutes": {"namespaces": {"from": TEXT, "selector": _SELECTOR}}}],
        }
    },
    "HTTPRoute": {"spec": {"rules": [{"filters": [{"requestHeaderModifier": {"remove": [TEXT]}}]}]}},
    "ResourceClaimTemplate": {
        "spec": {"spec": {"devices": {"requests": [{**_REQUEST, "exactly": _REQUEST}]}}},
    },
}
"""What more is read of objects of some kinds."""

VALUES: Final[Shape] = {
    "router": {
        "epp": {
            **_SCHEDULING,
            "replicas": COUNT,
            "env": _VARIABLES,
            "resources": _RESOURCES,
            "flags": MapOf(ANY),
            "pluginsConfigFile": TEXT,
            "pluginsCustomConfig": MapOf(ANY),
            "podAnnotations": _LABELS,
            "podLabels": _LABELS,
        },
        "proxy": {"resources": _RESOURCES},
        "inferencePool": {},
        "modelServers": {"matchLabels": _LABELS, "targetPorts": [{"number!": COUNT}]},
        "monitoring": {"prometheus": {"auth": {}}},
        "tracing": {},
    },
    "httpRoute": {"inferenceGatewayName": TEXT, "inferenceGatewayNamespace": TEXT},
    "provider": {"name": TEXT},
}
"""The router's Helm values."""

SPEC: Final[Shape] = {
    "name": TEXT,
    "namespace": TEXT,
    "mode": TEXT,
    "topology": TEXT,
    "model": TEXT,
    "release": SCALAR,
    "versions": MapOf(SCALAR),
    "hfSecret": {"name": TEXT, "key": TEXT},
    "gateway": {"name": TEXT, "gatewayClass": TEXT},
    "encode": {},
    "prefill": {},
    "decode": {},
}
"""``mmdeploy.yaml`` of a bundle, which is a whole spec."""

KUSTOMIZATION: Final[Shape] = {"namespace": TEXT, "resources": [TEXT]}


def misfit(value: Any, shape: Shape, path: KeyPath = ()) -> Misfit | None:
    """The first part of ``value`` that has another shape; None where all is well. A null field is as good as none."""
    match shape:
        case Leaf():
            return None if shape.fits(value) else _other(path, value, shape.said)
        case list():
            if not isinstance(value, list):
                return _other(path, value, "a list")
            return _first(((*path, index), item, shape[0]) for index, item in enumerate(value))
        case MapOf():
            if not isinstance(value, dict):
                return _other(path, value, "a mapping")
            odd = next((key for key in value if not isinstance(key, str)), None)
            if odd is not None:
                return Misfit((*path, str(odd)), f"{_said(path)} has the key {odd!r}, where text is wanted: quote it")
            return _first(((*path, key), item, shape.values) for key, item in value.items() if item is not None)
    if not isinstance(value, dict):
        return _other(path, value, "a mapping")
    for name in shape:
        if name.endswith("!") and value.get(name[:-1]) is None:
            return Misfit(path, f"{_said(path)} lacks {name[:-1]}" if path else f"it lacks {name[:-1]}")
    return _first(((*path, key), value[key], inner) for key, inner in _fields(shape) if value.get(key) is not None)


def without_nulls(value: Any, shape: Shape) -> Any:
    """The same without the fields of ``shape`` that are null, so that nobody has to ask for both."""
    if isinstance(shape, list):
        return [without_nulls(item, shape[0]) for item in value]
    if isinstance(shape, MapOf):
        return {key: item for key, item in value.items() if item is not None}
    if not isinstance(shape, dict):
        return value
    known = dict(_fields(shape))
    return {
        key: without_nulls(item, known[key]) if key in known else item
        for key, item in value.items()
        if item is not None or key not in known
    }


def _fields(shape: Mapping[str, Shape]) -> list[tuple[str, Shape]]:
    return [(name.removesuffix("!"), inner) for name, inner in shape.items()]


def _first(parts: Any) -> Misfit | None:
    return next((found for path, value, shape in parts if (found := misfit(value, shape, path))), None)


def _other(path: KeyPath, value: Any, wanted: str) -> Misfit:
    return Misfit(path, f"{_said(path)} is {_seen(value)}, where {wanted} is wanted")


def _said(path: KeyPath) -> str:
    """``spec.roles[0].name``."""
    words = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return words.removeprefix(".") or "it"


def _seen(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, dict | list):
        return f"{'an empty' if not value else 'a'} {'mapping' if isinstance(value, dict) else 'list'}"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < len(str(_LARGEST))


__all__ = ["KINDS", "KUSTOMIZATION", "OBJECT", "SPEC", "VALUES", "Misfit", "Shape", "misfit", "without_nulls"]
