"""`mmdeploy check` on the rig, in this process: every check by its name."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mmdeploy import intended as reading
from mmdeploy.cli import blueprints
from mmdeploy.cluster.access import Access
from mmdeploy.cluster.session import Session
from mmdeploy.intended import Intended
from mmdeploy.preflight.check import Check, Options
from mmdeploy.preflight.run import run
from tests.rig import users
from tests.rig.api import Api
from tests.rig.controlplane import ControlPlane

Change = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Checker:
    """Checks of one namespace."""

    plane: ControlPlane
    namespace: str
    folder: Path

    def intended(self, change: Change | None = None, values: Change | None = None, **spec: Any) -> Intended:
        """A deployment in the namespace; ``change`` edits each object, ``values`` the router's values."""
        path = self.folder / "mmdeploy.yaml"
        said = {"schemaVersion": 1, "topology": "aggregation", "namespace": self.namespace, **spec}
        path.write_text(json.dumps(said), encoding="utf-8")
        found = reading.rendered(path, blueprints.load())
        parts = copy.deepcopy({name: list(items) for name, items in found.parts.items()})
        for items in parts.values():
            for item in items:
                if change:
                    change(item)  # type: ignore[arg-type]
        edited = copy.deepcopy(dict(found.values))
        if values:
            values(edited)
        return replace(found, parts=parts, values=edited)

    def of(self, intended: Intended, user: str = users.ADMIN, **options: Any) -> Found:
        """All checks of a deployment. The model hub is not asked unless a test says so."""
        session = Session.connect(Access(self.plane.kubeconfig(user)))
        return Found(list(run(session, intended, Options(blueprints.load(), **{"hub": False, **options}))))

    def __call__(
        self, change: Change | None = None, values: Change | None = None, user: str = users.ADMIN,
        options: dict[str, Any] | None = None, **spec: Any,
    ) -> Found:  # fmt: skip
        return self.of(self.intended(change, values, **spec), user, **(options or {}))


@dataclass(frozen=True)
class Found:
    """What came out."""

    checks: list[Check]

    def __getitem__(self, part: str) -> Check:
        """The one check whose name holds ``part``."""
        found = [check for check in self.checks if part in check.name]
        assert len(found) == 1, f"{len(found)} checks are about {part!r}:\n{self}"
        return found[0]

    def __contains__(self, part: str) -> bool:
        return any(part in check.name for check in self.checks)

    @property
    def bad(self) -> list[Check]:
        """Warnings and errors."""
        return [check for check in self.checks if check.result in ("warning", "error")]

    def __str__(self) -> str:
        return "\n".join(f"{check.result:8} {check.category}: {check.name}: {check.detail}" for check in self.checks)


def token(api: Api, namespace: str, key: str = "HF_TOKEN") -> None:
    """The Secret that the model servers take their token from."""
    metadata = {"name": "llm-d-hf-token", "namespace": namespace}
    api.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {key: "hf_of-nobody"}})


def label(api: Api, namespace: str, labels: dict[str, str | None]) -> None:
    """Set labels of a namespace; None takes one away."""
    api.merge(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": labels}})


def pods_of(item: dict[str, Any]) -> Iterable[dict[str, Any]]:
    """The pod specs in an object."""
    spec = item.get("spec") or {}
    if item["kind"] == "DisaggregatedSet":
        for role in spec["roles"]:
            yield role["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]
    elif "template" in spec and item["kind"] in ("Deployment", "StatefulSet"):
        yield spec["template"]["spec"]
