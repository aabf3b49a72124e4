"""An apply that is stopped, at any stage and at any moment, by any signal: the same command finishes it."""

from __future__ import annotations

import json
import signal

import pytest

from tests.e2e.failures.afterwards import assert_resumed, assert_unlocked
from tests.e2e.failures.conftest import Place, Undisturbed
from tests.e2e.failures.moments import STAGES, Moment, moments
from tests.e2e.failures.stopping import stopped
from tests.rig.api import Object
from tests.rig.contents import Contents
from tests.rig.controlplane import ControlPlane


def stages(inventory: Object) -> set[str]:
    """Those that the last apply has finished."""
    return set(json.loads(inventory["data"]["inventory.json"])["stages"])


def test_the_undisturbed_apply_has_every_stage(undisturbed: Undisturbed) -> None:
    assert set(undisturbed.stages) == set(STAGES)
    assert stages(undisturbed.inventory) == set(STAGES) - {"preflight", "wait"}
    kinds = {name.partition("/")[0].partition(".")[0] for name in undisturbed.standing}
    assert kinds >= {"Deployment", "Gateway", "PodMonitor", "InferencePool", "Secret", "HelmRelease", "clusterroles"}


@pytest.mark.parametrize("moment", moments(), ids=lambda moment: moment.id)
def test_stopped_and_gone_on(
    plane: ControlPlane, contents: Contents, place: Place, undisturbed: Undisturbed, moment: Moment
) -> None:
    code, running = stopped(plane, place, undisturbed, moment)
    last = running.events[-1]["event"] if running.events else ""
    if moment.how is signal.SIGKILL:
        assert code in (-signal.SIGKILL, 0)
    elif last == "interrupted":
        assert code == 130
        assert_unlocked(contents.of(place.namespace))
    else:
        # Before the first request, between the plan and the work, and at the end: nothing to be told of is under way.
        assert code in (130, -moment.how, 0)
        assert last in ("", "target", "planned", "warning", "finished"), running.events[-1]
    assert_resumed(plane, contents, place.bundle, place.namespace, undisturbed.standing)
