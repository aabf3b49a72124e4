"""A simulated deployment of a committed bundle behind a transport without sockets, under a clock that the test holds.

What answers is ``mmdeploy rehearse``'s simulation, which is held against the facts by tests of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import yaml

from mmdeploy import intended
from mmdeploy.catalog import Catalog
from mmdeploy.rehearse import targets as written
from mmdeploy.rehearse.deployment import Deployment
from mmdeploy.rehearse.messages import Handler, Message, UnreachableError
from mmdeploy.rehearse.rehearsal import prepared
from mmdeploy.rehearse.settings import Clock as RehearsedClock
from mmdeploy.rehearse.settings import Timings, Traffic
from mmdeploy.verify import run, targets_file
from mmdeploy.verify.facts import Facts
from mmdeploy.verify.run import Outcome, Settings
from mmdeploy.verify.session import Clock
from mmdeploy.verify.targets import Targets, with_configuration
from mmdeploy.verify.transport import Answer, Request

ROOT = Path(__file__).resolve().parents[2]
CATALOG = Catalog(ROOT / "blueprints")
BUNDLES = {
    "aggregation": "main/aggregation/gpu/vllm/base",
    "e-pd": "main/e-pd/gpu/vllm/base",
    "e-p-d": "main/e-p-d/gpu/vllm/base",
    "sglang": "main/e-pd/gpu/sglang/base",
    "tpu": "main/aggregation/tpu/v7/vllm/gke",
}


class HeldClock:
    """Time that moves when somebody sleeps."""

    def __init__(self) -> None:
        self.time = 1_000_000.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


@dataclass
class Wire:
    """Carries requests to the handlers of a deployment, by the port in their address."""

    handlers: Mapping[int, Handler]
    clock: HeldClock
    asked: list[str] = field(default_factory=list)

    def send(self, request: Request) -> Answer:
        """See `mmdeploy.verify.transport.Transport`."""
        address, _, rest = request.endpoint.url.removeprefix("http://").partition("/")
        port, start = int(address.rpartition(":")[2]), self.clock.now()
        path = (f"/{rest}" if rest else "") + request.path
        self.asked.append(f"{request.method} {port}{path}")
        lowered = {name.lower(): value for name, value in request.headers.items()}
        try:
            reply = self.handlers[port](Message(request.method, path, lowered, request.body or b""))
            pieces = []
            for chunk in reply.chunks if reply.chunks is not None else [reply.encoded()]:
                pieces.append((self.clock.now() - start, chunk))
        except UnreachableError as problem:
            return Answer(None, trouble="unreachable", detail=str(problem), seconds=self.clock.now() - start)
        kept = {name.lower(): value for name, value in reply.headers.items()}
        return Answer(reply.status, kept, tuple(pieces), self.clock.now() - start)


@functools.cache
def bundle(name: str) -> intended.Intended:
    """A committed bundle by a word of `BUNDLES`, or its path under overlays/."""
    return intended.read(ROOT / "overlays" / BUNDLES.get(name, name), CATALOG)


@dataclass
class Stage:
    """A deployment that answers, and its targets."""

    deployment: Deployment
    wire: Wire
    facts: Facts
    clock: HeldClock

    def verify(self, *claims: str, repeat: int = 1, seed: int = 0, budget: int = 999, timeout: float = 60.0) -> Outcome:
        """Run the probes and the judges of these claims, or of all."""
        plan = run.plan(self.facts, claims or run.chosen((), ()), repeat)
        settings = Settings(timeout, Clock(self.clock.now, self.clock.sleep), Random(seed))
        evidence = run.collect(self.facts, plan, self.wire, budget, settings, lambda line: None)
        return run.judge(self.facts, evidence, plan.claims)


def stage(
    name: str,
    place: Path,
    faults: Sequence[str] = (),
    *,
    timings: Timings | None = None,
    traffic: Traffic | None = None,
    seed: int = 0,
) -> Stage:
    """Start a bundle; its targets file is written to ``place`` and read as any other."""
    clock = HeldClock()
    settings = prepared(bundle(name), CATALOG, faults, timings, traffic)
    deployment = Deployment(settings, RehearsedClock(clock.now, clock.sleep), seed)
    doors: dict[tuple[str, str], Handler] = {
        ("router", "entry"): deployment.entry,
        ("router", "metrics"): deployment.scrape_picker,
    }
    if settings.mode == "gateway":
        doors["router", "gateway"] = deployment.entry
    for pod in settings.pods:
        doors[pod.name, "pool"] = deployment.at(pod.ip, pod.port)
        if pod.engine_port != pod.port:
            doors[pod.name, "engine"] = deployment.at(pod.ip, pod.engine_port)
    ports = {door: 20000 + number for number, door in enumerate(doors)}
    document = written.document(settings, str(bundle(name).origin), ports)
    file = place / "targets.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    targets: Targets = with_configuration(targets_file.read(file, CATALOG), CATALOG, None)
    wire = Wire({ports[door]: handler for door, handler in doors.items()}, clock)
    return Stage(deployment, wire, Facts(CATALOG, targets), clock)
