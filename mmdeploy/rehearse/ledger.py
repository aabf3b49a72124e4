"""What the endpoint picker counts: decisions, prefix hits, load in flight, and what came of each request.

Source: facts router.md section 6.1, router-metrics.csv, router-observed.md ("The router's price can be read from
outside"); what is in flight and until when, from the router's inflight-load-producer (v0.10.0): what the prompt misses
in whole blocks, on the first pod of each profile, until the first chunk.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mmdeploy.rehearse import configuration
from mmdeploy.rehearse.configuration import Configuration
from mmdeploy.rehearse.profiles import Candidate
from mmdeploy.rehearse.series import Registry, families, numbers
from mmdeploy.rehearse.settings import Clock, RouterSettings


@dataclass
class Charge:
    """The load of one request on one pod, as one producer has it."""

    producer: str
    pod: str
    stage: str
    tokens: int
    whole: bool
    """Whether the answer is estimated too: then the load stays to the end."""


@dataclass
class Entry:
    """One request."""

    model: str
    fairness: str
    tokens: int
    """The router's price of all of it."""
    blocks: int
    """Of the prefix index; 0 without it."""
    size: int
    """Tokens a block."""
    charges: list[Charge] = field(default_factory=list)
    """What it has in flight, a profile and producer each."""
    started: float = 0.0


class Ledger:
    """The metrics of one picker."""

    def __init__(self, settings: RouterSettings, known: Configuration, facts: Mapping[str, Any], clock: Clock) -> None:
        self._settings, self._known, self._facts, self._clock = settings, known, facts["picking"], clock
        kinds = {plugin.kind for plugin in known.plugins.values()}
        words = {"disagg": configuration.HANDLER, "prefix": configuration.PREFIX, "inflight": configuration.INFLIGHT}
        having = frozenset(word for word, kind in words.items() if kind in kinds)
        section = facts["router"]
        self.metrics = Registry(families(section, numbers(settings.version), having), {}, section["created"], clock.now)
        self.metrics.set("processStart", clock.now())
        self.metrics.set("info", 1, commit="rehearsal", build_ref=settings.version)
        self._held: dict[tuple[str, str], list[int]] = {}
        self._lock = threading.RLock()
        self._polled = clock.now()
        self._models: set[str] = set()
        self._clients: dict[str, None] = {}

    def load(self, pod: str) -> tuple[int, int]:
        """Requests and tokens in flight on a pod, as the default producer has them."""
        requests, tokens = self._held.get((configuration.INFLIGHT, pod), (0, 0))
        return requests, tokens

    def decided(self, entry: Entry, chosen: Mapping[str, Sequence[Candidate]], body: Mapping[str, Any]) -> None:
        """A request has been given its pods."""
        with self._lock:
            entry.started = self._clock.now()
            self._known_as(entry)
            self._decision(entry, chosen)
            target = chosen["decode"][0]
            self.metrics.add("attempts", **self._attempt(entry, target))
            for plugin in self._known.of_kind(configuration.PREFIX):
                at = {"plugin_name": plugin.name, "plugin_type": plugin.kind}
                self.metrics.observe("hitRatio", target.matched / entry.blocks if entry.blocks else 0, **at)
                self.metrics.observe("hitBytes", target.matched * entry.size * self._facts["bytesPerToken"], **at)
            for plugin in self._known.of_kind(configuration.INFLIGHT):
                whole = bool(plugin.parameters.get("addEstimatedOutputTokens"))
                for stage, pods in chosen.items():  # of several pods the first alone
                    tokens = self._missed(entry, pods[0]) + (
                        self._output(plugin.parameters, entry, body) if whole else 0
                    )
                    entry.charges.append(Charge(plugin.name, pods[0].name, stage, tokens, whole))
                    self._load(plugin.name, pods[0].name, entry.fairness, 1, tokens)

    def _known_as(self, entry: Entry) -> None:
        """Labels of a request: so many models have their names, and so many clients are remembered."""
        most = self._facts["distinctNames"]
        if entry.model not in self._models and len(self._models) >= most:
            entry.model = "other"
        self._models.add(entry.model)
        self._clients.pop(entry.fairness, None)
        self._clients[entry.fairness] = None
        if len(self._clients) > most:
            oldest = next(iter(self._clients))
            del self._clients[oldest]
            self.metrics.forget_all("fairness_id", oldest)

    def _decision(self, entry: Entry, chosen: Mapping[str, Sequence[Candidate]]) -> None:
        handler = self._known.handler
        if handler is not None:
            stages = [stage for stage in ("encode", "prefill") if stage in chosen]
            kind = "-".join([*stages, "decode"]) if stages else "decode-only"
            at = {"plugin_name": handler.name, "plugin_type": handler.kind}
            self.metrics.add("decisions", **at, model_name=entry.model, decision_type=kind)

    def _attempt(self, entry: Entry, target: Candidate) -> dict[str, str]:
        return {
            "status": "success",
            "target_model_name": entry.model,
            "endpoint_name": self._named(target.name),
            "namespace": self._settings.namespace,
            "port": target.address.rpartition(":")[2],
        }

    def _named(self, pod: str) -> str:
        """On a cluster each target port of a pod is an endpoint of its own."""
        return f"{pod}-rank-0" if self._settings.ranked else pod

    def _missed(self, entry: Entry, pod: Candidate) -> int:
        """What the pod does not hold, in whole blocks, and what lies beyond the indexed part."""
        held = 0 if self._settings.blind_load else pod.matched
        return (entry.blocks - held) * entry.size + max(0, entry.tokens - entry.blocks * entry.size)

    def _output(self, parameters: Mapping[str, Any], entry: Entry, body: Mapping[str, Any]) -> int:
        """Tokens that the answer is estimated at."""
        guess = math.floor(entry.tokens * float(parameters.get("outputRatio", self._facts["outputRatio"])) + 0.5)
        limits = [parameters.get("maxEstimatedOutputTokens"), body.get("max_completion_tokens", body.get("max_tokens"))]
        return min([guess, *(limit for limit in limits if isinstance(limit, int) and limit > 0)])

    def _load(self, producer: str, pod: str, fairness: str, requests: int, tokens: int) -> None:
        at = {
            "endpoint_name": self._named(pod),
            "namespace": self._settings.namespace,
            "producer_name": producer,
            "fairness_id": fairness,
            "priority": self._facts["priority"],
        }
        self.metrics.add("inflightRequests", requests, **at)
        self.metrics.add("inflightTokens", tokens, **at)
        held = self._held.setdefault((producer, pod), [0, 0])
        held[0] += requests
        held[1] += tokens

    def first_chunk(self, entry: Entry, *, streaming: bool) -> None:
        """The answer has begun: the prompt is no load any more."""
        with self._lock:
            for charge in [*entry.charges]:
                if charge.stage == "prefill":  # its pod has done its part
                    self._load(charge.producer, charge.pod, entry.fairness, -1, -charge.tokens)
                    entry.charges.remove(charge)
                elif not charge.whole:
                    self._load(charge.producer, charge.pod, entry.fairness, 0, -charge.tokens)
                    charge.tokens = 0
            seconds = self._clock.now() - entry.started
            self.metrics.observe("firstToken", seconds, **self._of(entry), streaming=str(streaming).lower())

    def ended(self, entry: Entry, status: int, usage: Mapping[str, Any] | None) -> None:
        """The answer is complete, or has failed."""
        with self._lock:
            for charge in entry.charges:
                self._load(charge.producer, charge.pod, entry.fairness, -1, -charge.tokens)
            entry.charges = []
            at = self._of(entry)
            self.metrics.add("requests", **at)
            self.metrics.observe("duration", self._clock.now() - entry.started, **at)
            if status >= 400:
                self.metrics.add("errors", **at, error_code=str(status))
            if usage:
                self.metrics.observe("inputTokens", usage.get("prompt_tokens") or 0, **at)
                self.metrics.observe("outputTokens", usage.get("completion_tokens") or 0, **at)
                self.metrics.observe("cachedTokens", 0, **at)

    def refused(self, model: str, fairness: str, status: int) -> None:
        """Nobody took the request."""
        with self._lock:
            entry = Entry(model, fairness, 0, 0, 0)
            self._known_as(entry)
            at = self._of(entry)
            self.metrics.add("requests", **at)
            self.metrics.add("errors", **at, error_code=str(status))

    def _of(self, entry: Entry) -> dict[str, str]:
        priority = self._facts["priority"]
        names = {"model_name": entry.model, "target_model_name": entry.model}
        return {**names, "fairness_id": entry.fairness, "priority": priority}

    def indexed(self, blocks: int) -> None:
        """The prefix index holds so many blocks."""
        with self._lock:
            for plugin in self._known.of_kind(configuration.PREFIX):
                self.metrics.set("indexSize", blocks, plugin_name=plugin.name, plugin_type=plugin.kind)

    def text(self, fresh: Callable[[float], Sequence[str]], failing: Sequence[str]) -> str:
        """What a scrape gets. ``fresh`` names the pods whose metrics were fresh at a time, ``failing`` those whose
        metrics cannot be read: each failed poll counts."""
        with self._lock:
            every = self._settings.flush_seconds
            every = self._facts["flushSeconds"] if every is None else every
            now = self._clock.now()
            flushed = math.floor(now / every) * every if every else now
            ready = fresh(flushed)
            self.metrics.set("ready", len(ready), name=self._settings.name)
            polls = math.floor((now - self._polled) / self._facts["refreshSeconds"])
            self._polled += polls * self._facts["refreshSeconds"]
            if failing and polls:
                self.metrics.add("pollErrors", polls * len(failing), source_type=self._facts["sourceType"])
            return self.metrics.text()
