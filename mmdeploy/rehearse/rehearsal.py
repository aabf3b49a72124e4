"""A rehearsal that runs: a simulated deployment behind real sockets on this machine."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from mmdeploy.catalog import Catalog
from mmdeploy.intended import Intended
from mmdeploy.rehearse import bundles, faults, targets
from mmdeploy.rehearse.deployment import Deployment
from mmdeploy.rehearse.listeners import Listeners
from mmdeploy.rehearse.messages import TEXT, Handler, Reply
from mmdeploy.rehearse.programs import Programs, Running, free_ports, refuse
from mmdeploy.rehearse.settings import Clock, PodSettings, Settings, Timings, Traffic

REAL = Clock(time.time, time.sleep)


class Rehearsal:
    """``with Rehearsal(intended, catalog, faults=["..."]) as running: running.targets()``."""

    def __init__(
        self,
        intended: Intended,
        catalog: Catalog,
        *,
        faults: Sequence[str] = (),
        port: int = 0,
        timings: Timings | None = None,
        traffic: Traffic | None = None,
        as_chart: bool = False,
        programs: Programs | None = None,
        debug: bool = False,
        clock: Clock = REAL,
        seed: int = 0,
    ) -> None:
        """``port`` is the first of those that are taken, one after the other; 0 takes free ones. ``as_chart`` guards
        the picker's metrics as the chart's values say. ``programs`` are run in place of the router's stand-in.
        ``debug`` has the engines log at DEBUG, and shows their logs.

        Raises `UsageError` for a bundle that cannot be rehearsed and for a fault that is unknown or does not fit it.
        """
        self.intended = intended
        self.settings = prepared(intended, catalog, faults, timings, traffic, as_chart=as_chart)
        for pod in self.settings.pods if debug else ():
            pod.engine.debug = True
        self._debug = debug
        self.deployment = Deployment(self.settings, clock, seed)
        if programs is not None:
            refuse(self.settings)
        self.programs, self._catalog = programs, catalog
        self._first = port
        self._handlers: dict[int, Handler] = {}
        self._ports: dict[tuple[str, str], int] = {}

    def __enter__(self) -> Rehearsal:
        """Take the ports and begin to answer. Raises `UsageError` for a port that is taken, and for a program that does
        not come up."""
        with contextlib.ExitStack() as stack:
            self._listeners = Listeners(lambda host, port: self._handlers.get(port))
            stack.callback(self._listeners.close)
            if self.programs is None:
                self._listen("router", "entry", self.deployment.entry)
                if self.settings.mode == "gateway":
                    self._listen("router", "gateway", self.deployment.entry)
                self._listen("router", "metrics", self.deployment.scrape_picker)
                for pod in self.settings.pods:
                    self._listen(pod.name, "pool", self.deployment.at(pod.place, pod.port))
                    if pod.engine_port != pod.port:
                        self._listen(pod.name, "engine", self.deployment.at(pod.place, pod.engine_port))
                    if self._debug:
                        self._listen(pod.name, "log", self._log(pod.name))
                self._listeners.start()
            else:
                self._run(self.programs, stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop answering."""
        self._stack.close()

    def _listen(self, name: str, part: str, handler: Handler) -> int:
        port = self._listeners.open(targets.HOST, self._first + len(self._ports) if self._first else 0)
        self._handlers[port] = handler
        self._ports[name, part] = port
        return port

    def _run(self, programs: Programs, stack: contextlib.ExitStack) -> None:
        """Have the real router call the simulated engines, each of which then answers on a port of its own."""
        for pod in self.settings.pods:
            pod.host = targets.HOST
            real = pod.sidecar is not None and programs.sidecar is not None
            if pod.sidecar is not None:
                pod.engine_port = self._listen(pod.name, "engine", self.deployment.pods[pod.name].engine)
            pod.port = free_ports(1)[0] if real else self._listen(pod.name, "pool", self._pool(pod))
            self._ports[pod.name, "pool"] = pod.port
            if pod.sidecar is None:
                pod.engine_port = pod.port
        self._listeners.start()
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mmdeploy-programs-")))
        running = Running(programs, self.settings, self._catalog, directory)
        stack.callback(running.stop)
        flags = ((self.intended.values.get("router") or {}).get("epp") or {}).get("flags") or {}
        entry, metrics = running.start(bool(flags.get("allow-experimental-plugins")))
        self._ports |= {("router", "entry"): entry, ("router", "metrics"): metrics}
        if self.settings.mode == "gateway":
            self._ports["router", "gateway"] = entry

    def _pool(self, pod: PodSettings) -> Handler:
        """Whatever is on the pod's target port, which is not known before it is taken."""
        return lambda message: self.deployment.at(pod.place, pod.port)(message)

    def _log(self, pod: str) -> Handler:
        """The log of a pod, to whoever asks."""
        return lambda message: Reply(200, "".join(f"{line}\n" for line in self.logs(pod)), TEXT)

    def targets(self) -> dict[str, Any]:
        """Where everything answers, as ``mmdeploy verify --targets`` reads it."""
        place = Path(self.intended.origin)
        return targets.document(self.settings, str(place.absolute()) if place.is_dir() else "", self._ports)

    def logs(self, pod: str) -> list[str]:
        """Lines of a pod's log: engine and sidecar."""
        return list(self.deployment.pods[pod].engine.logs)


def prepared(
    intended: Intended,
    catalog: Catalog,
    chosen: Sequence[str] = (),
    timings: Timings | None = None,
    traffic: Traffic | None = None,
    *,
    as_chart: bool = False,
) -> Settings:
    """The settings of a rehearsal, with its faults. Raises as `Rehearsal`."""
    settings = bundles.settings(intended, catalog, as_chart=as_chart)
    settings.timings = timings or settings.timings
    settings.traffic = traffic or settings.traffic
    for name in chosen:
        faults.find(name).strike(settings, catalog)
    return settings
