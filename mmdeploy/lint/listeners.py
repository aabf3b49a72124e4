"""Ports that a pod listens on: its engine, the sidecar in front of it, and whatever else declares a port."""

from __future__ import annotations

from dataclasses import dataclass

from mmdeploy.documents import KeyPath
from mmdeploy.lint.pods import Container, Engine, Pod

SIDECAR_PORT = 8000
"""The sidecar's own default (router.md §5.1)."""


@dataclass(frozen=True)
class Listener:
    """Who answers from outside the pod, on which ports, and where that is written."""

    title: str
    """``sidecar`` or ``engine``."""
    ports: tuple[int, ...]
    container: Container
    path: KeyPath


def front(pod: Pod) -> Listener | None:
    """The server that a pod shows to the router: its sidecar, else its engine. None where its port is not known."""
    if pod.sidecar is not None:
        return _listener("sidecar", pod.sidecar, ("--port",), SIDECAR_PORT, ("--data-parallel-size",))
    if pod.engine is not None:
        return _engine(pod.engine)
    return None


def engine_port(pod: Pod) -> int | None:
    """The port of a pod's engine; None where it is not known."""
    found = _engine(pod.engine) if pod.engine is not None else None
    return found.ports[0] if found is not None else None


def others(pod: Pod) -> set[int]:
    """Ports that other containers declare: a proxy that this module does not know may stand in front."""
    known = {id(pod.sidecar.spec) if pod.sidecar else 0, id(pod.engine.container.spec) if pod.engine else 0}
    return {number for item in pod.containers if id(item.spec) not in known for _, number, _ in item.ports()}


def _engine(engine: Engine) -> Listener | None:
    if engine.command.last("--config") is not None or engine.command.last("--uds") is not None:
        return None
    return _listener("engine", engine.container, ("--port",), 8000 if engine.kind == "vllm" else 30000, ())


def _listener(
    title: str, container: Container, flags: tuple[str, ...], default: int, ranks: tuple[str, ...]
) -> Listener | None:
    command = container.command
    given = command.last(*flags)
    if given is not None and command.integer(*flags) is None:
        return None
    if command.last("--configuration", "--configuration-file") is not None and given is None:
        return None
    port = command.integer(*flags) or default
    count = max(1, (command.integer(*ranks) or 1) if ranks else 1)
    path = given.path if given is not None else command.path_of(flags[0])
    return Listener(title, tuple(range(port, port + count)), container, path or container.path)
