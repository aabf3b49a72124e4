"""Somebody deletes or edits what an apply has just made: it ends well or says so, and the next one puts it right."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from tests.e2e.failures.afterwards import (
    ENVIRON,
    KEPT,
    SECRET,
    apply,
    assert_in_order,
    assert_resumed,
    assert_silent,
    assert_stands,
    words,
)
from tests.e2e.failures.conftest import Place, Undisturbed
from tests.rig.api import Api, Object, path, wait
from tests.rig.contents import Contents
from tests.rig.controlplane import ControlPlane
from tests.rig.deploying import NAME, Running


@dataclass(frozen=True)
class Meddling:
    """What somebody does, once a stage has begun."""

    id: str
    stage: str
    api_version: str
    kind: str
    name: str
    change: Object | None = None
    """A merge patch; None deletes the object."""
    options: tuple[str, ...] = ()
    """What the next apply needs."""
    codes: tuple[int, ...] = (0,)
    """Exit codes of the apply that was meddled with."""

    def does(self, admin: Api, namespace: str) -> None:
        """Do it."""
        metadata = {"name": self.name, "namespace": namespace}
        where = path({"apiVersion": self.api_version, "kind": self.kind, "metadata": metadata})
        if self.change is None:
            admin.delete(where)
        else:
            admin.merge(f"{where}?fieldManager=somebody", self.change)


REPLICAS = {"spec": {"replicas": 3}}
FORCE = ("--force-conflicts",)
MEDDLING = [
    Meddling("the inventory is deleted", "router", "v1", "ConfigMap", KEPT),
    Meddling("the inventory is overwritten", "router", "v1", "ConfigMap", KEPT, {"data": {"inventory.json": "{}"}}),
    Meddling("the token is deleted", "router", "v1", "Secret", SECRET),
    Meddling("the token is overwritten", "router", "v1", "Secret", SECRET, {"data": {"HF_TOKEN": "b3RoZXI="}}),
    Meddling("encode is deleted", "gateway", "apps/v1", "Deployment", "mm-encode"),
    Meddling("encode is scaled", "gateway", "apps/v1", "Deployment", "mm-encode", REPLICAS, FORCE),
    Meddling("the account is deleted", "gateway", "v1", "ServiceAccount", "mm-sa"),
    Meddling("the picker is deleted", "model-servers", "apps/v1", "Deployment", f"{NAME}-epp"),
    Meddling("the picker is scaled", "model-servers", "apps/v1", "Deployment", f"{NAME}-epp", REPLICAS, FORCE),
    Meddling("the gateway is deleted", "monitoring", "gateway.networking.k8s.io/v1", "Gateway",
             "llm-d-inference-gateway"),
    Meddling("the pool is deleted", "gateway", "inference.networking.k8s.io/v1", "InferencePool", NAME),
    Meddling("the lease is deleted", "router", "coordination.k8s.io/v1", "Lease", KEPT, codes=(0, 5)),
]  # fmt: skip


@pytest.mark.parametrize("meddling", MEDDLING, ids=lambda meddling: meddling.id)
def test_meddled_with_and_put_right(
    plane: ControlPlane, admin: Api, contents: Contents, place: Place, undisturbed: Undisturbed, meddling: Meddling
) -> None:
    with Running(plane, *words(place.bundle), environ=ENVIRON) as running:
        running.until("stage-started", meddling.stage)
        meddling.does(admin, place.namespace)
        code, said = running.end()
    assert_silent(said, json.dumps(running.events))
    assert "Traceback" not in said, said
    assert code in meddling.codes, said
    assert_resumed(plane, contents, place.bundle, place.namespace, undisturbed.standing, *meddling.options)


def test_the_namespace_is_deleted(
    plane: ControlPlane, admin: Api, contents: Contents, place: Place, undisturbed: Undisturbed
) -> None:
    where = f"/api/v1/namespaces/{place.namespace}"
    with Running(plane, *words(place.bundle), environ=ENVIRON) as running:
        running.until("stage-started", "model-servers")
        admin.delete(where)
        code, said = running.end()
    assert_silent(said, json.dumps(running.events))
    assert "Traceback" not in said, said
    assert code in (0, 5), said
    if code:
        assert "delet" in said or "terminat" in said, said
    wait("the namespace is gone", lambda: admin.find(where) is None, seconds=60)
    # What the release has outside of the namespace is still there, and goes into the new one.
    assert contents.wide(place.namespace)
    assert apply(plane, place.bundle).code == 0
    assert_stands(contents, place.namespace, undisturbed.standing)
    assert_in_order(contents, place.namespace)
