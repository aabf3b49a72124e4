"""Owners of fields prove that applying changes nothing: a yes must be right, a no costs a request."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from mmdeploy.apply.comparison.fieldowners import FieldOwners

WANTED: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "n", "labels": {"a": "1"}},
    "spec": {
        "containers": [
            {
                "name": "c",
                "args": ["--x=1"],
                "ports": [{"containerPort": 8000}],
                "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
            }
        ]
    },
}
# As kube-apiserver 1.35 answers after a server-side apply of that: defaults are filled in, and the port's protocol is
# part of its key.
LIVE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "p",
        "namespace": "n",
        "labels": {"a": "1"},
        "uid": "1",
        "managedFields": [
            {
                "manager": "mmdeploy",
                "operation": "Apply",
                "fieldsV1": {
                    "f:metadata": {"f:labels": {"f:a": {}}},
                    "f:spec": {
                        "f:containers": {
                            'k:{"name":"c"}': {
                                ".": {},
                                "f:args": {},
                                "f:env": {
                                    'k:{"name":"IP"}': {".": {}, "f:name": {}, "f:valueFrom": {"f:fieldRef": {}}}
                                },
                                "f:name": {},
                                "f:ports": {
                                    'k:{"containerPort":8000,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}
                                },
                            }
                        }
                    },
                },
            }
        ],
    },
    "spec": {
        "containers": [
            {
                "name": "c",
                "args": ["--x=1"],
                "imagePullPolicy": "Always",
                "ports": [{"containerPort": 8000, "protocol": "TCP"}],
                "env": [{"name": "IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}}],
            }
        ],
        "restartPolicy": "Always",
    },
}


def proven(wanted: dict[str, Any], live: dict[str, Any]) -> bool:
    return FieldOwners.of(live).prove_unchanged(wanted, live)


def test_what_was_applied_and_not_touched_is_proven() -> None:
    assert proven(WANTED, LIVE)


def test_fields_of_others_do_not_matter() -> None:
    live = copy.deepcopy(LIVE)
    live["spec"]["nodeName"] = "gpu-0"
    live["metadata"]["managedFields"].append(
        {"manager": "kube-scheduler", "operation": "Update", "fieldsV1": {"f:spec": {"f:nodeName": {}}}}
    )
    assert proven(WANTED, live)


def _change(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    wanted = copy.deepcopy(WANTED)
    place: Any = wanted
    for step in path[:-1]:
        place = place[step]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return wanted


CONTAINER = ("spec", "containers", 0)
CHANGED = {
    "another value": (("metadata", "labels", "a"), "2"),
    "a field more": (("spec", "nodeName"), "x"),
    "a field less": (("metadata", "labels"), None),
    "another argument": ((*CONTAINER, "args"), ["--x=2"]),
    "an argument more": ((*CONTAINER, "args"), ["--x=1", "--y"]),
    "no variable any more": ((*CONTAINER, "env"), None),
    "another reference": (
        (*CONTAINER, "env", 0, "valueFrom", "fieldRef"), {"fieldPath": "status.podIP", "apiVersion": "v2"},
    ),
    "a port more": ((*CONTAINER, "ports"), [{"containerPort": 8000}, {"containerPort": 8001}]),
    "another protocol": ((*CONTAINER, "ports"), [{"containerPort": 8000, "protocol": "UDP"}]),
    "a container more": (("spec", "containers"), [*WANTED["spec"]["containers"], {"name": "d"}]),
}  # fmt: skip


@pytest.mark.parametrize(("path", "value"), CHANGED.values(), ids=CHANGED)
def test_whatever_is_wanted_otherwise_is_not_proven(path: tuple[Any, ...], value: Any) -> None:
    assert not proven(_change(path, value), LIVE)


def test_a_field_that_somebody_took_is_not_proven() -> None:
    """The value is the same, but it is not ours any more: only the server knows what applying it does."""
    live = copy.deepcopy(LIVE)
    del live["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"]
    assert not proven(WANTED, live)


def test_an_object_that_mmdeploy_never_applied_is_not_proven() -> None:
    live = copy.deepcopy(LIVE)
    live["metadata"]["managedFields"][0]["manager"] = "kubectl"
    assert not proven(WANTED, live)
