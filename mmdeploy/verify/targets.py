"""What is verified: the entry point, the endpoint pickers and the pods of each role, by address.

A `Targets` value comes from a targets file or from a cluster. It holds no secret: a token is named by the variable or
file that holds it, and read when it is used.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mmdeploy.errors import UsageError
from mmdeploy.verify.shapes import built

if TYPE_CHECKING:
    from mmdeploy.catalog import Catalog

KIND = "Targets"
SCHEMA_VERSION = 1
VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
"""What a variable can be called whose value a shell is to give: POSIX, Base Definitions 3.216."""


@dataclass(frozen=True)
class Endpoint:
    """Something that answers HTTP."""

    name: str
    url: str
    """Without a path, or with the path in front of every request's own. Other transports may use other schemes."""
    token: str = ""
    """``env:NAME`` or ``file:PATH`` of a bearer token."""


@dataclass(frozen=True)
class Pod:
    """One model server."""

    name: str
    role: str
    api: Endpoint
    """The port that the pool targets: the engine, or the sidecar in front of it."""
    metrics: Endpoint
    """Its metrics page, path included."""
    engine: Endpoint | None = None
    """The engine itself, where a sidecar stands in front of it."""
    address: str = ""
    """``host:port`` as the router names it."""
    ready: bool | None = None
    """Whether the cluster says so; None where there is no cluster."""
    log: str = ""
    """Where its engine's log can be read: a file, or an http address; empty for nowhere."""


@dataclass(frozen=True)
class Targets:
    """A deployment to verify."""

    model: str
    topology: str
    server: str
    release: str
    entry: Endpoint
    pods: tuple[Pod, ...]
    pickers: tuple[Endpoint, ...] = ()
    """Metrics pages, path included."""
    gateway: Endpoint | None = None
    bundle: str = ""
    """The directory of the rendered bundle; empty for none."""
    configuration: Mapping[str, Any] = field(default_factory=dict)
    """What the bundle says: `mmdeploy.verify.configuration.read`."""
    where: str = ""
    """For messages: the file, or the cluster and namespace."""

    def of(self, role: str) -> tuple[Pod, ...]:
        """Pods of a role, in order."""
        return tuple(pod for pod in self.pods if pod.role == role)

    @property
    def listed(self) -> bool:
        """Whether somebody listed the pods in a file; else a cluster says which there are, and which are ready."""
        return all(pod.ready is None for pod in self.pods)

    @property
    def unlisted(self) -> dict[str, tuple[int, int]]:
        """Of a file: roles of which it lists fewer pods than the bundle has, with both numbers."""
        meant = self.configuration.get("replicas") or {}
        counts = {role: (len(self.of(role)), int(number)) for role, number in meant.items()}
        return {role: both for role, both in counts.items() if self.listed and both[0] < both[1]}

    def pages(self) -> Iterator[tuple[Endpoint, str]]:
        """Every metrics page and the role of its pod; pickers have the role ``picker``."""
        for pod in self.pods:
            yield pod.metrics, pod.role
        for picker in self.pickers:
            yield picker, "picker"

    def as_data(self) -> dict[str, Any]:
        """As JSON can hold it; user information in addresses is left out."""
        data: dict[str, Any] = asdict(self)
        data["pods"] = [{key: _plain(value) for key, value in pod.items()} for pod in data["pods"]]
        data["pickers"] = [_plain(item) for item in data["pickers"]]
        return {key: _plain(value) for key, value in data.items()}


def from_data(data: Mapping[str, Any]) -> Targets:
    """The value from what `Targets.as_data` gave. Raises ValueError for anything else."""
    found = built(Targets, data, "targets")
    names = [pod.name for pod in found.pods]
    if not found.pods or len({*names}) < len(names):
        raise ValueError("targets.pods lists nothing, or one pod twice")
    return found


def token(endpoint: Endpoint) -> str:
    """The bearer token of an endpoint, ``""`` for none. Raises `UsageError` where it cannot be read, or is none: the
    error never holds it."""
    kind, _, name = endpoint.token.partition(":")
    if kind == "env":
        if not os.environ.get(name):
            raise UsageError(
                f"the variable {name} is not set, and {endpoint.name} takes its token from there",
                next_step=f"export {name}=..., or name a file: token: file:PATH",
            )
        return _bearer(os.environ[name], endpoint, f"the variable {name}")
    if kind == "file":
        try:
            said = Path(name).read_bytes().decode("utf-8", "replace")
        except (OSError, ValueError) as problem:
            why = getattr(problem, "strerror", None) or "no such path can be"
            raise UsageError(f"the token of {endpoint.name} cannot be read: {why}", origin=name) from None
        return _bearer(said, endpoint, name)
    return ""


def _bearer(said: str, endpoint: Endpoint, origin: str) -> str:
    """Raises `UsageError` for what cannot stand in a header, without showing it."""
    found = said.strip()
    if not re.fullmatch(r"[!-~]+", found):
        raise UsageError(
            f"what {endpoint.name} takes its token from holds none: a token is one word of printable ASCII characters",
            origin=origin,
            next_step="put the token there alone, without spaces, line breaks or quotes",
        )
    return found


def with_configuration(targets: Targets, catalog: Catalog, bundle: Path | None) -> Targets:
    """The same, with what the bundle says. Raises what reading it raises, and `UsageError` for another topology."""
    place = bundle or (Path(targets.bundle) if targets.bundle else None)
    if place is None:
        return targets
    from mmdeploy import intended
    from mmdeploy.verify import configuration

    meant = intended.read(place, catalog)
    for name in ("topology", "server"):
        said = str(meant.spec.get(name, ""))
        if said and said != getattr(targets, name):
            raise UsageError(
                f"{name} is {said} there, but {getattr(targets, name)} in {targets.where}",
                origin=str(place),
                next_step="name the bundle that these targets were deployed from",
            )
    return replace(targets, bundle=str(place), configuration=configuration.read(meant))


def host_port(url: str) -> str:
    """``host:port`` of an address."""
    parts = urlsplit(url)
    port = parts.port or {"https": 443}.get(parts.scheme, 80)
    host = parts.hostname or ""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict) and "url" in value:
        return {**value, "url": without_user(value["url"])}
    return value


def without_user(url: str) -> str:
    """An address without user name and password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl() if "@" in parts.netloc else url
