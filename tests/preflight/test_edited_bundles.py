"""A bundle that somebody edited out of shape is refused where it is read, or everything copes with it."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mmdeploy import intended as reading
from mmdeploy.apply import secret, status
from mmdeploy.apply.readiness import gateway, readiness
from mmdeploy.cli import blueprints
from mmdeploy.cluster.access import Access
from mmdeploy.errors import MmdeployError, NotFoundError
from mmdeploy.intended import Intended
from mmdeploy.preflight.check import Options
from mmdeploy.preflight.run import run
from mmdeploy.verify import configuration

ROOT = Path(__file__).resolve().parents[2]
CATALOG = blueprints.load()
Path_ = tuple[str | int, ...]

DEPLOYMENT, SET, CLAIM = (f"overlays/main/{name}/vllm/base" for name in ("aggregation/gpu", "e-pd/gpu",
                                                                        "aggregation/xpu"))  # fmt: skip
FILES = [
    (DEPLOYMENT, "modelserver/decode-deployment.yaml"),
    (DEPLOYMENT, "router/values.yaml"),
    (DEPLOYMENT, "mmdeploy.yaml"),
    (DEPLOYMENT, "modelserver/kustomization.yaml"),
    (SET, "modelserver/disaggregatedset.yaml"),
    (CLAIM, "modelserver/decode-resourceclaimtemplate.yaml"),
]
INSTEAD: list[Any] = [
    "x", 7, [], {}, None, [None], [{}], {"a": 1}, True, -1.5, "", ["x"], [["x"]], 10**30, {1: "x"}, float("inf")
]  # fmt: skip


class Empty:
    """A cluster that serves every kind, lets every object pass, and has nothing but one node."""

    version = "v1.34.0"
    access = Access(None)
    where = SimpleNamespace(namespace="default", user="somebody", context="none", server="none")

    def get(self, path: str, **_: Any) -> Any:
        if "/namespaces/" in path and path.count("/") == 4:
            return {"metadata": {"name": "there"}}
        raise NotFoundError(f"no {path}")

    def find(self, path: str) -> None:
        return None

    live = find

    def items(self, path: str, **_: Any) -> Iterator[Any]:
        if path.endswith("/nodes"):
            room = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8"}
            conditions = [{"type": "Ready", "status": "True"}]
            yield {
                "metadata": {"name": "node", "labels": {}}, "spec": {},
                "status": {"allocatable": room, "conditions": conditions},
            }  # fmt: skip

    def all(self, calls: list[Callable[[], Any]]) -> list[Any]:
        return [call() for call in calls]

    def apply(self, item: Any, **_: Any) -> Any:
        return item

    create = apply

    def request(self, *_: Any, **__: Any) -> Any:
        return {"status": {"resourceRules": [], "incomplete": True, "allowed": True}}

    def review(self, _: Any) -> bool:
        return True

    def resource(self, *_: Any) -> Any:
        return {"kind": "anything"}

    def collection(self, _: str, kind: str, namespace: str | None = None) -> str:
        return kind


def everything(found: Intended) -> None:
    """What check, status, apply and verify work out of a bundle."""
    assert list(run(Empty(), found, Options(CATALOG, kubectl=False, hub=False)))  # type: ignore[arg-type]
    secret.needed(found)
    for workload in readiness.workloads_of(found):
        for item in found.workloads:
            if item["metadata"]["name"] == workload.name:
                readiness.template_labels(item, workload.role)
    gateway.of_intended(found)
    status._given(found.values)
    status._port(found.values)
    configuration.read(found)


def explained(problem: MmdeployError) -> None:
    """Says where, and what to do."""
    assert problem.origin
    assert problem.next_step


def places(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Where anything stands in a document, the whole among it."""
    yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, (*path, index))


def put(document: Any, path: Path_, value: Any) -> Any:
    """The document with another value at a place."""
    if not path:
        return value
    result = copy.deepcopy(document)
    part = result
    for step in path[:-1]:
        part = part[step]
    part[path[-1]] = value
    return result


@pytest.mark.parametrize(("name", "file"), FILES, ids=[file for _, file in FILES])
def test_no_edit_ends_in_a_traceback(name: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")  # neither helm nor kubectl is asked
    bundle = Path(shutil.copytree(ROOT / name, tmp_path / "bundle"))
    path = bundle / file
    whole = yaml.safe_load(path.read_text(encoding="utf-8"))
    chosen = sorted(places(whole), key=str)

    @settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(chosen), st.sampled_from(INSTEAD))
    @example(chosen[0], "hello")
    def tried(place: Path_, value: Any) -> None:
        path.write_text(yaml.safe_dump(put(whole, place, value)), encoding="utf-8")
        try:
            found = reading.read(bundle, CATALOG)
        except MmdeployError as problem:
            explained(problem)
            return
        everything(found)

    tried()
