"""Recorded traffic: what is read, what is counted, and that memory does not grow with it."""

from __future__ import annotations

import io
import json
import random
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mmdeploy.catalog.families import Family
from mmdeploy.estimator import traffic as module
from mmdeploy.estimator.distribution import Distribution
from mmdeploy.estimator.pairing import natural_estimate
from mmdeploy.estimator.router import Estimator
from mmdeploy.estimator.sample import Sample, Samples
from mmdeploy.estimator.traffic import Tally, Traffic
from mmdeploy.estimator.visual import image_tokens


def estimator(family: Family) -> Estimator:
    return Estimator.from_block(natural_estimate(family, video_supported=True))


def tally(family: Family, *lines: Any) -> Tally:
    data = b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
    traffic = Traffic(family, estimator(family))
    traffic.read(io.BytesIO(data))
    return traffic.tally


def size(width: int, height: int, **more: Any) -> dict[str, Any]:
    return {"width": width, "height": height, **more}


def test_sizes_are_priced_and_counted(qwen: Family) -> None:
    found = tally(
        qwen,
        size(1280, 720),
        size(64, 64),
        size(4000, 3000, via="url"),
        size(4000, 3000, via="inline", format="webp"),
        size(640, 480, format="jpg", count=3),
        size(640, 480, type="image", camera="ignored"),
    )
    assert (found.lines, found.unreadable, found.items["image"]) == (6, 0, 8)
    assert found.hidden == {"URL": 1, "WebP": 1}
    assert found.errors.router_tokens == 900 + 4 + 900 + 900 + 4 * 300
    assert found.errors.model_tokens == 880 + 64 + 2 * 11750 + 4 * 300
    assert found.errors.absolute_error_tokens == 20 + 60 + 2 * 10850


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"nonsense", "not JSON"),
        (b'{"width": 1280, "height": 720} x', "not JSON"),
        (b'{"width": NaN, "height": 720}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        ([1], "no JSON object"),
        ({}, "neither a size"),
        (size(0, 720), "`width` must be a whole number"),
        (size(1280, 1 << 40), "`height` must be a whole number"),
        (size(True, 720), "`width` must be"),
        (size("1280", 720), "`width` must be"),
        (size(1280.5, 720), "`width` must be"),
        (size(1280, 720, via="fax"), "`via` must be"),
        (size(1280, 720, via=["url"]), "`via` must be"),
        (size(1280, 720, format="jxl"), "`format` must be"),
        (size(1280, 720, count=0), "`count` must be"),
        (size(1280, 720, type="smell"), "`type` must be"),
        (size(1280, 720, type="video", fps=24), "`duration` must be"),
        ({"body": {}, "url": 3}, "`url` must be"),
        ({"body": {"messages": []}, "url": "/v1/messages"}, "Anthropic"),
    ],
)
def test_a_line_that_cannot_be_read_is_counted_and_shown(qwen: Family, line: Any, why: str) -> None:
    found = tally(qwen, size(1280, 720), line, size(1280, 720))
    assert (found.lines, found.unreadable, found.items["image"]) == (3, 1, 2)
    ((number, words),) = found.problems
    assert number == 2
    assert why in words


def test_only_the_first_problems_are_kept(qwen: Family) -> None:
    found = tally(qwen, *([b"x"] * 1000))
    assert found.unreadable == 1000
    assert [number for number, _ in found.problems] == [1, 2, 3, 4, 5]


def test_line_numbers_count_over_batches(qwen: Family) -> None:
    plain = [size(1280, 720)] * 9_000
    found = tally(qwen, *plain, b"x", *plain, size(0, 0))
    assert [number for number, _ in found.problems] == [9_001, 18_002]


def test_line_ends_blank_lines_and_a_mark_at_the_start_do_not_matter(qwen: Family) -> None:
    line = json.dumps(size(1280, 720)).encode()
    for data in (line, line + b"\n", b"\xef\xbb\xbf" + line + b"\r\n" + line, b"\n" + line + b"\n\n  \n" + line + b" "):
        traffic = Traffic(qwen, estimator(qwen))
        traffic.read(io.BytesIO(data))
        assert traffic.tally.unreadable == 0
        assert traffic.tally.items["image"] == data.count(b"width")


def test_a_line_of_any_length_up_to_the_limit_is_read(qwen: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_BYTES", 100)
    monkeypatch.setattr(module, "LINE_LIMIT", 1000)
    found = tally(qwen, size(1280, 720, note="x" * 900), size(1280, 720, note="x" * 5000), size(64, 64))
    assert (found.lines, found.unreadable, found.items["image"]) == (3, 1, 2)
    assert "longer than" in found.problems[0][1]
    assert found.problems[0][0] == 2


def test_requests_are_read_as_the_router_reads_them(qwen: Family) -> None:
    part = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    body = {"messages": [{"role": "user", "content": [part, part, {"type": "image_embeds"}]}]}
    bad = {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "https://example.com/a.png"}]}]}
    headers = {
        "x-llm-d-video-resolution": "640x360",
        "x-llm-d-video-fps": 24,
        "x-llm-d-video-duration-seconds": "10",
    }
    video = {"messages": [{"role": "user", "content": [{"type": "video_url", "video_url": {"url": "u"}}]}]}
    found = tally(qwen, body, bad, {"url": "/v1/chat/completions", "headers": headers, "body": video})
    assert (found.requests, found.rejected, found.unreadable) == (3, 1, 0)
    assert (found.items["image"], found.items["video"]) == (2, 1)
    assert (found.uncounted, found.uncounted_router_tokens) == (2, 1800)
    assert (found.errors.router_tokens, found.errors.model_tokens) == (2250, 2200)
    assert found.unpriced == {"image_embeds": 1}
    assert found.text_router_tokens == 2


def test_videos_sounds_and_refused_pictures(qwen: Family) -> None:
    clip = {"type": "video", "width": 640, "height": 360, "fps": 24, "duration": 10}
    found = tally(qwen, clip, {**clip, "headers": False}, {"type": "audio", "duration": 30}, size(10_000, 10))
    assert (found.errors.router_tokens, found.errors.model_tokens) == (2250 + 9000, 4400)
    assert found.hidden == {"video without headers": 1}
    assert (found.refused, found.uncounted, found.items["image"]) == (1, 1, 1)


def test_headers_that_claim_the_impossible_are_not_counted(qwen: Family) -> None:
    headers = {
        "x-llm-d-video-resolution": f"{1 << 62}x{1 << 62}",
        "x-llm-d-video-fps": "1e300",
        "x-llm-d-video-duration-seconds": "1e300",
    }
    part = {"type": "video_url", "video_url": {"url": "u"}}
    found = tally(qwen, {"headers": headers, "body": {"messages": [{"role": "user", "content": [part]}]}})
    assert (found.items["video"], found.uncounted, found.unreadable) == (1, 1, 0)


def test_precise_routing_has_no_error(qwen: Family) -> None:
    traffic = Traffic(qwen, None)
    traffic.read(io.BytesIO(b'{"width": 4000, "height": 3000, "via": "url"}'))
    assert traffic.tally.errors.absolute_error_tokens == 0
    assert traffic.tally.errors.router_tokens == 11750


class Endless(io.RawIOBase):
    """Lines that are made while they are read."""

    def __init__(self, lines: Iterator[bytes]) -> None:
        self._lines, self._rest = lines, b""

    def read(self, wanted: int = -1) -> bytes:
        parts, held = [self._rest], len(self._rest)
        while held < wanted and (line := next(self._lines, b"")):
            parts.append(line)
            held += len(line)
        data = b"".join(parts)
        self._rest = data[wanted:]
        return data[:wanted]


def lines(count: int) -> Iterator[bytes]:
    draw = random.Random(1)
    for _ in range(count):
        width, height, via = draw.randint(100, 400), draw.randint(100, 400), draw.choice(["url", "inline"])
        yield b'{"width": %d, "height": %d, "via": "%s"}\n' % (width, height, via.encode())


@pytest.mark.parametrize("suggest", [False, True])
def test_memory_does_not_grow_with_the_traffic(qwen: Family, suggest: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_BYTES", 1 << 15)

    def peak(count: int) -> int:
        samples = Samples(pictures=Sample(500)) if suggest else None
        tracemalloc.start()
        try:
            Traffic(qwen, estimator(qwen), samples).read(Endless(lines(count)))  # type: ignore[arg-type]
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(12_000) < 1.3 * peak(3_000)


def test_a_distribution_knows_its_quantiles() -> None:
    errors = Distribution()
    for percent in range(-50, 51):
        errors.add(1000 + 10 * percent, 1000)
    assert errors.items == 101
    assert [errors.quantile(share) for share in (0.01, 0.5, 1)] == [-49.0, 0.0, 50.0]
    assert errors.bands() == [0, 30, 15, 10, 15, 30, 1, 0]
    assert errors.mean_absolute_error_tokens == pytest.approx(2 * sum(range(51)) * 10 / 101)
    errors.add(10**15, 1)
    assert errors.bands()[-1] == 1


def test_a_sample_keeps_everything_while_it_can_and_is_even_after_that() -> None:
    sample: Sample[int] = Sample(1_000)
    for key in range(1_000):
        sample.add(key, 2)
    assert not sample.sampled
    assert sample.weights() == dict.fromkeys(range(1_000), 2)
    for key in range(1_000, 20_000):
        sample.add(key, 2)
    assert sample.sampled
    assert sample.total == 40_000
    weights = sample.weights()
    assert sum(weights.values()) == 1_000
    assert 430 < sum(weight for key, weight in weights.items() if key < 10_000) < 570


def test_the_whole_is_the_sum_of_its_lines(qwen: Family) -> None:
    drawn = [json.loads(line) for line in lines(500)]
    found = tally(qwen, *drawn).errors
    router = estimator(qwen)
    prices = [900 if one["via"] == "url" else router.image(one["width"], one["height"]) for one in drawn]
    assert found.router_tokens == sum(prices)
    assert found.model_tokens == sum(image_tokens(qwen, one["width"], one["height"]) for one in drawn)


line = st.binary(max_size=60) | st.dictionaries(
    st.sampled_from(["width", "height", "via", "format", "type", "count", "fps", "duration", "headers", "body", "url"]),
    st.integers(-3, 5000)
    | st.floats()
    | st.sampled_from(["url", "inline", "png", "webp", "video", "audio"])
    | st.none(),
    max_size=6,
).map(lambda value: json.dumps(value).encode())


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(line, max_size=8))
def test_any_lines_are_counted_or_told_of(qwen: Family, drawn: list[bytes]) -> None:
    traffic = Traffic(qwen, estimator(qwen), Samples())
    traffic.read(io.BytesIO(b"\n".join(drawn)))
    found = traffic.tally
    assert found.unreadable + found.rejected >= len(found.problems)
    assert found.errors.items + found.uncounted + found.refused == found.media
