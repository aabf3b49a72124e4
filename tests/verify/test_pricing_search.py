"""The search for a price, against the arithmetic that was observed on the running router.

The oracle is router-observed.md, "The router's price can be read from outside": a request that is sent twice hits
B·ceil((T + I)/B) tokens. A shorter text after the same picture shares floor((T + I)/B) whole blocks with a longer one.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmdeploy.verify.bisection import Bounds, Form, Search, bounds

BLOCKS = st.sampled_from([16, 64, 128, 256])
PRICES = st.integers(1, 50_000)
COUNT = {
    "held": lambda total, block: total // block,
    "sent": lambda total, block: math.ceil(total / block),
    "exact": lambda total, block: total,
}


def ask(search: Search, price: int) -> int:
    """One request, and what the router counts of it. How many it took: 2 where the longest text was needed anew."""
    text, asked = search.next_text(), 1
    if text is None:
        search.renew()
        text, asked = search.next_text(), 2
    assert text is not None
    search.asked(text)
    search.heard(text, COUNT[search.form](text + price, search.block))
    return asked


def found(form: Form, block: int, price: int, expected: int | None, rows: int = 4) -> tuple[Search, int]:
    search, asked = Search(form, block, rows * block, expected), 0
    while not search.bounds.exact:
        asked += ask(search, price)
        assert asked < 40, "the search does not end"
    return search, asked


@given(st.sampled_from(["held", "sent"]), BLOCKS, PRICES)
def test_two_answers_confirm_an_expected_price_to_the_token(form: Form, block: int, price: int) -> None:
    search, asked = found(form, block, price, expected=price)
    assert search.bounds == Bounds(price, price)
    assert asked <= 2


@given(st.sampled_from(["held", "sent"]), BLOCKS, PRICES, PRICES)
def test_an_unexpected_price_is_found_by_halving(form: Form, block: int, price: int, expected: int) -> None:
    search, _ = found(form, block, price, expected)
    assert search.bounds == Bounds(price, price)


@given(BLOCKS, PRICES)
def test_halving_takes_no_more_answers_than_it_must(block: int, price: int) -> None:
    """One answer leaves B prices, each further one halves them; `sent` starts anew each time and needs nothing else."""
    _, asked = found("sent", block, price, expected=None)
    assert asked <= 1 + math.ceil(math.log2(block))


@given(BLOCKS, PRICES)
def test_texts_after_one_picture_become_shorter_and_stay_within_their_bounds(block: int, price: int) -> None:
    """Wherever such a request lands, what is known there is longer: only then is its count that of whole blocks."""
    search, last = Search("held", block, 4 * block), 4 * block
    while (text := search.next_text()) is not None:
        assert block < text < last
        search.asked(text)
        search.heard(text, (text + price) // block)
        last = text


def test_the_price_of_router_observed_is_found_by_the_seven_probes_that_it_names() -> None:
    """1280x720 at factor 1024 is 900 tokens; at B = 64 the file counts 7 probes."""
    _, asked = found("sent", 64, 900, expected=None)
    assert asked == 7


@given(PRICES, st.integers(1, 600), BLOCKS)
def test_an_exact_count_is_the_price(price: int, text: int, block: int) -> None:
    assert bounds("exact", text + price, text, block) == Bounds(price, price)


def test_answers_that_do_not_go_together_begin_anew() -> None:
    search = Search("held", 64, 256, 900)
    search.heard(252, (252 + 900) // 64)
    search.heard(251, (251 + 40) // 64)  # of something else
    assert search.disturbed == 1
    assert not search.bounds.known


@pytest.mark.parametrize(
    ("low", "high", "expected", "enough"),
    [
        (900, 963, 900, True),  # one block around what was expected
        (837, 963, 900, False),
        (280, 283, 900, True),  # another price, within 2 % of itself
        (280, 300, 900, False),
        (280, 283, None, True),
    ],
)
def test_when_a_price_is_known_well_enough(low: int, high: int, expected: int | None, enough: bool) -> None:
    search = Search("held", 64, 256, expected)
    search.bounds = Bounds(low, high)
    assert search.settled(0.02) is enough
