"""What endpoint pickers show of one request: how much of it they think is cached, and how much of it is under way.

Only the pickers' pages are read here; those of all pods are read around the whole probe.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mmdeploy.estimator.router import BYTES_PER_TOKEN
from mmdeploy.verify import counters
from mmdeploy.verify.scraping import Scraper
from mmdeploy.verify.transport import Request

if TYPE_CHECKING:
    from mmdeploy.verify.evidence import Scrape
    from mmdeploy.verify.session import Session

MOMENT = "pricing"


@dataclass(frozen=True)
class Hits:
    """By how much the pickers' prefix hits moved."""

    tokens: int
    counted: int
    """Requests that were counted meanwhile; more than one is not ours alone."""


@dataclass
class Flight:
    """The most that was seen under way of our own requests, by producer and pod."""

    seen: dict[tuple[str, str], int] = field(default_factory=dict)

    def blocks(self, block: int, producer: str) -> int | None:
        """The most blocks on one pod; a rest is output that the picker adds."""
        found = [tokens for (name, _), tokens in self.seen.items() if name == producer and tokens >= block]
        return max(found) // block if found else None

    def whole(self, producer: str, plain: str) -> int | None:
        """Tokens that ``producer`` counts above ``plain``: the estimate itself, where it is configured to add it."""
        found = [
            tokens - self.seen.get((plain, pod), 0) for (name, pod), tokens in self.seen.items() if name == producer
        ]
        return max(found) if found and max(found) > 0 else None


class Reader:
    """Reads the pickers' pages of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._page = session.facts.page("picker")
        self._scrapers = [(picker, Scraper(picker.name, self._page)) for picker in session.facts.targets.pickers]

    def pages(self) -> list[Scrape]:
        """Every picker's page, now."""
        seconds = self._session.facts.metrics.patience["pageSeconds"]
        found = []
        for picker, scraper in self._scrapers:
            answer = self._session.transport.send(Request.of_page(picker, seconds))
            found.append(scraper.page(MOMENT, round(self._session.at, 4), answer))
        return found

    def counts_hits(self, pages: Sequence[Scrape]) -> bool:
        """Whether every picker is readable, and one has counted prefix hits, or has not yet counted anything."""
        family, requests = self._page.families["prefixHitBytes"], self._page.families["requests"]
        return bool(pages) and all(
            page.readable and (counters.present(page, family) or not counters.value(page, requests)) for page in pages
        )

    def settled(self, before: Sequence[Scrape]) -> Hits | None:
        """How the hits moved since ``before``, once the request that was answered is counted; None where it is not."""
        patience = self._session.facts.metrics.patience
        wait, deadline = patience["firstWait"], self._session.at + patience["busySeconds"]
        while True:
            found = self._moved(before, self.pages())
            if found is None or found.counted or self._session.at >= deadline:
                return found
            self._session.clock.sleep(wait)
            wait *= 2

    def _moved(self, before: Sequence[Scrape], after: Sequence[Scrape]) -> Hits | None:
        family = self._page.families["prefixHitBytes"]
        nbytes = counted = 0
        for old, new in zip(before, after, strict=True):
            if not new.readable or not old.readable:
                return None
            if counters.present(new, family) is None:
                continue
            restarts = self._page.restarts
            moved = [counters.change(old, new, family, part=part, restarts=restarts) for part in ("sum", "count")]
            if not all(item.known for item in moved):
                return None
            nbytes, counted = nbytes + moved[0].number, counted + moved[1].number
        return Hits(nbytes // BYTES_PER_TOKEN, counted)

    @contextmanager
    def watching(self) -> Iterator[Flight]:
        """Reads what is under way again and again, until the block ends."""
        flight, stop = Flight(), threading.Event()
        wait = self._session.facts.metrics.patience["firstWait"]

        def watch() -> None:
            while not stop.is_set():
                self._look(flight)
                stop.wait(wait)

        thread = threading.Thread(target=watch, name="in flight", daemon=True)
        thread.start()
        try:
            yield flight
        finally:
            stop.set()
            thread.join()

    def _look(self, flight: Flight) -> None:
        family = self._page.families["inflightTokens"]
        for page in self.pages():
            name = counters.present(page, family) if page.readable else None
            for sample in page.samples if name else ():
                if sample.name == name and sample.labels.get("fairness_id") == self._session.run_id:
                    key = sample.labels.get("producer_name", ""), sample.labels.get("endpoint_name", "")
                    flight.seen[key] = max(flight.seen.get(key, 0), round(sample.value))
