"""The real endpoint picker, sidecar and Envoy in a rehearsal, where the person has them; the engines stay simulated.

Without Kubernetes: the picker runs the bundle's own configuration with its endpoints in a file. Source: facts
router-observed.md ("Running it"), router.md section 7.
"""

from __future__ import annotations

import contextlib
import copy
import socket
import string
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import yaml

from mmdeploy.catalog import Catalog
from mmdeploy.errors import UnsupportedError, UsageError
from mmdeploy.rehearse.settings import PodSettings, Settings

HOST = "127.0.0.1"
READY_SECONDS = 30.0
STOP_SECONDS = 5.0
_DAY = 86400
"""Seconds that the proxy's route allows where nothing shorter is asked for (router.md section 4.3)."""


@dataclass(frozen=True)
class Programs:
    """Paths of the programs."""

    epp: Path
    envoy: Path
    sidecar: Path | None = None
    """None: the stand-in's."""


@dataclass
class Running:
    """Processes that were started, and where their output goes."""

    programs: Programs
    settings: Settings
    catalog: Catalog
    directory: Path
    _started: list[tuple[str, subprocess.Popen[bytes], Path, IO[bytes]]] = field(default_factory=list)

    def start(self, experimental: bool) -> tuple[int, int]:
        """Start everything; the ports of the entry point and of the picker's metrics.

        Raises `UsageError` for a program that does not come up, with what it said last.
        """
        for pod in self.settings.pods:
            if pod.sidecar is not None and self.programs.sidecar is not None and not pod.gone:
                self._sidecar(self.programs.sidecar, pod)
        entry, grpc, health, metrics = free_ports(4)
        self._epp(grpc, health, metrics, experimental)
        self._envoy(entry, grpc)
        return entry, metrics

    def stop(self) -> None:
        """End every process, the last one first."""
        for _, process, _, log in reversed(self._started):
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            log.close()

    @property
    def _facts(self) -> Mapping[str, Any]:
        facts: Mapping[str, Any] = self.settings.facts["programs"]
        return facts

    def _sidecar(self, program: Path, pod: PodSettings) -> None:
        said = pod.sidecar
        assert said is not None
        flag = self._facts["sidecarModelPort"][self.settings.router.version]
        arguments = [f"--port={pod.port}", f"{flag}={pod.engine_port}", *said.arguments]
        arguments += [f"--ec-connector={said.ec_connector}"] if said.ec_connector else []
        arguments += [f"{said.secure_flag}=false"] if said.secure_flag and not said.tls else []
        self._run("--sidecar", program, arguments, f"sidecar-{pod.name}")
        self._wait("--sidecar", lambda: listens(pod.port))

    def _epp(self, grpc: int, health: int, metrics: int, experimental: bool) -> None:
        config, endpoints = self.directory / "picker.yaml", self.directory / "endpoints.yaml"
        listed = list(self._endpoints())
        endpoints.write_text(yaml.safe_dump({"endpoints": listed}), encoding="utf-8")
        config.write_text(yaml.safe_dump(self._configured(endpoints), sort_keys=False), encoding="utf-8")
        router = self.settings.router
        names = {"config": config, "pool": router.name, "namespace": router.namespace}
        arguments = [each.format(**names, grpc=grpc, health=health, metrics=metrics) for each in self._facts["epp"]]
        arguments += ["--allow-experimental-plugins"] if experimental else []
        self._run("--epp", self.programs.epp, arguments, "epp")
        ready = self.settings.facts["router"]["ready"]["name"]
        self._wait("--epp", lambda: listens(grpc) and _value(metrics, ready) >= min(1, len(listed)))

    def _endpoints(self) -> Iterator[dict[str, Any]]:
        """The pods of the pool, as the picker's file lists them."""
        for pod in self.settings.pods:
            if pod.ready and not pod.gone and self.settings.router.match_labels.items() <= pod.labels.items():
                named = {"name": pod.name, "namespace": self.settings.router.namespace}
                yield {**named, "address": pod.place, "port": str(pod.port), "labels": dict(pod.labels)}

    def _configured(self, endpoints: Path) -> dict[str, Any]:
        """The bundle's configuration, with the plugin that reads endpoints from a file."""
        content = copy.deepcopy(self.settings.router.configuration)
        kind = self._facts["discovery"]
        content.setdefault("plugins", []).append({"type": kind, "parameters": {"path": str(endpoints)}})
        ways = self._facts["discoveryPath"]
        *way, last = ways[content["apiVersion"] if content.get("apiVersion") in ways else "llm-d.ai/v1alpha1"]
        at = content
        for key in way:
            at = at.setdefault(key, {})
        at[last] = kind
        return content

    def _envoy(self, entry: int, grpc: int) -> None:
        template = string.Template((self.catalog.blueprints / "catalog" / "rehearse-envoy.yaml").read_text("utf-8"))
        config = self.directory / "envoy.yaml"
        route = self.settings.router.route_seconds or _DAY
        destination = self.settings.facts["headers"]["destination"]
        config.write_text(
            template.substitute(entry=entry, grpc=grpc, route=route, destination=destination), encoding="utf-8"
        )
        self._run(
            "--envoy", self.programs.envoy, [each.format(config=config) for each in self._facts["envoy"]], "envoy"
        )
        self._wait("--envoy", lambda: listens(entry))

    def _run(self, option: str, program: Path, arguments: Sequence[str], name: str) -> None:
        path = self.directory / f"{name}.log"
        log = path.open("wb")
        try:
            process = subprocess.Popen([str(program), *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        except OSError as problem:
            log.close()
            raise UsageError(f"cannot run {program}: {problem.strerror}", origin=option) from None
        self._started.append((option, process, path, log))

    def _wait(self, option: str, ready: Callable[[], bool]) -> None:
        """For the program that was started last. A sidecar may end with 0 where its arguments are wrong."""
        _, process, path, _ = self._started[-1]
        end = time.monotonic() + READY_SECONDS
        while not ready():
            if process.poll() is not None or time.monotonic() > end:
                said = path.read_text("utf-8", "replace").strip().splitlines() or ["nothing"]
                how = f"ended with {process.returncode}" if process.returncode is not None else "does not come up"
                raise UsageError(
                    f"{Path(str(process.args[0])).name} {how}; it said last: {said[-1][:300]}",  # type: ignore[index]
                    origin=option,
                    next_step="its version must be the bundle's: mmdeploy render --release chooses another",
                )
            time.sleep(0.05)


def refuse(settings: Settings) -> None:
    """Raise `UnsupportedError` for what only the stand-in for the router can do."""
    router = settings.router
    only = {
        "round-robin": router.in_turn,
        "producer-order": router.blind_load,
        "metrics-port": not router.scrapes,
        "metrics-401": router.authentication == "broken",
        "metrics-token": router.authentication == "token",
        "picker-down": not router.up,
        "restarted and node-lost": bool(settings.events),
        "traffic": settings.traffic.rate > 0,
    }
    for name, asked in only.items():
        if asked:
            raise UnsupportedError(
                f"{name}: only the stand-in for the router can do that",
                origin="--epp",
                next_step="leave --epp, --sidecar and --envoy out",
            )


def free_ports(count: int) -> list[int]:
    """Ports that nobody holds now."""
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in held:
            each.bind((HOST, 0))
        return [int(each.getsockname()[1]) for each in held]


def listens(port: int) -> bool:
    """Whether somebody listens."""
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def _value(port: int, name: str) -> float:
    """A gauge of a metrics page; -1 where there is none."""
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=2) as reply:
            page = reply.read().decode()
    except (OSError, urllib.error.URLError):
        return -1
    found = [line.rpartition(" ")[2] for line in page.splitlines() if line.startswith(name + "{")]
    return float(found[0]) if found else -1
