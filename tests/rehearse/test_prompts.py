"""Requests as an engine reads them: every medium, and what it refuses."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from mmdeploy.rehearse import prompts
from mmdeploy.rehearse.messages import Message
from mmdeploy.rehearse.prompts import RefusedError, Tokenizer
from tests.estimate.media import movie, sound
from tests.rehearse.client import CHAT, Start, Watch, body, chat, image, text

TOKENIZER = Tokenizer(4, 5, 2, 3)


def heard(seconds: int) -> dict[str, Any]:
    data = base64.b64encode(sound(seconds)).decode()
    return {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}


def read(catalog: Any, family: str, *parts: dict[str, Any]) -> prompts.Prompt:
    return prompts.read(body("m", *parts), catalog.families[family], TOKENIZER)


def test_text_is_four_characters_a_token(catalog: Any) -> None:
    assert read(catalog, "qwen3-vl", text("12345678"), text("9")).tokens == 5 + 2 + 1 + 3


def test_sound_takes_what_the_model_takes(catalog: Any) -> None:
    """Qwen3-Omni: 13 tokens a second (model-servers.md §5)."""
    assert read(catalog, "qwen3-omni", heard(10)).tokens == 5 + 2 + 130 + 3


def test_video_takes_what_the_model_takes(catalog: Any) -> None:
    """Qwen3-VL, 10 s of 640x360: 2,200 visual tokens, and about 9 around each of 10 groups (model-servers.md §5)."""
    data = base64.b64encode(movie(640, 360)).decode()
    part = {"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{data}"}}
    tokens = read(catalog, "qwen3-vl", part).tokens - 10
    assert 2200 + 80 <= tokens <= 2200 + 100


@pytest.mark.parametrize(
    "part",
    [
        heard(1),  # a model without ears
        {"type": "image_embeds", "image_embeds": {}},
        {"type": "image_url", "image_url": {}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "video_url", "video_url": {"url": "https://example.com/a.mp4"}},
        image(1, 201),  # an aspect ratio that Qwen's processor refuses
        "text that is no part",
    ],
)
def test_what_an_engine_refuses(catalog: Any, part: Any) -> None:
    with pytest.raises(RefusedError):
        read(catalog, "qwen3-vl", part)


@pytest.mark.parametrize("messages", [None, [], ["text"], [{"role": "user", "content": 5}]])
def test_messages_that_are_none(catalog: Any, messages: Any) -> None:
    with pytest.raises(RefusedError):
        prompts.read({"messages": messages}, catalog.families["qwen3-vl"], TOKENIZER)


def test_a_refusal_is_a_400_that_counts_nothing(start: Start) -> None:
    for bundle in ("aggregation", "sglang"):
        deployment = start(bundle)
        watch = Watch(deployment)
        part = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
        assert chat(deployment.entry, deployment.settings.model, part).status == 400
        assert watch.moved("vllm:request_success_total") == watch.moved("sglang:num_requests_total") == {}


def test_blocks_are_equal_up_to_where_prompts_differ(catalog: Any) -> None:
    one, other = (read(catalog, "qwen3-vl", text("x" * 400 + end), image()).blocks(16) for end in ("aaaa", "bbbb"))
    assert len(one) == len(other) == (5 + 101 + 2 + 64 + 3) // 16
    assert [a == b for a, b in zip(one, other, strict=True)] == [True] * 6 + [False] * 4  # 105 tokens are 6 blocks


def test_other_paths_of_an_engine(start: Start) -> None:
    engine = start("aggregation").pods["decode-0"].engine
    assert engine(Message("GET", "/version")).content == {"version": "0.27.1"}
    assert engine(Message("GET", "/health")).status == 200
    assert engine(Message("GET", "/nowhere")).status == 404
    assert engine(Message("DELETE", "/v1/models")).status == 405
    asked = json.dumps({"model": engine.settings.served, "prompt": "What is 1 + 2?"}).encode()
    assert engine(Message("POST", "/v1/completions", {}, asked)).content["choices"][0]["text"] == "3"
    assert engine(Message("POST", "/v1/completions", {}, b"{}")).status == 400
    assert engine(Message("POST", CHAT, {}, b"no JSON")).status == 400


def test_an_answer_is_cut_at_max_tokens(start: Start) -> None:
    deployment = start("aggregation")
    reply = chat(deployment.entry, deployment.settings.model, text("word " * 50), max_tokens=3)
    choice = reply.content["choices"][0]
    assert (len(choice["message"]["content"]), choice["finish_reason"]) == (12, "length")
    assert reply.content["usage"]["completion_tokens"] == 3


def test_sglang_streams(start: Start) -> None:
    deployment = start("sglang")
    watch = Watch(deployment)
    options = {"stream": True, "stream_options": {"include_usage": True}}
    reply = chat(deployment.entry, deployment.settings.model, text("What is 2 + 2?"), **options)
    assert reply.chunks is not None
    events = [json.loads(chunk[6:]) for chunk in reply.chunks if b"[DONE]" not in chunk]
    assert "".join(event["choices"][0]["delta"].get("content", "") for event in events if event["choices"]) == "4"
    assert events[-1]["usage"]["prompt_tokens"] == 5 + 4 + 3
    assert watch.moved("sglang:num_requests_total", is_streaming="true") == {"decode-0": 1}
    assert watch.moved("llm_d_epp_request_ttft_seconds_count", streaming="true") == {"picker": 1}
