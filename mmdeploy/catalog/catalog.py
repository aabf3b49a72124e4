"""The catalog: releases, models, accelerators, providers, topologies, ports, and which combinations are supported.

Files are read when they are first asked for, so that a command pays for what it uses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmdeploy.documents import Document, read
from mmdeploy.errors import BlueprintError, UsageError
from mmdeploy.words import nearest

if TYPE_CHECKING:
    from mmdeploy.catalog.families import Family
    from mmdeploy.catalog.metrics import Metrics

AXES = ("topology", "accelerator", "server", "provider", "model", "release")
"""What identifies a combination, in the order in which people say it."""


@dataclass(frozen=True)
class Row:
    """One supported combination of the matrix (all its providers and models), with the line it stands on."""

    topology: str
    accelerator: str
    server: str
    providers: tuple[str, ...]
    models: tuple[str, ...]
    status: Mapping[str, str]
    """Release → validated, community, experimental or unverified; a release that is missing does not have the row."""
    namePrefix: str
    source: str
    note: str = ""
    testedAs: str = "Deployment"
    """Workload form that the nightly run covers."""
    roleAccelerators: Mapping[str, str] | None = None
    workloads: tuple[str, ...] | None = None
    """Workload forms of this row, where they are fewer than the release's; the first is the default."""
    defaults: Mapping[str, str] | None = None
    line: int = 0


@dataclass(frozen=True)
class Model:
    """A served model."""

    name: str
    family: str
    architecture: str = ""
    servers: Mapping[str, tuple[str, ...]] | None = None
    encodeServers: tuple[str, ...] = ()
    handoffMetadata: tuple[str, ...] = ()
    encoderDataParallel: bool = False
    embeddingRowBytes: int | None = None
    embeddingTokenBytes: int | None = None
    source: str = ""
    listed: bool = True
    """False for a model that the catalog does not know and a person described."""

    @property
    def label(self) -> str:
        """The name as a Kubernetes label value: its last part, 63 characters of ``[A-Za-z0-9._-]``."""
        text = re.sub(r"[^A-Za-z0-9._-]", "-", self.name.rsplit("/", 1)[-1])[:63]
        return text.strip("._-") or "model"


@dataclass(frozen=True)
class Release:
    """An llm-d release: what it pins and what it can do."""

    name: str
    title: str
    apiVersion: str
    routerVersion: str
    guideLabels: Mapping[str, str]
    workloads: Mapping[str, tuple[str, ...]]
    versions: Mapping[str, str]
    floating: tuple[str, ...]
    images: Mapping[str, Mapping[str, str]]
    features: tuple[str, ...]
    groupIdentity: str
    source: str


class Catalog:
    """Everything under ``blueprints/catalog``; raises `BlueprintError` with file and line for what is wrong there."""

    def __init__(self, blueprints: Path, label: str = "blueprints") -> None:
        """``label`` is what messages call the directory."""
        if not (blueprints / "catalog").is_dir():
            raise BlueprintError(
                "holds no catalog/",
                origin=str(blueprints),
                next_step="point --blueprints at a directory that holds catalog/, layers/ and stack.yaml",
            )
        self.blueprints = blueprints
        self.label = label
        self._tables: dict[str, Mapping[str, Any]] = {}
        self._releases: dict[str, Release] = {}

    def document(self, *parts: str) -> Document:
        """The blueprint file ``parts`` (``"catalog", "ports.yaml"``), named as people find it."""
        path = self.blueprints.joinpath(*parts)
        return read(path, BlueprintError, name="/".join((self.label, *parts)))

    def table(self, name: str) -> Mapping[str, Any]:
        """What ``catalog/NAME.yaml`` holds: read once, so nothing to write into."""
        if name not in self._tables:
            self._tables[name] = self._mapping(name)
        return self._tables[name]

    def _mapping(self, name: str) -> dict[str, Any]:
        document = self.document("catalog", f"{name}.yaml")
        if not isinstance(document.value, dict):
            raise BlueprintError("must hold a mapping", origin=f"{document.name}:1:1")
        return document.value

    @cached_property
    def metrics(self) -> Metrics:
        """What engines and pickers count, and under which names."""
        from mmdeploy.catalog.metrics import Metrics

        return Metrics(self)

    @cached_property
    def ports(self) -> dict[str, int]:
        """Port name → number."""
        return self._mapping("ports")

    @cached_property
    def labels(self) -> dict[str, str]:
        """Label name → key."""
        return self._mapping("labels")

    @cached_property
    def topologies(self) -> dict[str, Any]:
        """Topology → title, roles, groups of roles."""
        return self._mapping("topologies")

    @cached_property
    def accelerators(self) -> dict[str, Any]:
        """Accelerator → resource or device class, vendor, variant, fitting TP sizes."""
        return self._mapping("accelerators")

    @cached_property
    def providers(self) -> dict[str, Any]:
        """Provider → title."""
        return self._mapping("providers")

    @cached_property
    def defaults_document(self) -> Document:
        """``defaults.yaml``, with positions."""
        return self.document("catalog", "defaults.yaml")

    @cached_property
    def precise_routing(self) -> dict[str, int]:
        """What engine and router share under precise routing."""
        return self._mapping("precise-routing")

    @cached_property
    def engine_flags(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Server → engine flag that extraArgs may not set → its field of the spec, or why."""
        return self._mapping("engine-flags")

    @cached_property
    def sources(self) -> dict[str, dict[str, str]]:
        """Addresses of charts and CRD manifests."""
        return self._mapping("sources")

    @cached_property
    def calibrations(self) -> list[dict[str, Any]]:
        """Measured numbers of the affinity filter, one row a model × accelerator × TP."""
        rows: list[dict[str, Any]] = self._mapping("calibrations")["rows"]
        return rows

    @cached_property
    def families(self) -> Mapping[str, Family]:
        """Family name → how it turns media into tokens, and the estimator that fits."""
        from mmdeploy.catalog.families import load_families

        return load_families(self.blueprints)

    def family_of(self, model: Model) -> Family:
        """The family of a listed model. Raises `BlueprintError` for one that families.yaml does not have."""
        if model.family not in self.families:
            origin = self.document("catalog", "models.yaml").origin(("models", model.name, "family"))
            near = nearest(model.family, list(self.families))
            raise BlueprintError(f"no family is called {model.family!r}", origin=origin, nearest=near)
        return self.families[model.family]

    @cached_property
    def models(self) -> dict[str, Model]:
        """Served model's full name → model."""
        document = self.document("catalog", "models.yaml")
        entries: dict[str, Any] = document.value["models"]
        return {
            name: _build(Model, {"name": name, **_tuples(entry)}, document, ("models", name))
            for name, entry in entries.items()
        }

    @cached_property
    def release_names(self) -> tuple[str, ...]:
        """Releases, newest first."""
        names = [path.stem for path in (self.blueprints / "catalog" / "releases").glob("*.yaml")]
        return tuple(sorted(names, key=_release_order, reverse=True))

    def release(self, name: str) -> Release:
        """The release ``name``. Raises `UsageError` naming the nearest for one that does not exist."""
        if name not in self.release_names:
            raise UsageError(
                f"release {name!r} is not in the catalog",
                nearest=nearest(name, self.release_names) or self.release_names,
                next_step="mmdeploy matrix shows what each release supports",
            )
        if name not in self._releases:
            document = self.document("catalog", "releases", f"{name}.yaml")
            self._releases[name] = _build(Release, {"name": name, **_tuples(document.value)}, document, ())
        return self._releases[name]

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The support matrix, in its own order. Raises `BlueprintError` for a word that no other file knows."""
        document = self.document("catalog", "matrix.yaml")
        rows = []
        for index, entry in enumerate(document.value["rows"]):
            line = document.line(("rows", index, "topology"))
            row: Row = _build(Row, {**_tuples(entry), "line": line}, document, ("rows", index))
            known = {
                "topology": ([row.topology], self.topologies),
                "accelerator": ([row.accelerator], self.accelerators),
                "providers": (row.providers, self.providers),
                "models": (row.models, self.models),
                "status": (row.status, self.release_names),
            }
            for key, (words, choices) in known.items():
                for word in words:
                    if word not in choices:
                        origin = document.origin(("rows", index, key))
                        near = nearest(word, list(choices))
                        raise BlueprintError(f"{key}: nothing is called {word!r}", origin=origin, nearest=near)
            rows.append(row)
        return tuple(rows)

    def mixed_accelerators(self, combination: Mapping[str, str]) -> tuple[str, ...]:
        """Accelerators of single roles in a combination that mixes them; empty for the others."""
        for row in self.rows:
            if row.roleAccelerators and all(
                combination[axis] == getattr(row, axis) for axis in ("topology", "accelerator", "server")
            ):
                return tuple(row.roleAccelerators.values())
        return ()

    def combinations(self, release: str | None = None) -> Iterator[dict[str, str]]:
        """Every shipped combination as ``{axis: value}`` plus its ``status``, newest release first."""
        for name in self.release_names if release is None else (release,):
            for row in self.rows:
                for provider in row.providers if name in row.status else ():
                    for model in row.models:
                        yield {
                            "topology": row.topology,
                            "accelerator": row.accelerator,
                            "server": row.server,
                            "provider": provider,
                            "model": model,
                            "release": name,
                            "status": row.status[name],
                        }


def _release_order(name: str) -> tuple[int, ...]:
    numbers = tuple(int(number) for number in re.findall(r"[0-9]+", name))
    return numbers or (1 << 30,)


def _tuples(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Lists become tuples, one level into mappings, so that catalog data cannot be changed by accident."""
    return {key: _tuple(value) for key, value in entry.items()}


def _tuple(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, dict):
        return {key: _tuple(item) for key, item in value.items()}
    return value


def _build(kind: Any, entry: Mapping[str, Any], document: Document, path: tuple[str | int, ...]) -> Any:
    fields = kind.__dataclass_fields__
    for key in entry:
        if key not in fields:
            near = nearest(key, list(fields))
            raise BlueprintError(f"unknown key {key!r}", origin=document.origin((*path, key)), nearest=near)
    try:
        return kind(**entry)
    except TypeError as problem:
        missing = re.findall(r"'(\w+)'", str(problem))
        raise BlueprintError(f"lacks {', '.join(missing)}", origin=document.origin(path)) from None
