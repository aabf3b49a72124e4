"""Simulated engines and a simulated router behind the pods of the rig.

One process answers for every pod of a namespace: a connection's own address says which pod is meant (see netns.py).
What an engine is like is read off the real pod, as the API server has it; pods that come and go are followed.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from mmdeploy.catalog import Catalog
from mmdeploy.errors import MmdeployError
from mmdeploy.intended import ROLES, Intended
from mmdeploy.rehearse import bundles, faults, rehearsal
from mmdeploy.rehearse.deployment import Deployment, Pod
from mmdeploy.rehearse.engine import Surroundings
from mmdeploy.rehearse.listeners import Listeners
from mmdeploy.rehearse.messages import Handler, Message, Reply
from mmdeploy.rehearse.settings import PodSettings, Timings, Traffic
from tests.rig import kubelet
from tests.rig.api import Api, Object, RefusedError
from tests.rig.workloads import condition, pods

PROXY, METRICS = 8081, 9090  # of the router's pod: router.md §4.3
CLIENT = 80  # of the router's Service
PORTS = (8000, 8200, PROXY, METRICS, CLIENT)  # and of engines: blueprints/catalog/ports.yaml
ROUTER = ("llm-d-router-standalone", "llm-d-router-gateway")  # labels of the router's pods
SET_ROLE = "disaggregatedset.x-k8s.io/role"
EVERY = 0.2  # seconds between looks at the pods


@dataclass
class Simulated:
    """``with Simulated(api, namespace, intended, catalog) as running: ...``"""

    api: Api
    namespace: str
    intended: Intended
    catalog: Catalog
    strike: Sequence[str] = ()  # faults of the rehearsal, by name
    # An API server cuts an answer that begins within microseconds of the request's last byte (a race of Go's server
    # with its proxy, both of which look for the end of the request); no engine is that fast.
    timings: Timings = field(default_factory=lambda: Timings(first_token=0.005))
    traffic: Traffic | None = None
    token: str = ""  # which the picker's metrics ask for, where the chart's values say so
    ports: tuple[int, ...] = PORTS
    logs: Path | None = None  # folder for the engines' logs; the kubelet then shows them, and forwards ports
    deployment: Deployment = field(init=False)
    routers: frozenset[str] = frozenset()
    problems: list[str] = field(default_factory=list)  # for the one who wonders why nothing moves
    _ended: threading.Event = field(default_factory=threading.Event)
    _logged: set[str] = field(default_factory=set)
    _forwarded: set[str] = field(default_factory=set)

    def __enter__(self) -> Simulated:
        settings = bundles.settings(self.intended, self.catalog, as_chart=True)
        settings.timings, settings.traffic = self.timings, self.traffic or settings.traffic
        settings.router.token = self.token
        settings.router.flush_seconds = 0  # the gauge of ready endpoints as it is, not as it was up to 5 s ago
        seen = pods(self.api, self.namespace)
        settings.pods = [self._settings(pod) for pod in seen if _serves(pod)]
        for name in self.strike:
            faults.find(name).strike(settings, self.catalog)
        self.deployment = Deployment(settings, rehearsal.REAL)
        inside = self.deployment
        self._around = Surroundings(
            rehearsal.REAL, settings.timings, settings.facts, inside.send, inside._side_channel, inside._named
        )
        self._follow(seen)
        self._listeners = Listeners(self._door)
        with contextlib.ExitStack() as stack:
            stack.callback(self._listeners.close)
            for port in sorted({*self.ports, *(pod.engine_port for pod in settings.pods)}):
                self._listeners.open("0.0.0.0", port)
            stack.pop_all()
        self._listeners.start()
        self._thread = threading.Thread(target=self._watch, name="simulated", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(10)
        self._listeners.close()

    def _door(self, host: str, port: int) -> Handler | None:
        """Who answers at an address. Connections outlive what a test changes, so that each request asks anew."""
        if host.startswith("10.96."):  # a Service: the only one with a port for clients is the router's
            return self._enter
        if host in self.routers:
            return {PROXY: self._enter, METRICS: self.deployment.scrape_picker}.get(port)
        return self.deployment.at(host, port)

    def _enter(self, message: Message) -> Reply:
        return self.deployment.entry(message)

    # ------------------------------------------------------------------------------------------------ pods come and go

    def _watch(self) -> None:
        while not self._ended.wait(EVERY):
            try:
                self._follow(pods(self.api, self.namespace))
            except (OSError, MmdeployError) as problem:  # a restarted API server, a pod that cannot be imitated
                self.problems.append(repr(problem))

    def _follow(self, seen: list[Object]) -> None:
        self.routers = frozenset(_address(pod) for pod in seen if _routes(pod) and _ready(pod))
        if self.logs is not None:
            self._open(seen)
        there = {pod["metadata"]["name"]: pod for pod in seen if _serves(pod)}
        known = self.deployment.pods
        for name in set(known) - set(there):
            del known[name]
        for name, pod in there.items():
            if name not in known:
                known[name] = Pod(self._settings(pod), self._around)
            if self.logs is not None and name not in self._logged:
                self._log(known[name])
            settings = known[name].settings
            settings.ready, settings.labels = _ready(pod), dict(pod["metadata"].get("labels") or {})

    def _open(self, seen: list[Object]) -> None:
        """Have the kubelet forward each pod's ports."""
        for pod in seen:
            name = pod["metadata"]["name"]
            if (_serves(pod) or _routes(pod)) and _address(pod) and name not in self._forwarded:
                self._forwarded.add(name)
                ports = [PROXY, METRICS] if _routes(pod) else [8000, 8200]
                kubelet.forward_ports(self.api, self.namespace, name, _address(pod), ports)

    def _log(self, pod: Pod) -> None:
        """Have the kubelet show what the engine writes, as it writes it."""
        assert self.logs is not None
        name = pod.settings.name
        self._logged.add(name)
        try:
            kubelet.write_log(self.api, self.logs, self.namespace, name, [], [])
        except RefusedError as refused:
            if refused.status != 409:  # the same file as before, which is empty again
                raise
        pod.engine.logs = Lines(self.logs / f"{self.namespace}-{name}-logsFile", pod.engine.logs)

    def _settings(self, pod: Object) -> PodSettings:
        reader = bundles.Reader(self.intended, self.catalog, self.catalog.document("catalog", bundles.FACTS).value)
        labels = pod["metadata"].get("labels") or {}
        said = labels.get("llm-d.ai/role") or labels.get(SET_ROLE) or "decode"
        role = said if said in ROLES else "decode"
        found = reader.pod(role, pod["metadata"]["name"], _address(pod), pod)
        found.ready = _ready(pod)
        return found

    def pods_of(self, role: str) -> Iterator[Pod]:
        """Those that play a role."""
        return (pod for pod in list(self.deployment.pods.values()) if pod.settings.role == role)


class Lines(deque[str]):
    """An engine's log that is a file, too, as container runtimes write it."""

    def __init__(self, file: Path, before: Iterable[str]) -> None:
        super().__init__()
        self._file = file
        for line in before:
            self.append(line)

    def append(self, line: str) -> None:
        super().append(line)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
        with self._file.open("a", encoding="utf-8") as file:
            file.write(f"{now} stdout F {line}\n")


def _routes(pod: Object) -> bool:
    return any(key in (pod["metadata"].get("labels") or {}) for key in ROUTER)


def _serves(pod: Object) -> bool:
    """Whether it has an engine, by the name that the guides give its container, and an address."""
    return bool(_address(pod)) and any(item["name"] == "modelserver" for item in pod["spec"]["containers"])


def _address(pod: Object) -> str:
    return str((pod.get("status") or {}).get("podIP") or "")


def _ready(pod: Object) -> bool:
    return condition(pod, "Ready").get("status") == "True" and not pod["metadata"].get("deletionTimestamp")
