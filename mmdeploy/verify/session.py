"""One run against a deployment: sends what probes plan, reads every metrics page around it, and keeps the evidence.

Two moments enclose each step; one step's end is the next one's beginning. At a moment every page is read, in parallel,
and those that may still move are read again and again until the counters have come to what was sent and two readings
agree, or patience ends: engines count late, with their next statistics tick, and no fixed wait is right for all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from mmdeploy.verify import answers
from mmdeploy.verify.bodies import Planned, Writer
from mmdeploy.verify.evidence import Evidence, Observation, Scrape, Sent, Step
from mmdeploy.verify.scraping import Scraper
from mmdeploy.verify.settling import Balance
from mmdeploy.verify.transport import Request
from mmdeploy.verify.window import ROUTED

if TYPE_CHECKING:
    from mmdeploy.verify.facts import Facts
    from mmdeploy.verify.targets import Endpoint
    from mmdeploy.verify.transport import Answer, Transport

Result = TypeVar("Result")

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
    hold: float = 0.0
    """Seconds for which one request is kept open."""

    def __post_init__(self) -> None:
        self.begun = self.clock.now()
        self.write = Writer(self.facts.targets.model, self.random)
        self.run_id = f"mmdeploy-verify-{self.write.nonce()}"
        self.moment: str | None = None
        pages = self.facts.targets.pages()
        self._given_up: set[str] = set()
        """Roles whose counters once did not come to what was sent in all the time there was: not waited for again."""
        self._scrapers = {item.name: Scraper(item.name, self.facts.page(role)) for item, role in pages}
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
        answer = self.transport.send(self._request(planned, headers, timeout or self.timeout))
        sent = _kept(planned, headers, started, answer)
        self.evidence.requests.append(sent)
        return sent

    def send_all(self, planned: Sequence[Planned], timeout: float) -> list[Sent]:
        """Send GET requests at the same time. Raises `BarredError`."""
        for item in planned:
            self._permitted(item)

        def ask(item: Planned) -> Sent:
            headers, started = self._headers(item), self.at
            return _kept(item, headers, started, self.transport.send(self._request(item, headers, timeout)))

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
        self._keep(moment, self._pages(moment))
        return moment

    def settle(self, before: str, moment: str, ids: Iterable[str]) -> bool:
        """Read pages until they have settled, and call that ``moment``. Whether the last two readings agree."""
        patience = self.facts.metrics.patience
        balance = Balance(self.facts, self.evidence, before, [self.evidence.request(id) for id in ids])
        deadline, wait = self.at + patience["settleSeconds"], patience["firstWait"]
        pages, still = self._pages(moment), True
        lacking = balance.lacking(pages) - self._given_up
        while again := balance.unsettled(pages):
            if not lacking:
                # From here on only what others send can move them: no need to wait for the end of that.
                deadline = min(deadline, self.at + patience["busySeconds"])
            self.clock.sleep(wait)
            newer = {**pages, **self._pages(moment, again)}
            still = balance.agree(pages, newer)
            # What moved may be the doing of others, whose traces stand on the other pages, too.
            newer |= self._pages(moment, [item for item in balance.unsettled(newer) if item not in again])
            pages, lacking = newer, balance.lacking(newer) - self._given_up
            if (still and not lacking) or self.at >= deadline:
                break
            wait = min(wait * 2, patience["longestWait"])
        self._given_up |= lacking
        self._keep(moment, pages)
        return still

    def all(self, calls: Iterable[Callable[[], Result]]) -> list[Result]:
        """Results of independent calls, in order; they run at the same time. The first exception is raised."""
        return list(self._threads.map(lambda call: call(), calls))

    def observe(self, kind: str, about: str, detail: str, **numbers: Any) -> None:
        """Keep something that is neither a request nor a page."""
        self.evidence.observations.append(Observation(kind, about, detail, numbers))

    def _permitted(self, planned: Planned) -> None:
        kind = "entry" if planned.target in ROUTED else ("direct" if planned.method == "POST" else "pods")
        if kind in self.barred:
            raise BarredError(self.barred[kind])

    def _request(self, planned: Planned, headers: Mapping[str, str], timeout: float) -> Request:
        return Request(self.endpoint(planned.target), timeout, planned.method, planned.path, headers, planned.data)

    def _headers(self, planned: Planned) -> dict[str, str]:
        names = self.facts.metrics.headers
        headers = {"content-type": "application/json"} if planned.body is not None else {}
        if planned.method == "POST":
            headers[names["isolation"]] = self.run_id
            headers[names["requestId"]] = f"{self.run_id}-{planned.id.replace('/', '-')}"
        return {**headers, **planned.headers}

    def _pages(self, moment: str, only: Iterable[tuple[Endpoint, str]] | None = None) -> dict[str, Scrape]:
        """Every page, or ``only`` those, read in parallel; by endpoint."""
        seconds = self.facts.metrics.patience["pageSeconds"]

        def one(item: tuple[Endpoint, str]) -> Scrape:
            endpoint, _ = item
            answer = self.transport.send(Request.of_page(endpoint, seconds))
            return self._scrapers[endpoint.name].page(moment, round(self.at, 4), answer)

        found = self._threads.map(one, self.facts.targets.pages() if only is None else only)
        return {page.endpoint: page for page in found}

    def _keep(self, moment: str, pages: Mapping[str, Scrape]) -> None:
        self.evidence.scrapes += pages.values()
        self.moment = moment


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
