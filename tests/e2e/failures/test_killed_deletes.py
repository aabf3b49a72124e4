"""Whatever was killed, an apply or a delete, a delete leaves the namespace as it was."""

from __future__ import annotations

import signal
import time
from dataclasses import replace

import pytest

from tests.e2e.failures.afterwards import INVENTORY, apply, assert_in_order
from tests.e2e.failures.conftest import Place, Undisturbed
from tests.e2e.failures.moments import RUNS, SEED, Moment, moments
from tests.e2e.failures.stopping import stopped
from tests.rig.contents import Contents
from tests.rig.controlplane import ControlPlane
from tests.rig.deploying import NAME, Ran, Running, delete

EMPTY = {"ConfigMap/kube-root-ca.crt", "ServiceAccount/default"}
"""Of every namespace."""
AFTER_APPLY = [replace(moment, how=signal.SIGKILL) for moment in moments(max(1, RUNS // 5), seed=SEED + 1)]
AFTER_DELETE = moments(max(1, RUNS // 10), seed=SEED + 2)


def assert_gone(plane: ControlPlane, contents: Contents, place: Place) -> Ran:
    """Delete takes away what is there; where nothing is listed it says so, and nothing is there."""
    listed = INVENTORY in contents.of(place.namespace)
    ran = delete(plane, place.bundle)
    if listed:
        assert ran.code == 0, ran.err
    else:
        assert ran.code == 0, ran.err
        assert f"there is no deployment {NAME}" in ran.err
    left = set(contents.of(place.namespace)) - EMPTY
    assert not left, f"left, although delete says it is done: {left}"
    return ran


@pytest.mark.parametrize("moment", AFTER_APPLY, ids=lambda moment: moment.id)
def test_an_apply_that_was_killed_is_taken_away(
    plane: ControlPlane, contents: Contents, place: Place, undisturbed: Undisturbed, moment: Moment
) -> None:
    stopped(plane, place, undisturbed, moment)
    assert_in_order(contents, place.namespace, at_rest=False)
    assert_gone(plane, contents, place)


@pytest.mark.parametrize("moment", AFTER_DELETE, ids=lambda moment: f"{moment.how.name}-{moment.part:.2f}-seed{SEED}")
def test_a_delete_that_was_stopped_is_finished(
    plane: ControlPlane, contents: Contents, place: Place, undisturbed: Undisturbed, moment: Moment
) -> None:
    assert apply(plane, place.bundle).code == 0
    with Running(plane, "delete", str(place.bundle), "-y", "-o", "jsonl") as running:
        time.sleep(moment.part * undisturbed.seconds)  # a delete takes about as long as an apply
        running.process.send_signal(moment.how)
        code, said = running.end()
    assert code in (0, 130, -moment.how), said
    assert_in_order(contents, place.namespace, at_rest=False)
    assert_gone(plane, contents, place)
