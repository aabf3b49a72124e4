"""Every committed bundle can be rehearsed: its pods, its pool and its model's tokens."""

from __future__ import annotations

from pathlib import Path

import pytest

from mmdeploy.rehearse.messages import Message
from tests.rehearse.client import BLUE, Start, Watch, chat, image, said, text, total
from tests.rehearse.conftest import ROOT

OVERLAYS = sorted(
    str(file.parent.relative_to(ROOT / "overlays")) for file in (ROOT / "overlays").rglob("mmdeploy.yaml")
)
TOKENS = {  # of a picture of 1280x720: visual-token-truth.csv, model-servers.md §5
    "Qwen/Qwen3-VL-32B-Instruct": 880,
    "google/gemma-4-31B-it": 266,
    "moonshotai/Kimi-VL-A3B-Instruct": 1075,
}
TEMPLATE = 5 + 2 + 3  # what the stand-in's chat template adds: rehearse.yaml, engines.template


@pytest.mark.parametrize("place", OVERLAYS)
def test_a_picture_is_served_by_the_right_stages(start: Start, place: str) -> None:
    deployment = start(place)
    watch = Watch(deployment)
    model = deployment.settings.model
    reply = chat(
        deployment.entry, model, image(1280, 720, BLUE), text("What colour is it?!!")
    )  # 20 characters: 5 tokens
    assert (reply.status, said(reply)) == (200, "The picture is blue.")
    assert reply.content["usage"]["prompt_tokens"] == TOKENS[model] + TEMPLATE + 5
    ended = ("vllm:request_success_total", "sglang:num_requests_total", "sglang:encoder_requests_total")
    busy = {role for name in ended for role in watch.roles(name)}
    topology = Path(place).parts[1]
    assert (
        busy
        == {"aggregation": {"decode"}, "e-pd": {"encode", "decode"}, "e-p-d": {"encode", "prefill", "decode"}}[topology]
    )


@pytest.mark.parametrize("place", OVERLAYS)
def test_the_pool_holds_the_pods_that_the_bundle_means(start: Start, place: str) -> None:
    deployment = start(place)
    page = str(deployment.scrape_picker(Message("GET", "/metrics")).content)
    expected = len(deployment.settings.of("decode")) if "sglang" in place else len(deployment.pods)
    assert total(page, "llm_d_epp_ready_endpoints") == expected


def test_the_overlays_cover_every_release() -> None:
    assert {Path(place).parts[0] for place in OVERLAYS} == {"main", "v0.8", "v0.9"}


def test_a_spec_file_can_be_rehearsed_too(start: Start, tmp_path: Path) -> None:
    (tmp_path / "deploy.yaml").write_text("topology: e-pd\nencode: {replicas: 3}\n")
    deployment = start(str(tmp_path / "deploy.yaml"))
    assert len(deployment.settings.of("encode")) == 3
