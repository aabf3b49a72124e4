"""``mmdeploy status`` on a real control plane: by bundle, inventory and labels; while starting and when ready."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rig import engines, users
from tests.rig.api import wait
from tests.rig.bundles import AGGREGATION, CHART, E_PD, ROOT, bundle, put
from tests.rig.controlplane import ControlPlane
from tests.rig.deploying import hold_token, mmdeploy
from tests.rig.sets import Sets
from tests.rig.workloads import pods, ready_pods

MODEL = "Qwen/Qwen3-VL-32B-Instruct"


@pytest.fixture
def model(pod_network: None) -> Iterator[None]:
    """Every pod lists the model that the shipped bundles serve."""
    with engines.serving(MODEL):
        yield


def status(
    plane: ControlPlane, *words: str | Path, user: str = users.ADMIN, code: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run the command as a person does."""
    done = subprocess.run(
        [sys.executable, "-m", "mmdeploy", "status", *map(str, words)],
        capture_output=True, text=True, cwd=ROOT, env=plane.environment(user), timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr + done.stdout
    return done


def document(plane: ControlPlane, *words: str | Path, user: str = users.ADMIN) -> dict[str, Any]:
    return json.loads(status(plane, *words, "-o", "json", user=user).stdout)


def test_a_bundle_that_serves(
    plane: ControlPlane, namespace: str, deployer: str, custom_resources: None, model: None, tmp_path: Path
) -> None:
    made = bundle(AGGREGATION, namespace, tmp_path)
    put(plane, made, namespace, deployer)
    wait("9 pods are ready", lambda: ready_pods(plane.api(), namespace, 9))
    (note,) = document(plane, made, user=deployer)["notes"]
    assert note.startswith("Secret/llm-d-hf-token is missing")
    hold_token(plane.api(), namespace)
    found = document(plane, made, user=deployer)
    assert (found["schemaVersion"], found["kind"], found["ready"], found["notes"]) == (1, "Status", True, [])
    (decode,) = found["roles"]
    assert (decode["role"], decode["ready"], decode["desired"], decode["starting"]) == ("decode", 8, 8, [])
    assert decode["images"] == ["docker.io/vllm/vllm-openai:v0.27.1"]  # of release main, llm-d-guides.md §2.2
    assert (found["router"]["ready"], found["router"]["workload"]) == (1, "multimodal-serving-epp")
    assert "endpoint-picker" in found["router"]["picker"]
    assert found["pool"]["ready"] == {"decode": 8}
    assert found["model"] == {"name": MODEL, "served": True, "detail": "listed by service multimodal-serving-epp"}
    assert (found["lastApply"], found["drift"]) == (None, None)  # kubectl applied it


def test_a_set_that_nobody_s_inventory_knows_is_found_by_its_labels(
    plane: ControlPlane, namespace: str, deployer: str, sets: Sets, model: None, tmp_path: Path
) -> None:
    made = bundle(E_PD, namespace, tmp_path)
    put(plane, made, namespace, deployer)
    wait("11 pods are ready", lambda: ready_pods(plane.api(), namespace, 11))
    # The set's own status comes after its pods'.
    wait("it is told to be ready", lambda: document(plane, "-n", namespace, user=deployer)["ready"])
    found = document(plane, "-n", namespace, user=deployer)
    assert (found["name"], found["foundBy"], found["ready"]) == ("e-disaggregation", "labels", True)
    assert [(role["role"], role["ready"], role["desired"]) for role in found["roles"]] == [
        ("encode", 2, 2),
        ("decode", 8, 8),
    ]
    assert found["router"]["ready"] == 1
    assert found["model"]["name"] == MODEL


def test_what_mmdeploy_applied_is_known_with_its_drift(
    plane: ControlPlane, namespace: str, custom_resources: None, model: None, tmp_path: Path
) -> None:
    made = bundle(AGGREGATION, namespace, tmp_path)
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "llm-d-hf-token", "namespace": namespace}}
    plane.api().apply({**secret, "stringData": {"HF_TOKEN": "hf_test"}})
    plane.run(sys.executable, "-m", "mmdeploy", "apply", made, "-y", "--router-chart", CHART)
    found = document(plane, "-n", namespace)
    assert (found["name"], found["foundBy"], found["ready"]) == ("multimodal-serving", "inventory", True)
    assert found["release"] == {"name": "main", "by": "the spec it was applied with"}
    assert "model-servers" in found["lastApply"]["stages"]
    assert found["drift"] == []
    (name,) = [role["workload"] for role in found["roles"]]
    plane.kubectl("scale", "deployment", name, "--replicas=7", "-n", namespace)
    (drift,) = document(plane, "-n", namespace)["drift"]
    assert (drift["kind"], drift["name"], drift["gone"]) == ("Deployment", name, False)
    assert [(change["path"], change["applied"], change["live"]) for change in drift["changes"]] == [
        ("spec.replicas", 8, 7)
    ]  # fmt: skip


def test_edits_of_the_router_are_drift_too(
    plane: ControlPlane, namespace: str, deployer: str, custom_resources: None, tmp_path: Path
) -> None:
    made = bundle(AGGREGATION, namespace, tmp_path)
    hold_token(plane.api(), namespace)
    words = ["apply", str(made), "-y", "--no-wait", "--skip", "preflight", "--router-chart", str(CHART)]
    plane.run(sys.executable, "-m", "mmdeploy", *words, user=deployer)
    assert document(plane, "-n", namespace, user=deployer)["drift"] == []
    plane.kubectl("scale", "deployment", "multimodal-serving-epp", "--replicas=2", "-n", namespace)
    plane.kubectl("delete", "inferencepool", "multimodal-serving", "-n", namespace)
    drift = document(plane, "-n", namespace, user=deployer)["drift"]
    assert {(each["kind"], each["name"], each["gone"]) for each in drift} == {
        ("Deployment", "multimodal-serving-epp", False),
        ("InferencePool", "multimodal-serving", True),
    }
    (change,) = next(each["changes"] for each in drift if not each["gone"])
    assert (change["path"], change["applied"], change["live"]) == ("spec.replicas", 1, 2)
    # Whoever may not read helm's releases is told so, and not that nothing was changed.
    notes = document(plane, "-n", namespace, user=users.VIEWER)["notes"]
    assert any("drift of the router's objects is not known" in note for note in notes), notes


def test_an_apply_that_was_stopped_is_told_from_one_that_never_was(
    plane: ControlPlane, namespace: str, custom_resources: None, tmp_path: Path
) -> None:
    """Killed before any model server: what is wanted is in the inventory's spec, 2 encode and 8 decode pods."""
    made = bundle(E_PD, namespace, tmp_path)
    hold_token(plane.api(), namespace)
    command = [sys.executable, "-m", "mmdeploy", "apply", str(made), "-y", "--router-chart", str(CHART), "-o", "jsonl"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=plane.environment()) as running:
        assert running.stdout
        next(line for line in running.stdout if '"stage-started"' in line and '"router"' in line)
        running.send_signal(signal.SIGSTOP)
        (note, *_) = document(plane, "-n", namespace)["notes"]
        lease = document(plane, "-n", namespace)["lease"]
        viewed = document(plane, "-n", namespace, user=users.VIEWER)["notes"]
        running.kill()
    # Its lease lasts for half a minute; that the process is gone is seen on its own machine.
    assert re.fullmatch(rf"\S+@\S+:{running.pid} is changing it since .* UTC unless it is renewed", note)
    assert lease["holder"].endswith(f":{running.pid}")
    assert lease["since"] < lease["until"]
    assert any("or is under way (the lease may not be read)" in each for each in viewed), viewed
    text = status(plane, "-n", namespace).stdout
    assert document(plane, "-n", namespace)["lease"] is None
    assert "not known: the last apply did not finish" in text
    assert "note        the last apply did not finish (stages done: " in text
    assert "  encode  0/2" in text
    assert "  decode  0/8" in text


def test_what_starts_is_said_with_its_phase_and_since_when(plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    made = bundle(AGGREGATION, namespace, tmp_path, ready_after="60s")
    put(plane, made, namespace, router=False)
    wait("all are placed", lambda: len([pod for pod in pods(plane.api(), namespace) if _running(pod)]) == 8)
    (decode,) = document(plane, made)["roles"]
    assert decode["ready"] == 0
    assert {(each["kind"], each["phase"], each["fails"]) for each in decode["starting"]} == {("Pod", "loading", False)}
    assert all(0 <= each["seconds"] < 60 for each in decode["starting"])
    text = status(plane, made).stdout
    assert "not ready" in text.splitlines()[0]
    assert "8 pods loading for " in text
    assert "\x1b" not in text


def _running(pod: dict[str, Any]) -> bool:
    return pod["status"].get("phase") == "Running"


def test_what_fails_is_said_and_is_no_error_of_the_command(plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    made = bundle(AGGREGATION, namespace, tmp_path, behaviour="image-missing")
    put(plane, made, namespace, router=False)
    wait("back-off", lambda: "ImagePullBackOff" in plane.kubectl("get", "pods", "-n", namespace))
    text = status(plane, made).stdout
    assert "there is no such image: docker.io/vllm/vllm-openai:v0.27.1" in text
    assert "next: correct the image's name or tag" in text


def test_an_absent_deployment_ends_with_1_and_says_what_to_do(
    plane: ControlPlane, namespace: str, custom_resources: None, tmp_path: Path
) -> None:
    made = bundle(AGGREGATION, namespace, tmp_path)
    done = status(plane, made, code=1)
    assert f"namespace {namespace}: multimodal-serving is not on the cluster" in done.stderr
    assert "mmdeploy apply" in done.stderr
    done = status(plane, "-n", namespace, code=1)
    assert "there is no deployment of model servers" in done.stderr


def test_without_rights_it_is_one_sentence_and_5(plane: ControlPlane, namespace: str) -> None:
    done = status(plane, "-n", namespace, user=users.NOBODY, code=5)
    assert "forbidden" in done.stderr
    assert "Traceback" not in done.stderr


def test_watch_piped_is_a_line_a_change_and_ends_with_130(plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    made = bundle(AGGREGATION, namespace, tmp_path, ready_after="5s")
    put(plane, made, namespace, router=False)
    command = [sys.executable, "-m", "mmdeploy", "status", str(made), "--watch"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=plane.environment()
    ) as running:
        assert running.stdout
        lines = []
        end = time.monotonic() + 40
        for line in running.stdout:
            lines.append(line)
            if "decode 8/8" in line or time.monotonic() > end:
                break
        running.send_signal(signal.SIGINT)
        rest, complaints = running.communicate(timeout=20)
    assert lines[-1].startswith("multimodal-serving: ready; decode 8/8")
    assert (running.returncode, rest, complaints) == (130, "", "")


def test_what_is_listed_and_not_there_is_told_apart_from_nothing(
    plane: ControlPlane, namespace: str, custom_resources: None, tmp_path: Path
) -> None:
    """As after a delete that timed out, or an apply that was killed before the router."""
    made = bundle(E_PD, namespace, tmp_path)
    status(plane, made, code=1)
    ran = mmdeploy(plane, "apply", made, "-y", "--only", "secret", "--hf-token-from", "env:T", environ={"T": "hf_x"})
    assert ran.code == 0, ran.err
    found = document(plane, made)
    assert (found["ready"], found["router"]) == (False, None)
    assert [(role["role"], role["ready"], role["desired"]) for role in found["roles"]] == [
        ("encode", 0, 2), ("decode", 0, 8),
    ]  # fmt: skip
