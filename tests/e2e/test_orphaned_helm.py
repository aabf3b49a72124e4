"""A helm goes on when its mmdeploy is killed: nobody concludes anything before it has ended. And helms that hang."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from mmdeploy.apply.events import StageDone
from mmdeploy.apply.interrupts import Stop
from mmdeploy.apply.removal import Choices, Removal, found
from mmdeploy.apply.stages import Deadlines
from mmdeploy.cluster.access import Access
from mmdeploy.cluster.session import Session
from mmdeploy.errors import ConflictError
from tests.rig import rendering, users
from tests.rig.api import Api, wait
from tests.rig.controlplane import ControlPlane
from tests.rig.deploying import (
    NAME,
    PROGRAM,
    Running,
    apply,
    apply_words,
    delete,
    everything,
    hold_token,
    mmdeploy,
    render,
    succeeded,
)

TOKEN = {"Secret/llm-d-hf-token"}


@pytest.fixture
def bundle(plane: ControlPlane, admin: Api, namespace: str, tmp_path: Path, custom_resources: None) -> Path:
    hold_token(admin, namespace)
    return render(plane, tmp_path / "bundle", namespace, namePrefix="mm")


def instead(plane: ControlPlane, place: Path, verb: str, line: str) -> Mapping[str, str]:
    """Variables with which helm is a script that runs ``line`` first for one verb, then the real one."""
    path = plane.environment()["PATH"]
    place.mkdir()
    file = place / "helm"
    file.write_text(f'#!/bin/sh\n[ "$1" = {verb} ] && {{ {line}; }}\nexec {path.split(":")[0]}/helm "$@"\n')
    file.chmod(0o755)
    return {"PATH": f"{place}:{path}"}


@pytest.fixture
def late(plane: ControlPlane, tmp_path: Path) -> Mapping[str, str]:
    """A helm that does nothing for a while, as one that fetches its chart; what it says goes nowhere, or it would end
    at the first word that nobody reads any more."""
    real = f"{plane.environment()['PATH'].split(':')[0]}/helm"
    line = f'echo begun > {tmp_path}/begun; sleep 4; exec {real} "$@" > /dev/null 2>&1'
    return instead(plane, tmp_path / "late", "upgrade", line)


def killed(plane: ControlPlane, bundle: Path, environ: Mapping[str, str], begun: Path) -> None:
    """An apply that is killed once its helm is at work."""
    with Running(plane, *apply_words(bundle, "--no-wait"), environ=environ) as running:
        running.until("stage-started", "router")
        wait("helm is at work", begun.exists)
        running.process.kill()


def test_delete_waits_for_a_helm_whose_mmdeploy_was_killed(
    plane: ControlPlane, admin: Api, namespace: str, bundle: Path, tmp_path: Path, late: Mapping[str, str]
) -> None:
    killed(plane, bundle, late, tmp_path / "begun")
    ran = succeeded(delete(plane, bundle))
    assert any("left behind" in event["text"] for event in ran.of("warning"))
    assert set(everything(admin, namespace)) == TOKEN
    time.sleep(5)  # longer than the helm would still take
    assert set(everything(admin, namespace)) == TOKEN, "nothing came afterwards"


def test_apply_waits_for_it_too(
    plane: ControlPlane, admin: Api, namespace: str, bundle: Path, tmp_path: Path, late: Mapping[str, str]
) -> None:
    killed(plane, bundle, late, tmp_path / "begun")
    ran = succeeded(apply(plane, bundle, "--no-wait"))
    assert any("left behind" in event["text"] for event in ran.of("warning"))
    assert ran.applied[f"HelmRelease/{NAME}"] == "unchanged", "what the other has done is seen"
    again = succeeded(apply(plane, bundle, "--no-wait"))
    assert set(again.applied.values()) == {"unchanged"}


def test_a_terminal_that_is_closed_stops_at_the_next_safe_place(
    plane: ControlPlane, admin: Api, namespace: str, bundle: Path, tmp_path: Path, late: Mapping[str, str]
) -> None:
    words = [word for word in apply_words(bundle, "--no-wait") if word not in ("-o", "jsonl")]
    environ = {**plane.environment(), **late, "TERM": "xterm"}
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(PROGRAM[0], [*PROGRAM, *words], environ)
    begun = tmp_path / "begun"
    deadline = time.monotonic() + 60
    while not begun.exists() and time.monotonic() < deadline:
        os.read(terminal, 10000)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    assert admin.find(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/mmdeploy-{NAME}") is None
    there = everything(admin, namespace)
    assert f"Deployment/{NAME}-epp" in there, "helm finished"
    assert "Deployment/mm-decode" not in there, "and nothing was begun after it"
    succeeded(delete(plane, bundle))
    assert set(everything(admin, namespace)) == TOKEN


# ------------------------------------------------------------------------------------------------- helms that hang, lie


@pytest.mark.parametrize("verb", ["version", "template"])
def test_one_ctrl_c_ends_a_helm_that_hangs_before_anything_changes(
    plane: ControlPlane, admin: Api, namespace: str, bundle: Path, tmp_path: Path, verb: str
) -> None:
    environ = instead(plane, tmp_path / "hang", verb, f"echo $$ > {tmp_path}/pid; sleep 300")
    with Running(plane, *apply_words(bundle), environ=environ) as running:
        running.until("stage-started", "preflight")
        wait("helm is at work", (tmp_path / "pid").exists)
        time.sleep(1)  # until nothing else is waited for
        begun = time.monotonic()
        running.process.send_signal(signal.SIGINT)
        code, said = running.end()
    assert code == 130, said
    assert time.monotonic() - begun < 10
    assert "Traceback" not in said
    assert running.events[-1]["event"] == "interrupted"
    assert set(everything(admin, namespace)) == TOKEN
    left = subprocess.run(["ps", "-o", "stat=", "-p", (tmp_path / "pid").read_text()], capture_output=True, text=True,
                          check=False).stdout  # fmt: skip
    assert left.strip() in ("", "Z")


def test_the_total_timeout_bounds_a_helm_that_hangs(
    plane: ControlPlane, namespace: str, bundle: Path, tmp_path: Path
) -> None:
    environ = instead(plane, tmp_path / "hang", "template", "sleep 300")
    begun = time.monotonic()
    ran = apply(plane, bundle, "--timeout", "3s", environ=environ)
    assert ran.code == 124, ran.err
    assert "--timeout 3s" in ran.err
    assert time.monotonic() - begun < 20


# --------------------------------------------------------------------------------------------------- delete, and rights


def test_delete_without_a_right_is_forbidden_whichever_kind_lacks(
    plane: ControlPlane, admin: Api, namespace: str, deployer: str, bundle: Path
) -> None:
    """Of helm's objects too, of which helm says no more than that it failed."""
    succeeded(apply(plane, bundle, "--no-wait", user=deployer))
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles"
    [role] = [item for item in admin.items(roles) if item["metadata"]["name"].startswith("rig-")]
    for rule in role["rules"]:
        if "services" in rule["resources"]:
            kept = [name for name in rule["resources"] if name != "services"]
            lesser = {**rule, "resources": ["services"], "verbs": [v for v in rule["verbs"] if v != "delete"]}
            rules = [each for each in role["rules"] if each is not rule]
            admin.merge(f"{roles}/{role['metadata']['name']}", {"rules": [*rules, {**rule, "resources": kept}, lesser]})
    ran = delete(plane, bundle, user=deployer)
    assert ran.code == 5, ran.err
    assert 'cannot delete resource "services"' in " ".join(ran.err.split())
    assert "--print-rbac" in ran.err
    users.grant(admin, namespace)
    succeeded(delete(plane, bundle, user=deployer))
    assert set(everything(admin, namespace)) == TOKEN


def test_delete_that_another_holds_back_stands_at_no_stage(
    plane: ControlPlane, admin: Api, namespace: str, bundle: Path
) -> None:
    succeeded(apply(plane, bundle, "--no-wait"))
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
    admin.apply({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": f"mmdeploy-{NAME}", "namespace": namespace,
                     "labels": {"app.kubernetes.io/managed-by": "mmdeploy"}},
        "spec": {"holderIdentity": "ada@far-away:17", "leaseDurationSeconds": 30, "renewTime": stamp},
    })  # fmt: skip
    ran = mmdeploy(plane, "delete", bundle, "-y", "-o", "jsonl")
    assert ran.code == 5
    assert ran.events[-1]["event"] == "failed"
    assert ran.events[-1]["stage"] == ""


def test_delete_takes_away_what_it_listed_and_not_what_came_since(
    plane: ControlPlane, admin: Api, namespace: str, bundle: Path
) -> None:
    succeeded(apply(plane, bundle, "--no-wait"))
    session = Session.connect(Access(plane.kubeconfig()))
    inventories = found(session, namespace, NAME)
    work = Removal(session, rendering.catalog(), inventories, NAME, Choices(), Stop(), Deadlines())
    list(work.look())
    succeeded(apply(plane, render(plane, bundle, namespace, namePrefix="mn"), "--no-wait"))
    with pytest.raises(ConflictError, match="somebody changed multimodal-serving since this was listed"):
        list(work.act())
    assert "Deployment/mn-decode" in everything(admin, namespace)
    succeeded(delete(plane, bundle))
    assert set(everything(admin, namespace)) == TOKEN


def test_a_helm_elsewhere_that_comes_late_is_not_missed(
    plane: ControlPlane, admin: Api, namespace: str, bundle: Path
) -> None:
    """One on another machine, whose mmdeploy was killed there: nothing of it is seen before it installs."""
    succeeded(apply(plane, bundle, "--no-wait"))
    with Running(plane, "delete", str(bundle), "-y", "-o", "jsonl") as running:
        running.until("stage-started", "model-servers")
        running.process.kill()
    session = Session.connect(Access(plane.kubeconfig()))
    inventories = found(session, namespace, NAME)
    assert "router" not in inventories[NAME].stages
    work = Removal(session, rendering.catalog(), inventories, NAME, Choices(), Stop(), Deadlines())
    list(work.look())
    late = 0
    for event in work.act():
        if isinstance(event, StageDone) and event.stage == "wait" and not late:
            late += 1
            values = bundle / "router" / "values.yaml"
            plane.helm("install", NAME, "tests/rig/chart", "-n", namespace, "-f", values)
    assert late
    assert set(everything(admin, namespace)) == TOKEN
