"""A whole run: which probes the claims need, the probes one after the other, then the judges."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Any

from mmdeploy import __version__
from mmdeploy.errors import ClusterError, UsageError
from mmdeploy.verify.evidence import Evidence, Observation
from mmdeploy.verify.facts import Facts
from mmdeploy.verify.judges import CLAIMS
from mmdeploy.verify.judges.findings import not_sent
from mmdeploy.verify.probes import Probe, serving
from mmdeploy.verify.session import BarredError, BudgetSpentError, Clock, Session
from mmdeploy.verify.verdicts import CONTRADICTED, NOT_OBSERVABLE, NotApplicable, Verdict, amount
from mmdeploy.words import nearest

if TYPE_CHECKING:
    from collections.abc import Callable

    from mmdeploy.verify.transport import Transport

BUDGET = 39
"""Requests that a run may send unless it is told otherwise."""


@dataclass(frozen=True)
class Plan:
    """What a run will do."""

    claims: tuple[str, ...]
    probes: tuple[Probe, ...]
    repeat: int
    costs: tuple[int, ...]
    """Chat requests of each probe, over all its rounds."""

    @property
    def requests(self) -> int:
        """Chat requests of the whole."""
        return sum(self.costs)

    def as_data(self) -> list[dict[str, Any]]:
        """For the evidence."""
        return [
            {
                "probe": probe.name,
                "claims": [name for name in self.claims if name in probe.claims],
                "rounds": self.rounds(probe),
                "requests": cost,
            }
            for probe, cost in zip(self.probes, self.costs, strict=True)
        ]

    def rounds(self, probe: Probe) -> int:
        """How often a probe runs."""
        return self.repeat if probe.repeats else 1


@dataclass(frozen=True)
class Spent:
    """What a run, or several, took."""

    requests: int = 0
    """That run a model."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0

    @classmethod
    def of(cls, evidence: Evidence) -> Spent:
        """By one run."""
        posted = [sent for sent in evidence.requests if sent.method == "POST"]
        return cls(
            len(posted),
            sum(sent.prompt_tokens or 0 for sent in posted),
            sum(int(sent.usage.get("completion_tokens") or 0) for sent in posted),
            max((sent.started + sent.seconds for sent in evidence.requests), default=0.0),
        )

    def __add__(self, other: Spent) -> Spent:
        """By both."""
        return Spent(
            self.requests + other.requests,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.seconds + other.seconds,
        )


@dataclass(frozen=True)
class Outcome:
    """What a run came to."""

    evidence: Evidence
    verdicts: tuple[Verdict, ...]
    inapplicable: tuple[NotApplicable, ...]
    before: Spent = field(default_factory=Spent)
    """What earlier attempts spent."""

    @property
    def contradicted(self) -> list[str]:
        """Claims that do not hold."""
        return [item.claim for item in self.verdicts if item.verdict == CONTRADICTED]

    @property
    def unseen(self) -> list[str]:
        """Claims that could not be seen."""
        return [item.claim for item in self.verdicts if item.verdict == NOT_OBSERVABLE]


@dataclass(frozen=True)
class Settings:
    """How a run goes about it."""

    timeout: float = 60.0
    clock: Clock = field(default_factory=Clock)
    random: Random | None = None
    logs: Callable[[str], Sequence[str]] | None = None
    """As `mmdeploy.verify.session.Session` takes it."""
    hold: float = 0.0
    """Seconds for which one request is kept open; 0 for none."""
    spent: Spent = field(default_factory=lambda: Spent())
    """What earlier attempts of the same command spent."""


def chosen(only: Sequence[str], skip: Sequence[str]) -> tuple[str, ...]:
    """Claims in their own order. Raises `UsageError` for a word that is none."""
    for option, words in (("--only", only), ("--skip", skip)):
        for word in words:
            if word not in CLAIMS:
                raise UsageError(
                    f"no claim is called {word!r}", origin=option, nearest=nearest(word, list(CLAIMS)) or list(CLAIMS)
                )
    found = tuple(name for name in CLAIMS if (not only or name in only) and name not in skip)
    if not found:
        raise UsageError("no claim is left to verify", origin="--skip", nearest=list(CLAIMS))
    return found


def plan(facts: Facts, claims: Sequence[str], repeat: int, hold: bool = False) -> Plan:
    """What the claims need; ``hold``: a request that is kept open, too."""
    needed = serving(claims, hold)
    costs = tuple(probe.cost(facts) * (repeat if probe.repeats else 1) for probe in needed)
    return Plan(tuple(claims), needed, repeat, costs)


def collect(
    facts: Facts,
    planned: Plan,
    transport: Transport,
    budget: int,
    settings: Settings,
    tell: Callable[[str], None],
    observations: Iterable[Observation] = (),
    barred: Mapping[str, str] | None = None,
) -> Evidence:
    """Run the probes. Raises `ClusterError` where nothing at all answers.

    ``observations`` are what is known beforehand, of a cluster; ``barred`` is what the person has no right to, as
    `Session` takes it.
    """
    evidence = Evidence(f"mmdeploy {__version__}", facts.targets.as_data(), planned.as_data())
    evidence.observations += observations
    session = Session(
        facts,
        transport,
        evidence,
        budget,
        settings.timeout,
        settings.clock,
        settings.random,
        tell,
        barred or {},
        settings.logs,
        settings.hold,
    )
    try:
        for probe, cost in zip(planned.probes, planned.costs, strict=True):
            _run(session, probe, planned.rounds(probe), cost, settings.spent.requests + planned.requests)
            if probe.name == "roles":
                _alive(evidence, facts)
    finally:
        session.close()
    return evidence


def _run(session: Session, probe: Probe, rounds: int, cost: int, total: int) -> None:
    """``total`` is what the whole run takes at most, with what was spent before it: a budget that is enough."""
    more = f"--budget {total} or more"
    if cost > session.budget:
        are = "is" if session.budget == 1 else "are"
        left = f"{probe.name} needs {amount(cost, 'request')}, {session.budget} {are} left"
        session.observe("not-run", more, left, claims=list(probe.claims))
        return
    if cost == 0 and probe.cost(session.facts) == 0 and probe.name not in ("roles", "quiet"):
        return
    try:
        for number in range(rounds):
            probe.run(session, number)
    except BudgetSpentError as problem:
        session.observe("not-run", more, f"the budget was spent before {problem}", claims=list(probe.claims))
    except BarredError as problem:
        session.observe(
            "not-run", f"{problem}: mmdeploy verify BUNDLE --print-rbac --for USER prints the rights",
            f"no right to {problem}", claims=list(probe.claims),
        )  # fmt: skip


def _alive(evidence: Evidence, facts: Facts) -> None:
    if evidence.requests and all(sent.status is None for sent in evidence.requests):
        first = evidence.requests[0]
        address = facts.targets.pods[0].api.url
        raise ClusterError(
            f"none of {len(facts.targets.pods)} pods answers; {first.target} at {address}: {first.error}",
            origin=facts.targets.where or None,
            next_step="check the addresses, and that they can be reached from here",
        )


def judge(
    catalog_facts: Facts, evidence: Evidence, claims: Iterable[str], planned: Container[str] | None = None
) -> Outcome:
    """The verdicts of all claims, in order; of one that is not ``planned``, that it cannot be seen."""
    verdicts: list[Verdict] = []
    inapplicable: list[NotApplicable] = []
    for name in claims:
        found = CLAIMS[name].judged(evidence, catalog_facts)
        if isinstance(found, NotApplicable):
            inapplicable.append(found)
        elif planned is not None and name not in planned:
            verdicts.append(not_sent(name, evidence))
        else:
            verdicts.append(_with_right(found, evidence))
    return Outcome(evidence, tuple(verdicts), tuple(inapplicable))


def _with_right(verdict: Verdict, evidence: Evidence) -> Verdict:
    """A verdict that lacks what could not be sent says which right, or budget, would show it."""
    if verdict.verdict == CONTRADICTED:
        return verdict
    more = [item.about for item in evidence.observed("not-run") if verdict.claim in item.numbers.get("claims", ())]
    return replace(verdict, observable=tuple(dict.fromkeys((*verdict.observable, *more))))


def document(outcome: Outcome, strict: bool) -> dict[str, Any]:
    """As ``-o json`` shows it."""
    counts = dict.fromkeys(("proved", "contradicted", "not observable"), 0)
    for item in outcome.verdicts:
        counts[item.verdict] += 1
    targets = outcome.evidence.targets
    spent = outcome.before + Spent.of(outcome.evidence)
    return {
        "schemaVersion": 1,
        "kind": "Verdicts",
        "deployment": {key: targets[key] for key in ("model", "topology", "server", "release", "where")},
        "counts": counts,
        "failed": bool(outcome.contradicted) or (strict and (bool(outcome.unseen) or not outcome.verdicts)),
        "verdicts": [{"title": CLAIMS[item.claim].title, **item.as_data()} for item in outcome.verdicts],
        "notApplicable": [{"claim": item.claim, "reason": item.reason} for item in outcome.inapplicable],
        "spent": {
            "requests": spent.requests,
            "promptTokens": spent.prompt_tokens,
            "completionTokens": spent.completion_tokens,
            "seconds": round(spent.seconds, 2),
        },
    }
