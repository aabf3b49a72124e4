"""The router's stream of tokens has the length that the estimator gives, whatever the request."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mmdeploy.estimator import bodies
from mmdeploy.estimator.router import Estimator
from mmdeploy.rehearse.prefixes import Index, pricing, stream
from tests.rehearse.client import image, text

ESTIMATOR = Estimator()
PARTS = st.one_of(
    st.text(max_size=40).map(text),
    st.sampled_from([image(), image(640, 360), image(1280, 720)]),
    st.just({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}),
    st.just({"type": "video_url", "video_url": {"url": "https://example.com/a.mp4"}}),
    st.text(alphabet="abc", min_size=1, max_size=40).map(
        lambda data: {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}
    ),
    st.just({"type": "audio_url", "audio_url": {"url": "https://example.com/a.wav"}}),
)
CONTENTS = st.one_of(st.text(max_size=40), st.lists(PARTS, max_size=4))
ROLES = st.sampled_from(["user", "system"])
MESSAGES = st.lists(st.fixed_dictionaries({"role": ROLES, "content": CONTENTS}), min_size=1, max_size=3)
TOOLS = st.one_of(st.none(), st.just([{"type": "function", "function": {"name": "look", "parameters": {"n": 1.5}}}]))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(messages=MESSAGES, tools=TOOLS)
def test_a_stream_is_as_long_as_its_price(messages: list[Any], tools: Any) -> None:
    body = {"model": "m", "messages": messages, **({"tools": tools} if tools else {})}
    request = bodies.read(body)
    if request.rejected:
        return
    price = pricing(ESTIMATOR)
    counted = stream(body, request, price)
    assert counted.tokens == request.text_tokens + sum(map(price, request.items))
    assert counted.features == len(request.items)


def test_another_model_or_salt_shares_nothing() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "x" * 4000}]}
    index = Index(1000)
    request = bodies.read(body)
    index.remember("pod", stream(body, request, pricing(ESTIMATOR)).blocks(64, 0))
    for other in ({**body, "model": "n"}, {**body, "cache_salt": "s"}):
        assert index.matched("pod", stream(other, request, pricing(ESTIMATOR)).blocks(64, 0)) == 0
    assert index.matched("pod", stream(body, request, pricing(ESTIMATOR)).blocks(64, 0)) == 16  # 1001 tokens


def test_pictures_are_told_apart_by_their_url_alone() -> None:
    """xxhash of the URL's text, not of pixels (router.md §3.2): another spelling of the same bytes is another item."""
    one, other = image(640, 360), image(640, 360)
    other["image_url"]["url"] = other["image_url"]["url"].replace("image/png", "image/x-png")
    streams = [
        stream(body, bodies.read(body), pricing(ESTIMATOR)).blocks(64, 0)
        for body in ({"model": "m", "messages": [{"role": "user", "content": [part]}]} for part in (one, other))
    ]
    assert streams[0] != streams[1]


def test_an_index_forgets_what_was_used_least_recently() -> None:
    index = Index(2)
    index.remember("pod", [b"1", b"2"])
    index.remember("pod", [b"3"])
    assert index.matched("pod", [b"1"]) == 0
    assert index.matched("pod", [b"2", b"3"]) == 2
    assert len(index) == 2
