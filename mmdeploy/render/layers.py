"""Layers: which of them a deployment stacks, and what is in them.

`stack.yaml` orders them; a condition there compares facts of the deployment with values. Nothing else decides what
is laid on what.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mmdeploy.catalog import Catalog
from mmdeploy.documents import Document
from mmdeploy.errors import BlueprintError
from mmdeploy.render.expressions import Place
from mmdeploy.spec import ROLES
from mmdeploy.words import nearest

FACTS = (
    *("topology", "accelerator", "server", "provider", "model", "release", "workload", "mode", "gatewayClass"),
    *("routing", "ecConnector", "encoderParallelism", "monitoring", "tracing", "encoderCacheAffinity"),
    *("encodes", "prefills", "forked"),
)
GROUPS = ("all", "media", "language", "consumer", *ROLES)
"""Sections of a model server layer, from the general to the particular."""

SECTIONS = ("values", "labels", "podLabels", "podAnnotations", "pod", "workload", "objects")
ROUTER_KEYS = ("source", "values", "config", "configFile", "poolSelector", "objects")


@dataclass(frozen=True)
class Layer:
    """One file under ``layers/``."""

    name: str
    document: Document

    @property
    def value(self) -> dict[str, Any]:
        """What the file holds."""
        value: dict[str, Any] = self.document.value
        return value

    def section(self, group: str, name: str) -> tuple[Any, Place] | None:
        """A role group's section (``("all", "pod")``) and its place, where the layer has it."""
        content = self.value.get(group)
        if not isinstance(content, Mapping) or name not in content:
            return None
        return content[name], Place(self.document, (group, name))


@dataclass(frozen=True)
class Entry:
    """One line of ``stack.yaml``."""

    layer: str
    when: Mapping[str, Any]

    def holds(self, facts: Mapping[str, Any]) -> bool:
        """Whether every condition holds."""
        return all(
            facts.get(fact) in wanted if isinstance(wanted, list) else facts.get(fact) == wanted
            for fact, wanted in self.when.items()
        )


class Stack:
    """``stack.yaml`` and the layers it names."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._document = catalog.document("stack.yaml")
        self._layers: dict[str, Layer] = {}
        self._workloads: dict[str, Document] = {}
        self._check_every_file_is_named()

    @cached_property
    def modelserver(self) -> list[Entry]:
        """Entries of the model servers' stack."""
        return self._entries("modelserver")

    @cached_property
    def router(self) -> list[Entry]:
        """Entries of the router's stack."""
        return self._entries("router")

    def _entries(self, part: str) -> list[Entry]:
        entries = []
        for index, item in enumerate(self._document.value.get(part) or ()):
            origin = self._document.origin((part, index))
            if not isinstance(item, Mapping) or not isinstance(item.get("layer"), str):
                raise BlueprintError("an entry is {layer: NAME, when: {FACT: VALUE}}", origin=origin)
            for key in item:
                if key not in ("layer", "when"):
                    raise BlueprintError(f"unknown key {key!r}", origin=origin, nearest=["when", "layer"])
            when = item.get("when") or {}
            for fact, wanted in when.items():
                if fact not in FACTS:
                    raise BlueprintError(f"unknown fact {fact!r}", origin=origin, nearest=nearest(fact, FACTS))
                self._check_value(fact, wanted, origin)
            if not (self._catalog.blueprints / "layers" / f"{item['layer']}.yaml").is_file():
                raise BlueprintError(
                    f"there is no layer {item['layer']!r}", origin=origin, nearest=nearest(item["layer"], self.files())
                )
            entries.append(Entry(item["layer"], when))
        return entries

    def _check_value(self, fact: str, wanted: Any, origin: str) -> None:
        """A condition that can never hold: a value that its fact cannot have."""
        known: dict[str, Iterable[str]] = {
            "topology": self._catalog.topologies,
            "accelerator": self._catalog.accelerators,
            "server": [row.server for row in self._catalog.rows],
            "provider": self._catalog.providers,
            "release": self._catalog.release_names,
        }
        for value in wanted if isinstance(wanted, list) else [wanted]:
            if fact in known and value not in known[fact]:
                near = nearest(str(value), list(known[fact]))
                raise BlueprintError(f"no {fact} is called {value!r}", origin=origin, nearest=near)

    def _check_every_file_is_named(self) -> None:
        named = {entry.layer for entry in (*self.modelserver, *self.router)}
        for name in self.files():
            if name not in named:
                raise BlueprintError(
                    "no entry of stack.yaml names this layer",
                    origin=f"{self._catalog.label}/layers/{name}.yaml:1",
                    next_step="add {layer: " + name + ", when: {...}} to stack.yaml, or remove the file",
                )

    def files(self) -> list[str]:
        """Names of all layer files."""
        root = self._catalog.blueprints / "layers"
        return sorted(str(path.relative_to(root).with_suffix("")) for path in root.rglob("*.yaml"))

    def select(self, entries: Iterable[Entry], facts: Mapping[str, Any]) -> list[Layer]:
        """The layers whose conditions hold, in order."""
        return [self.layer(entry.layer) for entry in entries if entry.holds(facts)]

    def layer(self, name: str) -> Layer:
        """The layer ``name``, read once. Raises `BlueprintError` for a section that layers do not have."""
        if name not in self._layers:
            document = self._catalog.document("layers", f"{name}.yaml")
            if not isinstance(document.value, dict):
                raise BlueprintError("a layer is a mapping", origin=f"{document.name}:1:1")
            known = ROUTER_KEYS if name.startswith("router/") else (*GROUPS, "objects", "source")
            _check_keys(document, (), document.value, known)
            for group in GROUPS:
                section = document.value.get(group, {})
                if not isinstance(section, Mapping):
                    raise BlueprintError(f"{group} must be a mapping of sections", origin=document.origin((group,)))
                _check_keys(document, (group,), section, SECTIONS)
            self._layers[name] = Layer(name, document)
        return self._layers[name]

    def workload(self, kind: str) -> Document:
        """The wrapper of a workload kind (``workloads/<kind>.yaml``)."""
        if kind not in self._workloads:
            self._workloads[kind] = self._catalog.document("workloads", f"{kind}.yaml")
        return self._workloads[kind]


def _check_keys(document: Document, path: tuple[str, ...], value: Mapping[str, Any], known: Iterable[str]) -> None:
    for key in value:
        if key not in known:
            raise BlueprintError(
                f"unknown section {key!r}", origin=document.origin((*path, key)), nearest=nearest(key, list(known))
            )
