"""Routers of several versions in one namespace: what belongs to one is judged by itself, the rest together."""

from __future__ import annotations

import json
from typing import Any

import yaml

from mmdeploy.lint.findings import Finding
from mmdeploy.lint.index import Deployment, index
from mmdeploy.lint.live import add
from mmdeploy.lint.reading import Read
from mmdeploy.lint.run import run, select
from mmdeploy.lint.shares import shares, told
from tests.lint.harness import base_files, resolver

OLD = {"topology": "aggregation", "release": "v0.8"}
NEW = {"topology": "e-pd", "release": "main", "workload": "Deployment"}
TAGS = {"v0.8": "v0.9.0", "main": "main"}  # router.md §0


def live(spec: dict[str, Any], helm_release: str) -> list[dict[str, Any]]:
    """What a bundle is on a cluster: its model servers, and of the router what its chart makes of the values."""
    files = base_files(spec)
    found = [yaml.safe_load(text) for name, text in files.items() if name.startswith("modelserver/")]
    found = [item for item in found if item["kind"] != "Kustomization"]
    router = yaml.safe_load(files["router/values.yaml"])["router"]
    owned = {"annotations": {"meta.helm.sh/release-name": helm_release}}
    picker = {
        "name": "epp",
        "image": f"ghcr.io/llm-d/llm-d-router-endpoint-picker:{TAGS[spec['release']]}",
        "args": [f"--config-file=/config/{router['epp']['pluginsConfigFile']}", f"--pool-name={helm_release}"],
    }
    template = {"metadata": {"labels": {"app": f"{helm_release}-epp"}}, "spec": {"containers": [picker]}}
    made = (
        ("v1", "ConfigMap", f"{helm_release}-epp", {"data": router["epp"]["pluginsCustomConfig"]}),
        ("inference.networking.k8s.io/v1", "InferencePool", helm_release, {"spec": {
            "selector": {"matchLabels": router["modelServers"]["matchLabels"]}, "targetPorts": [{"number": 8000}],
            "endpointPickerRef": {"name": f"{helm_release}-epp", "port": {"number": 9002}}}}),
        ("apps/v1", "Deployment", f"{helm_release}-epp", {"spec": {
            "replicas": 1, "selector": {"matchLabels": template["metadata"]["labels"]}, "template": template}}),
    )  # fmt: skip
    found += [
        {"apiVersion": version, "kind": kind, "metadata": {"name": name, **owned}, **more}
        for version, kind, name, more in made
    ]
    for item in found:
        item["metadata"]["namespace"] = "shared"
    return found


def beside_each_other(*objects: dict[str, Any]) -> Deployment:
    read = Read()
    add(read, objects)
    return index(resolver().catalog, read)


def judged(whole: Deployment, chosen: tuple[str, ...] = ("2", "3", "4", "6", "7", "1")) -> list[Finding]:
    return run(whole, select(chosen, []), strict=True, parts=shares(whole).values()).findings


def test_neither_is_judged_by_the_other_s_version() -> None:
    for objects in ((*live(OLD, "old"), *live(NEW, "new")), (*live(NEW, "new"), *live(OLD, "old"))):
        whole = beside_each_other(*objects)
        assert judged(whole) == []
        assert run(whole, select(["2", "7"], []), strict=True).findings, "which judging them as one does"
        assert {name: part.release.router for name, part in shares(whole).items()} == {"old": "v0.9.0", "new": "main"}
        assert "2 routers are here" in next(told(shares(whole)))


def test_a_mistake_of_either_is_found_once() -> None:
    text = json.dumps([*live(OLD, "old"), *live(NEW, "new")])
    wrong = json.loads(text.replace("token-load-scorer", "token-load-score"))
    found = [item.position.file for item in judged(beside_each_other(*wrong), ("MMD203",))]
    assert set(found) == {"ConfigMap/old-epp (live)", "ConfigMap/new-epp (live)"}
    assert len(found) == len(set(found))


def test_pools_that_overlap_are_seen_as_a_whole() -> None:
    found = judged(beside_each_other(*live(NEW, "one"), *_renamed(live(NEW, "two"))))
    assert "MMD107" in {item.code for item in found}


def _renamed(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for item in objects:
        item["metadata"]["name"] += "-too"
    return objects


def test_one_router_is_no_share() -> None:
    assert shares(beside_each_other(*live(OLD, "old"))) == {}
    assert shares(beside_each_other(*(item for item in live(OLD, "old") if item["kind"] == "Deployment"))) == {}
