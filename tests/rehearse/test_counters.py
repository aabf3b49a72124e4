"""What a request moves on an engine: the table of deltas that was observed on vLLM 0.32 (model-servers.md §2)."""

from __future__ import annotations

import pytest

from mmdeploy.rehearse.deployment import Deployment
from mmdeploy.rehearse.messages import Message
from tests.rehearse.client import CHAT, Start, Watch, chat, image, text, total

SUCCESS, PREFIX, MEDIA = "vllm:request_success_total", "vllm:prefix_cache", "vllm:mm_cache"
PICTURE_TOKENS = 64  # Qwen3-VL's floor, visual-token-truth.csv


def padded(deployment: Deployment, tokens: int, pictures: int, mark: str) -> str:
    """Text that makes a prompt of ``tokens`` together with ``pictures`` pictures; what is around it is measured."""
    engine = deployment.pods["decode-0"].engine
    reply = chat(engine, deployment.settings.model, text(""), *[image()] * pictures)
    around = reply.content["usage"]["prompt_tokens"]
    engine.restart()
    return mark.ljust(4 * (tokens - around), "x")


@pytest.fixture
def engine(start: Start) -> Deployment:
    """One pod, with the block size of the run that was observed."""
    deployment = start("aggregation")
    deployment.pods["decode-0"].engine.settings.block_size = 128
    return deployment


def moved(watch: Watch, pod: str = "decode-0") -> tuple[float, ...]:
    """request_success, prefix queries and hits, mm queries and hits."""
    names = (SUCCESS, *(f"{stem}_{kind}_total" for stem in (PREFIX, MEDIA) for kind in ("queries", "hits")))
    return tuple(watch.moved(name).get(pod, 0) for name in names)


def test_the_table_of_an_aggregated_engine(engine: Deployment) -> None:
    model, pod = engine.settings.model, engine.pods["decode-0"].engine
    long, other, pair = (padded(engine, n, k, mark) for n, k, mark in ((2292, 1, "a"), (84, 1, "b"), (181, 2, "c")))
    short = padded(engine, 31, 0, "d")
    watch = Watch(engine)
    for parts, expected in (
        ((text(long), image()), (1, 2292, 0, 1, 0)),
        ((text(long), image()), (1, 2292, 2176, 1, 1)),  # 17 blocks of 128
        ((text(short),), (1, 31, 0, 0, 0)),
        ((text(other), image()), (1, 84, 0, 1, 1)),
    ):
        watch.reset()
        assert chat(pod, model, *parts).status == 200
        assert moved(watch) == expected
    pod.restart()
    watch.reset()
    assert chat(pod, model, text(pair), image(), image()).status == 200
    assert moved(watch) == (1, 181, 0, 2, 1)


def test_the_table_of_an_encode_pod(start: Start) -> None:
    deployment = start("e-pd")
    model, pod = deployment.settings.model, deployment.pods["encode-0"].engine
    watch = Watch(deployment)
    for parts, expected in (
        ((image(),), (1, 0, 0, 1, 0)),
        ((image(),), (1, 0, 0, 1, 1)),
        ((text("only text"),), (1, 0, 0, 0, 0)),
    ):
        watch.reset()
        reply = chat(pod, model, *parts)
        assert (reply.status, reply.content["choices"][0]["finish_reason"]) == (200, "stop")
        assert reply.content["choices"][0]["message"]["content"] == ""
        assert moved(watch, "encode-0") == expected
    assert watch.moved("vllm:generation_tokens_total") == {}


def test_a_consumer_counts_raw_media(start: Start) -> None:
    """+1 mm query on the PD pod: the sidecar does not take the media away."""
    deployment = start("e-pd")
    watch = Watch(deployment)
    assert chat(deployment.entry, deployment.settings.model, image(), text("?")).status == 200
    assert watch.roles("vllm:mm_cache_queries_total") == {"encode": 1, "decode": 1}


def test_prompt_tokens_are_the_models(start: Start) -> None:
    """Differences of usage.prompt_tokens: 64, 880 and 2040 tokens (visual-token-truth.csv)."""
    deployment = start("aggregation")
    told = []
    for size in ((64, 64), (1280, 720), (1920, 1080)):
        reply = chat(deployment.entry, deployment.settings.model, image(*size), text("?"))
        told.append(reply.content["usage"]["prompt_tokens"])
    assert (told[1] - told[0], told[2] - told[0]) == (880 - PICTURE_TOKENS, 2040 - PICTURE_TOKENS)


def test_an_exact_multiple_of_blocks_keeps_its_last_token_to_compute(engine: Deployment) -> None:
    """The last token is always computed, so 256 tokens hit one block of 128."""
    model, pod = engine.settings.model, engine.pods["decode-0"].engine
    words = padded(engine, 256, 0, "e")
    chat(pod, model, text(words))
    watch = Watch(engine)
    chat(pod, model, text(words))
    assert moved(watch)[1:3] == (256, 128)


def test_kv_moves_to_the_decode_pod(start: Start) -> None:
    deployment = start("e-p-d")
    watch = Watch(deployment)
    reply = chat(deployment.entry, deployment.settings.model, image(), text("What colour?"))
    tokens = reply.content["usage"]["prompt_tokens"]
    assert watch.roles("vllm:external_prefix_cache_hits_total") == {"decode": tokens}
    assert watch.roles("vllm:nixl_xfer_time_seconds_count") == {"decode": 1}
    assert watch.roles("vllm:nixl_num_failed_transfers_total") == {}
    assert watch.roles("vllm:prompt_tokens_by_source_total", source="local_compute") == {"prefill": tokens}
    assert watch.roles(SUCCESS, finished_reason="length") == {"prefill": 1}


def test_created_series_and_known_reasons_stand_from_the_start(start: Start) -> None:
    deployment = start("aggregation")
    page = str(deployment.pods["decode-0"].engine(Message("GET", "/metrics")).content)
    for reason in ("stop", "length", "abort", "error", "repetition"):
        assert total(page, SUCCESS, finished_reason=reason) == 0
    assert total(page, "vllm:prompt_tokens_created") == 1_000_000.0
    with pytest.raises(KeyError):
        total(page, "vllm:nixl_num_failed_transfers_total")  # registered only where that connector is configured


def test_an_unknown_model_is_404_and_counts_nothing(start: Start) -> None:
    deployment = start("aggregation")
    watch = Watch(deployment)
    assert chat(deployment.entry, "some/other", text("hello")).status == 404
    assert watch.moved(SUCCESS) == {}


def test_a_stream_counts_when_it_ends(start: Start) -> None:
    deployment = start("aggregation")
    watch = Watch(deployment)
    options = {"stream": True, "stream_options": {"include_usage": True}}
    reply = deployment.entry(Message("POST", CHAT, {}, b"".join(_json(deployment, options))))
    assert reply.chunks is not None
    assert watch.moved(SUCCESS) == {}
    events = [chunk.decode() for chunk in reply.chunks]
    assert events[-1] == "data: [DONE]\n\n"
    assert '"usage"' in events[-2]
    assert list(watch.moved(SUCCESS).values()) == [1]


def _json(deployment: Deployment, options: dict[str, object]) -> list[bytes]:
    import json

    from tests.rehearse.client import body

    return [json.dumps(body(deployment.settings.model, text("Hello there"), **options)).encode()]
