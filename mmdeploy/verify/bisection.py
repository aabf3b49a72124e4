"""What a picture is priced at, worked out of block counts.

The router counts prompts in blocks: B tokens each, T tokens of text and I of the picture. What it says of a request is
one of

- ``held``: how many whole blocks it shares with a longer request that began in the same way, ``floor((T + I) / B)``;
- ``sent``: how many blocks it has itself, ``ceil((T + I) / B)``;
- ``exact``: T + I (of a router that has a producer for it).

One answer leaves B values of I; the next text is chosen so that the step between two counts lies where the question is.
Two requests confirm an expected price to the token, and 1 + log2(B) find an unexpected one. Source: router-observed.md,
"The router's price can be read from outside"; router.md §2.4 and §3.2 (blocks are hashed from the start of the prompt,
and a picture stands in it as equal tokens).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Form = Literal["held", "sent", "exact"]

HIGHEST = 1 << 31
"""No picture costs more."""


@dataclass(frozen=True)
class Bounds:
    """The prices that are still possible, both ends included."""

    low: int = 1
    high: int = HIGHEST

    def __contains__(self, price: object) -> bool:
        return isinstance(price, int) and self.low <= price <= self.high

    def __str__(self) -> str:
        return str(self.low) if self.exact else f"{self.low} to {self.high}"

    @property
    def exact(self) -> bool:
        """Whether one price is left."""
        return self.low == self.high

    @property
    def known(self) -> bool:
        """Whether anything was seen at all."""
        return self.high < HIGHEST

    @property
    def width(self) -> int:
        """How many prices are left."""
        return self.high - self.low + 1

    def narrowed(self, other: Bounds) -> Bounds | None:
        """What both allow; None where that is nothing: one of the two counted something else."""
        low, high = max(self.low, other.low), min(self.high, other.high)
        return Bounds(low, high) if low <= high else None


def bounds(form: Form, counted: int, text: int, block: int) -> Bounds:
    """Prices of the picture that fit one answer: ``counted`` blocks (``exact``: tokens), ``text`` tokens of text."""
    if form == "exact":
        low = high = counted - text
    elif form == "held":
        low, high = counted * block - text, (counted + 1) * block - 1 - text
    else:
        low, high = (counted - 1) * block + 1 - text, counted * block - text
    return Bounds(max(1, low), max(1, high))


@dataclass
class Search:
    """Chooses texts for one picture, and keeps what the answers say of its price."""

    form: Form
    block: int
    longest: int
    """Tokens of the longest text. With ``held`` the first request has it; later ones are shorter, each than the one
    before: wherever such a request lands, what is known there is longer, and the count can be read."""
    expected: int | None = None
    bounds: Bounds = field(default_factory=Bounds)
    last: int | None = None
    """Tokens of the text asked last; None before the first."""
    disturbed: int = 0
    """Answers that do not go together with those before."""

    def next_text(self) -> int | None:
        """Tokens of the next text; None where nothing is left to ask, or the text has become too short."""
        if self.bounds.exact:
            return None
        step = self._step()
        if self.form == "exact":
            return self.longest
        if self.form == "sent":
            return self.longest - (self.longest + step - 1) % self.block
        start = self.longest if self.last is None else self.last
        text = start - 1 - (start - 1 + step) % self.block
        return text if text > self.block else None

    @property
    def expects(self) -> bool:
        """Whether the expected price is still possible."""
        return self.expected is not None and self.expected in self.bounds

    def asked(self, text: int) -> None:
        """A request with that text was sent."""
        self.last = text

    def heard(self, text: int, counted: int) -> None:
        """Take an answer in."""
        found = self.bounds.narrowed(bounds(self.form, counted, text, self.block))
        if found is None:
            self.disturbed += 1
            self.bounds = Bounds()
        else:
            self.bounds = found

    def renew(self) -> None:
        """Begin again with the longest text and a new picture of the same size; what is known of the price stays."""
        self.last = None

    def settled(self, share: float) -> bool:
        """Whether the price is known well enough: to the token; or within one block around what was expected; or,
        where it is another, within ``share`` of itself."""
        if self.expects:
            return self.bounds.width <= self.block
        return self.bounds.known and self.bounds.width - 1 <= share * self.bounds.low

    def _step(self) -> int:
        """The price from which on the answer is to be one more."""
        low, high = self.bounds.low, self.bounds.high
        if self.expected is not None and self.expects:
            return self.expected if low < self.expected else self.expected + 1
        return low + 1 if not self.bounds.known else (low + high + 1) // 2
