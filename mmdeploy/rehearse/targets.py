"""The targets file: where each part of a rehearsal answers, for ``mmdeploy verify --targets``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from mmdeploy.errors import UsageError
from mmdeploy.intended import ROLES
from mmdeploy.rehearse.settings import PodSettings, Settings

HOST = "127.0.0.1"
LOG_PATH = "/log"
"""Where a rehearsal shows a pod's log; real engines write theirs to stderr."""


def document(settings: Settings, bundle: str, ports: Mapping[tuple[str, str], int]) -> dict[str, Any]:
    """The file's content.

    ``bundle`` is the rendered bundle's directory, or empty. ``ports`` gives the port of (pod, ``pool``, ``engine`` or
    ``log``) and of (``router``, ``entry``, ``gateway`` or ``metrics``).
    """
    found: dict[str, Any] = {
        "schemaVersion": 1,
        "kind": "Targets",
        "model": settings.model,
        "topology": settings.topology,
        "server": settings.server,
        "release": settings.release,
        **({"bundle": bundle} if bundle else {}),
        "entry": {"url": url(ports["router", "entry"])},
    }
    if ("router", "gateway") in ports:
        found["gateway"] = {"url": url(ports["router", "gateway"])}
    found["picker"] = [
        {"name": f"{settings.router.name}-epp-0", "metrics": url(ports["router", "metrics"]) + "/metrics"}
    ]
    found["roles"] = {role: [_pod(pod, ports) for pod in settings.of(role)] for role in ROLES if settings.of(role)}
    return found


def url(port: int) -> str:
    """A port of this machine."""
    return f"http://{HOST}:{port}"


def _pod(pod: PodSettings, ports: Mapping[tuple[str, str], int]) -> dict[str, str]:
    entry = {"name": pod.name, "url": url(ports[pod.name, "pool"])}
    if (pod.name, "engine") in ports:
        entry["engine"] = url(ports[pod.name, "engine"])
    entry |= {"metrics": url(ports[pod.name, "pool"]) + "/metrics", "address": pod.address}
    return entry | ({"log": url(ports[pod.name, "log"]) + LOG_PATH} if (pod.name, "log") in ports else {})


def text(content: Mapping[str, Any]) -> str:
    """The file."""
    return str(yaml.safe_dump(dict(content), sort_keys=False, width=1000))


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write the file, whole or not at all; the bundle's directory is named as seen from it. Raises `UsageError`."""
    if "bundle" in content:
        content = {**content, "bundle": _seen_from(path.parent.absolute(), Path(content["bundle"]))}
    if path.is_dir():
        raise UsageError("is a directory", origin=str(path), next_step="name a file in it")
    new = path.with_name(path.name + ".new")
    try:
        new.write_text(text(content), encoding="utf-8")
        new.replace(path)
    except OSError as problem:
        with contextlib.suppress(OSError):
            new.unlink()
        raise UsageError(
            f"cannot be written: {problem.strerror}",
            origin=str(path),
            next_step="name a file in a directory that is there",
        ) from None


def _seen_from(place: Path, directory: Path) -> str:
    """``directory`` relative to ``place``. A path with ``..`` in it is that of the real directories, as a link on the
    way would lead it astray."""
    if directory.is_relative_to(place):
        return str(directory.relative_to(place))
    return os.path.relpath(directory.resolve(), place.resolve())
