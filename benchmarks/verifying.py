"""Time `mmdeploy verify` on a cluster of 20 pods, on the control plane of the tests: what it takes beyond its requests.

    python -m tests.rig.netns python -m benchmarks.verifying

The engines are simulated and answer at once. What counts is everything but the requests that run a model: finding the
deployment, reading all metrics pages around every step, judging. The quiet window is a wait that was asked for, and
does not count either.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from mmdeploy.cluster.access import Access
from mmdeploy.cluster.session import Session
from mmdeploy.verify import run
from mmdeploy.verify.cluster.deployment import Asked, reach
from mmdeploy.verify.evidence import Evidence
from tests.e2e.verify.verifying import CATALOG, Deployed, deploy
from tests.rig import fleet, netns
from tests.rig.controlplane import ControlPlane

TARGET_SECONDS = 1.5
PODS = {"encode_replicas": 6, "decode_replicas": 14}
MORE_NODES = 4
"""Of eight accelerators each, for pods of two."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line; 1 with ``--strict`` where it is over the target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--strict", action="store_true", help="exit with 1 when it is over the target")
    said = parser.parse_args(arguments)
    if not netns.inside():
        print("run it with: python -m tests.rig.netns python -m benchmarks.verifying", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as place, ControlPlane(Path(place) / "plane") as plane:
        os.environ.update(plane.environment())
        deployed = _deployed(plane, Path(place))
        with deployed.simulated():
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            rounds = [_once(plane, deployed) for _ in range(said.rounds)]
            after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    beyond = statistics.median(work for work, _ in rounds)
    requests = statistics.median(spent for _, spent in rounds)
    verdict = "ok" if beyond <= TARGET_SECONDS else "over"
    print(
        f"verify of {sum(PODS.values())} pods: {beyond:.2f} s beyond {requests:.2f} s of requests (target "
        f"{TARGET_SECONDS} s) {verdict}; memory grew by {(after - before) / 1024:.0f} MiB in {said.rounds} runs"
    )
    return int(beyond > TARGET_SECONDS and said.strict)


def _deployed(plane: ControlPlane, place: Path) -> Deployed:
    namespace = "verified"
    for number in range(MORE_NODES):
        fleet.post(plane.api(), fleet.gpu_node(f"gpu-bench-{number}"))
    plane.kubectl("create", "namespace", namespace)
    return deploy(
        plane, namespace, place / "bundle", "--topology", "e-pd", workload="Deployment", monitoring="true", **PODS
    )


def _once(plane: ControlPlane, deployed: Deployed) -> tuple[float, float]:
    """Seconds beyond the requests, and of the requests."""
    begun = time.perf_counter()
    session = Session.connect(Access(plane.kubeconfig()))
    reached = reach(session, CATALOG, Asked(deployed.namespace), lambda text: None)
    plan = run.plan(reached.facts, run.chosen((), ()), repeat=1)
    settings = run.Settings(logs=reached.logs)
    evidence = run.collect(
        reached.facts, plan, reached.way.transport, run.BUDGET, settings, lambda text: None,
        reached.found.observations, reached.way.barred,
    )  # fmt: skip
    outcome = run.judge(reached.facts, evidence, plan.claims)
    took = time.perf_counter() - begun
    if outcome.contradicted:
        raise AssertionError(f"contradicted: {outcome.contradicted}")
    spent = _requests(evidence)
    return took - spent - reached.facts.metrics.patience["quietSeconds"], spent


def _requests(evidence: Evidence) -> float:
    """Seconds of what runs a model."""
    return sum(sent.seconds for sent in evidence.requests if sent.method == "POST")


if __name__ == "__main__":
    sys.exit(main())
