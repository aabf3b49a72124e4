"""What is to be on a cluster: the objects, and who plays which role."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

ROLES = ("encode", "prefill", "decode")
"""In the order in which they are applied: what consumes comes after what produces."""

_WORKLOADS = frozenset({"Deployment", "StatefulSet", "DisaggregatedSet", "LeaderWorkerSet"})

Object = Mapping[str, Any]


@dataclass(frozen=True)
class Intended:
    """What is to be on a cluster: a Helm release (the router) and objects, all in one namespace."""

    origin: str
    """The directory or file it was read from, for messages and for the commands that are suggested next."""
    spec: Mapping[str, Any]
    """The resolved spec (``mmdeploy.yaml``)."""
    values: Mapping[str, Any]
    """The router's Helm values."""
    parts: Mapping[str, Sequence[Object]]
    """Objects by directory of the bundle: ``modelserver``, ``gateway``, ``monitoring``; all with their namespace."""

    @property
    def name(self) -> str:
        """The deployment's name, which is the Helm release of the router."""
        return str(self.spec["name"])

    @property
    def namespace(self) -> str:
        """The namespace of everything."""
        return str(self.spec["namespace"])

    @property
    def mode(self) -> str:
        """``standalone`` or ``gateway``."""
        return str(self.spec["mode"])

    @property
    def chart_version(self) -> str:
        """Version of the router's chart."""
        return str(self.spec["versions"]["routerChart"])

    @property
    def roles(self) -> tuple[str, ...]:
        """Roles of the topology, in the order in which they are applied. ``decode`` also serves whole requests where
        there is no other role."""
        return tuple(role for role in ROLES if role in self.spec)

    @property
    def objects(self) -> tuple[Object, ...]:
        """Every object, in the order in which it is applied; the router's own are helm's."""
        return (*self.model_servers, *self.parts.get("gateway", ()), *self.parts.get("monitoring", ()))

    @cached_property
    def model_servers(self) -> tuple[Object, ...]:
        """Objects of the model servers: what pods need first, then the workloads from encode to decode."""
        order = {role: number for number, role in enumerate(ROLES, 1)}
        return tuple(sorted(self.parts.get("modelserver", ()), key=lambda item: order.get(role_of(item), _last(item))))

    @property
    def workloads(self) -> tuple[Object, ...]:
        """The objects of the model servers that make pods."""
        return tuple(item for item in self.model_servers if item["kind"] in _WORKLOADS)

    def pods(self) -> Iterator[tuple[str, int, Object]]:
        """Role, number of replicas and pod template (``metadata``, ``spec``) of every role's pods."""
        for item in self.workloads:
            for role, spec in _of_roles(item):
                yield role, int(spec.get("replicas", 1)), _templates(spec)[0]

    def templates(self) -> Iterator[Object]:
        """Every pod template: of groups of several hosts the leader's and the workers'."""
        for item in self.workloads:
            for _, spec in _of_roles(item):
                yield from _templates(spec)


def _of_roles(item: Object) -> Iterator[tuple[str, Object]]:
    """Role, and what says how many pods of which shape: one for each role of a DisaggregatedSet."""
    if item["kind"] == "DisaggregatedSet":
        yield from ((str(role["name"]), role["spec"]) for role in item["spec"]["roles"])
    else:
        yield role_of(item) or "decode", item["spec"]


def _templates(spec: Object) -> list[Object]:
    """Pod templates, that of the pod which serves first."""
    group = spec.get("leaderWorkerTemplate")
    if group is None:
        return [spec["template"]]
    return [*([group["leaderTemplate"]] if group.get("leaderTemplate") else ()), group["workerTemplate"]]


def role_of(item: Object) -> str:
    """The role that an object's pods play, by their label; ``""`` for an object without pods, or with several roles."""
    spec = (item.get("spec") or {}) if item.get("kind") in _WORKLOADS else {}
    group = spec.get("leaderWorkerTemplate") or {}
    template = group.get("leaderTemplate") or group.get("workerTemplate") or spec.get("template") or {}
    return str((template.get("metadata") or {}).get("labels", {}).get("llm-d.ai/role", ""))


def _last(item: Object) -> int:
    """Workloads whose role is unknown come last, everything that is not a workload first."""
    return len(ROLES) + 1 if item["kind"] in _WORKLOADS else 0


__all__ = ["ROLES", "Intended", "Object", "role_of"]
