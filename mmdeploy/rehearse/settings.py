"""What a rehearsal is made of, before it runs: every pod, the router, the clock. Faults change these."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mmdeploy.catalog.families import Family

LOCALHOST = "localhost"
"""Where an engine puts its side channels when nobody says a host."""


@dataclass
class EngineSettings:
    """One simulated engine. Most of it is read off the container's command line."""

    server: str
    """A section of ``catalog/rehearse.yaml``: vllm, sglang or sglang-encode."""
    model: str
    """The weights that it loads."""
    served: str
    """The name that requests must give."""
    family: Family
    version: str
    block_size: int = 16
    prefix_caching: bool = True
    processor_cache: bool = True
    encoder_only: bool = False
    """Answers with empty text; with a connector it publishes embeddings."""
    ec_role: str = ""
    ec_nixl: bool = False
    """Whether embeddings travel between pods; else the connector is a local cache."""
    ec_host: str = LOCALHOST
    ec_port: int = 0
    token_bytes: int = 0
    """Bytes of one visual token's embeddings."""
    metadata: tuple[str, ...] = ()
    """Modalities whose layout the encoder publishes."""
    kv: bool = False
    """Whether KV blocks travel between pods."""
    kv_host: str = LOCALHOST
    kv_port: int = 0
    kv_recompute: bool = False
    """What follows a failed transfer: computing again, or an error."""
    encoder_urls: tuple[str, ...] = ()
    """SGLang's encoders."""
    backend: str = ""
    """What SGLang's embeddings travel by."""
    debug: bool = False
    answers: str = "true"
    """``true``, ``empty``, ``garbage``, or ``blind`` to pictures."""
    publishes: bool = True
    """Whether an encoder answers with transfer parameters."""
    fails: bool = False
    """Whether every request ends in an error of the engine."""


@dataclass
class SidecarSettings:
    """The routing sidecar in front of an engine."""

    ec_connector: str = ""
    """Empty: the encode stage is off."""
    tls: bool = True
    secure_flag: str = ""
    """The flag that turns TLS off, as this release spells it."""
    arguments: tuple[str, ...] = ()
    """Its other arguments, as they are."""


@dataclass
class PodSettings:
    """One pod."""

    name: str
    role: str
    """What the bundle means it to be; what the router takes it for is in ``labels``."""
    ip: str
    port: int
    """The pool's target port: the sidecar's, or else the engine's."""
    engine_port: int
    labels: dict[str, str]
    engine: EngineSettings
    sidecar: SidecarSettings | None = None
    ready: bool = True
    """An unready pod is in no pool, though it may answer."""
    gone: bool = False
    """Scaled away: the pod is in the targets, and nowhere else."""
    foreign: bool = False
    """Somebody else's."""
    skew: float = 0.0
    """Seconds by which its clock is ahead."""
    host: str = ""
    """Where it answers, where that is not its own address: with the real router, which calls it over the network."""

    @property
    def place(self) -> str:
        """The host that requests are sent to."""
        return self.host or self.ip

    @property
    def address(self) -> str:
        """As the router names it in headers."""
        return f"{self.place}:{self.port}"


@dataclass
class RouterSettings:
    """Entry point and endpoint picker."""

    name: str
    namespace: str
    version: str
    """``v0.9.0``, ``v0.10.0`` or ``main``."""
    configuration: dict[str, Any]
    """The EndpointPickerConfig."""
    match_labels: dict[str, str]
    """Of the pool: a pod that has them all belongs to it."""
    video_supported: bool = True
    up: bool = True
    scrapes: bool = True
    """Whether it reads the pods' metrics where they are."""
    authentication: str = "open"
    """Of its own metrics: ``open``, ``token`` or ``broken`` (401 without a token, 500 with one)."""
    ranked: bool = False
    """Whether pods are called POD-rank-0 in its metrics, as on a cluster; else as a file lists them."""
    token: str = ""
    """The one that is good, with ``token``."""
    route_seconds: float = 0.0
    """After which the route gives up; 0: never."""
    in_turn: bool = False
    """Equal scores are settled in turn, not by lot."""
    blind_load: bool = False
    """The load producer started before the prefix producer, and counts prompts that are cached as load."""
    flush_seconds: float | None = None
    """Between updates of ready_endpoints; None as the router does."""


@dataclass
class Timings:
    """How slow everything is; all 0 by default. Seconds."""

    first_token: float = 0.0
    prompt_token: float = 0.0
    """For each prompt token that is not cached."""
    output_token: float = 0.0
    encode: float = 0.0
    """For each picture that an engine encodes."""
    lag: float = 0.0
    """Between flushes of the engines' metrics."""


@dataclass
class Traffic:
    """Requests of others."""

    rate: float = 0.0
    """Requests a second."""
    pictures: float = 0.5
    """Share of requests with a picture."""


@dataclass
class Event:
    """Something that happens to a pod while the rehearsal runs."""

    what: str
    """``lost`` or ``restarted``."""
    after: int
    """Chat requests at the entry point before it happens; then it strikes the pod that served the last of them."""


@dataclass
class Settings:
    """A whole rehearsal."""

    model: str
    topology: str
    server: str
    release: str
    mode: str
    pods: list[PodSettings]
    router: RouterSettings
    facts: Mapping[str, Any]
    """``catalog/rehearse.yaml``."""
    timings: Timings = field(default_factory=Timings)
    traffic: Traffic = field(default_factory=Traffic)
    events: list[Event] = field(default_factory=list)

    def of(self, role: str) -> list[PodSettings]:
        """The pods that the bundle means for ``role``."""
        return [pod for pod in self.pods if pod.role == role and not pod.foreign]

    def prefilling(self) -> list[PodSettings]:
        """Pods that compute prompts: prefill where there is such a role, decode elsewhere."""
        return self.of("prefill") or self.of("decode")


@dataclass(frozen=True)
class Clock:
    """Time, so that tests can hold it."""

    now: Callable[[], float]
    sleep: Callable[[float], None]
