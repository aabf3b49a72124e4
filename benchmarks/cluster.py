"""Time what needs a cluster, on the control plane of the tests, and print the ratios.

As in `benchmarks.run`: whole processes in turns, medians, ratios. ``make bench-cluster`` runs it in a network of its
own; the control plane must have been built (``make e2e``).
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.rig import crowd, netns
from tests.rig.controlplane import ControlPlane

HERE = Path(__file__).resolve().parent
MMDEPLOY = str(Path(sys.executable).with_name("mmdeploy"))
CHART = HERE.parent / "tests" / "rig" / "chart"
EXAMPLE = ("-t", "e-pd", "-a", "gpu", "-p", "gke", "--set", "encode.replicas=1", "--set", "decode.replicas=1")
RELEASE = "bench"
APPLY_TARGET = 1.2
CHECK_TARGET = 3.0


class CommandError(Exception):
    """A command failed, so its duration means nothing."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line a ratio; 1 with ``--strict`` where one is over its target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a ratio is over its target")
    said = parser.parse_args(arguments)
    if not netns.inside():
        print("run it with: make bench-cluster", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as place, ControlPlane(Path(place) / "plane") as plane:
        over = _report("apply --no-wait / kubectl apply -k + helm upgrade --install", APPLY_TARGET,
                       *_applying(plane, Path(place), said.rounds))  # fmt: skip
        over |= _report("check with 500 nodes, 5,000 pods / kubectl get nodes,pods -A -o json", CHECK_TARGET,
                        *_checking(plane, Path(place), said.rounds))  # fmt: skip
    return int(over and said.strict)


def _report(what: str, target: float, measured: float, reference: float) -> bool:
    ratio = measured / reference
    verdict = "ok" if ratio <= target else "over"
    print(f"{what}: {ratio:.2f} (target {target}; {measured:.2f} s / {reference:.2f} s here) {verdict}", flush=True)
    return ratio > target


def _applying(plane: ControlPlane, place: Path, rounds: int) -> tuple[float, float]:
    """Median seconds of mmdeploy and of the two programs, each into a namespace that is new every time."""

    def by_mmdeploy(bundle: Path, namespace: str) -> None:
        _run(plane, MMDEPLOY, "apply", bundle, "--yes", "--no-wait", "--router-chart", CHART)

    def by_hand(bundle: Path, namespace: str) -> None:
        _run(
            plane, "helm", "upgrade", "--install", RELEASE, CHART, "-n", namespace, "-f", bundle / "router/values.yaml"
        )
        _run(plane, "kubectl", "apply", "--server-side", "-k", bundle / "modelserver")

    return _medians({"mmdeploy": by_mmdeploy, "hand": by_hand}, plane, place, rounds)


def _medians(
    ways: Mapping[str, Callable[[Path, str], None]], plane: ControlPlane, place: Path, rounds: int
) -> tuple[float, float]:
    took: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(-1, rounds):  # round -1 fills the caches and does not count
        for way, work in ways.items():
            namespace = f"bench-{way}-{number + 1}"
            bundle = place / namespace
            _run(plane, MMDEPLOY, "render", *EXAMPLE, "-n", namespace, "--name", RELEASE, "-d", bundle)
            _prepare(plane, namespace)
            start = time.perf_counter()
            work(bundle, namespace)
            if number >= 0:
                took[way].append(time.perf_counter() - start)
            _run(plane, "kubectl", "delete", "namespace", namespace, "--wait=true", "--timeout=120s")
    first, second = (statistics.median(each) for each in took.values())
    return first, second


def _prepare(plane: ControlPlane, namespace: str) -> None:
    _run(plane, "kubectl", "create", "namespace", namespace)
    secret = ("secret", "generic", "llm-d-hf-token", "-n", namespace, "--from-literal=HF_TOKEN=of-a-test")
    _run(plane, "kubectl", "create", *secret)


def _checking(plane: ControlPlane, place: Path, rounds: int) -> tuple[float, float]:
    """Median seconds of ``mmdeploy check`` and of kubectl listing the same nodes and pods."""
    plane.programs["kwok"].stop()
    crowd.gather(plane.api())
    namespace, bundle = "bench-check", place / "bench-check"
    _run(plane, MMDEPLOY, "render", *EXAMPLE, "-n", namespace, "--name", RELEASE, "-d", bundle)
    _prepare(plane, namespace)
    took: dict[str, list[float]] = {"check": [], "kubectl": []}
    commands = {
        "check": (MMDEPLOY, "check", bundle),
        "kubectl": ("kubectl", "get", "nodes,pods", "-A", "-o", "json"),
    }
    for number in range(-1, rounds):
        for name, command in commands.items():
            start = time.perf_counter()
            _run(plane, *command)
            if number >= 0:
                took[name].append(time.perf_counter() - start)
    return statistics.median(took["check"]), statistics.median(took["kubectl"])


def _run(plane: ControlPlane, *words: str | Path) -> None:
    done = subprocess.run(
        list(map(str, words)), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env=plane.environment(), check=False,
    )  # fmt: skip
    if done.returncode:
        raise CommandError(f"exit status {done.returncode} from {' '.join(map(str, words))}\n{done.stderr}")


if __name__ == "__main__":
    sys.exit(main())
