"""Placements hold what they promise, against an exhaustive search of small cases."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from mmdeploy.preflight.demand import Demand
from mmdeploy.preflight.placement import fits, place, room

Sizes = list[tuple[int, int]]


def demand(count: int, gpus: int, role: str = "decode") -> Demand:
    return Demand(role, count, {}, {}, {"nvidia.com/gpu": gpus * 1000}, ("Deployment", role))


def everywhere(_demand: Demand, _name: str) -> bool:
    return True


def fits_somehow(demands: list[Demand], free: list[int]) -> bool:
    """Every way to give pods to nodes, tried."""
    pods = [item.asks["nvidia.com/gpu"] for item in demands for _ in range(item.count)]
    for choice in product(range(len(free)), repeat=len(pods)):
        left = list(free)
        for pod, where in zip(pods, choice, strict=True):
            left[where] -= pod
        if all(amount >= 0 for amount in left):
            return True
    return not pods


@given(
    shapes=st.lists(st.tuples(st.integers(1, 2), st.integers(1, 4)), min_size=1, max_size=3),
    nodes=st.lists(st.integers(0, 8), min_size=1, max_size=3),
)
def test_no_room_is_promised_that_is_not_there(shapes: Sizes, nodes: list[int]) -> None:
    demands = [demand(count, gpus, f"role{number}") for number, (count, gpus) in enumerate(shapes)]
    free = {f"n{number}": {"nvidia.com/gpu": gpus * 1000} for number, gpus in enumerate(nodes)}
    placed = place(demands, free, everywhere)
    if all(placed.get(id(item), 0) >= item.count for item in demands):
        assert fits_somehow(demands, [gpus * 1000 for gpus in nodes])


@given(count=st.integers(1, 5), gpus=st.integers(1, 4), nodes=st.lists(st.integers(0, 8), min_size=1, max_size=3))
def test_pods_of_one_shape_are_counted_exactly(count: int, gpus: int, nodes: list[int]) -> None:
    wanted = demand(count, gpus)
    free = {f"n{number}": {"nvidia.com/gpu": each * 1000} for number, each in enumerate(nodes)}
    possible = sum(each // gpus for each in nodes)
    assert room(wanted, free, everywhere) == possible
    assert place([wanted], free, everywhere).get(id(wanted), 0) == min(count, possible)


def test_large_pods_first() -> None:
    # First come, first served would put the small ones on both nodes, and the large one nowhere.
    small, large = demand(2, 4, "small"), demand(1, 8, "large")
    free = {name: {"nvidia.com/gpu": 8000} for name in "ab"}
    placed = place([small, large], free, everywhere)
    assert placed == {id(small): 2, id(large): 1}


def test_nothing_free_is_no_room_not_less() -> None:
    assert fits({"cpu": 1000}, {"cpu": -500}) == 0


def test_the_sum_of_the_gpus_is_not_the_room() -> None:
    # 3 nodes with 3 free each: 9 GPUs, and three pods of 2.
    free = {name: {"nvidia.com/gpu": 3000} for name in "abc"}
    assert room(demand(4, 2), free, everywhere) == 3
