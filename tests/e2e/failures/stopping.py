"""An apply that is stopped at a moment."""

from __future__ import annotations

import json
import time

from tests.e2e.failures.afterwards import ENVIRON, assert_silent, words
from tests.e2e.failures.conftest import Place, Undisturbed
from tests.e2e.failures.moments import Moment
from tests.rig.controlplane import ControlPlane
from tests.rig.deploying import Running


def stopped(plane: ControlPlane, place: Place, undisturbed: Undisturbed, moment: Moment) -> tuple[int, Running]:
    """Exit code and events of an apply that got a signal then; it said nothing that it should not."""
    # Anywhere is anywhere in all of it. Elsewhere preflight is left out: its stage is one of those that are drawn.
    more = words(place.bundle, checked=moment.stage in ("", "preflight"), waits=moment.stage == "wait")
    with Running(plane, *more, environ=ENVIRON) as running:
        if moment.stage:
            running.until("stage-started", moment.stage)
            time.sleep(moment.part * undisturbed.stages[moment.stage])
        else:
            time.sleep(moment.part * undisturbed.seconds)
        running.process.send_signal(moment.how)
        code, said = running.end()
    assert_silent(said, json.dumps(running.events))
    assert "Traceback" not in said or not running.events, said
    return code, running
