"""The resolved deployment: every value decided, each with where it came from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mmdeploy.catalog import Model, Release, Row
from mmdeploy.documents import KeyPath

if TYPE_CHECKING:
    from mmdeploy.estimator.pairing import Pairing


@dataclass(frozen=True)
class BundleObject:
    """One Kubernetes object, the file of the bundle that holds it, and remarks by path into the object."""

    file: str
    content: Mapping[str, Any]
    notes: Mapping[KeyPath, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ResolvedRole:
    """One role: its settings, and the pod that every replica runs."""

    name: str
    kind: str
    """Kubernetes kind that runs the role."""
    objectName: str
    accelerator: str
    settings: Mapping[str, Any]
    """The role's fields of the spec, all decided."""
    labels: Mapping[str, str]
    """Labels of the objects and their selectors; the pods carry these and the person's own."""
    podLabels: Mapping[str, str]
    pod: Mapping[str, Any]
    """The PodSpec, plain."""


@dataclass(frozen=True)
class ResolvedRouter:
    """The router's Helm values and endpoint picker configuration."""

    values: Mapping[str, Any]
    configFile: str
    config: Mapping[str, Any]
    valuesNotes: Mapping[KeyPath, str]
    configNotes: Mapping[KeyPath, str]


@dataclass(frozen=True)
class Explained:
    """One value and the place that decided it, for ``render --explain``."""

    path: str
    value: Any
    origin: str


@dataclass(frozen=True)
class Deployment:
    """Everything that rendering needs; made by `mmdeploy.render.resolve`."""

    spec: Mapping[str, Any]
    """The resolved spec: rendering it again gives the same deployment."""
    row: Row
    status: str
    model: Model
    release: Release
    roles: Sequence[ResolvedRole]
    router: ResolvedRouter
    objects: Sequence[BundleObject]
    pairing: Pairing | None
    """How the router's estimator fits the model; None where the router estimates nothing or nothing is known."""
    warnings: Sequence[str]
    explain: Callable[[], Iterable[Explained]]
    """Every value with the place that decided it; worked out only when asked for."""
