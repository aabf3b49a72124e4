"""Whatever ends apply, at whatever stage: what is there is listed, apply goes on, delete takes it away."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rig.api import Api, wait
from tests.rig.controlplane import ControlPlane
from tests.rig.deploying import NAME, Running, apply, apply_words, delete, everything, mmdeploy, render, succeeded

STAGES = ("crds", "namespace", "secret", "router", "model-servers", "wait")
CASES = [(how, stage) for how in (signal.SIGINT, signal.SIGKILL) for stage in STAGES]
CASES += [(signal.SIGTERM, "wait"), (signal.SIGHUP, "router")]
TOKEN = {"T": "hf_0123456789secret"}


@pytest.fixture
def bundle(plane: ControlPlane, namespace: str, tmp_path: Path, custom_resources: None) -> Path:
    return render(plane, tmp_path / "bundle", namespace, namePrefix="mm")


@pytest.fixture
def running(plane: ControlPlane, deployer: str, bundle: Path) -> Iterator[Running]:
    with started_apply(plane, bundle, deployer) as started:
        yield started


def started_apply(plane: ControlPlane, bundle: Path, user: str) -> Running:
    return Running(plane, *apply_words(bundle, "--hf-token-from", "env:T"), user=user, environ=TOKEN)


def started_delete(plane: ControlPlane, bundle: Path, user: str) -> Running:
    return Running(plane, "delete", str(bundle), "-y", "-o", "jsonl", user=user)


def lease(admin: Api, namespace: str) -> Any:
    return admin.find(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/mmdeploy-{NAME}")


@pytest.fixture
def undisturbed(plane: ControlPlane, deployer: str, bundle: Path) -> set[str]:
    """Names of the objects of an apply that nobody disturbs."""
    listed = mmdeploy(plane, "apply", bundle, "--dry-run", "client", "-o", "jsonl")
    names = {f"{event['kind']}/{event['name']}" for event in listed.of("planned") if event["stage"] == "model-servers"}
    chart = plane.helm("template", NAME, "tests/rig/chart", "-f", bundle / "router" / "values.yaml")
    kind = ""
    for line in chart.splitlines():
        kind = line.removeprefix("kind: ") if line.startswith("kind: ") else kind
        if kind and line.startswith("  name: "):
            names.add(f"{kind}/{line.removeprefix('  name: ')}")
            kind = ""
    return names | {"Secret/llm-d-hf-token", f"ConfigMap/mmdeploy-{NAME}"}


def ours(admin: Api, namespace: str) -> set[str]:
    """What is there, without what controllers and helm make of it."""
    made = ("Pod/", "ReplicaSet/", "Secret/sh.helm.release")
    return {name for name in everything(admin, namespace) if not name.startswith(made)}


@pytest.mark.parametrize(("how", "stage"), CASES)
def test_stopped_at_a_stage_and_gone_on(
    plane: ControlPlane, admin: Api, namespace: str, deployer: str, bundle: Path, running: Running,
    undisturbed: set[str], stage: str, how: signal.Signals,
) -> None:  # fmt: skip
    running.until("stage-started", stage)
    running.process.send_signal(how)
    code, said = running.end()
    if how is signal.SIGKILL:
        assert code == -signal.SIGKILL
    else:
        assert code == 130
        assert "Traceback" not in said
        last = running.events[-1]
        assert last["event"] == "interrupted"
        assert "mmdeploy apply" in last["resume"]
        assert "mmdeploy delete" in last["remove"]
        assert lease(admin, namespace) is None, "the lease is given back"
    assert TOKEN["T"] not in said + json.dumps(running.events)
    assert ours(admin, namespace) <= undisturbed | {f"Lease/mmdeploy-{NAME}"}

    ran = succeeded(apply(plane, bundle, "--no-wait", "--hf-token-from", "env:T", user=deployer, environ=TOKEN))
    assert ours(admin, namespace) == undisturbed
    assert not [event for event in ran.of("applied") if event["verb"] in ("adopted", "recreated")]
    again = succeeded(apply(plane, bundle, "--no-wait", user=deployer))
    assert set(again.applied.values()) == {"unchanged"}


@pytest.mark.parametrize("stage", STAGES[2:])
def test_killed_at_a_stage_and_taken_away(
    plane: ControlPlane, admin: Api, namespace: str, deployer: str, bundle: Path, running: Running, stage: str
) -> None:
    running.until("stage-started", stage)
    running.process.kill()
    running.end()
    succeeded(delete(plane, bundle, user=deployer))
    assert everything(admin, namespace) == {}


def test_ctrl_c_while_helm_works_lets_it_finish(
    plane: ControlPlane, admin: Api, namespace: str, bundle: Path, running: Running
) -> None:
    running.until("stage-started", "router")
    time.sleep(0.15)  # so that helm has begun
    running.process.send_signal(signal.SIGINT)
    code, said = running.end()
    assert code == 130
    assert "stopping after what is under way" in said
    assert running.events[-1]["stage"] in ("router", "model-servers")
    listed = json.loads(plane.helm("list", "-n", namespace, "-o", "json"))
    assert {item["status"] for item in listed} <= {"deployed"}, "helm was not stopped halfway"


def test_what_still_starts_is_said(
    plane: ControlPlane, admin: Api, namespace: str, deployer: str, bundle: Path
) -> None:
    _slow(bundle)
    with started_apply(plane, bundle, deployer) as started:
        started.until("stage-started", "wait")
        started.until("waiting")
        started.process.send_signal(signal.SIGINT)
        code, _ = started.end()
    assert code == 130
    last = started.events[-1]
    assert last["done"] == ["crds", "namespace", "secret", "router", "model-servers"]
    assert last["starting"]


def _slow(bundle: Path) -> None:
    """The model server loads for longer than the test takes (rig/ready-after, see tests/rig/stages.yaml)."""
    import yaml

    file = bundle / "modelserver" / "decode-deployment.yaml"
    item = yaml.safe_load(file.read_text())
    item["spec"]["template"]["metadata"].setdefault("annotations", {})["rig/ready-after"] = "600s"
    file.write_text(yaml.safe_dump(item))


def test_a_second_ctrl_c_ends_at_once(
    plane: ControlPlane, admin: Api, namespace: str, deployer: str, bundle: Path, tmp_path: Path
) -> None:
    """helm hangs here: a program of its name that sleeps."""
    path = plane.environment(deployer)["PATH"]
    fake = tmp_path / "bin" / "helm"
    fake.parent.mkdir()
    real = Path(path.split(":")[0]) / "helm"
    fake.write_text(f'#!/bin/sh\n[ "$1" = upgrade ] && exec sleep 60\nexec {real} "$@"\n')
    fake.chmod(0o755)
    words = apply_words(bundle, "--hf-token-from", "env:T")
    with Running(plane, *words, user=deployer, environ={**TOKEN, "PATH": f"{fake.parent}:{path}"}) as started:
        started.until("stage-started", "router")
        time.sleep(0.5)
        started.process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        assert started.process.poll() is None, "helm is under way"
        begun = time.monotonic()
        started.process.send_signal(signal.SIGINT)
        code, said = started.end()
    assert time.monotonic() - begun < 5
    assert code == 130
    assert "Traceback" not in said
    assert lease(admin, namespace) is None
    succeeded(apply(plane, bundle, "--no-wait", "--hf-token-from", "env:T", user=deployer, environ=TOKEN))


def test_delete_that_was_killed_is_finished(
    plane: ControlPlane, admin: Api, namespace: str, deployer: str, bundle: Path
) -> None:
    succeeded(apply(plane, bundle, "--no-wait", "--hf-token-from", "env:T", user=deployer, environ=TOKEN))
    for stage in ("model-servers", "router", "wait"):
        with started_delete(plane, bundle, deployer) as started:
            started.until("stage-started", stage)
            started.process.kill()
        assert f"ConfigMap/mmdeploy-{NAME}" in everything(admin, namespace), "the inventory goes last"
    succeeded(delete(plane, bundle, user=deployer))
    assert everything(admin, namespace) == {}


def test_a_delete_that_is_interrupted_says_how_to_go_on(
    plane: ControlPlane, admin: Api, namespace: str, deployer: str, bundle: Path
) -> None:
    succeeded(apply(plane, bundle, "--no-wait", "--hf-token-from", "env:T", user=deployer, environ=TOKEN))
    with started_delete(plane, bundle, deployer) as started:
        started.until("stage-started", "router")
        started.process.send_signal(signal.SIGINT)
        code, _ = started.end()
    assert code == 130
    again = started.events[-1]["resume"].split()
    assert again[:2] == ["mmdeploy", "delete"]
    succeeded(mmdeploy(plane, *again[1:], "-y", user=deployer))
    assert everything(admin, namespace) == {}


def test_apply_after_a_delete_that_was_killed(
    plane: ControlPlane, admin: Api, namespace: str, deployer: str, bundle: Path, undisturbed: set[str]
) -> None:
    succeeded(apply(plane, bundle, "--no-wait", "--hf-token-from", "env:T", user=deployer, environ=TOKEN))
    with started_delete(plane, bundle, deployer) as started:
        started.until("stage-started", "router")
        started.process.kill()
    succeeded(apply(plane, bundle, "--no-wait", "--hf-token-from", "env:T", user=deployer, environ=TOKEN))
    wait("everything is there", lambda: ours(admin, namespace) == undisturbed)
