"""Embeddings on their way from an encoder to a consumer, and what each side says of it (model-servers.md §2, §3)."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from mmdeploy.rehearse.deployment import Deployment
from mmdeploy.rehearse.messages import Message
from tests.rehearse.client import RED, Start, Watch, chat, image, png, text

DIGEST = hashlib.sha256(png(64, 64, RED)).hexdigest()


def encode(deployment: Deployment, *parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    reply = chat(deployment.pods["encode-0"].engine, deployment.settings.model, *parts, **more)
    assert reply.status == 200
    return dict(reply.content)


def test_an_encoder_hands_over_an_address_for_each_hash(start: Start) -> None:
    deployment = start("e-pd")
    answer = encode(deployment, image())
    (entry,) = answer["ec_transfer_params"].values()
    assert list(answer["ec_transfer_params"]) == [DIGEST]
    pod = deployment.pods["encode-0"].settings
    assert (entry["peer_host"], entry["peer_port"]) == (pod.ip, 5610)  # VLLM_EC_SIDE_CHANNEL_PORT of the bundle
    assert entry["size_bytes"] == 64 * 40960  # bytes of a visual token, model-servers.md §1.2
    assert entry["item_indices"] == [0]
    assert "image_grid_thw" in entry["metadata"]


def test_a_uuid_is_the_key(start: Start) -> None:
    deployment = start("e-pd")
    answer = encode(deployment, {**image(), "uuid": "mine"})
    assert list(answer["ec_transfer_params"]) == ["mine"]


def test_text_alone_gets_200_and_no_parameters(start: Start) -> None:
    answer = encode(start("e-pd"), text("hello"))
    assert answer["ec_transfer_params"] is None
    assert answer["choices"][0]["message"]["content"] == ""
    assert answer["usage"]["completion_tokens"] == 0


def test_a_stream_loses_the_parameters(start: Start) -> None:
    deployment = start("e-pd")
    reply = chat(deployment.pods["encode-0"].engine, deployment.settings.model, image(), stream=True)
    assert reply.chunks is not None
    events = b"".join(reply.chunks)
    assert events.endswith(b"data: [DONE]\n\n")
    assert b"ec_transfer_params" not in events


def test_without_nixl_the_parameters_are_null(start: Start) -> None:
    assert encode(start("e-pd", ["producer-local-only"]), image())["ec_transfer_params"] is None


def test_debug_lines_tie_both_sides_to_one_hash(start: Start) -> None:
    deployment = start("e-p-d")
    for pod in deployment.pods.values():
        pod.engine.settings.debug = True
    chat(deployment.entry, deployment.settings.model, image(), text("?"))
    lines = {role: [] for role in ("encode", "prefill", "decode")}  # type: dict[str, list[str]]
    for name, pod in deployment.pods.items():
        lines[name.rpartition("-")[0]] += pod.engine.logs
    consumer = [line for line in lines["prefill"] if DIGEST in line]
    for words in ("starting NIXL xfer", "READ completed", "unpinned after load"):
        assert any(words in line for line in consumer)
    assert any("marked ready" in line and DIGEST in line for line in lines["encode"])
    assert any("serving NIXL READ request" in line and DIGEST in line for line in lines["encode"])
    assert not any("NIXL xfer" in line for line in lines["decode"])


def test_debug_lines_need_the_level(start: Start) -> None:
    deployment = start("e-pd")
    chat(deployment.entry, deployment.settings.model, image(), text("?"))
    assert not any(line.startswith("DEBUG") for pod in deployment.pods.values() for line in pod.engine.logs)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("side-channel-host", "no XferAck"),
        ("other-release", "incompatible compat hash"),
    ],
)
def test_a_failed_transfer_is_a_warning_and_a_200(start: Start, fault: str, words: str) -> None:
    deployment = start("e-pd", [fault])
    pod = deployment.pods["decode-0"]
    given = encode(deployment, image())["ec_transfer_params"]
    reply = chat(pod.engine, deployment.settings.model, image(), text("?"), ec_transfer_params=given)
    assert reply.status == 200
    assert any(line.startswith("WARNING") and words in line and "using local input" in line for line in pod.engine.logs)


def test_parameters_for_an_engine_without_a_connector_are_a_warning(start: Start) -> None:
    deployment = start("aggregation")
    pod = deployment.pods["decode-0"]
    chat(pod.engine, deployment.settings.model, image(), ec_transfer_params={DIGEST: {}})
    assert any("Got ec_transfer_params, but no ECConnector found." in line for line in pod.engine.logs)


def test_who_encodes_takes_the_time(start: Start) -> None:
    """With embeddings from the encoder the consumer does not wait for its own; without, it does."""
    took = []
    for faults in ([], ["consumer-reencodes"]):
        deployment = start("e-pd", faults)
        deployment.settings.timings.encode = 1.0
        before = deployment.clock.now()
        chat(deployment.entry, deployment.settings.model, image(), text("?"))
        took.append(round(deployment.clock.now() - before))
    assert took == [1, 2]


def test_the_forks_of_older_releases_hand_over_too(start: Start) -> None:
    """llm-d v0.8 and v0.9 ship a fork whose connector reads num_ec_blocks."""
    assert encode(start("v0.8/e-pd/gpu/vllm/base"), image())["ec_transfer_params"]


def test_kv_of_a_pod_that_cannot_be_reached_is_an_error_by_default(start: Start) -> None:
    """kv_load_failure_policy is `fail` since vLLM 0.17 (model-servers.md §1.3)."""
    deployment = start("e-p-d", ["kv-side-channel-host"])
    for pod in deployment.settings.of("decode"):
        pod.engine.kv_recompute = False
    watch = Watch(deployment)
    assert chat(deployment.entry, deployment.settings.model, text("hello")).status == 500
    assert watch.roles("vllm:request_success_total", finished_reason="error") == {"decode": 1}
    assert watch.roles("vllm:nixl_num_failed_transfers_total") == {"decode": 1}


def test_sglang_encoders_have_no_models_and_check_by_encoding(start: Start) -> None:
    """model-servers.md §4: vLLM-style probes on /v1/models never pass."""
    engine = start("sglang").pods["encode-0"].engine
    assert engine(Message("GET", "/v1/models")).status == 404
    assert engine(Message("GET", "/health_generate")).status == 200
    engine.settings.fails = True
    assert engine(Message("GET", "/health_generate")).status == 503


def test_sglang_encoders_count_files_and_tokens(start: Start) -> None:
    """Kimi-VL takes 9 tokens of a 64x64 picture (visual-token-truth.csv); four encoders take turns."""
    deployment = start("sglang")
    watch = Watch(deployment)
    for _ in range(5):
        chat(deployment.entry, deployment.settings.model, image(), text("?"))
    assert watch.roles("sglang:encoder_cache_total_tokens_total") == {"encode": 45}
    assert watch.moved("sglang:encoder_cache_hit_files_total") == {"encode-0": 1}
    assert watch.roles("sglang:encoder_requests_received_total", modality="image") == {"encode": 5}
