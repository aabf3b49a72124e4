"""Shipped bundles in a test's own namespace, with pods that behave as told, put on the cluster without mmdeploy."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.rig import users
from tests.rig.controlplane import ControlPlane

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "tests" / "rig" / "chart"
AGGREGATION = "aggregation/gpu/vllm/base"
E_PD = "e-pd/gpu/vllm/base"
_NAMESPACE = "llm-d-multimodal-serving"  # of every shipped bundle


def bundle(overlay: str, namespace: str, folder: Path, **behaviour: str) -> Path:
    """A copy of a shipped bundle. ``ready_after="3s"`` is the annotation rig/ready-after of all its model servers."""
    made = folder / f"bundle-{namespace}"
    shutil.copytree(ROOT / "overlays" / "main" / overlay, made, dirs_exist_ok=True)
    for path in made.rglob("*.yaml"):
        path.write_text(path.read_text(encoding="utf-8").replace(_NAMESPACE, namespace), encoding="utf-8")
    annotations = {f"rig/{key.replace('_', '-')}": value for key, value in behaviour.items()}
    for path in (made / "modelserver").glob("*.yaml"):
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        for template in templates(content):
            template["metadata"].setdefault("annotations", {}).update(annotations)
        path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return made


def templates(content: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The pod templates of a workload; none of anything else."""
    if content.get("kind") == "DisaggregatedSet":
        for role in content["spec"]["roles"]:
            yield role["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    elif content.get("kind") in ("Deployment", "StatefulSet"):
        yield content["spec"]["template"]


def change(made: Path, edit: Any) -> None:
    """Call ``edit`` with each pod template of a bundle."""
    for path in (made / "modelserver").glob("*.yaml"):
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        for template in templates(content):
            edit(template)
        path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")


def put(plane: ControlPlane, made: Path, namespace: str, user: str = users.ADMIN, *, router: bool = True) -> None:
    """Install the router with helm and apply the model servers with kubectl, as a guide says."""
    if router:
        values = made / "router" / "values.yaml"
        plane.helm("upgrade", "--install", "multimodal-serving", CHART, "-n", namespace, "-f", values, user=user)
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-k", made / "modelserver", user=user)
