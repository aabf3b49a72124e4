"""A bundle on the rig's cluster with simulated engines behind its pods, and mmdeploy verify run on it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from mmdeploy import intended
from mmdeploy.catalog import Catalog
from tests.rig import deploying, users
from tests.rig.api import Api, Object, wait
from tests.rig.controlplane import ControlPlane
from tests.rig.simulated import Simulated
from tests.rig.workloads import condition, pods

ROOT = Path(__file__).resolve().parents[3]
CATALOG = Catalog(ROOT / "blueprints")


@dataclass(frozen=True)
class Verdicts:
    """What a run said."""

    code: int
    out: str
    err: str

    @cached_property
    def document(self) -> dict[str, Any]:
        """Of ``-o json``."""
        return json.loads(self.out)

    @cached_property
    def by_claim(self) -> dict[str, dict[str, Any]]:
        return {item["claim"]: item for item in self.document["verdicts"]}

    @property
    def words(self) -> dict[str, str]:
        """Claim → verdict."""
        return {claim: item["verdict"] for claim, item in self.by_claim.items()}

    @property
    def unproved(self) -> dict[str, str]:
        """Claim → what is said of it, of those that are not proved."""
        return {claim: f"{item['verdict']}: {item['summary']}" for claim, item in self.by_claim.items()
                if item["verdict"] != "proved"}  # fmt: skip

    def said(self, claim: str) -> str:
        """All that is said of a claim."""
        return json.dumps(self.by_claim[claim])


@dataclass(frozen=True)
class Deployed:
    """A bundle that was applied."""

    plane: ControlPlane
    api: Api
    namespace: str
    bundle: Path

    def simulated(self, **more: Any) -> Simulated:
        """Engines and router behind its pods."""
        meant = intended.read(self.bundle, CATALOG)
        return Simulated(self.api, self.namespace, meant, CATALOG, logs=self.bundle.parent, **more)

    def verify(self, *words: str | Path, user: str = users.ADMIN, bundle: bool = True) -> Verdicts:
        """Run mmdeploy verify for the namespace; any exit code is an answer."""
        first = [self.bundle] if bundle else []
        ran = deploying.mmdeploy(self.plane, "verify", *first, "-n", self.namespace, "-o", "json", *words, user=user)
        return Verdicts(ran.code, ran.out, ran.err)

    def pods(self, role: str | None = None) -> list[Object]:
        """Pods of the namespace, or those that a label says play a role."""
        query = {"labelSelector": f"llm-d.ai/role={role}"} if role else {}
        return pods(self.api, self.namespace, **query)


def deploy(plane: ControlPlane, namespace: str, directory: Path, *words: str, **settings: Any) -> Deployed:
    """Render a bundle, apply it, and wait until its pods are ready.

    ``debug``: roles that log at DEBUG.
    """
    debug = [f"--set={role}.extraEnv.VLLM_LOGGING_LEVEL=DEBUG" for role in settings.pop("debug", ())]
    bundle = deploying.render(plane, directory, namespace, *words, *debug, **settings)
    api = plane.api()
    deploying.hold_token(api, namespace)
    deploying.succeeded(deploying.apply(plane, bundle, "--hf-token-from", "existing", "--no-wait"))
    deployed = Deployed(plane, api, namespace, bundle)
    meant = intended.read(bundle, CATALOG)
    count = sum(replicas for _, replicas, _ in meant.pods()) + 1
    wait("its pods are ready", lambda: _all_ready(deployed.pods(), count), seconds=60)
    return deployed


def _all_ready(seen: list[Object], count: int) -> bool:
    return sum(condition(pod, "Ready").get("status") == "True" for pod in seen) == count
