"""Documents as one deployment: its pods, its router, its objects, and the release they were written for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from mmdeploy.catalog import Catalog
from mmdeploy.documents import KeyPath
from mmdeploy.lint.pods import Engine, Pod, pods_of
from mmdeploy.lint.pools import Pool, pools_of
from mmdeploy.lint.reading import Read
from mmdeploy.lint.router import BUILT_IN, PickerConfig, Plugin, Router, configs_of, values_of
from mmdeploy.lint.routers import Routers, routers
from mmdeploy.lint.source import Defect, Document, Position, dig
from mmdeploy.lint.tables import Tables
from mmdeploy.lint.versions import Release, infer

_UNREAD = frozenset({"Kustomization", "Component"})


@dataclass
class Object:
    """A Kubernetes object."""

    document: Document

    @cached_property
    def kind(self) -> str:
        """Its kind."""
        return str(self.document.value.get("kind", ""))

    @cached_property
    def name(self) -> str:
        """Its name."""
        return str(dig(self.document.value, ("metadata", "name")) or "")

    @cached_property
    def namespace(self) -> str | None:
        """Its namespace, where it says one."""
        value = dig(self.document.value, ("metadata", "namespace"))
        return str(value) if value else None

    @property
    def title(self) -> str:
        """``Kind/name``."""
        return f"{self.kind}/{self.name}"

    def get(self, *path: str | int) -> Any:
        """The value at a path; None where it is not set."""
        return dig(self.document.value, path)

    def position(self, *path: str | int) -> Position:
        """Where a value stands."""
        return self.document.position(path)


@dataclass
class Deployment:
    """The index that rules look at."""

    catalog: Catalog
    documents: list[Document]
    kustomizations: list[Document]
    sources: list[Document]
    defects: list[Defect]
    as_release: str | None = None
    objects: list[Object] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    router: Router = field(default_factory=Router)
    neighbours: dict[Any, Any] = field(default_factory=dict, repr=False)
    """What `mmdeploy.lint.peers` has worked out already."""

    @cached_property
    def tables(self) -> Tables:
        """Tables of the catalog."""
        return Tables(self.catalog.blueprints)

    @property
    def routers(self) -> Routers:
        """The router's versions, and what changed between them."""
        return routers(self.catalog.blueprints)

    @cached_property
    def release(self) -> Release:
        """Versions in use: of the llm-d release, router, chart, sidecar and engines."""
        return infer(self)

    def kind(self, *kinds: str) -> Iterator[Object]:
        """Objects of some kinds."""
        if len(kinds) == 1:
            return iter(self._by_kind.get(kinds[0], ()))
        return (item for item in self.objects if item.kind in kinds)

    @cached_property
    def _by_kind(self) -> dict[str, list[Object]]:
        found: dict[str, list[Object]] = {}
        for item in self.objects:
            found.setdefault(item.kind, []).append(item)
        return found

    @cached_property
    def engines(self) -> list[Engine]:
        """Model servers of all pods."""
        return [pod.engine for pod in self.pods if pod.engine is not None]

    @cached_property
    def encoders(self) -> list[Engine]:
        """Model servers that only encode, by label or by flags."""
        return [engine for engine in self.engines if engine.encodes_only or engine.pod.role == "encode"]

    @cached_property
    def config_files(self) -> set[str]:
        """Names of the configuration files that endpoint pickers are told to read, by values or by their own flags."""
        named = (values.get("router", "epp", "pluginsConfigFile") for values in self.router.values)
        flags = (
            container.command.value("--config-file")
            for pod in self.pods
            for container in pod.containers
            if container.program == "epp"
        )
        return {str(name).rsplit("/", 1)[-1] for name in (*named, *flags) if name}

    @cached_property
    def configs(self) -> list[PickerConfig]:
        """Endpoint picker configurations in use: a chart's ConfigMap also holds built-in ones that nothing reads."""
        named = [item for item in self.router.configs if item.file_name in self.config_files]
        bare = [item for item in self.router.configs if item.file_name is None]
        others = [item for item in self.router.configs if item.file_name and item.file_name not in BUILT_IN]
        return bare + (named or others or [item for item in self.router.configs if item.file_name])

    @property
    def plugins(self) -> Iterator[tuple[PickerConfig, Plugin]]:
        """Every plugin of every configuration in use."""
        return ((config, plugin) for config in self.configs for plugin in config.plugins)

    @property
    def config(self) -> PickerConfig | None:
        """The endpoint picker configuration in use; the last one where there are several."""
        return self.configs[-1] if self.configs else None

    @cached_property
    def pool_selectors(self) -> list[tuple[dict[str, str], Position, str]]:
        """Selectors of the router's pools: ``(labels, position, title)``."""
        found = []
        for values in self.router.values:
            labels = values.get("router", "modelServers", "matchLabels")
            if isinstance(labels, Mapping) and labels:
                at = values.position("router", "modelServers", "matchLabels")
                found.append((_texts(labels), at, "router.modelServers.matchLabels"))
        for pool in self.kind("InferencePool"):
            labels = pool.get("spec", "selector", "matchLabels") or pool.get("spec", "selector")
            if isinstance(labels, Mapping) and labels:
                found.append((_texts(labels), pool.position("spec", "selector"), pool.title))
        return found

    @cached_property
    def pools(self) -> list[Pool]:
        """The router's pools, with the pods they select."""
        return pools_of(self)

    def selected(self, labels: Mapping[str, str], pods: Iterable[Pod] | None = None) -> list[Pod]:
        """Pods that carry all of some labels."""
        return [pod for pod in (self.pods if pods is None else pods) if labels.items() <= pod.labels.items()]

    @cached_property
    def target_ports(self) -> list[tuple[int, Position]]:
        """Ports that the router's pools call; 8000 where values leave them to the chart."""
        found = []
        for values in self.router.values:
            ports = values.get("router", "modelServers", "targetPorts")
            for index, item in enumerate(ports if isinstance(ports, list) else ()):
                if isinstance(item, Mapping) and isinstance(item.get("number"), int):
                    path: KeyPath = ("router", "modelServers", "targetPorts", index, "number")
                    found.append((item["number"], values.document.position(path)))
        for pool in self.kind("InferencePool"):
            ports = pool.get("spec", "targetPorts")
            for index, item in enumerate(ports if isinstance(ports, list) else ()):
                if isinstance(item, Mapping) and isinstance(item.get("number"), int):
                    found.append((item["number"], pool.position("spec", "targetPorts", index, "number")))
        return found


def _texts(labels: Mapping[Any, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in labels.items()}


def index(catalog: Catalog, read: Read, as_release: str | None = None) -> Deployment:
    """Documents as one deployment."""
    deployment = Deployment(catalog, [], read.kustomizations, read.sources, list(read.defects), as_release)
    for document in flattened(read.documents):
        deployment.documents.append(document)
        values = values_of(document)
        if values is not None:
            deployment.router.values.append(values)
        deployment.router.configs += configs_of(document, values, deployment.defects)
        value = document.value
        if isinstance(value, Mapping) and "kind" in value and str(value["kind"]) not in _UNREAD:
            deployment.objects.append(Object(document))
            deployment.pods += pods_of(document)
    return deployment


def flattened(documents: Iterable[Document]) -> Iterator[Document]:
    """Documents, with the items of Lists one by one."""
    for document in documents:
        value = document.value
        items = (
            value.get("items") if isinstance(value, Mapping) and str(value.get("kind", "")).endswith("List") else None
        )
        if not isinstance(items, list):
            yield document
            continue
        for number, item in enumerate(items):
            yield document.below(("items", number), item)
