"""The best number, found exactly: which ``factor`` or ``staticToken`` is least wrong over many pictures.

The objective is the sum of |price - count| over all pictures. For a static price that is a weighted median. For a
factor the price is ``area // factor``, which falls in steps as the factor grows; branch and bound over ranges of
factors finds the minimum without trying each one.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

Weighted = Mapping[tuple[int, int], int]
"""Area in square pixels and true tokens of a picture → how many there are."""


def weighted_median(values: Iterable[tuple[int, int]]) -> int:
    """The lowest value at which half of the weight is reached; ``values`` are (value, weight), at least one.

    It minimises the weighted sum of absolute differences.
    """
    ordered = sorted(values)
    half = sum(weight for _, weight in ordered) / 2
    for value, weight in ordered:
        half -= weight
        if half <= 0:
            return value
    return ordered[-1][0]


def closest(values: Iterable[tuple[int, int]], low: int, high: int) -> int:
    """`weighted_median` within ``low`` to ``high``: the sum is convex, so the nearer end is best outside of them."""
    return min(max(weighted_median(values), low), high)


def off_by(price: int, values: Iterable[tuple[int, int]]) -> int:
    """Sum of |price - value|, by weight."""
    return sum(abs(price - value) * weight for value, weight in values)


def best_factor(pictures: Weighted, low: int, high: int, prefer: int) -> tuple[int, int]:
    """The factor in ``low`` to ``high`` with the smallest sum of |max(1, area // factor) - true|, and that sum.

    Among equals the one nearest to ``prefer`` wins, then the smaller. ``pictures`` must not be empty.
    """
    rows = [(area, true, weight) for (area, true), weight in pictures.items()]
    prefer = min(max(prefer, low), high)
    best = (factor_error(rows, prefer), 0, prefer)
    waiting = [(0, low, high)]
    while waiting:
        bound, first, last = heapq.heappop(waiting)
        if bound > best[0]:
            break
        if _constant(rows, first, last):
            nearest = min(max(prefer, first), last)
            best = min(best, (factor_error(rows, nearest), abs(nearest - prefer), nearest))
            continue
        middle = (first + last) // 2
        for start, end in ((first, middle), (middle + 1, last)):
            bound = _bound(rows, start, end)
            if bound <= best[0]:
                heapq.heappush(waiting, (bound, start, end))
    return best[2], best[0]


def factor_error(rows: Iterable[tuple[int, int, int]], factor: int) -> int:
    """Sum of |max(1, area // factor) - true| over (area, true, weight)."""
    return sum(abs((area // factor or 1) - true) * weight for area, true, weight in rows)


def _bound(rows: list[tuple[int, int, int]], first: int, last: int) -> int:
    """No factor in ``first`` to ``last`` is less wrong than this: each picture gets its own best one."""
    total = 0
    for area, true, weight in rows:
        cheapest = area // last or 1
        if true < cheapest:
            total += (cheapest - true) * weight
        else:
            dearest = area // first or 1
            if true > dearest:
                total += (true - dearest) * weight
    return total


def _constant(rows: list[tuple[int, int, int]], first: int, last: int) -> bool:
    """Whether every factor in ``first`` to ``last`` gives the same prices."""
    return first == last or all((area // first or 1) == (area // last or 1) for area, _, _ in rows)
