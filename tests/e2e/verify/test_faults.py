"""What is wrong on a cluster, seen in its objects and through its proxy."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.verify.verifying import Deployed
from tests.rig import deploying
from tests.rig.api import wait
from tests.rig.simulated import Simulated
from tests.rig.workloads import condition, deployment


@pytest.fixture(scope="module")
def running(epd: Deployed) -> Iterator[Simulated]:
    with epd.simulated() as simulated:
        yield simulated


def settled(epd: Deployed, decode: int = 2, encode: int = 2) -> None:
    """So many pods of each role are there, and ready."""

    def there() -> bool:
        return all(
            sum(map(_ready, epd.pods(role))) == count == len(epd.pods(role))
            for role, count in (("decode", decode), ("encode", encode))
        )

    wait("the pods are as they should be", there)


def _ready(pod: dict[str, Any]) -> bool:
    return condition(pod, "Ready").get("status") == "True"


def contradicted(epd: Deployed, *words: str) -> dict[str, str]:
    """Claims that are contradicted, and what is said of them."""
    ran = epd.verify(*words)
    assert ran.code == 6, ran.out + ran.err
    return {claim: ran.said(claim) for claim, word in ran.words.items() if word == "contradicted"}


@pytest.mark.usefixtures("running")
def test_pods_of_somebody_else_in_the_pool(epd: Deployed) -> None:
    other = deployment("somebody-else", epd.namespace, gpus=0)
    labels = epd.api.get(f"/apis/inference.networking.k8s.io/v1/namespaces/{epd.namespace}/inferencepools/"
                         f"{deploying.NAME}")["spec"]["selector"]["matchLabels"]  # fmt: skip
    other["spec"]["template"]["metadata"]["labels"] |= labels
    other["spec"]["template"]["spec"]["containers"][0]["command"] = ["vllm", "serve", "Qwen/Qwen2.5-VL-7B-Instruct"]
    epd.api.apply(other)
    where = f"/apis/apps/v1/namespaces/{epd.namespace}/deployments/somebody-else"
    wait("it runs", lambda: epd.api.get(where).get("status", {}).get("readyReplicas"))
    try:
        found = contradicted(epd, "--only", "roles")
        assert "the pool selects somebody-else-" in found["roles"]
        assert "matches pods of something else" in found["roles"]
    finally:
        epd.api.delete(where)
        wait("it is gone", lambda: not [pod for pod in epd.pods() if "somebody-else" in pod["metadata"]["name"]])


@pytest.mark.usefixtures("running")
def test_encode_pods_that_are_all_unready(epd: Deployed) -> None:
    names = [pod["metadata"]["name"] for pod in epd.pods("encode")]
    for name in names:
        epd.api.merge(
            f"/api/v1/namespaces/{epd.namespace}/pods/{name}",
            {"metadata": {"annotations": {"rig/behaviour": "unready"}}},
        )
    try:
        wait("they are not ready", lambda: not any(_ready(pod) for pod in epd.pods("encode")))
        found = contradicted(epd)
        assert {"roles", "stages"} <= set(found)
        assert all(f"{name} is not ready" in found["roles"] for name in names)
    finally:
        for name in names:
            epd.api.delete(f"/api/v1/namespaces/{epd.namespace}/pods/{name}")
        settled(epd)


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize(("count", "also"), [(1, set()), (0, {"stages"})])
def test_fewer_pods_than_the_bundle_says(epd: Deployed, count: int, also: set[str]) -> None:
    where = next(
        f"/apis/apps/v1/namespaces/{epd.namespace}/deployments/{item['metadata']['name']}"
        for item in epd.api.items(f"/apis/apps/v1/namespaces/{epd.namespace}/deployments")
        if item["metadata"]["name"].endswith("-encode")
    )
    epd.api.merge(where, {"spec": {"replicas": count}})
    try:
        settled(epd, encode=count)
        found = contradicted(epd)
        assert f"encode has {count} pods where 2 should be" in found["roles"]
        assert also <= set(found)
    finally:
        epd.api.merge(where, {"spec": {"replicas": 2}})
        settled(epd)


def test_a_pod_that_is_replaced_in_the_middle(epd: Deployed, running: Simulated) -> None:
    asked = threading.Event()
    inner = running.deployment.entry

    def entry(message: object) -> object:
        if b"data:image" in message.body and not asked.is_set():  # type: ignore[attr-defined]
            asked.set()
            reply = inner(message)  # type: ignore[arg-type]
            old = {pod["metadata"]["name"] for pod in epd.pods("decode")}
            for name in old:
                epd.api.delete(f"/api/v1/namespaces/{epd.namespace}/pods/{name}")
            wait("they are gone", lambda: not old & {pod["metadata"]["name"] for pod in epd.pods("decode")})
            return reply
        return inner(message)  # type: ignore[arg-type]

    running.deployment.entry = entry  # type: ignore[method-assign,assignment]
    try:
        ran = epd.verify("--only", "roles,text,image,stages,affinity")
    finally:
        running.deployment.entry = inner  # type: ignore[method-assign]
        settled(epd)
    assert ran.code == 6, ran.out + ran.err
    assert "is unreachable now" in ran.said("roles")
    assert ran.words["stages"] != "proved"  # what the pods counted went with them
    assert ran.words["text"] == ran.words["image"] == "proved"  # both were answered
    assert "there is no pod" in ran.out


@pytest.mark.usefixtures("running")
def test_a_picker_whose_metrics_are_on_another_port(epd: Deployed) -> None:
    where = f"/apis/apps/v1/namespaces/{epd.namespace}/deployments/{deploying.NAME}-epp"
    item = epd.api.get(where)
    container = next(each for each in item["spec"]["template"]["spec"]["containers"] if each["name"] == "epp")
    index = item["spec"]["template"]["spec"]["containers"].index(container)
    port = next(number for number, each in enumerate(container["ports"]) if each["name"] == "metrics")
    path = f"/spec/template/spec/containers/{index}/ports/{port}/containerPort"

    def moved(number: int) -> None:
        change = [{"op": "replace", "path": path, "value": number}]
        epd.api.request("PATCH", where, change, "application/json-patch+json")
        wait("the picker is back", lambda: _current(epd.api.get(where)))

    moved(9091)
    try:
        ran = epd.verify()
    finally:
        moved(9090)
    assert ran.code == 0, ran.out + ran.err
    assert "contradicted" not in ran.words.values()
    assert "connection refused" in ran.said("roles") + ran.said("entry")
    assert ran.words["text"] == ran.words["image"] == "proved"


def _current(item: dict[str, dict[str, int]]) -> bool:
    status = item.get("status", {})
    return (
        status.get("observedGeneration") == item["metadata"]["generation"]
        and status.get("readyReplicas") == status.get("replicas") == status.get("updatedReplicas") == 1
    )
