"""Time `mmdeploy verify` of 20 pods: what it takes beyond its requests.

    python -m tests.rig.netns python -m benchmarks.verifying     on the control plane of the tests, by the proxy
    python -m benchmarks.verifying --targets                     without Kubernetes, against `mmdeploy rehearse`

The engines are simulated and answer at once; verify runs in a process of its own beside them. What counts is everything
but the requests that run a model: finding the deployment, reading all metrics pages around every step, judging. The
quiet window is a wait that was asked for, and does not count either.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mmdeploy.catalog import Catalog
from mmdeploy.verify import run
from tests.rig import netns

if TYPE_CHECKING:
    from mmdeploy.cli.verifying import Subject
    from tests.e2e.verify.verifying import Deployed
    from tests.rig.controlplane import ControlPlane

TARGET_SECONDS = 1.5
PODS = {"encode": 6, "decode": 14}
MORE_NODES = 4
"""Of eight accelerators each, for pods of two."""
CATALOG = Catalog(Path(__file__).resolve().parents[1] / "blueprints")


@dataclass(frozen=True)
class Round:
    """One verify."""

    beyond: float
    """Seconds beyond the requests that run a model."""
    requests: float
    """Seconds of those."""
    processor: float
    """Seconds of processor time, of the whole."""
    memory: float
    """MiB: the most that the process had until then."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line; 1 with ``--strict`` where it is over the target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--targets", action="store_true", help="against mmdeploy rehearse")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when it is over the target")
    parser.add_argument("--measure", metavar="NAMESPACE|FILE", help=argparse.SUPPRESS)
    said = parser.parse_args(arguments)
    if said.measure:
        find = _listed(Path(said.measure)) if said.targets else _clustered(said.measure)
        print(json.dumps([asdict(_once(find)) for _ in range(said.rounds)]))
        return 0
    if not said.targets and not netns.inside():
        print("run it with: python -m tests.rig.netns python -m benchmarks.verifying", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as place:
        rounds = (_rehearsed if said.targets else _on_a_cluster)(Path(place), said.rounds)
    return _told(rounds, "listed" if said.targets else "of a cluster", strict=said.strict)


def _told(rounds: Sequence[Round], where: str, *, strict: bool) -> int:
    beyond, requests, processor = (
        statistics.median(getattr(each, name) for each in rounds) for name in ("beyond", "requests", "processor")
    )
    verdict = "ok" if beyond <= TARGET_SECONDS else "over"
    print(
        f"verify of {sum(PODS.values())} pods {where}: {beyond:.2f} s beyond {requests:.2f} s of requests (target "
        f"{TARGET_SECONDS} s) {verdict}; {processor:.2f} s of processor time; {rounds[0].memory:.0f} MiB after the "
        f"first run, {rounds[-1].memory:.0f} MiB after {len(rounds)}"
    )
    return int(beyond > TARGET_SECONDS and strict)


def _measured(rounds: int, subject: str, *options: str) -> list[Round]:
    """In a process of its own."""
    words = [sys.executable, "-m", "benchmarks.verifying", *options, "--rounds", str(rounds), "--measure", subject]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    return [Round(**each) for each in json.loads(done.stdout)]


def _on_a_cluster(place: Path, rounds: int) -> list[Round]:
    from tests.rig.controlplane import ControlPlane

    with ControlPlane(place / "plane") as plane:
        os.environ.update(plane.environment())
        deployed = _deployed(plane, place)
        with deployed.simulated():
            return _measured(rounds, deployed.namespace)


def _deployed(plane: ControlPlane, place: Path) -> Deployed:
    from tests.e2e.verify.verifying import deploy
    from tests.rig import fleet

    namespace = "verified"
    for number in range(MORE_NODES):
        fleet.post(plane.api(), fleet.gpu_node(f"gpu-bench-{number}"))
    plane.kubectl("create", "namespace", namespace)
    replicas = {f"{role}_replicas": count for role, count in PODS.items()}
    return deploy(
        plane, namespace, place / "bundle", "--topology", "e-pd", workload="Deployment", monitoring="true", **replicas
    )


def _rehearsed(place: Path, rounds: int) -> list[Round]:
    mmdeploy = [sys.executable, "-m", "mmdeploy"]
    bundle, targets = place / "bundle", place / "targets.yaml"
    replicas = [word for role, count in PODS.items() for word in ("--set", f"{role}.replicas={count}")]
    render = [*mmdeploy, "render", "-q", "--topology", "e-pd", "-d", str(bundle), *replicas]
    subprocess.run(render, capture_output=True, check=True)
    words = [*mmdeploy, "rehearse", str(bundle), "--write-targets", str(targets)]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as rehearsal:
        try:
            while not targets.exists() and rehearsal.poll() is None:
                time.sleep(0.05)
            return _measured(rounds, str(targets), "--targets")
        finally:
            rehearsal.terminate()


def _clustered(namespace: str) -> Callable[[], Subject]:
    from mmdeploy.cli.verifying import OnCluster

    cluster = OnCluster(None, None, namespace, None, None, None, None, None)
    return lambda: cluster.subject(cluster.connected(), CATALOG, lambda text: None)


def _listed(file: Path) -> Callable[[], Subject]:
    from mmdeploy.cli.verifying import Subject
    from mmdeploy.verify import targets_file
    from mmdeploy.verify.facts import Facts
    from mmdeploy.verify.targets import with_configuration
    from mmdeploy.verify.transport import HttpTransport

    def find() -> Subject:
        found = with_configuration(targets_file.read(file, CATALOG), CATALOG, None)
        return Subject(Facts(CATALOG, found), HttpTransport())

    return find


def _once(find: Callable[[], Subject]) -> Round:
    begun, processor = time.perf_counter(), time.process_time()
    subject = find()
    plan = run.plan(subject.facts, run.chosen((), ()), repeat=1)
    settings = run.Settings(logs=subject.logs)
    evidence = run.collect(
        subject.facts, plan, subject.transport, run.BUDGET, settings, lambda text: None, subject.observations,
        subject.barred,
    )  # fmt: skip
    outcome = run.judge(subject.facts, evidence, plan.claims)
    subject.close()
    took = time.perf_counter() - begun
    if outcome.contradicted:
        raise AssertionError(f"contradicted: {outcome.contradicted}")
    requests = sum(sent.seconds for sent in evidence.requests if sent.method == "POST")
    beyond = took - requests - subject.facts.metrics.patience["quietSeconds"]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Round(beyond, requests, time.process_time() - processor, memory)


if __name__ == "__main__":
    sys.exit(main())
