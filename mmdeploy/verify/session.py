"""One run against a deployment: sends what probes plan, reads every metrics page around it, and keeps the evidence.

Two moments enclose each step. At a moment every page is read, in parallel, again and again until the counters have come
to what was sent and two readings agree, or patience ends: engines count late, with their next statistics tick, and no
fixed wait is right for all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from mmdeploy.verify import answers, counters, scraping
from mmdeploy.verify.bodies import Planned, Writer
from mmdeploy.verify.evidence import Evidence, Observation, Sample, Scrape, Sent, Step
from mmdeploy.verify.window import ROUTED

if TYPE_CHECKING:
    from mmdeploy.verify.facts import Facts
    from mmdeploy.verify.targets import Endpoint
    from mmdeploy.verify.transport import Answer, Transport

READERS = 16
"""Pages that are read at the same time."""


class BudgetSpentError(Exception):
    """A probe asks for more requests than are left; caught by the run, which says so in the evidence."""


class BarredError(Exception):
    """A probe asks for what the person has no right to; ``str`` is the right. Caught by the run as well."""


@dataclass
class Clock:
    """Time as a run takes it; tests pass their own."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


@dataclass
class Session:
    """Sends, reads and remembers."""

    facts: Facts
    transport: Transport
    evidence: Evidence
    budget: int
    """Chat requests that may still be sent; reading pages and listing models costs none."""
    timeout: float = 60.0
    """Seconds a single request may take."""
    clock: Clock = field(default_factory=Clock)
    random: Random | None = None
    tell: Callable[[str], None] = lambda text: None
    """Called with one line for each thing that is done."""
    barred: Mapping[str, str] = field(default_factory=dict)
    """What the person has no right to → that right: ``entry`` (requests through the entry point), ``pods`` (reading
    from pods), ``direct`` (requests that run a model, straight to pods). Not asked for in vain."""

    logs: Callable[[str], Sequence[str]] | None = None
    """The lines of a pod's engine log by the pod's name, oldest first; None where logs cannot be read."""

    def __post_init__(self) -> None:
        self.begun = self.clock.now()
        self.write = Writer(self.facts.targets.model, self.random)
        self.run_id = f"mmdeploy-verify-{self.write.nonce()}"
        self.moment: str | None = None
        self._given_up: set[str] = set()
        """Roles whose counters once did not come to what was sent in all the time there was: not waited for again."""
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="pages")

    def close(self) -> None:
        """Let go of the threads, without waiting for pages that nobody wants any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    @property
    def at(self) -> float:
        """Seconds since the run began."""
        return self.clock.now() - self.begun

    def step(self, name: str, planned: Sequence[Planned], round: int = 0) -> Step:
        """Send requests one after the other, then wait for the counters. The step ends where the next one begins."""
        before = self.moment or self.read("start")
        ids = [self.send(item).id for item in planned]
        after = f"{name}/{round}"
        settled = self.settle(before, after, ids)
        step = Step(name, round, before, after, tuple(ids), settled)
        self.evidence.steps.append(step)
        return step

    def send(self, planned: Planned, timeout: float | None = None) -> Sent:
        """Send one request and keep what came back. Raises `BudgetSpentError` and `BarredError`."""
        self._permitted(planned)
        if planned.method == "POST":
            if self.budget <= 0:
                raise BudgetSpentError(planned.id)
            self.budget -= 1
        self.tell(f"{planned.purpose} to {planned.target}")
        headers = self._headers(planned)
        started = self.at
        answer = self.transport.request(
            self.endpoint(planned.target), planned.method, planned.path, headers, planned.data, timeout or self.timeout
        )
        sent = _kept(planned, headers, started, answer)
        self.evidence.requests.append(sent)
        return sent

    def send_all(self, planned: Sequence[Planned], timeout: float) -> list[Sent]:
        """Send GET requests at the same time. Raises `BarredError`."""
        for item in planned:
            self._permitted(item)

        def ask(item: Planned) -> Sent:
            headers, started = self._headers(item), self.at
            endpoint = self.endpoint(item.target)
            return _kept(
                item, headers, started, self.transport.request(endpoint, item.method, item.path, headers, None, timeout)
            )

        found = list(self._threads.map(ask, planned))
        self.evidence.requests += found
        return found

    def endpoint(self, target: str) -> Endpoint:
        """``entry``, ``gateway``, a pod by name, or ``NAME engine`` for the engine behind a pod's sidecar.
        Raises KeyError."""
        targets = self.facts.targets
        if target == "entry":
            return targets.entry
        if target == "gateway" and targets.gateway is not None:
            return targets.gateway
        for pod in targets.pods:
            if pod.name == target:
                return pod.api
            if pod.engine is not None and pod.engine.name == target:
                return pod.engine
        raise KeyError(target)

    def read(self, moment: str) -> str:
        """Read every page once, and call that ``moment``."""
        self._keep(self._pages(moment))
        self.moment = moment
        return moment

    def settle(self, before: str, moment: str, ids: Iterable[str]) -> bool:
        """Read pages until they have settled, and call that ``moment``. Whether the last two readings agree."""
        patience = self.facts.metrics.patience
        sent = [self.evidence.request(id) for id in ids]
        deadline = self.at + patience["settleSeconds"]
        wait, last = patience["firstWait"], self._pages(moment)
        lacking = self._lacking(before, last, sent)
        while True:
            self.clock.sleep(wait)
            pages = self._pages(moment, last)
            if not lacking:
                # From here on only what others send can move them: no need to wait for the end of that.
                deadline = min(deadline, self.at + patience["busySeconds"])
            still = self._same(last, pages)
            if (still and not lacking) or self.at >= deadline:
                last = pages
                break
            last, lacking = pages, self._lacking(before, pages, sent)
            wait = min(wait * 2, patience["longestWait"])
        self._given_up |= lacking
        self._keep(last)
        self.moment = moment
        return still

    def observe(self, kind: str, about: str, detail: str, **numbers: Any) -> None:
        """Keep something that is neither a request nor a page."""
        self.evidence.observations.append(Observation(kind, about, detail, numbers))

    def _permitted(self, planned: Planned) -> None:
        kind = "entry" if planned.target in ROUTED else ("direct" if planned.method == "POST" else "pods")
        if kind in self.barred:
            raise BarredError(self.barred[kind])

    def _headers(self, planned: Planned) -> dict[str, str]:
        names = self.facts.metrics.headers
        headers = {"content-type": "application/json"} if planned.body is not None else {}
        if planned.method == "POST":
            headers[names["isolation"]] = self.run_id
            headers[names["requestId"]] = f"{self.run_id}-{planned.id.replace('/', '-')}"
        return {**headers, **planned.headers}

    def _pages(self, moment: str, last: Sequence[Scrape] = ()) -> list[Scrape]:
        """Every page, read in parallel; of those that had none a moment ago, what is known of them."""
        known = {page.endpoint: page for page in last if not page.readable}
        seconds = self.facts.metrics.patience["pageSeconds"]

        def one(item: tuple[Endpoint, str]) -> Scrape:
            endpoint, role = item
            if endpoint.name in known:
                return known[endpoint.name]
            answer = self.transport.request(endpoint, "GET", "", {"accept": "text/plain"}, None, seconds)
            return scraping.page(endpoint.name, moment, round(self.at, 4), answer, self.facts.page(role))

        return list(self._threads.map(one, self.facts.targets.pages()))

    def _keep(self, pages: Sequence[Scrape]) -> None:
        self.evidence.scrapes += pages

    def _same(self, old: Sequence[Scrape], new: Sequence[Scrape]) -> bool:
        """Whether two readings agree in everything that moves with requests."""
        steady = {endpoint.name: self.facts.page(role).steady for endpoint, role in self.facts.targets.pages()}

        def moving(page: Scrape) -> list[Sample]:
            return [sample for sample in page.samples if sample.name in steady[page.endpoint]]

        return all(
            one.missing == other.missing and moving(one) == moving(other) for one, other in zip(old, new, strict=True)
        )

    def _lacking(self, before: str, pages: Sequence[Scrape], sent: Sequence[Sent]) -> set[str]:
        """Roles and pods whose counters are readable and have not come to what was sent."""
        answered = [item for item in sent if item.answered and item.method == "POST"]
        routed = [item for item in answered if item.target in ROUTED]
        wanted = {role: len(routed) for role in self.facts.language_roles}
        if self.facts.encodes:
            wanted["encode"] = sum(len({medium.digest for medium in item.media}) for item in routed)
        wanted["picker"] = len(routed)
        names: dict[str, list[str]] = {}
        roles: dict[str, str] = {}
        for endpoint, role in self.facts.targets.pages():
            names.setdefault(role, []).append(endpoint.name)
            roles[endpoint.name] = role
        for item in answered:
            name = item.target.removesuffix(" engine")
            if item.target not in ROUTED and name in roles:
                names[name], wanted[name], roles[name] = [name], wanted.get(name, 0) + 1, roles[name]
        found = {page.endpoint: page for page in pages}
        return {
            key
            for key, number in wanted.items()
            if number and key not in self._given_up and not self._came(before, found, names.get(key, []), roles, number)
        }

    def _came(
        self, before: str, pages: Mapping[str, Scrape], names: Sequence[str], roles: Mapping[str, str], wanted: int
    ) -> bool:
        """Whether endpoints counted ``wanted`` requests in sum; True where it is not known of one, which may have."""
        total = 0
        for name in names:
            kept = self.facts.page(roles[name])
            moved = counters.change(
                self.evidence.page(name, before), pages[name], kept.families["requests"], restarts=kept.restarts
            )
            if not moved.known and not (moved.absent and kept.families["requests"].appears):
                return True
            total += moved.number
        return total >= wanted or not names


def _kept(planned: Planned, headers: Mapping[str, str], started: float, answer: Answer) -> Sent:
    reading = answers.read(answer, planned.streamed)
    return Sent(
        id=planned.id,
        purpose=planned.purpose,
        target=planned.target,
        method=planned.method,
        path=planned.path,
        headers=dict(headers),
        nonce=planned.nonce,
        expected=planned.expected,
        media=planned.media,
        started=round(started, 4),
        seconds=round(answer.seconds, 4),
        first=None if reading.first is None else round(reading.first, 4),
        status=answer.status,
        text=reading.text,
        usage=reading.usage,
        fields=reading.fields,
        error=reading.error,
    )
