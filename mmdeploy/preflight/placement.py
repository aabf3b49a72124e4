"""Whether pods fit on nodes, all at once.

A placement that is found is proof; that none is found proves nothing, since only some orders are tried. What can be
proven is the other side: a node never holds more pods of one shape than its amounts allow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice, permutations

from mmdeploy.preflight.amounts import Amounts
from mmdeploy.preflight.demand import Demand, special

Free = Mapping[str, Amounts]
"""What is free, by node."""
Allowed = Callable[[Demand, str], bool]
"""Whether a pod may go to a node, whatever is free there."""

_ORDERS = 24
"""Of the demands; four kinds of pods have as many."""
_MANY = 1000
"""Pods; beyond that one order has to do."""


def fits(asks: Mapping[str, int], free: Mapping[str, int]) -> int:
    """How many pods a node holds by what is free there; one that asks for nothing is held without end, so 1,000,000."""
    rooms = [free.get(name, 0) // amount for name, amount in asks.items() if amount > 0]
    return max(0, min(rooms, default=1_000_000))


def room(demand: Demand, free: Free, allowed: Allowed) -> int:
    """How many pods of one shape there is room for, if nothing else came."""
    return sum(fits(demand.asks, amounts) for name, amounts in free.items() if allowed(demand, name))


def place(demands: Sequence[Demand], free: Free, allowed: Allowed) -> dict[int, int]:
    """How many pods of each demand (by its `id`) found a place in the best of the arrangements that were tried."""
    best: dict[int, int] = {}
    where = {id(demand): [name for name in free if allowed(demand, name)] for demand in demands}
    by_size = sorted(demands, key=lambda demand: _size(demand), reverse=True)
    orders = _ORDERS if sum(demand.count for demand in demands) <= _MANY else 1
    for order in islice(permutations(by_size), orders):
        for tightest in (True, False):
            placed = _arranged(order, free, where, tightest)
            if sum(placed.values()) > sum(best.values()) or not best:
                best = placed
            if all(best.get(id(demand), 0) >= demand.count for demand in demands):
                return best
    return best


def _size(demand: Demand) -> tuple[int, int]:
    return max(demand.accelerators.values(), default=0), demand.asks.get("memory", 0)


def _arranged(
    order: Sequence[Demand], free: Free, where: Mapping[int, Sequence[str]], tightest: bool
) -> dict[int, int]:
    left = {name: dict(amounts) for name, amounts in free.items()}
    placed: dict[int, int] = {}
    for demand in order:
        candidates = list(where[id(demand)])
        for _ in range(demand.count):
            fitting = [name for name in candidates if fits(demand.asks, left[name])]
            if not fitting:
                break
            chosen = min(fitting, key=lambda name: _left_over(left[name], demand)) if tightest else fitting[0]
            for resource, amount in demand.asks.items():
                left[chosen][resource] = left[chosen].get(resource, 0) - amount
            placed[id(demand)] = placed.get(id(demand), 0) + 1
            candidates = fitting  # what does not hold one pod of this shape now will not hold one later
    return placed


def _left_over(free: Mapping[str, int], demand: Demand) -> tuple[int, int]:
    """Prefer nodes without devices that the pod does not want, then those that it fills best."""
    foreign = sum(1 for name, amount in free.items() if special(name) and amount > 0 and not demand.asks.get(name))
    wanted = demand.accelerators or {"memory": 1}
    return foreign, sum(free.get(name, 0) for name in wanted)


__all__ = ["Allowed", "Free", "fits", "place", "room"]
