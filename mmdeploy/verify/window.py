"""What moved between two moments, and how many requests of others fell between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from mmdeploy.catalog.metrics import MetricFamily
from mmdeploy.verify import counters
from mmdeploy.verify.counters import Change
from mmdeploy.verify.evidence import Evidence, Scrape, Sent, Step
from mmdeploy.verify.facts import Facts

ROUTED = ("entry", "gateway")
_SERVER_ERROR = 500
"""From here on a status may come from something in front, while the engine still works on the request."""


@dataclass(frozen=True)
class Moved:
    """By how much something moved on each endpoint of a role."""

    known: Mapping[str, int]
    """By endpoint name."""
    unknown: tuple[str, ...] = ()
    """Why others are not known, one phrase each."""

    @property
    def total(self) -> int:
        """Sum over what is known."""
        return sum(self.known.values())

    @property
    def complete(self) -> bool:
        """Whether every endpoint is known, and there is one."""
        return bool(self.known) and not self.unknown

    @property
    def where(self) -> dict[str, int]:
        """Endpoints on which it moved."""
        return {name: number for name, number in self.known.items() if number}

    def __str__(self) -> str:
        """``encode-0 +2``, or ``none``."""
        return ", ".join(f"{name} +{number}" for name, number in self.where.items()) or "none"


@dataclass(frozen=True)
class Window:
    """One step, or several in a row."""

    evidence: Evidence
    facts: Facts
    before: str
    after: str
    steps: tuple[Step, ...]

    @classmethod
    def of(cls, evidence: Evidence, facts: Facts, *steps: Step) -> Window:
        """From the moment before the first step to the moment after the last."""
        return cls(evidence, facts, steps[0].before, steps[-1].after, steps)

    @cached_property
    def sent(self) -> list[Sent]:
        """Requests of the steps that run a model."""
        return [item for step in self.steps for item in self.evidence.sent_in(step) if item.method == "POST"]

    @cached_property
    def routed(self) -> list[Sent]:
        """... and went through the router."""
        return [item for item in self.sent if item.target in ROUTED]

    @property
    def answered(self) -> bool:
        """Whether every request had a 2xx status."""
        return all(item.answered for item in self.sent)

    @property
    def items(self) -> int:
        """Media items that the router sends to encode pods: a picture that a request holds twice is one."""
        return sum(len({medium.digest for medium in item.media}) for item in self.routed)

    def change(self, endpoint: str, role: str, key: str, part: str = "", **labels: str) -> Change:
        """By how much a family of the catalog moved on one endpoint."""
        kept = self.facts.page(role)
        family = kept.families.get(key)
        if family is None:
            return Change(None, f"{self.facts.targets.server} counts no such thing on {role} pods")
        pages = self.evidence.page(endpoint, self.before), self.evidence.page(endpoint, self.after)
        found = counters.change(*pages, family, part=part, restarts=kept.restarts, labels=labels)
        if found.absent and family.appears == "first event" and self._has(role, family):
            return Change(0)
        return found

    def _has(self, role: str, family: MetricFamily) -> bool:
        """Whether a page of that role ever had the family: then its absence elsewhere means that nothing happened."""
        names = set(self._names(role))
        return any(page.endpoint in names and counters.present(page, family) for page in self.evidence.scrapes)

    def moved(self, role: str, key: str, part: str = "", **labels: str) -> Moved:
        """By how much it moved on every endpoint of a role; the role ``picker`` is the endpoint pickers."""
        changes = {name: self.change(name, role, key, part, **labels) for name in self._names(role)}
        known = {name: item.number for name, item in changes.items() if item.known}
        return Moved(known, tuple(item.why for item in changes.values() if not item.known))

    def page_after(self, endpoint: str) -> Scrape | None:
        """The page at the end."""
        return self.evidence.page(endpoint, self.after)

    @cached_property
    def foreign(self) -> int | None:
        """Requests of others, at least; None where nothing was readable that would show them. Requests of this run that
        had no answer may still be under way, and are counted when they end: as many are not taken for others'."""
        return None if self._excess is None else max(0, self._excess - self._pending)

    @cached_property
    def _excess(self) -> int | None:
        """What was counted, or is under way, beyond what was answered."""
        found = [number for number in self._excesses() if number is not None]
        return max(0, *found) if found else None

    @property
    def _pending(self) -> int:
        """Requests of this run, up to the end of this window, that run a model and had no answer."""
        last = [at for at, step in enumerate(self.evidence.steps) if step.after == self.after]
        steps = self.evidence.steps[: last[0] + 1] if last else self.steps
        sent = [item for step in steps for item in self.evidence.sent_in(step)]
        return sum(item.method == "POST" and (item.status is None or item.status >= _SERVER_ERROR) for item in sent)

    @property
    def quiet(self) -> bool:
        """Whether nobody else sent anything, as far as all that is readable shows. Pages are not read at one instant:
        only where two readings agreed, at both ends, do they belong together."""
        return self._excess == 0 and self._still(self.before) and self._still(self.after)

    def _still(self, moment: str) -> bool:
        return all(step.settled for step in self.evidence.steps if step.after == moment)

    def _excesses(self) -> Iterator[int | None]:
        """What each counter has more than was sent."""
        for role in self.facts.language_roles:
            moved = self.moved(role, "requests")
            names = {pod.name for pod in self.facts.targets.of(role)}
            own = sum(item.target in ROUTED or item.target.removesuffix(" engine") in names for item in self.sent)
            yield moved.total - own if moved.known else None
            yield self._busy(role)
        moved = self.moved("picker", "requests")
        yield moved.total - len(self.routed) if moved.known else None

    def _busy(self, role: str) -> int | None:
        """Requests that pods have in hand at the moment of the pages, when none of ours is."""
        families = self.facts.page(role).families
        found = [
            counters.value(self.evidence.page(name, moment), families[key])
            for name in self._names(role)
            for moment in (self.before, self.after)
            for key in ("running", "waiting")
        ]
        known = [round(number) for number in found if number is not None]
        return max(known) if known else None

    def _names(self, role: str) -> list[str]:
        targets = self.facts.targets
        return [item.name for item in (targets.pickers if role == "picker" else targets.of(role))]


def windows(evidence: Evidence, facts: Facts, *names: str) -> list[Window]:
    """One window a step of these names, in order."""
    return [Window.of(evidence, facts, step) for step in evidence.steps if step.name in names]


def crowd(found: list[Window]) -> int:
    """The most requests of others in one of the windows, 0 where none is known."""
    return max((window.foreign or 0 for window in found), default=0)


def restarts(evidence: Evidence, facts: Facts) -> list[str]:
    """Endpoints whose process started anew during the run."""
    pages: dict[str, list[Scrape]] = {}
    for page in evidence.scrapes:
        if page.readable:
            pages.setdefault(page.endpoint, []).append(page)
    found = []
    for endpoint, role in facts.targets.pages():
        kept, own = facts.page(role), pages.get(endpoint.name, [])
        if any(
            counters.change(one, other, kept.families["requests"], restarts=kept.restarts).restarted
            for one, other in pairwise(own)
        ):
            found.append(endpoint.name)
    return found
