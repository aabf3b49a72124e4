"""The endpoint picker: which pods a request goes to. What it counts of that is in `mmdeploy.rehearse.ledger`.

Source: facts router-observed.md ("What each request does", "The router's price can be read from outside"), router.md
sections 1.6, 2.3, 2.4 and 6.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mmdeploy.estimator import bodies
from mmdeploy.estimator.items import Item
from mmdeploy.rehearse import configuration
from mmdeploy.rehearse.engine import Engine
from mmdeploy.rehearse.ledger import Entry, Ledger
from mmdeploy.rehearse.messages import Message
from mmdeploy.rehearse.prefixes import Index, Stream, pricing, stream
from mmdeploy.rehearse.profiles import Candidate, Context, choose
from mmdeploy.rehearse.settings import Clock, PodSettings, RouterSettings


class NobodyError(Exception):
    """No pod takes the request; ``status`` is what the client gets."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True)
class Member:
    """A pod of the pool, and the engine in it."""

    pod: PodSettings
    engine: Engine


@dataclass(frozen=True)
class Route:
    """Where a request goes."""

    address: str
    headers: Mapping[str, str]
    """That the picker sets."""
    entry: Entry
    """For counting what comes of it."""


class Picker:
    """One endpoint picker process."""

    def __init__(
        self,
        settings: RouterSettings,
        facts: Mapping[str, Any],
        clock: Clock,
        members: Callable[[], Sequence[Member]],
        seed: int,
    ) -> None:
        """``members`` are the pods of the pool, now."""
        self.settings, self.facts, self._members = settings, facts["picking"], members
        self._headers = facts["headers"]
        self.configuration = configuration.read(settings.configuration, video_supported=settings.video_supported)
        self.ledger = Ledger(settings, self.configuration, facts, clock)
        self._index = Index(self._prefix("lruCapacityPerServer", self.facts["blocksPerServer"]))
        self._lot = random.Random(seed)
        self._turns: dict[str, int] = {}
        self._cold: dict[str, int] = {}
        self._count = itertools.count()
        self._lock = threading.RLock()

    def _prefix(self, name: str, default: Any) -> Any:
        declared = self.configuration.of_kind(configuration.PREFIX)
        return declared[0].parameters.get(name, default) if declared else default

    def route(self, message: Message, request: bodies.Request) -> Route:
        """Decide where a request goes, and count it. Raises `NobodyError`."""
        body = message.content
        fairness = self.facts["fairness"]
        with self._lock:
            members = {member.pod.name: member for member in self._members()}
            if not members:
                raise NobodyError(503, "no endpoints available for the given request")
            counted = stream(body, request, self._price(members))
            blocks, size = self._blocks(counted, list(members.values()))
            candidates = [self._candidate(member, blocks) for member in members.values()]
            context = self._context(len(blocks), size)
            chosen = self._stages(candidates, counted, context)
            who = message.headers.get(fairness["header"]) or fairness["default"]
            entry = Entry(str(body.get("model")), who, counted.tokens, len(blocks), size)
            self.ledger.decided(entry, chosen, body)
            self._remember(chosen, blocks)
            self.ledger.indexed(len(self._index))
            return Route(chosen["decode"][0].address, self._named(chosen), entry)

    def _price(self, members: Mapping[str, Member]) -> Callable[[Item], int]:
        """What a medium is charged at; the model's own count where the producer asks a model server."""
        if self.configuration.estimator is not None:
            return pricing(self.configuration.estimator)
        from mmdeploy.estimator.costs import cost
        from mmdeploy.estimator.items import Asked

        family = next(iter(members.values())).engine.settings.family
        return lambda item: cost(Asked("", item), family, None).model or 1

    def _blocks(self, counted: Stream, members: Sequence[Member]) -> tuple[list[bytes], int]:
        """The request's blocks and their size in tokens; no blocks without the producer."""
        if not self.configuration.of_kind(configuration.PREFIX):
            return [], self.facts["minimumBlock"]
        size = int(self._prefix("blockSizeTokens", 16))
        if self._prefix("autoTune", True):
            told = [member.engine.settings.block_size for member in members if not member.engine.settings.encoder_only]
            size = max(self.facts["minimumBlock"], *told) if told else self.facts["minimumBlock"]
        return counted.blocks(size, int(self._prefix("maxPrefixTokensToMatch", self.facts["prefixTokens"]))), size

    def _candidate(self, member: Member, blocks: list[bytes]) -> Candidate:
        name, metrics = member.pod.name, member.engine.metrics
        return Candidate(
            name,
            member.pod.address,
            member.pod.labels,
            int(metrics.value("waiting")),
            int(metrics.value("running")),
            metrics.value("usage"),
            *self.ledger.load(name),
            self._index.matched(name, blocks),
        )

    def _context(self, blocks: int, size: int) -> Context:
        settings = self.settings
        both = settings.version in self.facts["roleBoth"]
        return Context(
            self.facts, both, blocks, size, self._lot, settings.in_turn, settings.blind_load, self._turns, self._cold
        )

    def _stages(self, candidates: list[Candidate], counted: Stream, context: Context) -> dict[str, list[Candidate]]:
        """Stage → chosen pods. Raises `NobodyError` where nobody can answer."""
        known = self.configuration
        if not known.stages:
            profile = next(iter(known.profiles.values()))
            found = choose(profile, candidates, context)
            if not found:
                raise NobodyError(429, "failed to find target endpoint")
            return {"decode": found[:1]}
        chosen: dict[str, list[Candidate]] = {}
        for stage in configuration.STAGES:
            profile_of = known.profiles.get(known.stages[stage])
            if stage != "decode" and not (profile_of and self._decided(stage, counted, chosen["decode"][0], context)):
                continue
            found = choose(profile_of, candidates, context) if profile_of else []
            if not found and (stage == "decode" or (stage == "prefill" and self._requires_prefill())):
                raise NobodyError(429, f"failed to find target endpoint: failed to find available {stage} workers")
            if found:
                chosen[stage] = found if stage == "encode" else found[:1]
        return chosen

    def _requires_prefill(self) -> bool:
        return self.settings.version in self.facts["prefillRequired"]

    def _decided(self, stage: str, counted: Stream, target: Candidate, context: Context) -> bool:
        """What the stage's decider says; any of the three may stand for either stage."""
        decider = self.configuration.deciders.get(stage)
        if decider is None:
            return False
        if decider.kind == "always-disagg-multimodal-decider":
            return counted.features > 0
        if decider.kind == "prefix-based-pd-decider":
            least = int(decider.parameters.get("nonCachedTokens", 0))
            uncached = counted.tokens - min(counted.tokens, target.matched * context.block_size)
            return least > 0 and uncached >= least and counted.tokens >= int(decider.parameters.get("promptTokens", 0))
        return True

    def _named(self, chosen: Mapping[str, Sequence[Candidate]]) -> dict[str, str]:
        headers = {self._headers["destination"]: chosen["decode"][0].address}
        if "prefill" in chosen:
            headers[self._headers["prefiller"]] = chosen["prefill"][0].address
        if "encode" in chosen:
            headers[self._headers["encoders"]] = ",".join(each.address for each in chosen["encode"])
        return headers

    def _remember(self, chosen: Mapping[str, Sequence[Candidate]], blocks: list[bytes]) -> None:
        """The primary profile's pod, and that of a profile called prefill."""
        if not blocks:
            return
        for stage in ("decode", "prefill"):
            named = self.configuration.stages.get(stage, stage)
            if stage in chosen and (stage == "decode" or named == "prefill"):
                pod = chosen[stage][0]
                if not pod.matched:
                    self._cold[pod.name] = next(self._count)
                self._index.remember(pod.name, blocks)
