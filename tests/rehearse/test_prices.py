"""The router's prices, read from outside as router-observed.md says ("The router's price can be read from outside").

The expected prices are those that the file lists as read off the real picker; none is computed here.
"""

from __future__ import annotations

import itertools
import json
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mmdeploy import intended
from mmdeploy.catalog import Catalog
from mmdeploy.rehearse.deployment import Deployment
from mmdeploy.rehearse.messages import Message
from mmdeploy.rehearse.rehearsal import Rehearsal
from mmdeploy.rehearse.settings import Timings
from tests.rehearse.client import CHAT, Start, body, chat, image, samples, text, total
from tests.rehearse.conftest import BUNDLES, ROOT

HIT_BYTES = "llm_d_epp_prefix_indexer_hit_bytes_sum"
NONCES = itertools.count()

AT_1024 = {
    (64, 64): 4, (224, 224): 49, (640, 360): 225, (1280, 720): 900, (1920, 1080): 2025, (20, 2000): 39,
}  # fmt: skip
AT_784 = {(64, 64): 5, (224, 224): 64, (640, 360): 293, (1280, 720): 1175, (1920, 1080): 2644, (20, 2000): 51}

Send = Callable[[dict[str, Any]], None]
Page = Callable[[], str]


def words(tokens: int) -> str:
    """Text that is so many of the router's tokens (4 bytes) together with the role ``user``, its nonce first."""
    return f"{next(NONCES):08d}".ljust(4 * (tokens - 1), "x")


def hit_tokens(send: Send, page: Page, model: str, tokens: int, *media: dict[str, Any]) -> float:
    """What matched of a request that was sent before, in tokens; in E/P/D the same decode pod has to come up."""
    request = body(model, text(words(tokens)), *media)
    send(request)
    for _ in range(60):
        before = total(page(), HIT_BYTES)
        send(request)
        moved = total(page(), HIT_BYTES) - before
        if moved:
            return moved / 4
    raise AssertionError("no repeat hit")


def price(send: Send, page: Page, model: str, block: int, *media: dict[str, Any]) -> int:
    """The media's price: the largest T before the step, by bisection over one block."""
    low, high = 3, 3 + block  # a nonce takes two tokens, the role one
    value = hit_tokens(send, page, model, low, *media)
    assert value % block == 0
    while high - low > 1:
        middle = (low + high) // 2
        if hit_tokens(send, page, model, middle, *media) == value:
            low = middle
        else:
            high = middle
    return int(value) - low


def within(deployment: Deployment) -> tuple[Send, Page]:
    def send(request: dict[str, Any]) -> None:
        assert deployment.entry(Message("POST", CHAT, {}, json.dumps(request).encode())).status == 200

    return send, lambda: str(deployment.scrape_picker(Message("GET", "/metrics")).content)


@pytest.fixture
def over_http(catalog: Catalog) -> Iterator[tuple[Send, Page, str]]:
    read = intended.read(ROOT / "overlays" / BUNDLES["aggregation"], catalog)
    with Rehearsal(read, catalog) as running:
        targets = running.targets()

        def send(request: dict[str, Any]) -> None:
            url = targets["entry"]["url"] + CHAT
            asked = urllib.request.Request(url, json.dumps(request).encode(), {"content-type": "application/json"})
            with urllib.request.urlopen(asked) as reply:
                assert reply.status == 200
                reply.read()

        def page() -> str:
            with urllib.request.urlopen(targets["picker"][0]["metrics"]) as reply:
                return str(reply.read().decode())

        yield send, page, targets["model"]


def test_over_http(over_http: tuple[Send, Page, str]) -> None:
    send, page, model = over_http
    assert price(send, page, model, 64, image(64, 64)) == 4
    assert price(send, page, model, 64, image(1280, 720)) == 900


@pytest.mark.parametrize(("size", "tokens"), AT_1024.items())
def test_factor_1024(start: Start, size: tuple[int, int], tokens: int) -> None:
    deployment = start("aggregation")
    assert price(*within(deployment), deployment.settings.model, 64, image(*size)) == tokens


@pytest.mark.parametrize(("size", "tokens"), AT_784.items())
def test_factor_784(start: Start, size: tuple[int, int], tokens: int) -> None:
    deployment = start("aggregation")
    for plugin in deployment.settings.router.configuration["plugins"]:
        if plugin["type"] == "token-producer":
            plugin["parameters"]["estimate"]["image"]["dynamic"]["factor"] = 784
    deployment = Deployment(deployment.settings, deployment.clock)
    assert price(*within(deployment), deployment.settings.model, 64, image(*size)) == tokens


@pytest.mark.parametrize("topology", ["e-pd", "e-p-d"])
def test_disaggregated(start: Start, topology: str) -> None:
    deployment = start(topology)
    assert price(*within(deployment), deployment.settings.model, 64, image(224, 224)) == 49


def test_two_pictures_cost_twice(start: Start) -> None:
    deployment = start("aggregation")
    pair = image(1280, 720), image(1280, 720, corner=1)
    assert price(*within(deployment), deployment.settings.model, 64, *pair) == 1800


def test_static_on_an_engine_with_larger_blocks(start: Start) -> None:
    """B is the engine's block size where that is above 64 (128 on this accelerator); Gemma 4's static price is 280."""
    deployment = start("main/aggregation/tpu/v7/vllm-gemma-4-31b-it/gke")
    assert price(*within(deployment), deployment.settings.model, 128, image(64, 64)) == 280


def in_flight(deployment: Deployment, key: str, **labels: str) -> dict[str, float]:
    """inflight_tokens by one label; series at 0 are left out."""
    page = str(deployment.picker_metrics(Message("GET", "/metrics")).content)
    found: dict[str, float] = {}
    for name, at, value in samples(page):
        if name == "llm_d_epp_inflight_tokens" and value and labels.items() <= at.items():
            found[at[key]] = found.get(at[key], 0) + value
    return found


def gauge(deployment: Deployment, tokens: int, fairness: str, *media: dict[str, Any], **more: Any) -> dict[str, float]:
    """inflight_tokens of one client by producer, while its request waits for the first token."""
    seen: dict[str, float] = {}

    def look(seconds: float) -> None:
        seen.update(in_flight(deployment, "producer_name", fairness_id=fairness))

    object.__setattr__(deployment.clock, "sleep", look)
    headers = {"x-llm-d-inference-fairness-id": fairness}
    assert (
        chat(deployment.entry, deployment.settings.model, text(words(tokens)), *media, headers=headers, **more).status
        == 200
    )
    return seen


def test_the_gauge_shows_the_price_until_the_first_token(start: Start) -> None:
    """64x64 costs 4: with 60 tokens of text it fills one block of 64, with 61 it begins a second."""
    deployment = start("aggregation", timings=Timings(first_token=1.0))
    assert gauge(deployment, 60, "a", image()) == {"inflight-load-producer": 64}
    assert gauge(deployment, 61, "b", image()) == {"inflight-load-producer": 128}
    page = str(deployment.scrape_picker(Message("GET", "/metrics")).content)
    assert total(page, "llm_d_epp_inflight_tokens", fairness_id="a") == 0


def test_a_second_producer_shows_the_price_in_one_shot(start: Start) -> None:
    """addEstimatedOutputTokens with outputRatio 1 and a large max_tokens: the difference is the whole estimate."""
    deployment = start("aggregation", timings=Timings(first_token=1.0))
    parameters = {"addEstimatedOutputTokens": True, "outputRatio": 1}
    deployment.settings.router.configuration["plugins"].append(
        {"type": "inflight-load-producer", "name": "second", "parameters": parameters}
    )
    deployment = Deployment(deployment.settings, deployment.clock)
    seen = gauge(deployment, 30, "a", image(1280, 720), max_tokens=100_000)
    assert seen["second"] - seen["inflight-load-producer"] == 930


def test_every_stage_carries_the_load_until_its_part_is_done(start: Start) -> None:
    """The router's inflight-load-producer (v0.10.0): the first pod of each profile is charged what it does not hold,
    until the first chunk."""
    deployment = start("e-p-d", timings=Timings(first_token=1.0))
    seen: list[dict[str, float]] = []

    def look(seconds: float) -> None:
        seen.append(in_flight(deployment, "endpoint_name"))

    object.__setattr__(deployment.clock, "sleep", look)
    reply = chat(deployment.entry, deployment.settings.model, text(words(60)), image(), stream=True)
    assert sorted(name.rpartition("-")[0] for name in seen[0]) == ["decode", "encode", "prefill"]
    assert set(seen[0].values()) == {64}
    assert reply.chunks is not None
    next(reply.chunks)
    assert in_flight(deployment, "endpoint_name") == {}


def test_v0_9_has_no_gauge(start: Start) -> None:
    """inflight_tokens exists from router v0.10.0 on; llm-d v0.8 has router v0.9.0."""
    deployment = start("v0.8/aggregation/gpu/vllm/base", timings=Timings(first_token=1.0))
    assert gauge(deployment, 60, "a", image()) == {}


def test_the_bundles_are_there() -> None:
    assert all((ROOT / "overlays" / Path(place)).is_dir() for place in BUNDLES.values())
