"""A live pod as a model server: which role it plays by every sign, and where it listens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mmdeploy.intended import ROLES, role_of
from mmdeploy.verify.cluster.looking import Object, address, labels, ready

if TYPE_CHECKING:
    from mmdeploy.intended import Intended
    from mmdeploy.lint.pods import Container, Engine
    from mmdeploy.lint.pods import Pod as Template


@dataclass(frozen=True)
class Server:
    """One pod."""

    pod: Object
    facts: Mapping[str, Any]
    """``catalog/discovery.yaml``."""
    role_key: str
    """The label that says the role."""

    @property
    def name(self) -> str:
        """The pod's name."""
        return str(self.pod["metadata"]["name"])

    @property
    def ready(self) -> bool:
        """Whether Kubernetes says so."""
        return ready(self.pod)

    @property
    def ip(self) -> str:
        """Its address; empty before it has one."""
        return address(self.pod)

    @cached_property
    def template(self) -> Template:
        """The pod as lint reads pods."""
        from mmdeploy.lint.pods import pods_of
        from mmdeploy.lint.source import Document

        value = {**self.pod, "kind": "Pod"}
        return next(pods_of(Document(file=self.name, index=0, value=value, composed=None, text="")))

    @property
    def engine(self) -> Engine | None:
        """The container that serves a model."""
        return self.template.engine

    @property
    def sidecar(self) -> Container | None:
        """The routing sidecar."""
        return self.template.sidecar

    @property
    def own_port(self) -> int:
        """The engine's own port: the container port of the guides' name, or what its command line says."""
        engine = self.engine
        if engine is None:
            return 0
        said = engine.command.integer("--port")
        named = [number for name, number, _ in engine.container.ports() if name == self._names["portName"]]
        return said or (named[0] if named else engine.port)

    @property
    def labelled(self) -> str:
        """The role by its label; empty for none. One that plays several roles is taken for the last of them."""
        said = labels(self.pod).get(self.role_key, "")
        parts = [role for role in ROLES if role in said.split("-")]
        return parts[-1] if parts else ("decode" if said == "both" else "")

    def role(self, workloads: Mapping[str, str]) -> str:
        """The role that it is meant to play. ``workloads``: owner → role, where a bundle says so."""
        in_set = labels(self.pod).get(self._names["setRole"], "")
        meant = workloads.get(self.owner, "")
        if meant or in_set in ROLES or self.labelled:
            return meant or (in_set if in_set in ROLES else self.labelled)
        return "encode" if self.engine is not None and self.engine.encodes_only else "decode"

    @cached_property
    def owner(self) -> str:
        """The workload that it comes from: ``Deployment/decode``, ``DisaggregatedSet/epd``; of a bare pod its own."""
        said = labels(self.pod)
        if self._names["setName"] in said:
            return f"DisaggregatedSet/{said[self._names['setName']]}"
        if self._names["groupName"] in said:
            return f"LeaderWorkerSet/{said[self._names['groupName']]}"
        for owner in self.pod["metadata"].get("ownerReferences") or ():
            hashed = said.get(self._names["podHash"], "")
            if owner["kind"] == "ReplicaSet" and hashed:
                return f"Deployment/{owner['name'].removesuffix(f'-{hashed}')}"
            return f"{owner['kind']}/{owner['name']}"
        return f"Pod/{self.name}"

    @property
    def _names(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.facts["modelServer"]
        return found


def workloads_of(meant: Intended | None) -> dict[str, str]:
    """Owner → role for the workloads of a bundle; empty where only the pods say it, as those of a set do."""
    if meant is None:
        return {}
    found = {}
    for item in meant.workloads:
        kind = item["kind"]
        role = "" if kind == "DisaggregatedSet" else role_of(item)
        found[f"{kind}/{item['metadata']['name']}"] = role
    return found


def block_size(servers: Iterable[Server]) -> int | None:
    """``--block-size`` of the engines that run the language model, where one says it."""
    for server in servers:
        if server.engine is not None and not server.engine.encodes_only:
            found = server.engine.command.integer("--block-size")
            if found:
                return found
    return None
