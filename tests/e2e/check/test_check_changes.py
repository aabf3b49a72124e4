"""Changes of what runs: rollouts without room, and a plugin configuration that nobody would read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.e2e.check.checking import Checker, pods_of
from tests.rig.api import Api, wait
from tests.rig.controlplane import ControlPlane
from tests.rig.workloads import deployment, ready_pods

CHART = Path(__file__).resolve().parents[2] / "rig" / "chart"
V09 = {"release": "v0.9"}
"""Its chart is v0.10.0, which has no checksum of the configuration (router.md §4.2)."""
ROLLOUT = "has room for a pod more"
REACHES = "reaches the endpoint picker"


def newer(item: dict[str, Any]) -> None:
    """Another image."""
    for pod in pods_of(item):
        pod["containers"][0]["image"] = "example.com/engine:2"


def one_by_one(item: dict[str, Any]) -> None:
    newer(item)
    if item["kind"] == "Deployment":
        item["spec"]["strategy"] = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}


def none_less(item: dict[str, Any]) -> None:
    newer(item)
    if item["kind"] == "Deployment":
        item["spec"]["strategy"] = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}


def recreated(item: dict[str, Any]) -> None:
    newer(item)
    if item["kind"] == "Deployment":
        item["spec"]["strategy"] = {"type": "Recreate"}


def test_a_rollout_without_room(checker: Checker, admin: Api, namespace: str) -> None:
    # M191: 8 × 2 GPUs of 24, and somebody else has the other 8.
    for item in checker.intended().objects:
        admin.apply(item)
    wait("it runs", lambda: ready_pods(admin, namespace, 8))
    assert ROLLOUT not in checker()  # nothing changes
    assert checker(newer)[ROLLOUT].result == "ok"
    admin.apply(deployment("other", namespace, replicas=4, gpus=2))
    wait("they run", lambda: ready_pods(admin, namespace, 12))
    found = checker(newer)[ROLLOUT]
    assert found.result == "warning"
    # 25 % of 8, both ways: Kubernetes' own defaults.
    assert "it starts 2 more, for which there is no room, and ends 2 old ones meanwhile" in found.detail
    assert "it may never end" in checker(none_less)[ROLLOUT].detail
    fewer = checker(newer, decode={"replicas": 3})[ROLLOUT]  # the places of five become free first
    assert (fewer.result, fewer.detail) == ("ok", "there shall be 5 less, and their places become free first")
    assert ROLLOUT not in checker(one_by_one)
    assert ROLLOUT not in checker(recreated)


def heavier(values: dict[str, Any]) -> None:
    """M131: a weight of the plugin configuration."""
    custom = values["router"]["epp"]["pluginsCustomConfig"]
    name = next(iter(custom))
    custom[name] = custom[name].replace("affinityThreshold: 0.6", "affinityThreshold: 0.7")


def heavier_and_bigger(values: dict[str, Any]) -> None:
    heavier(values)
    values["router"]["epp"]["resources"]["requests"]["cpu"] = "5"


def test_a_configuration_that_nobody_reads_again(checker: Checker, plane: ControlPlane, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(dict(checker.intended(**V09).values)), encoding="utf-8")
    words = ("upgrade", "--install", "multimodal-serving", CHART, "--namespace", checker.namespace, "-f", values)
    plane.helm(*words)
    assert REACHES not in checker(**V09)
    found = checker(values=heavier, **V09)[REACHES]
    assert found.result == "warning"
    assert "kubectl rollout restart deployment/multimodal-serving-epp" in found.hint
    # What changes the pod as well restarts it; and the chart of main has a checksum.
    assert REACHES not in checker(values=heavier_and_bigger, **V09)
    assert REACHES not in checker(values=heavier)


def test_a_release_that_helm_left_locked(checker: Checker, plane: ControlPlane, admin: Api, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(dict(checker.intended().values)), encoding="utf-8")
    words = ("upgrade", "--install", "multimodal-serving", CHART, "--namespace", checker.namespace, "-f", values)
    plane.helm(*words)
    assert "is not locked" not in checker()
    secrets = f"/api/v1/namespaces/{checker.namespace}/secrets"
    name = "sh.helm.release.v1.multimodal-serving.v1"
    kept = admin.get(f"{secrets}/{name}")
    import base64
    import gzip
    import json

    release = json.loads(gzip.decompress(base64.b64decode(base64.b64decode(kept["data"]["release"]))))
    release["info"]["status"] = "pending-upgrade"
    text = base64.b64encode(base64.b64encode(gzip.compress(json.dumps(release).encode()))).decode()
    admin.merge(f"{secrets}/{name}", {"data": {"release": text}})
    found = checker()["helm release multimodal-serving is not locked"]
    assert found.result == "warning"
    assert "pending-upgrade" in found.detail
