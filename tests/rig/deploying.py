"""Bundles that fit the rig, and mmdeploy run on them as a person runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.rig import users
from tests.rig.api import Api
from tests.rig.controlplane import ControlPlane, FailedError

CHART = Path(__file__).resolve().parent / "chart"
NAME = "multimodal-serving"  # what a bundle is called unless it says otherwise
PATIENCE = 240  # seconds; nothing here takes so long unless it hangs
PROGRAM = (sys.executable, "-m", "mmdeploy")

# What tests look at that is nobody's deployment: Kubernetes' own, and what the fixtures make.
_NOISE = {"ConfigMap/kube-root-ca.crt", "ServiceAccount/default"}
_KINDS = (
    ("/api/v1", "configmaps secrets services serviceaccounts pods persistentvolumeclaims"),
    ("/apis/apps/v1", "deployments statefulsets replicasets"),
    ("/apis/rbac.authorization.k8s.io/v1", "roles rolebindings"),
    ("/apis/coordination.k8s.io/v1", "leases"),
    ("/apis/inference.networking.k8s.io/v1", "inferencepools"),
    ("/apis/disaggregatedset.x-k8s.io/v1", "disaggregatedsets"),
    ("/apis/leaderworkerset.x-k8s.io/v1", "leaderworkersets"),
    ("/apis/gateway.networking.k8s.io/v1", "gateways httproutes"),
    ("/apis/monitoring.coreos.com/v1", "podmonitors servicemonitors"),
    ("/apis/resource.k8s.io/v1", "resourceclaimtemplates resourceclaims"),
)


@dataclass(frozen=True)
class Ran:
    """What a run of mmdeploy came to."""

    code: int
    out: str
    err: str

    @cached_property
    def events(self) -> list[dict[str, Any]]:
        """Of ``-o jsonl``."""
        return [json.loads(line) for line in self.out.splitlines()]

    def of(self, word: str) -> list[dict[str, Any]]:
        """Events of one kind."""
        return [event for event in self.events if event["event"] == word]

    @property
    def applied(self) -> dict[str, str]:
        """``Kind/name`` → what was done."""
        return {f"{event['kind']}/{event['name']}": event["verb"] for event in self.of("applied")}


def mmdeploy(
    plane: ControlPlane, *words: str | Path, user: str = users.ADMIN, environ: Mapping[str, str] | None = None
) -> Ran:
    """Run mmdeploy as a user; any exit code is an answer."""
    done = subprocess.run(
        [*PROGRAM, *map(str, words)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
        timeout=PATIENCE, env={**plane.environment(user), **(environ or {})},
    )  # fmt: skip
    return Ran(done.returncode, done.stdout, done.stderr)


class Running:
    """One mmdeploy at work, whose lines of JSON can be watched; killed at the end of ``with``."""

    def __init__(
        self, plane: ControlPlane, *words: str, user: str = users.ADMIN, environ: Mapping[str, str] | None = None
    ) -> None:
        self.process = subprocess.Popen(
            [*PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL,
            env={**plane.environment(user), **(environ or {})}, start_new_session=True,
        )  # fmt: skip
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        with self.process:  # closes its pipes and waits
            pass

    def until(self, word: str, stage: str | None = None) -> None:
        """Read events up to this one."""
        assert self.process.stdout
        for line in self.process.stdout:
            self.events.append(json.loads(line))
            if (self.events[-1]["event"], self.events[-1].get("stage")) == (word, stage):
                return
        assert self.process.stderr
        raise AssertionError(f"no {word} of {stage}: {self.process.stderr.read()}")

    def end(self) -> tuple[int, str]:
        """Exit code and stderr, once it has ended."""
        assert self.process.stdout
        assert self.process.stderr
        self.events += [json.loads(line) for line in self.process.stdout]
        said = self.process.stderr.read()
        return self.process.wait(PATIENCE), said


def apply_words(bundle: Path, *words: str | Path) -> list[str]:
    """The command line with the rig's chart, as lines of JSON, without a question."""
    return ["apply", str(bundle), "-y", "-o", "jsonl", "--router-chart", str(CHART), *map(str, words)]


def apply(
    plane: ControlPlane, bundle: Path, *words: str | Path, user: str = users.ADMIN,
    environ: Mapping[str, str] | None = None,
) -> Ran:  # fmt: skip
    """Apply a bundle with the rig's chart; any exit code is an answer."""
    return mmdeploy(plane, *apply_words(bundle, *words), user=user, environ=environ)


def delete(plane: ControlPlane, bundle: Path, *words: str | Path, user: str = users.ADMIN) -> Ran:
    """Take a bundle away; any exit code is an answer."""
    return mmdeploy(plane, "delete", bundle, "-y", "-o", "jsonl", *words, user=user)


def succeeded(ran: Ran) -> Ran:
    """The same, where it ended well. Raises `FailedError` with what was said."""
    if ran.code:
        raise FailedError(f"exit {ran.code}\n{ran.err}\n{ran.out[-3000:]}")
    return ran


def render(plane: ControlPlane, directory: Path, namespace: str, *words: str, **settings: Any) -> Path:
    """A bundle for a namespace; ``decode_replicas=1`` is ``--set decode.replicas=1``. One pod a role is enough."""
    small = {"decode.replicas": 1} | {key.replace("_", "."): value for key, value in settings.items()}
    options = [word for key, value in small.items() for word in ("--set", f"{key}={value}")]
    succeeded(mmdeploy(plane, "render", "-q", "--force", "-n", namespace, "-d", directory, *words, *options))
    return directory


def hold_token(api: Api, namespace: str, name: str = "llm-d-hf-token") -> None:
    """The Secret that bundles read their token from, made by somebody else."""
    metadata = {"name": name, "namespace": namespace}
    api.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"HF_TOKEN": "hf_rig"}})


def everything(api: Api, namespace: str) -> dict[str, str]:
    """``Kind/name`` → uid of what is in a namespace; not what Kubernetes, or the rig for its users, puts there."""
    found = {}
    for root, kinds in _KINDS:
        for plural in kinds.split():
            path = f"{root}/namespaces/{namespace}/{plural}"
            for item in api.items(path):
                kind = _kind(plural)
                name = f"{kind}/{item['metadata']['name']}"
                if name not in _NOISE and not item["metadata"]["name"].startswith("rig-"):
                    found[name] = item["metadata"]["uid"]
    return found


def _kind(plural: str) -> str:
    words = "ConfigMap ServiceAccount PersistentVolumeClaim StatefulSet ReplicaSet RoleBinding InferencePool"
    words += " DisaggregatedSet LeaderWorkerSet HTTPRoute PodMonitor ServiceMonitor ResourceClaimTemplate ResourceClaim"
    names = {word.lower() + "s": word for word in words.split()}
    return names.get(plural, plural.removesuffix("s").capitalize())
