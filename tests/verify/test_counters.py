"""What two metrics pages say about what happened between them."""

from __future__ import annotations

import pytest

from mmdeploy.catalog.metrics import MetricFamily, Page
from mmdeploy.verify import counters, scraping
from mmdeploy.verify.evidence import Scrape
from mmdeploy.verify.transport import Answer

SUCCESS = MetricFamily("requests", "counter", ("vllm:request_success_total",))
HITS = MetricFamily("prefixHits", "counter", ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"))
BYTES = MetricFamily("kvBytes", "histogram", ("vllm:nixl_bytes_transferred",))
RESTARTS = ("process_start_time_seconds", "vllm:request_success_created")
PAGE = Page(("vllm:",), {"requests": SUCCESS, "prefixHits": HITS, "kvBytes": BYTES}, RESTARTS, {})


def page(*lines: str, status: int = 200) -> Scrape:
    """A page as `mmdeploy.verify.scraping` reads it."""
    body = "\n".join(("# TYPE vllm:num_requests_running gauge", "vllm:num_requests_running 0", *lines)) + "\n"
    return scraping.page("decode-0", "now", 0.0, Answer(status, {}, ((0.0, body.encode()),)), PAGE)


def success(stop: int, length: int, created: float = 1.7e9) -> tuple[str, ...]:
    return (
        "# TYPE vllm:request_success_total counter",
        f'vllm:request_success_total{{engine="0",finished_reason="stop"}} {stop}',
        f'vllm:request_success_total{{engine="0",finished_reason="length"}} {length}',
        "# TYPE vllm:request_success_created gauge",
        f'vllm:request_success_created{{engine="0",finished_reason="stop"}} {created}',
    )


def test_series_are_added_up_and_created_siblings_are_not() -> None:
    moved = counters.change(page(*success(3, 1)), page(*success(5, 2)), SUCCESS, restarts=RESTARTS)
    assert moved.value == 3  # (5 - 3) + (2 - 1); a _created sibling of 1.7e9 would drown it


def test_one_label_picks_its_series() -> None:
    moved = counters.change(page(*success(3, 1)), page(*success(5, 2)), SUCCESS, labels={"finished_reason": "length"})
    assert moved.value == 1


def test_a_family_that_is_absent_is_not_zero() -> None:
    moved = counters.change(page(), page(), HITS)
    assert (moved.value, moved.absent) == (None, True)
    assert "vllm:prefix_cache_hits_total" in moved.why


def test_a_family_that_is_announced_without_series_is_zero() -> None:
    announced = page("# TYPE vllm:prefix_cache_hits_total counter")
    assert counters.change(announced, announced, HITS).value == 0


def test_a_series_that_appears_started_at_zero() -> None:
    assert counters.change(page(), page("vllm:prefix_cache_hits_total 2176"), HITS).value == 2176


def test_a_former_name_counts_where_the_present_one_is_absent() -> None:
    old = page("vllm:gpu_prefix_cache_hits_total 128")
    assert counters.change(old, page("vllm:gpu_prefix_cache_hits_total 384"), HITS).value == 256


def test_an_alias_beside_the_present_name_is_not_counted_twice() -> None:
    before = page("vllm:prefix_cache_hits_total 0", "vllm:gpu_prefix_cache_hits_total 0")
    after = page("vllm:prefix_cache_hits_total 128", "vllm:gpu_prefix_cache_hits_total 128")
    assert counters.change(before, after, HITS).value == 128


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(success(5, 0), success(1, 0), id="a counter fell"),
        pytest.param(success(5, 0), success(6, 0, created=1.8e9), id="the counter rose, but began anew in between"),
        pytest.param(success(5, 0), ("vllm:request_success_total{finished_reason=\"stop\"} 9",), id="a series is gone"),
        pytest.param(
            ("process_start_time_seconds 100", *success(5, 0)), ("process_start_time_seconds 160", *success(7, 0)),
            id="the process is another one",
        ),
    ],
)  # fmt: skip
def test_a_restart_is_no_number(before: tuple[str, ...], after: tuple[str, ...]) -> None:
    moved = counters.change(page(*before), page(*after), SUCCESS, restarts=RESTARTS)
    assert (moved.value, moved.restarted) == (None, True)


def test_a_histogram_has_a_sum_and_a_count() -> None:
    before = page("vllm:nixl_bytes_transferred_sum 1000", "vllm:nixl_bytes_transferred_count 1")
    after = page("vllm:nixl_bytes_transferred_sum 4000", "vllm:nixl_bytes_transferred_count 3")
    assert counters.change(before, after, BYTES, part="sum").value == 3000
    assert counters.change(before, after, BYTES, part="count").value == 2


@pytest.mark.parametrize(
    ("status", "word"), [(401, "unauthorised"), (403, "unauthorised"), (404, "not found"), (503, "failed")]
)
def test_a_page_that_cannot_be_read_says_why(status: int, word: str) -> None:
    moved = counters.change(page(*success(1, 0)), page(status=status), SUCCESS)
    assert moved.value is None
    assert f"{word} (HTTP {status})" in moved.why


def test_a_gauge_adds_up_its_series_and_none_is_unknown() -> None:
    running = MetricFamily("running", "gauge", ("vllm:prefix_cache_hits_total",))
    assert counters.value(page("vllm:prefix_cache_hits_total 4"), running) == 4
    assert counters.value(page(), running) is None
