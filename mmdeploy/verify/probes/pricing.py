"""Pictures of known sizes, each followed by text of known length: what the engine says they take, and what the router
charges for them.

First one longest text without a picture and with each: the differences are what the pictures take. Then shorter texts
after the same picture, until the steps in the router's block counts say what it charges. Every request counts against
the plan of ``catalog/metrics.yaml``; where the price is what was expected, two a picture do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mmdeploy.verify import pricing
from mmdeploy.verify.bisection import Form, Search
from mmdeploy.verify.evidence import Scrape, Sent, Step
from mmdeploy.verify.judges.affinity import block_size
from mmdeploy.verify.pricing_readings import Flight, Reader

if TYPE_CHECKING:
    from mmdeploy.verify.facts import Facts
    from mmdeploy.verify.pictures import Picture
    from mmdeploy.verify.session import Session

PLAIN_PRODUCER = "inflight-load-producer"


def cost(facts: Facts) -> int:
    """Most requests that it may take; nothing where the router has no price of its own."""
    return 0 if pricing.expectation(facts).silent else pricing.Plan.of(facts.catalog).requests


def run(session: Session, round: int) -> None:
    """The step ``pricing``."""
    before = session.moment or session.read("start")
    asking = _Asking(session)
    try:
        asking.count()
        asking.price()
    finally:
        after = f"pricing/{round}"
        ids = tuple(asking.sent)
        settled = session.settle(before, after, ids)
        session.evidence.steps.append(Step("pricing", round, before, after, ids, settled))


@dataclass
class _Priced:
    """One picture whose price is looked for."""

    size: pricing.Size
    hidden: bool
    search: Search
    picture: Picture
    begun: bool = False
    """Whether the longest text was sent with it."""


@dataclass
class _Asking:
    """One round."""

    session: Session
    sent: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        facts = self.session.facts
        self.plan = pricing.Plan.of(facts.catalog)
        self.expected = pricing.expectation(facts)
        self.letter = pricing.Letter(self.session.write)
        self.reader = Reader(self.session)
        self.left = min(self.plan.requests, self.session.budget)
        self.block = pricing.block_of(facts, self._engine_blocks())
        follows = facts.follows_cache and "prefill" not in facts.roles
        self.steady = follows or len(facts.targets.of("decode")) == 1
        self.longest = self.block * (self.plan.rows if self.steady else self.plan.patient_rows)
        self.named = pricing.exact_producer(facts)
        self.pages = self.reader.pages() if facts.targets.pickers else []
        self.hits = self.reader.counts_hits(self.pages)
        self.form: Form = "exact" if self.named else "held"
        self.watches = bool(self.pages)
        quiet = self.session.evidence.observed("quiet-window")
        self.others = sum(int(item.numbers.get("foreign") or 0) for item in quiet)
        self.wanted: list[_Priced] = []

    def _engine_blocks(self) -> list[int]:
        facts = self.session.facts
        pages = [self.session.evidence.page(pod.name, self.session.moment or "") for pod in facts.targets.of("decode")]
        return [size for size in (block_size(page, facts) for page in pages) if size]

    def count(self) -> None:
        """The longest text alone, and with each picture of which only the tokens are asked."""
        self._send("text", self.longest, None)
        for size in self.plan.counted:
            self._send(_name(size), self.longest, self.letter.picture(size))

    def price(self) -> None:
        """The prices: first each roughly, so that none is left out, then those that matter to the token."""
        self.wanted = [self._priced(size, hidden=False) for size in self.plan.priced]
        if self.expected.estimator is not None:
            self.wanted.append(self._priced(self.plan.hidden, hidden=True))
        for item in self.wanted:
            if self.left > 0:
                item.begun = self._ask(item, self.longest, item.picture)
        if not self.pages:
            return
        if self.others or not self.steady or not self.hits:
            self._prefer_flight()
        for exactly in (False, True):
            for item in self.wanted:
                if item.begun and not (exactly and item.hidden):
                    self._narrow(item, exactly=exactly)

    def _priced(self, size: pricing.Size, *, hidden: bool) -> _Priced:
        search = Search(self.form, self.block, self.longest, self.expected.guess(size, hidden))
        return _Priced(size, hidden, search, self.letter.picture(size, hidden))

    def _prefer_flight(self) -> None:
        """Read what is under way instead of hits: where others are counted with us, or repeats may go to another pod.
        Only if the time to the first token was long enough to see it."""
        if self.form == "held" and all(item.search.bounds.known for item in self.wanted if item.begun):
            self.form = "sent"
            for item in self.wanted:
                item.search.form = "sent"

    def _narrow(self, item: _Priced, *, exactly: bool) -> None:
        search, unheard = item.search, 0
        patience = 3 if self.steady or self.form != "held" else self.plan.patient_rows
        while self.left > 0 and unheard < patience and self._readable() and search.disturbed < 2:
            if search.bounds.exact or (search.settled(self.plan.share) and not (exactly and search.expects)):
                return
            text = search.next_text()
            if text is None:
                search.renew()
                text = self.longest
            if text == self.longest or search.form != "held":
                item.picture = self.letter.picture(item.size, item.hidden)
            search.asked(text)
            known = search.bounds
            if not self._ask(item, text, item.picture):
                return
            unheard = unheard + 1 if search.bounds == known else 0
            if self.others > 1:
                self._prefer_flight()

    def _readable(self) -> bool:
        return self.watches if self.form != "held" else self.hits

    def _ask(self, item: _Priced, text: int, picture: Picture) -> bool:
        """One request, and what the pickers show of it. Whether it was answered."""
        name = _name(item.size) + "-hidden" * item.hidden
        counts = text == self.longest and not item.hidden
        fresh = text == self.longest or self.form != "held"
        before = self.reader.pages() if self.hits else []
        if self.watches and fresh:
            with self.reader.watching() as flight:
                sent = self._send(name, text, picture, hidden=item.hidden, counts=counts)
            self._flight(item, sent, text, flight)
        else:
            sent = self._send(name, text, picture, hidden=item.hidden, counts=counts)
        if self.hits and not fresh and sent.answered:
            self._hits(item, sent, text, before)
        return sent.answered

    def _flight(self, item: _Priced, sent: Sent, text: int, flight: Flight) -> None:
        """What was seen of a picture that nobody had sent before: all of it was still to be computed."""
        form: Form = "exact" if self.named else "sent"
        counted = flight.whole(self.named, PLAIN_PRODUCER) if self.named else flight.blocks(self.block, PLAIN_PRODUCER)
        if counted:
            self._heard(item, sent, form, text, counted)

    def _hits(self, item: _Priced, sent: Sent, text: int, before: Sequence[Scrape]) -> None:
        """What was found cached of a shorter text after the same picture."""
        found = self.reader.settled(before)
        if found is None or found.counted != 1:
            others = max(0, found.counted - 1) if found else 0
            self.others += others
            why = "others were counted with it" if others else "the picker did not count it"
            self.session.observe("price-unread", sent.id, why, others=others)
        elif found.tokens and found.tokens % self.block == 0:
            self._heard(item, sent, "held", text, found.tokens // self.block)
        else:
            why = "it went to another pod" if not found.tokens else f"{found.tokens} is no multiple of {self.block}"
            self.session.observe("price-unread", sent.id, why, tokens=found.tokens, block=self.block)

    def _heard(self, item: _Priced, sent: Sent, form: Form, text: int, counted: int) -> None:
        mine, item.search.form = item.search.form, form
        item.search.heard(text, counted)
        item.search.form = mine
        self.session.observe(
            "price", sent.id, f"{counted} of it were counted ({form})", width=item.size[0], height=item.size[1],
            hidden=item.hidden, form=form, counted=counted, text=text, block=self.block,
        )  # fmt: skip

    def _send(
        self, name: str, text: int, picture: Picture | None, *, hidden: bool = False, counts: bool = True
    ) -> Sent:
        self.left -= 1
        purpose = "pricing.text" if picture is None else "pricing.count" if counts else "pricing.step"
        id = f"{purpose}/{name}-{len(self.sent)}"
        planned = self.letter.asked(id, purpose, text, picture, hidden, whole=bool(self.named))
        sent = self.session.send(planned)
        self.sent.append(sent.id)
        return sent


def _name(size: pricing.Size) -> str:
    return f"{size[0]}x{size[1]}"
