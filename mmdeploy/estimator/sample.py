"""What a suggestion is worked out from: every item while they are few, an even sample of them when they are not."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

KEPT = 50_000
"""Different items that are kept before sampling starts; about 10 MB."""

K = TypeVar("K", bound=Hashable)


class Sample(Generic[K]):
    """Items and how often each occurred; past ``kept`` different ones, a sample in which each has the same chance.

    The same items in the same order give the same sample (Li's algorithm L, 1994, with a fixed seed).
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self.total = 0
        self._counts: dict[K, int] = {}
        self._drawn: list[K] | None = None
        self._random = random.Random(4)
        self._threshold = 0.0
        self._next = 0

    @property
    def sampled(self) -> bool:
        """False while every item is kept."""
        return self._drawn is not None

    def add(self, key: K, items: int = 1) -> None:
        """Count ``items`` more of ``key``."""
        self.total += items
        if self._drawn is None:
            self._counts[key] = self._counts.get(key, 0) + items
            if len(self._counts) > self._kept:
                self._draw()
            return
        while self._next <= self.total:
            self._drawn[self._random.randrange(self._kept)] = key
            self._threshold *= math.exp(math.log(1 - self._random.random()) / self._kept)
            self._skip()

    def weights(self) -> dict[K, int]:
        """How often each item occurred, or occurs in the sample."""
        return self._counts if self._drawn is None else dict(Counter(self._drawn))

    def _draw(self) -> None:
        self._drawn = self._random.sample(list(self._counts), self._kept, counts=list(self._counts.values()))
        self._counts = {}
        self._threshold = self._random.betavariate(self._kept, self.total - self._kept + 1)
        self._next = self.total
        self._skip()

    def _skip(self) -> None:
        """Find the next item that enters the sample."""
        self._next += int(math.log(1 - self._random.random()) / math.log1p(-self._threshold)) + 1


@dataclass
class Samples:
    """Pictures and videos whose true counts are known."""

    pictures: Sample[tuple[int, int]] = field(default_factory=Sample)
    """Area in square pixels that the router sees (0: it sees none), and true tokens."""
    videos: Sample[tuple[int, int, float, float, bool, int]] = field(default_factory=lambda: Sample(2_000))
    """Width, height, frames a second, seconds, whether headers say so, and true tokens."""
    sizes: dict[int, tuple[int, int]] = field(default_factory=dict)
    """True tokens of a picture that the router does not see → a size that has them."""

    def add_picture(self, width: int, height: int, seen: bool, true: int, items: int) -> None:
        """Count pictures of one size."""
        self.pictures.add((width * height if seen else 0, true), items)
        if not seen and len(self.sizes) < KEPT:
            self.sizes.setdefault(true, (width, height))
