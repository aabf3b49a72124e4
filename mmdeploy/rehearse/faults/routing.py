"""Faults of the router: its configuration, its pool, its metrics, its route."""

from __future__ import annotations

import dataclasses
from typing import Any

from mmdeploy.catalog import Catalog
from mmdeploy.catalog.families import find as family_of
from mmdeploy.estimator.pairing import natural_estimate
from mmdeploy.estimator.producers import PRODUCER
from mmdeploy.rehearse.configuration import HANDLER
from mmdeploy.rehearse.faults.registry import fault
from mmdeploy.rehearse.settings import Settings

ENCODE = ("encode",)
SCALE = 100
"""Times are this much shorter in a rehearsal: a route of 15 s is cut at 0.15 s."""


def _plugins(settings: Settings, kind: str) -> list[dict[str, Any]]:
    return [plugin for plugin in settings.router.configuration["plugins"] if plugin["type"] == kind]


def _profiles(settings: Settings) -> list[dict[str, Any]]:
    return list(settings.router.configuration["schedulingProfiles"])


def _profile(settings: Settings, name: str) -> dict[str, Any]:
    return next(profile for profile in _profiles(settings) if profile["name"] == name)


@fault("encode-decider-missing", "deciders.encode was left out of disagg-profile-handler.", roles=ENCODE, server="vllm")
def _no_decider(settings: Settings, catalog: Catalog) -> None:
    for handler in _plugins(settings, HANDLER):
        handler["parameters"]["deciders"].pop("encode", None)


@fault("encode-profile-renamed", "The encode profile was called encoder.", roles=ENCODE, server="vllm")
def _renamed_profile(settings: Settings, catalog: Catalog) -> None:
    _profile(settings, "encode")["name"] = "encoder"


@fault("wrong-decider", "The P/D decider was given as the encode decider.", roles=ENCODE, server="vllm")
def _wrong_decider(settings: Settings, catalog: Catalog) -> None:
    kind = "always-disagg-pd-decider"
    if not _plugins(settings, kind):
        settings.router.configuration["plugins"].append({"type": kind})
    for handler in _plugins(settings, HANDLER):
        handler["parameters"]["deciders"]["encode"] = kind


@fault(
    "text-to-encode",
    "The decode profile was copied from the encode profile, with its encode-filter.",
    roles=ENCODE,
    server="vllm",
)
def _text_to_encode(settings: Settings, catalog: Catalog) -> None:
    _profile(settings, "decode")["plugins"] = [*_profile(settings, "encode")["plugins"]]


@fault("round-robin", "The affinity filter and the scorers were taken out of every profile.", server="vllm")
def _round_robin(settings: Settings, catalog: Catalog) -> None:
    roles = settings.facts["picking"]["roles"]
    for profile in _profiles(settings):
        profile["plugins"] = [each for each in profile["plugins"] if each["pluginRef"] in roles]
    settings.router.in_turn = True


@fault("producer-renamed", "token-producer was given a name of its own.", server="vllm")
def _renamed_producer(settings: Settings, catalog: Catalog) -> None:
    for producer in _plugins(settings, PRODUCER):
        producer["name"] = "media-token-producer"


@fault("estimator-other-model", "The estimate block was taken from another model's values.", server="vllm")
def _other_estimator(settings: Settings, catalog: Catalog) -> None:
    served = settings.of("decode")[0].engine.family.slug
    other = family_of(catalog.families, "qwen3-vl" if served.startswith("gemma") else "gemma-4")
    block = natural_estimate(other, video_supported=settings.router.video_supported)
    for producer in _plugins(settings, PRODUCER):
        producer["parameters"] = {"estimate": block}


@fault("pool-foreign-pods", "Somebody else's Deployment carries the labels that the pool selects.")
def _foreign(settings: Settings, catalog: Catalog) -> None:
    model = settings.of("decode")[0]
    for number in range(2):
        engine = dataclasses.replace(model.engine, model="example/other", served="example/other")
        labels = {**model.labels, **settings.router.match_labels}
        name, ip = f"somebody-else-{number}", f"10.245.0.{number + 1}"
        settings.pods.append(
            dataclasses.replace(
                model,
                name=name,
                ip=ip,
                labels=labels,
                engine=engine,
                engine_port=model.port,
                sidecar=None,
                foreign=True,
            )
        )


@fault("pool-empty", "The pool's matchLabels name a guide label that no pod has.")
def _empty(settings: Settings, catalog: Catalog) -> None:
    settings.router.match_labels = {**settings.router.match_labels, catalog.labels["guide"]: "multimodal"}


@fault("picker-down", "The endpoint picker was killed; the proxy is set to fail open.")
def _down(settings: Settings, catalog: Catalog) -> None:
    settings.router.up = False


@fault("metrics-401", "router.monitoring was left at its defaults: the metrics want a token, and none is good.")
def _unauthorised(settings: Settings, catalog: Catalog) -> None:
    settings.router.authentication = "broken"


@fault("metrics-token", "The picker's metrics want a bearer token; here `rehearsal` is good.")
def _token(settings: Settings, catalog: Catalog) -> None:
    settings.router.authentication, settings.router.token = "token", "rehearsal"


@fault("metrics-port", "metrics-data-source was given a port where the pods have no metrics.")
def _metrics_port(settings: Settings, catalog: Catalog) -> None:
    settings.router.scrapes = False


@fault("route-cut", "The gateway's route gives up after 15 s (here 0.15 s), and long prompts take longer.")
def _cut(settings: Settings, catalog: Catalog) -> None:
    settings.router.route_seconds = 15 / SCALE
    settings.timings.prompt_token = 0.04 / SCALE
