"""What the tests of failures hold against a cluster does find what it looks for."""

from __future__ import annotations

import base64

import pytest

from tests.e2e.failures import afterwards
from tests.e2e.failures.afterwards import TOKEN, apply, assert_in_order, assert_stands
from tests.e2e.failures.conftest import Place, Undisturbed
from tests.rig.api import Api, Object
from tests.rig.contents import Contents
from tests.rig.controlplane import ControlPlane
from tests.rig.deploying import NAME


def config(place: Place, text: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "more", "namespace": place.namespace},
            "data": {"text": text}}  # fmt: skip


def test_what_should_not_be_is_found(
    plane: ControlPlane, admin: Api, contents: Contents, place: Place, undisturbed: Undisturbed,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    assert apply(plane, place.bundle).code == 0
    assert_stands(contents, place.namespace, undisturbed.standing)
    assert_in_order(contents, place.namespace)
    where = f"/api/v1/namespaces/{place.namespace}/configmaps"

    admin.apply(config(place, "nothing"), manager="mmdeploy")
    with pytest.raises(AssertionError, match="outside the inventory.*ConfigMap/more"):
        assert_in_order(contents, place.namespace)
    admin.delete(f"{where}/more")

    for text in (f"the token is {TOKEN}", base64.b64encode(TOKEN.encode()).decode()):
        admin.merge(f"{where}/{NAME}-epp", {"data": {"more": text}})
        with pytest.raises(AssertionError, match="the token leaked"):
            assert_in_order(contents, place.namespace)
    admin.merge(f"{where}/{NAME}-epp", {"data": {"more": None}})

    metadata = {"name": afterwards.KEPT, "namespace": place.namespace}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
    admin.apply(lease)
    with pytest.raises(AssertionError, match="Lease"):
        assert_in_order(contents, place.namespace)
    admin.delete(f"/apis/coordination.k8s.io/v1/namespaces/{place.namespace}/leases/{afterwards.KEPT}")
    assert_in_order(contents, place.namespace)

    monkeypatch.setattr(afterwards, "_SETTLED_SECONDS", 1)
    decode = f"/apis/apps/v1/namespaces/{place.namespace}/deployments/mm-decode"
    admin.merge(decode, {"spec": {"paused": True}})
    with pytest.raises(AssertionError, match=r"(?s)not as after.*found Deployment.apps/mm-decode.*paused"):
        assert_stands(contents, place.namespace, undisturbed.standing)
