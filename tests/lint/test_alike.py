"""A namespace with many alike engines: each is judged, and none is compared with a thousand of its kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from mmdeploy.lint.index import Deployment, index
from mmdeploy.lint.live import add
from mmdeploy.lint.peers import DECODE, cache_pairs, encoder_pairs, peers, stage, together
from mmdeploy.lint.reading import Read
from mmdeploy.lint.run import run, select
from tests.lint.harness import base_files, resolver

SPEC = {"topology": "e-p-d", "workload": "Deployment"}
Change = Callable[[dict[str, Any], int], None]


def crowd(copies: int, change: Change = lambda item, number: None) -> Deployment:
    """A rendered deployment whose model servers are there several times, each changed a little, as live objects."""
    objects = []
    for name, text in base_files(SPEC).items():
        for number in range(copies if "deployment" in name else 0):
            item = yaml.safe_load(text)
            item["metadata"] |= {"name": f"{item['metadata']['name']}-{number}", "namespace": "crowded"}
            change(item, number)
            objects.append(item)
    read = Read()
    add(read, objects)
    return index(resolver().catalog, read)


def engine_of(item: dict[str, Any]) -> dict[str, Any]:
    containers: list[dict[str, Any]] = item["spec"]["template"]["spec"]["containers"]
    return next(container for container in containers if container["name"] == "modelserver")


def test_pairs_grow_with_the_engines_and_not_with_their_square() -> None:
    """30 encoders and 30 prefill engines: the first meets all 30, the other 29 one each. The same for the cache."""
    deployment = crowd(30)
    assert len(list(encoder_pairs(deployment))) == 30 + 29
    assert len(list(cache_pairs(deployment))) == 30 + 29


def test_every_engine_is_in_a_pair() -> None:
    deployment = crowd(5, lambda item, number: item["spec"].update(replicas=number))
    for pairs in (encoder_pairs, cache_pairs):
        found = list(pairs(deployment))
        assert len(found) == 25, "no two are alike, so every one meets every other"
    deployment = crowd(5)
    met = {engine.pod.title for pair in (*encoder_pairs(deployment), *cache_pairs(deployment)) for engine in pair}
    assert len(met) == 15


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_each_of_the_alike_that_are_wrong_is_found(role: str) -> None:
    """Another dtype on every second prefill (or decode) engine: MMD310 names each of them, and no other."""

    def change(item: dict[str, Any], number: int) -> None:
        if number % 2 and role in item["metadata"]["name"]:
            engine_of(item)["args"].append("--dtype=float16")

    findings = run(crowd(6, change), select(["MMD310"], []), strict=True).findings
    files = {item.position.file for item in findings}
    assert {name.rpartition("-")[2] for name in files} == {"1 (live)", "3 (live)", "5 (live)"}
    assert all(role in name for name in files)


def test_peers_are_those_that_fit(tmp_path: Path) -> None:
    """What is remembered by group is what each pair of engines says when asked."""

    def change(item: dict[str, Any], number: int) -> None:
        if number % 2:
            item["metadata"]["namespace"] = "other"
        labels = item["spec"]["template"]["metadata"]["labels"]
        if number % 3 == 0:
            labels.pop("llm-d.ai/model", None)
        elif number % 3 == 1:
            labels["llm-d.ai/model"] = "another"

    deployment = crowd(7, change)
    for engine in deployment.engines:
        expected = [
            other for other in deployment.engines
            if other is not engine and stage(other) == DECODE and together(deployment, engine, other)
        ]  # fmt: skip
        assert list(peers(deployment, engine, DECODE)) == expected
