"""An apply whose server is away, busy, or says no: afterwards the same command finishes it."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.e2e.failures.afterwards import (
    ENVIRON,
    assert_in_order,
    assert_resumed,
    assert_silent,
    assert_stands,
    words,
)
from tests.e2e.failures.conftest import Place, Undisturbed
from tests.e2e.failures.moments import SEED
from tests.rig import webhook
from tests.rig.api import Api, wait
from tests.rig.between import TROUBLES, Between
from tests.rig.contents import Contents
from tests.rig.controlplane import ControlPlane
from tests.rig.deploying import NAME, Ran, Running, mmdeploy

MADE = {"app.kubernetes.io/managed-by": "mmdeploy"}


def applied(plane: ControlPlane, place: Place, **environ: str) -> Ran:
    """What an apply came to; it says something sensible whatever happened."""
    ran = mmdeploy(plane, *words(place.bundle), environ={**ENVIRON, **environ})
    assert_silent(ran.out, ran.err)
    assert "Traceback" not in ran.err, ran.err
    if ran.code:
        assert ran.err.startswith("error: ")
        assert ran.events[-1]["event"] == "failed"
    return ran


def make_namespace(admin: Api, place: Place) -> None:
    """As an apply leaves it that is killed right after."""
    metadata = {"name": place.namespace, "labels": MADE, "annotations": {"mmdeploy/deployment": NAME}}
    item = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    admin.request("POST", "/api/v1/namespaces?fieldManager=mmdeploy", item)


# --------------------------------------------------------------------------------------------------- the server itself


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_server_with_trouble(
    plane: ControlPlane, contents: Contents, place: Place, undisturbed: Undisturbed, tmp_path: Path, trouble: str
) -> None:
    between = Between(plane, trouble, 0.08, SEED, tmp_path)
    with between.running():
        ran = applied(plane, place, KUBECONFIG=str(between.kubeconfig))
    assert between.met.total() >= 3, "it was in the way"
    assert between.asked > 40
    # 429 says that nothing was done: everybody tries again. helm does not where there is no answer.
    assert ran.code in ((0,) if trouble == "busy" else (0, 1, 5)), ran.err
    if ran.code == 0:
        assert_stands(contents, place.namespace, undisturbed.standing)
    assert_resumed(plane, contents, place.bundle, place.namespace, undisturbed.standing)


@pytest.mark.parametrize("stage", ["secret", "router", "model-servers", "gateway"])
def test_a_server_that_is_restarted(
    plane: ControlPlane, contents: Contents, place: Place, undisturbed: Undisturbed, stage: str
) -> None:
    draw = random.Random(f"{SEED} {stage}")
    with Running(plane, *words(place.bundle), environ=ENVIRON) as running:
        running.until("stage-started", stage)
        time.sleep(draw.random() * undisturbed.stages[stage])
        plane.restart("kube-apiserver")
        code, said = running.end()
    assert_silent(said, json.dumps(running.events))
    assert "Traceback" not in said, said
    assert code in (0, 1, 5)
    assert_resumed(plane, contents, place.bundle, place.namespace, undisturbed.standing)


# ------------------------------------------------------------------------------------------------------------ refusals

REFUSED = [("", "services", f"{NAME}-epp"), ("", "secrets", "llm-d-hf-token"), ("apps", "deployments", "mm-decode"),
           ("monitoring.coreos.com", "podmonitors", "mm-encode")]  # fmt: skip


@pytest.mark.parametrize("what", REFUSED, ids=lambda what: what[1])
def test_a_webhook_that_refuses(
    plane: ControlPlane, admin: Api, contents: Contents, place: Place, undisturbed: Undisturbed,
    what: tuple[str, str, str],
) -> None:  # fmt: skip
    with webhook.refusing(plane, admin, place.namespace, *what):
        ran = applied(plane, place)
    assert ran.code in (1, 5)
    assert webhook.NAME in ran.err
    assert webhook.REASON in ran.err
    assert_in_order(contents, place.namespace)
    assert_resumed(plane, contents, place.bundle, place.namespace, undisturbed.standing)


def test_a_helm_that_cannot_record_what_it_did(
    plane: ControlPlane, admin: Api, contents: Contents, place: Place, undisturbed: Undisturbed
) -> None:
    """It ends with 0 all the same: seen with helm 4.3.1, whose own words on stderr are a warning."""
    release = ("", "secrets", f"sh.helm.release.v1.{NAME}.v1")
    with webhook.refusing(plane, admin, place.namespace, *release, operations=["UPDATE"]):
        ran = applied(plane, place)
    assert ran.code == 1
    assert any("the release is pending-install" in event["text"] for event in ran.of("warning"))
    assert_resumed(plane, contents, place.bundle, place.namespace, undisturbed.standing)


@pytest.mark.parametrize(("counted", "most"), [("services", 0), ("count/deployments.apps", 2)])
def test_a_quota_that_is_hit_halfway(
    plane: ControlPlane, admin: Api, contents: Contents, place: Place, undisturbed: Undisturbed, counted: str, most: int
) -> None:
    make_namespace(admin, place)
    quota = f"/api/v1/namespaces/{place.namespace}/resourcequotas/small"
    metadata = {"name": "small", "namespace": place.namespace}
    admin.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata,
                 "spec": {"hard": {counted: str(most)}}})  # fmt: skip
    wait("the quota counts", lambda: admin.get(quota).get("status", {}).get("used"))
    ran = applied(plane, place)
    assert ran.code in (1, 5)
    assert "exceeded quota: small" in ran.err
    admin.delete(quota)
    assert_in_order(contents, place.namespace)
    assert_resumed(plane, contents, place.bundle, place.namespace, undisturbed.standing)


# ------------------------------------------------------------------------------------------------------------ together


@pytest.mark.parametrize("number", range(3))
def test_two_at_once(
    plane: ControlPlane, contents: Contents, place: Place, undisturbed: Undisturbed, number: int
) -> None:
    draw = random.Random(f"{SEED} {number}")
    later = draw.random() * undisturbed.seconds * number / 2  # the first time at the same moment
    with Running(plane, *words(place.bundle), environ=ENVIRON) as first:
        time.sleep(later)
        with Running(plane, *words(place.bundle), environ=ENVIRON) as second:
            ends = [first.end(), second.end()]
    codes = Counter(code for code, _ in ends)
    assert codes[0] >= 1, ends
    assert set(codes) <= {0, 5}, ends
    for code, said in ends:
        assert "Traceback" not in said
        if code:
            assert f"is changing {NAME}" in said or "since this was planned" in said, said
    assert_in_order(contents, place.namespace)
    assert_stands(contents, place.namespace, undisturbed.standing)
    again = assert_resumed(plane, contents, place.bundle, place.namespace, undisturbed.standing)
    assert set(again.applied.values()) <= {"unchanged", "updated"}  # updated: a token that was given is written
