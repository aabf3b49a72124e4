"""When an apply is stopped, and how: drawn with a seed that stands in the name of each test.

``MMDEPLOY_FAILURES_RUNS`` says how many runs, ``MMDEPLOY_FAILURES_SEED`` draws others, or the same again.
"""

from __future__ import annotations

import os
import random
import signal
from dataclasses import dataclass

STAGES = ("preflight", "crds", "namespace", "secret", "router", "model-servers", "gateway", "monitoring", "wait")
"""Of the bundle that the runs apply, which has them all."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
SEED = int(os.environ.get("MMDEPLOY_FAILURES_SEED", "6"))
RUNS = int(os.environ.get("MMDEPLOY_FAILURES_RUNS", "50"))


@dataclass(frozen=True)
class Moment:
    """One way to stop a run."""

    number: int
    how: signal.Signals
    stage: str
    """Counted from the beginning of this stage; empty for the beginning of the process."""
    part: float
    """So much of what the stage, or all of it, takes when nobody disturbs it."""

    @property
    def id(self) -> str:
        """How the run is called."""
        return f"{self.number:02}-{self.how.name}-{self.stage or 'anywhere'}-{self.part:.2f}-seed{SEED}"


def moments(runs: int = RUNS, seed: int = SEED) -> list[Moment]:
    """Each signal in each stage, in a random order, and as many again less four anywhere: 27 and 23 of 50."""
    draw = random.Random(seed)
    staged = [(how, stage) for how in SIGNALS for stage in STAGES]
    draw.shuffle(staged)
    count = round(runs * 27 / 50)
    chosen = (staged * (count // len(staged) + 1))[:count]
    chosen += [(draw.choice(SIGNALS), "") for _ in range(runs - count)]
    # A little more than all: what comes after the last stage counts, too.
    return [
        Moment(number, how, stage, draw.uniform(0, 0.9 if stage else 1.02))
        for number, (how, stage) in enumerate(chosen, 1)
    ]
