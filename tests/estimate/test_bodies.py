"""Request bodies against what the router was seen to do (router.md 3.2, router-observed.md) and what its code says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmdeploy.estimator import bodies, gojson
from mmdeploy.estimator.bodies import Request, picture, read
from mmdeploy.estimator.items import Clip, Item, Picture, Sound
from mmdeploy.estimator.router import Estimator
from tests.estimate.media import data_url, movie, png, sound, webp

GUIDE = Estimator.from_block(
    {
        "image": {"defaultResolution": {"width": 1280, "height": 720}, "dynamic": {"factor": 1024}},
        "video": {
            "defaultResolution": {"width": 1280, "height": 720},
            "defaultDuration": 10,
            "maxVideoTokens": 12288,
            "tokensPerFrame": {"mode": "dynamic", "dynamic": {"factor": 1024}},
            "frames": {"mode": "sampled", "minFrames": 4, "maxFrames": 768,
                       "sampled": {"sampleFPS": 2, "temporalPatchSize": 2}},
        },
    }
)  # fmt: skip
"""The values that the guide ships, with which the router was observed."""


def user(*parts: Any, **message: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(parts), **message}]}


def image(url: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def price(item: Item) -> int:
    match item:
        case Picture(hidden=""):
            return GUIDE.image(item.width, item.height)
        case Picture():
            return GUIDE.image_unseen()
        case Clip():
            return GUIDE.video_with(item.said)
        case Sound():
            return GUIDE.audio_inline(item.inline_bytes) if item.inline_bytes else GUIDE.audio_url()
        case _:
            raise AssertionError(item)


def prices(body: Any, headers: dict[str, str] | None = None) -> list[int]:
    return [price(item) for item in read(body, headers=headers).items]


@pytest.mark.parametrize(
    ("size", "tokens"),
    [((64, 64), 4), ((224, 224), 49), ((640, 360), 225), ((1280, 720), 900), ((1920, 1080), 2025),
     ((8000, 6000), 46875), ((20, 2000), 39)],
)  # fmt: skip
def test_inline_pictures_are_priced_by_their_size(size: tuple[int, int], tokens: int) -> None:
    assert prices(user(image(data_url(png(*size))))) == [tokens]


@pytest.mark.parametrize("url", ["https://example.com/a.png", data_url(webp(64, 64), "image/webp"), "data:image/png,x"])
def test_what_it_cannot_read_gets_the_default(url: str) -> None:
    assert prices(user(image(url))) == [900]


def test_two_pictures_are_priced_twice() -> None:
    url = data_url(png(1280, 720))
    assert prices(user(image(url), image(url))) == [900, 900]


@pytest.mark.parametrize(
    ("headers", "tokens"),
    [
        ({}, 9000),
        ({"x-llm-d-video-duration-seconds": "5"}, 4500),
        ({"X-LLM-D-Video-Duration-Seconds": "14"}, 12288),
        ({"x-llm-d-video-resolution": "640x360"}, 2250),
        ({"x-llm-d-video-resolution": "640 x 360px"}, 9000),
    ],
)
def test_videos_are_priced_by_headers(headers: dict[str, str], tokens: int) -> None:
    assert prices(user({"type": "video_url", "video_url": {"url": "https://example.com/a.mp4"}}), headers) == [tokens]


def test_sounds() -> None:
    inline = {"type": "input_audio", "input_audio": {"data": "A" * 4000, "format": "wav"}}
    url = {"type": "audio_url", "audio_url": {"url": "https://example.com/a.wav"}}
    assert prices(user(inline, url, {"type": "audio_url", "audio_url": "not even an object"})) == [1001, 1, 1]


def test_the_true_length_of_inline_media_is_found() -> None:
    wave, clip = sound(2), movie(640, 360, frames=48, ticks=1, scale=24)
    parts = [
        {"type": "input_audio", "input_audio": {"data": data_url(wave, "").partition(",")[2], "format": "wav"}},
        {"type": "video_url", "video_url": {"url": data_url(clip, "video/mp4")}},
    ]
    heard, seen = read(user(*parts)).items
    assert isinstance(heard, Sound)
    assert heard.seconds == 2
    assert isinstance(seen, Clip)
    assert (seen.width, seen.height, seen.fps, seen.duration) == (640, 360, 24, 2)


@pytest.mark.parametrize(
    ("url", "found"),
    [
        (data_url(png(30, 20)), Picture(30, 20)),
        (data_url(png(30, 20)).replace(",", ",\n"), Picture(30, 20)),
        (data_url(png(30, 20)) + "*", Picture(30, 20)),  # it stops reading once it knows the size
        (data_url(png(30, 20), "image/svg+xml;charset=utf-8"), Picture(30, 20)),  # the type is not looked at
        (data_url(png(30, 20), "application/octet-stream"),
         Picture(30, 20, "a data URL that does not begin with data:image/")),
        (data_url(png(30, 20)).replace("data:", "DATA:"), Picture(0, 0, "URL")),
        (data_url(png(0xFFFF, 20), url_safe=True), Picture(0xFFFF, 20, "url-safe base64")),
        (data_url(webp(30, 20), "image/webp"), Picture(30, 20, "WebP")),
        (data_url(png(30, 20)).replace(",", ", "), Picture(0, 0, "what the data URL holds")),
        ("", Picture(0, 0, "URL")),
    ],
)  # fmt: skip
def test_data_urls(url: str, found: Picture) -> None:
    assert picture(url) == found


def test_a_picture_behind_a_large_profile_is_read_to_its_size() -> None:
    jpeg = b"\xff\xd8" + 3 * (b"\xff\xe2\xff\xff" + bytes(65533)) + b"\xff\xc0\x00\x11\x08\x00\xc8\x01\x2c" + bytes(20)
    assert picture(data_url(jpeg, "image/jpeg")) == Picture(300, 200)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (user({"type": "image_url", "image_url": "https://example.com/a.png"}), "image_url must be an object"),
        (user({"type": "text", "text": "hi", "image_url": "x"}), "image_url must be an object"),
        (user({"type": "image_url", "image_url": {"url": 3}}), "url must be text"),
        (user({"type": "text", "text": 3}), "text must be text"),
        (user("words"), "must be an object"),
        ({"messages": []}, "missing or empty"),
        ({"messages": "hi"}, "must be a list"),
        ({"model": "m"}, "missing or empty"),
        ({"messages": [{"role": 1}]}, "role must be text"),
        ({"messages": [{"role": "user", "content": {"type": "text"}}]}, "content must be text or a list"),
        ({"messages": [{"role": "user", "content": "x"}], "tools": {}}, "tools must be a list"),
        ({"prompt": ""}, "prompt is missing"),
        ({"prompt": ["a", 1]}, "mixes"),
        ([], "no JSON object"),
    ],
)
def test_what_the_router_rejects(body: Any, why: str) -> None:
    found = read(body, "/v1/completions" if isinstance(body, dict) and "prompt" in body else "")
    assert why in found.rejected
    assert found == Request(rejected=found.rejected)


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        ({"messages": [{"role": "user", "content": "1234"}]}, 2),  # 4 bytes of role, 4 of text
        ({"messages": [{"role": "user", "content": "12345"}]}, 3),
        ({"messages": [{"role": "user", "content": "é€😀"}]}, 4),  # 4 + 2 + 3 + 4 bytes
        ({"messages": [{"role": "user", "content": None}, {"role": "tool", "content": [None]}, None]}, 2),
        ({"messages": [{"role": "assistant", "content": "", "tool_calls": [{"function": "x" * 99}]}]}, 3),
        ({"Messages": [{"ROLE": "user", "content": "1234"}]}, 2),
        (user({"type": "text", "text": "12345"}, image("u"), {"type": "text", "text": "1"}), 4),  # cut at the picture
        (user({"type": "thinking", "text": "counted nowhere"}), 1),
        ({"messages": [{"content": "x"}], "tools": [{"a": "<", "b": 1.0}]}, 6),  # [{"a":"\u003c","b":1}] is 22 bytes
        ({"prompt": "12345"}, 2),
        ({"prompt": ["12345", "1"]}, 3),
        ({"prompt": [17, 4, 9]}, 3),
        ({"input": "1234", "instructions": "x"}, 10),  # [{"instructions":"x"},{"input":"1234"}] is 39 bytes
    ],
)
def test_text_is_counted_at_four_bytes_a_token(body: Any, tokens: int) -> None:
    assert read(body).text_tokens == tokens


def test_responses_are_priced_by_their_json_and_hold_no_media() -> None:
    url = data_url(png(64, 64))
    body = {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]}
    found = read(body, "/v1/responses")
    assert found.items == []
    assert found.unpriced == ["input_image"]
    assert found.text_tokens == -(-len(json.dumps([body], separators=(",", ":"))) // 4)


@pytest.mark.parametrize(
    ("path", "rejected"),
    [("/v1/chat/completions", False), ("/v1/chat/completions/render", False), ("/v1/completions", True),
     ("/v1/responses", True), ("/something/else", True)],
)  # fmt: skip
def test_the_path_decides_how_a_body_is_read(path: str, rejected: bool) -> None:
    assert bool(read(user(image("u")), path).rejected) is rejected


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (1, "1"), (1.0, "1"), (-0.5, "-0.5"), (1e20, "100000000000000000000"), (1e21, "1e+21"), (1.5e-7, "1.5e-7"),
        (0.00001, "0.00001"), (123456789012345678, "123456789012345680"), (True, "true"), (False, "false"),
        (None, "null"), ("a\n\"<\u2028é", '"a\\n\\"\\u003c\\u2028é"'), ([], "[]"), ({}, "{}"),
        ({"a": [1, {"b": "c"}]}, '{"a":[1,{"b":"c"}]}'), (-1.25e-5, "-0.0000125"),
    ],
)  # fmt: skip
def test_json_is_as_long_as_go_writes_it(value: Any, written: str) -> None:
    assert gojson.length(value) == len(written.encode())


def test_the_apis_that_the_router_knows_are_told_apart_by_their_fields() -> None:
    assert bodies.read({"items": [{"type": "message"}]}).text_tokens == -(-len('[{"type":"message"}]') // 4)


names = st.sampled_from(
    ["type", "text", "image_url", "url", "role", "content", "messages", "tools", "input_audio", "data", "format",
     "video_url", "prompt", "input", "items", "Role"]
)  # fmt: skip
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["text", "image_url", "input_audio", "video_url", "audio_url", "data:image/png;base64,iVBORw0K"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=5),
    max_leaves=30,
)


@settings(max_examples=500, deadline=None)
@given(values, st.sampled_from(["", "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings"]))
def test_any_body_is_priced_or_rejected(body: Any, path: str) -> None:
    found = read(body, path)
    assert found.text_tokens >= 0
    assert all(price(item) >= 1 for item in found.items)
