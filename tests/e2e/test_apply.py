"""mmdeploy apply on a real control plane: from nothing to everything, again without a change, and away."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.rig import users
from tests.rig.api import Api, wait
from tests.rig.controlplane import ControlPlane
from tests.rig.deploying import CHART, NAME, PROGRAM, apply, delete, everything, hold_token, mmdeploy, render, succeeded
from tests.rig.sets import Sets

TOKEN = "hf_0123456789secret"
CONFIGMAP = f"mmdeploy-{NAME}"


@pytest.fixture
def bundle(plane: ControlPlane, namespace: str, tmp_path: Path, custom_resources: None) -> Path:
    """One Deployment with one pod, and the router."""
    return render(plane, tmp_path / "bundle", namespace)


@pytest.fixture
def token(admin: Api, namespace: str) -> None:
    """The Secret with the token is there, and nobody's."""
    hold_token(admin, namespace)


def kept(admin: Api, namespace: str) -> dict[str, Any]:
    """The inventory, read without mmdeploy."""
    item = admin.get(f"/api/v1/namespaces/{namespace}/configmaps/{CONFIGMAP}")
    return json.loads(item["data"]["inventory.json"])


# ------------------------------------------------------------------------------------------------ there and away again


@pytest.mark.parametrize("form", ["Deployment", "DisaggregatedSet"])
def test_there_again_and_away(
    plane: ControlPlane, admin: Api, namespace: str, deployer: str, tmp_path: Path, form: str, sets: Sets
) -> None:
    hold_token(admin, namespace)
    before = everything(admin, namespace)
    bundle = render(plane, tmp_path / "bundle", namespace, "-t", "e-pd", "--workload", form, encode_replicas=1)

    first = succeeded(apply(plane, bundle, user=deployer))
    assert first.applied[f"HelmRelease/{NAME}"] == "created"
    assert {event["role"] for event in first.of("ready")} >= {"encode", "decode", "router", "pool"}
    assert first.events[0] == {
        "schemaVersion": 1, "event": "target", "command": "apply", "name": NAME, "context": "rig",
        "server": plane.server, "namespace": namespace,
    }  # fmt: skip

    standing = everything(admin, namespace)
    again = succeeded(apply(plane, bundle, "--no-wait", user=deployer))
    assert set(again.applied.values()) == {"unchanged"}
    assert everything(admin, namespace) == standing, "a second apply makes nothing anew, no revision of the release too"
    assert mmdeploy(plane, "diff", bundle, "--router-chart", "tests/rig/chart", user=deployer).code == 0

    succeeded(delete(plane, bundle, user=deployer))
    assert everything(admin, namespace) == before


def test_roles_are_applied_from_encode_to_decode(
    plane: ControlPlane, admin: Api, namespace: str, token: None, tmp_path: Path, custom_resources: None
) -> None:
    bundle = render(
        plane, tmp_path / "bundle", namespace, "-t", "e-p-d", "--workload", "Deployment",
        encode_replicas=1, prefill_replicas=1,
    )  # fmt: skip
    ran = succeeded(apply(plane, bundle, "--no-wait"))
    names = [name.rpartition("-")[2] for name in ran.applied if name.startswith("Deployment/")]
    assert names == ["encode", "prefill", "decode"]
    stages = [event["stage"] for event in ran.of("stage-done")]
    assert stages == ["preflight", "crds", "namespace", "secret", "router", "model-servers"]


def test_a_spec_file_does_as_well(
    plane: ControlPlane, admin: Api, namespace: str, deployer: str, token: None, bundle: Path, tmp_path: Path
) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text((bundle / "mmdeploy.yaml").read_text())
    succeeded(apply(plane, spec, "--no-wait", user=deployer))
    again = succeeded(apply(plane, bundle, "--no-wait", user=deployer))
    assert set(again.applied.values()) == {"unchanged"}
    succeeded(delete(plane, spec, user=deployer))


def test_what_is_no_longer_wanted_goes(
    plane: ControlPlane, admin: Api, namespace: str, token: None, tmp_path: Path, custom_resources: None
) -> None:
    wide = ["-t", "e-p-d", "--workload", "Deployment", "--set", "namePrefix=mm"]
    bundle = render(plane, tmp_path / "bundle", namespace, *wide, encode_replicas=1, prefill_replicas=1)
    succeeded(apply(plane, bundle, "--no-wait"))
    wide[1] = "e-pd"
    bundle = render(plane, tmp_path / "other", namespace, *wide, encode_replicas=1)
    ran = succeeded(apply(plane, bundle, "--no-wait"))
    assert ran.applied["Deployment/mm-prefill"] == "removed"
    wait("it is gone", lambda: "Deployment/mm-prefill" not in everything(admin, namespace))
    assert "Deployment/mm-decode" in everything(admin, namespace)
    assert all(entry["name"] != "mm-prefill" for entry in kept(admin, namespace)["entries"])


def test_the_inventory_holds_what_is_needed_without_the_render(
    plane: ControlPlane, admin: Api, namespace: str, token: None, bundle: Path
) -> None:
    succeeded(apply(plane, bundle, "--no-wait"))
    item = admin.get(f"/api/v1/namespaces/{namespace}/configmaps/{CONFIGMAP}")
    assert item["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "mmdeploy"}
    assert yaml.safe_load(item["data"]["mmdeploy.yaml"]) == yaml.safe_load((bundle / "mmdeploy.yaml").read_text())
    assert {entry["uid"] for entry in kept(admin, namespace)["entries"]} <= set(everything(admin, namespace).values())


# ------------------------------------------------------------------------------------------------------------ namespace


def test_a_namespace_is_made_and_kept_unless_asked(
    plane: ControlPlane, admin: Api, tmp_path: Path, custom_resources: None
) -> None:
    bundle = render(plane, tmp_path / "bundle", "test-made-by-apply")
    place = "/api/v1/namespaces/test-made-by-apply"
    try:
        ran = succeeded(apply(plane, bundle, "--no-wait", "--hf-token-from", "env:T", environ={"T": TOKEN}))
        assert ran.applied["Namespace/test-made-by-apply"] == "created"
        ran = succeeded(delete(plane, bundle))
        (said,) = [event for event in ran.of("planned") if event["kind"] == "Namespace"]
        assert (said["verb"], said["needs"]) == ("left", "--delete-namespace takes it away, too")
        assert admin.get(place)["status"]["phase"] == "Active"

        succeeded(apply(plane, bundle, "--no-wait", "--hf-token-from", "env:T", environ={"T": TOKEN}))
        ran = succeeded(delete(plane, bundle, "--delete-namespace"))
        assert ran.applied["Namespace/test-made-by-apply"] == "removed"
        assert admin.find(place) is None
    finally:
        admin.delete(place)


def test_a_namespace_of_somebody_else_stays(
    plane: ControlPlane, admin: Api, namespace: str, token: None, bundle: Path
) -> None:
    succeeded(apply(plane, bundle, "--no-wait"))
    ran = succeeded(delete(plane, bundle, "--delete-namespace"))
    (said,) = [event for event in ran.of("planned") if event["kind"] == "Namespace"]
    assert (said["verb"], said["needs"]) == ("left", "mmdeploy did not make it")
    assert admin.get(f"/api/v1/namespaces/{namespace}")["status"]["phase"] == "Active"


def test_who_may_not_make_a_namespace_is_told_what_to_ask_for(
    plane: ControlPlane, admin: Api, tmp_path: Path, custom_resources: None
) -> None:
    bundle = render(plane, tmp_path / "bundle", "test-not-allowed")
    ran = apply(plane, bundle, "--skip", "preflight", "--no-wait", user=users.NOBODY)
    assert ran.code == 5
    assert "kubectl create namespace test-not-allowed" in ran.err or "forbidden" in ran.err
    assert admin.find("/api/v1/namespaces/test-not-allowed") is None


# --------------------------------------------------------------------------------------------------------- only reading


@pytest.mark.parametrize("how", ["client", "server"])
def test_a_dry_run_changes_nothing(
    plane: ControlPlane, admin: Api, namespace: str, deployer: str, token: None, bundle: Path, how: str
) -> None:
    before = everything(admin, namespace)
    ran = succeeded(apply(plane, bundle, "--dry-run", how, user=deployer))
    assert everything(admin, namespace) == before
    said = {f"{event['kind']}" for event in ran.of("planned")}
    assert {"HelmRelease", "Deployment", "ServiceAccount"} <= said
    if how == "server":
        assert ran.applied[f"HelmRelease/{NAME}"] == "would-be-created"


def test_without_a_terminal_and_without_y_nothing_happens(
    plane: ControlPlane, admin: Api, namespace: str, token: None, bundle: Path
) -> None:
    before = everything(admin, namespace)
    ran = mmdeploy(plane, "apply", bundle)
    assert ran.code == 2
    assert "-y" in ran.err
    assert everything(admin, namespace) == before


@pytest.mark.parametrize(("answer", "code"), [("n\n", 1), ("\n", 1), ("y\n", 0), (None, 130)])
def test_on_a_terminal_somebody_is_asked(
    plane: ControlPlane, admin: Api, namespace: str, token: None, bundle: Path, answer: str | None, code: int
) -> None:
    before = everything(admin, namespace)
    master, slave = os.openpty()
    words = [*PROGRAM, "apply", str(bundle), "--no-wait", "--router-chart", str(CHART)]
    with subprocess.Popen(
        words, stdin=slave, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=plane.environment()
    ) as process:
        os.close(slave)
        assert process.stderr
        asked = process.stderr.read(len("Apply this to rig? [y/N]"))
        assert asked == "Apply this to rig? [y/N]"
        if answer is None:
            process.send_signal(signal.SIGINT)
        else:
            os.write(master, answer.encode())
        said, wrong = process.communicate(timeout=60)
    os.close(master)
    assert process.returncode == code, wrong
    assert "Traceback" not in wrong
    assert "Helm release multimodal-serving  create" in said, "what was asked about was shown"
    if code:
        assert everything(admin, namespace) == before


def test_one_document_for_machines(plane: ControlPlane, admin: Api, namespace: str, token: None, bundle: Path) -> None:
    ran = succeeded(apply(plane, bundle, "--no-wait", "-o", "json"))
    document = json.loads(ran.out)
    assert (document["schemaVersion"], document["kind"], document["result"]) == (1, "Applied", "done")
    assert document["events"][-1]["event"] == "finished"


def test_only_and_skip_choose_stages(
    plane: ControlPlane, admin: Api, namespace: str, deployer: str, token: None, bundle: Path
) -> None:
    succeeded(apply(plane, bundle, "--only", "router", user=deployer))
    there = everything(admin, namespace)
    assert f"InferencePool/{NAME}" in there
    assert not any(name.startswith("Deployment/mm-") for name in there)
    succeeded(apply(plane, bundle, "--skip", "router", "--no-wait", user=deployer))
    assert set(kept(admin, namespace)["stages"]) == {"crds", "namespace", "secret", "router", "model-servers"}
    wait("the model server's pod", lambda: len([n for n in everything(admin, namespace) if n.startswith("Pod/")]) == 2)
    succeeded(delete(plane, bundle, user=deployer))


def test_deleting_what_is_not_there_is_no_error(plane: ControlPlane, namespace: str, bundle: Path) -> None:
    ran = succeeded(delete(plane, bundle))
    assert f"nothing to delete: there is no deployment {NAME} in namespace {namespace}" in ran.err
    assert [event["event"] for event in ran.events] == ["finished"]
    assert mmdeploy(plane, "delete", "-n", namespace, "-y").code == 0
    succeeded(apply(plane, bundle, "--no-wait", "--hf-token-from", "env:T", environ={"T": "hf_0123456789secret"}))
    unnamed = mmdeploy(plane, "delete", "-n", namespace, "-y")
    assert (unnamed.code, f"--name {NAME}" in unnamed.err) == (2, True)
    succeeded(delete(plane, bundle))


def test_a_plan_tells_that_the_token_is_another(plane: ControlPlane, namespace: str, bundle: Path) -> None:
    words = ("--no-wait", "--hf-token-from", "env:T")
    succeeded(apply(plane, bundle, *words, environ={"T": "hf_0123456789secret"}))
    ran = succeeded(apply(plane, bundle, *words, environ={"T": "hf_9876543210secret"}))
    verbs = {event["kind"]: event["verb"] for event in ran.of("planned")}
    assert verbs["Secret"] == "update"
    again = succeeded(apply(plane, bundle, *words, environ={"T": "hf_9876543210secret"}))
    assert {event["verb"] for event in again.of("planned")} == {"unchanged"}
    assert "9876543210" not in ran.out + ran.err
    succeeded(delete(plane, bundle))
