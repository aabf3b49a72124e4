"""How errors spread, in memory that does not grow with their number."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

BANDS: tuple[tuple[float, float], ...] = (
    (-100.0, -50.0),
    (-50.0, -20.0),
    (-20.0, -5.0),
    (-5.0, 5.0),
    (5.0, 20.0),
    (20.0, 50.0),
    (50.0, 100.0),
    (100.0, float("inf")),
)
"""Errors in per cent that people tell apart, each from its lower bound up to but not including its upper one."""

_FINE, _COARSE, _MOST = 10_000, 1_000_000, 100_000_000
"""Tenths of a per cent up to which every tenth, every hundredth per cent and every 100,000 per cent is kept apart."""


@dataclass(slots=True)
class Distribution:
    """Errors of prices against counts, kept to a tenth of a per cent (coarser above 1,000 %)."""

    items: int = 0
    router_tokens: int = 0
    model_tokens: int = 0
    absolute_error_tokens: int = 0
    """Sum of |price - count|: what a suggestion makes small."""
    _tenths: dict[int, int] = field(default_factory=dict)

    def add(self, router: int, model: int, items: int = 1) -> None:
        """Count ``items`` items that are priced ``router`` and take ``model`` (1 or more) each."""
        self.extend([(router, model, items)])

    def extend(self, priced: Iterable[tuple[int, int, int]]) -> None:
        """Count many: price, true tokens (1 or more) and number of items of each. Written for long traffic."""
        count, prices, trues, off, known = 0, 0, 0, 0, self._tenths
        for router, model, items in priced:
            count += items
            prices += router * items
            trues += model * items
            difference = router - model
            off += (difference if difference > 0 else -difference) * items
            tenths = difference * 1000 // model
            if tenths > _FINE:
                tenths = _coarser(tenths)
            known[tenths] = known.get(tenths, 0) + items
        self.items += count
        self.router_tokens += prices
        self.model_tokens += trues
        self.absolute_error_tokens += off

    @property
    def error_percent(self) -> float | None:
        """Of all prices together; None when nothing was counted."""
        return (self.router_tokens - self.model_tokens) / self.model_tokens * 100 if self.model_tokens else None

    @property
    def mean_absolute_error_tokens(self) -> float | None:
        """Tokens that a price is off, on average over the items."""
        return self.absolute_error_tokens / self.items if self.items else None

    def quantile(self, share: float) -> float | None:
        """The error in per cent that ``share`` (0 to 1) of the items do not pass, to a tenth, rounded down."""
        if not self.items:
            return None
        left = share * self.items
        for tenths in sorted(self._tenths):
            left -= self._tenths[tenths]
            if left <= 0:
                return tenths / 10
        return max(self._tenths) / 10

    def bands(self) -> list[int]:
        """Items in each of `BANDS`."""
        counts = [0] * len(BANDS)
        for tenths, items in self._tenths.items():
            at = next(index for index, (_, upper) in enumerate(BANDS) if tenths / 10 < upper)
            counts[at] += items
        return counts


def _coarser(tenths: int) -> int:
    """Fewer keys for errors that are hopeless anyway."""
    if tenths > _COARSE:
        tenths = min(tenths, _MOST)
        return tenths - tenths % _COARSE
    return tenths - tenths % 1000
