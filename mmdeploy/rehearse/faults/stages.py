"""Faults between the stages: encoding, the transfer of embeddings, prefill, the transfer of KV blocks."""

from __future__ import annotations

from collections.abc import Iterator

from mmdeploy.catalog import Catalog
from mmdeploy.rehearse.faults.registry import fault
from mmdeploy.rehearse.settings import LOCALHOST, EngineSettings, PodSettings, Settings

ENCODE, PREFILL = ("encode",), ("prefill",)


def _engines(pods: list[PodSettings]) -> Iterator[EngineSettings]:
    return (pod.engine for pod in pods)


@fault("encode-missing", "The encode role was scaled to 0.", roles=ENCODE)
def _missing(settings: Settings, catalog: Catalog) -> None:
    for pod in settings.of("encode"):
        pod.gone = True


@fault(
    "encode-unlabelled",
    "The encode pods lack llm-d.ai/role, so they pass for decode pods.",
    roles=ENCODE,
    server="vllm",
)
def _unlabelled(settings: Settings, catalog: Catalog) -> None:
    for pod in settings.of("encode"):
        pod.labels.pop(catalog.labels["role"], None)


@fault("encode-unready", "The encode pods' readiness probe asks the wrong port.", roles=ENCODE)
def _unready(settings: Settings, catalog: Catalog) -> None:
    for pod in settings.of("encode"):
        pod.ready = False


@fault("prefill-unready", "The prefill pods never become ready.", roles=PREFILL)
def _prefill_unready(settings: Settings, catalog: Catalog) -> None:
    for pod in settings.of("prefill"):
        pod.ready = False


@fault(
    "encoder-fails",
    "The encode pods' image lacks a library, and every request ends in an error of the engine.",
    roles=ENCODE,
)
def _fails(settings: Settings, catalog: Catalog) -> None:
    for engine in _engines(settings.of("encode")):
        engine.fails = True


@fault(
    "encoder-silent",
    "The encode pods run an image whose answers carry no ec_transfer_params.",
    roles=ENCODE,
    server="vllm",
)
def _silent(settings: Settings, catalog: Catalog) -> None:
    for engine in _engines(settings.of("encode")):
        engine.publishes = False


@fault("producer-local-only", "ec_enable_nixl was lost from the encode pods' connector.", roles=ENCODE, server="vllm")
def _local_only(settings: Settings, catalog: Catalog) -> None:
    for engine in _engines(settings.of("encode")):
        engine.ec_nixl = False


@fault("consumer-reencodes", "--ec-transfer-config was left off the consumers.", roles=ENCODE, server="vllm")
def _reencodes(settings: Settings, catalog: Catalog) -> None:
    for engine in _engines(settings.prefilling()):
        engine.ec_role, engine.ec_nixl = "", False


@fault("side-channel-host", "VLLM_EC_SIDE_CHANNEL_HOST was left out of the encode pods.", roles=ENCODE, server="vllm")
def _side_channel(settings: Settings, catalog: Catalog) -> None:
    for engine in _engines(settings.of("encode")):
        engine.ec_host = LOCALHOST


@fault("sidecar-without-ec", "--ec-connector was left off the routing sidecars.", roles=ENCODE, server="vllm")
def _without_ec(settings: Settings, catalog: Catalog) -> None:
    for pod in settings.of("decode"):
        if pod.sidecar is not None:
            pod.sidecar.ec_connector = ""


@fault("sidecar-tls", "The routing sidecars were left to serve TLS.", roles=ENCODE, server="vllm")
def _tls(settings: Settings, catalog: Catalog) -> None:
    for pod in settings.of("decode"):
        if pod.sidecar is not None:
            pod.sidecar.tls = True


@fault(
    "kv-recomputed",
    "--kv-transfer-config was left off the prefill pods, so decode computes prompts again.",
    roles=PREFILL,
)
def _recomputed(settings: Settings, catalog: Catalog) -> None:
    for engine in _engines(settings.of("prefill")):
        engine.kv = False


@fault(
    "kv-side-channel-host",
    "VLLM_NIXL_SIDE_CHANNEL_HOST was left out of prefill; kv_load_failure_policy is recompute.",
    roles=PREFILL,
)
def _kv_side_channel(settings: Settings, catalog: Catalog) -> None:
    for engine in _engines(settings.of("prefill")):
        engine.kv_host = LOCALHOST
    for engine in _engines(settings.of("decode")):
        engine.kv_recompute = True


@fault("encoder-urls", "--encoder-urls names hosts that no Service gives.", roles=ENCODE, server="sglang")
def _urls(settings: Settings, catalog: Catalog) -> None:
    for engine in _engines(settings.of("decode")):
        engine.encoder_urls = tuple(url.replace("encode-", "encoder-") for url in engine.encoder_urls)
