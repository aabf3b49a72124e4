"""Whose a lease is: renewed in time by somebody who may live, or free to take."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest

from mmdeploy.apply import lease as module
from mmdeploy.apply.lease import held, person
from mmdeploy.cluster.processes import process

NOW = datetime(2026, 1, 2, 3, 4, 30, tzinfo=UTC)


def lease(renewed: str, **said: Any) -> dict[str, Any]:
    spec = {"holderIdentity": "ada@far-away:17", "leaseDurationSeconds": 30, "renewTime": renewed}
    labels = said.pop("labels", {"app.kubernetes.io/managed-by": "mmdeploy"})
    metadata = {"namespace": "serving", "labels": labels, "annotations": said.pop("annotations", None)}
    return {"metadata": metadata, "spec": {**spec, **said}}


def test_one_that_was_renewed_in_time_names_its_holder_and_its_end() -> None:
    problem = held(lease("2026-01-02T03:04:10.000000Z"), NOW, "mm")
    assert problem is not None
    assert problem.found == (
        "ada@far-away:17 is changing mm; its lease ends at 03:04:40 UTC, in 10 s, unless it is renewed"
    )
    assert problem.exit_code == 5


@pytest.mark.parametrize(
    ("standing", "found"),
    [
        # A clock that is a year ahead, or a hand that wrote so.
        (
            lease("2027-01-02T03:04:10.000000Z"),
            "ada@far-away:17 holds the lease of mm until 2027-01-02 03:04:40 UTC (mmdeploy's last 30 s: whose clock "
            "was wrong?)",
        ),
        (
            lease("2026-01-02T03:04:10.000000Z", leaseDurationSeconds=86400),
            "ada@far-away:17 holds the lease of mm until 2026-01-03 03:04:10 UTC (mmdeploy's last 30 s: whose clock "
            "was wrong?)",
        ),
        (
            lease("2026-01-02T03:04:10.000000Z", labels=None, holderIdentity="argocd"),
            "argocd holds the lease of mm until 2026-01-02 03:04:40 UTC (nobody of mmdeploy wrote it)",
        ),
    ],
    ids=["far ahead", "long", "of a stranger"],
)
def test_one_that_will_not_end_soon_says_how_to_clear_it(standing: dict[str, Any], found: str) -> None:
    problem = held(standing, NOW, "mm")
    assert problem is not None
    assert problem.found == found
    assert problem.next_step is not None
    assert problem.next_step.endswith("kubectl delete lease mmdeploy-mm --namespace serving")


def test_a_clock_that_is_a_second_ahead_is_nothing_to_tell_of() -> None:
    problem = held(lease("2026-01-02T03:04:31.000000Z"), NOW, "mm")
    assert problem is not None
    assert "is changing mm" in problem.found


@pytest.mark.parametrize(
    "standing",
    [
        lease("2026-01-02T03:04:00.000000Z"),
        lease("2026-01-02T03:04:10.000000Z", leaseDurationSeconds=20),
        lease("2026-01-02T03:04:10.000000Z", holderIdentity=""),
        lease(""),
        {"metadata": {}},
    ],
    ids=["ended", "ended to the second", "nobody's", "never renewed", "empty"],
)
def test_what_is_free(standing: dict[str, Any]) -> None:
    assert held(standing, NOW, "mm") is None


def test_a_process_of_this_machine_that_is_gone_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    if not process(os.getpid()):
        pytest.skip("this system does not tell processes apart")
    monkeypatch.setattr(module.os, "geteuid", lambda: 1000)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        said: dict[str, Any] = {"annotations": {"mmdeploy/process": process(child.pid)}}
        mine = {**said, "holderIdentity": f"{person()}:{child.pid}"}
        assert held(lease("2026-01-02T03:04:10.000000Z", **mine), NOW, "mm") is not None, "it lives"
        child.kill()
        child.wait()
        assert held(lease("2026-01-02T03:04:10.000000Z", **mine), NOW, "mm") is None
        theirs = held(lease("2026-01-02T03:04:10.000000Z", **said), NOW, "mm")
        assert theirs is not None, "what another person's process left at work is not seen here"
    elsewhere = {"mmdeploy/process": "another-boot " + process(os.getpid()).partition(" ")[2]}
    mine["annotations"] = elsewhere
    assert held(lease("2026-01-02T03:04:10.000000Z", **mine), NOW, "mm") is not None
