"""What judges know besides the evidence: the catalog's names, and what was meant to be deployed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mmdeploy.errors import UsageError
from mmdeploy.verify import configuration
from mmdeploy.verify.targets import Pod, Targets, from_data
from mmdeploy.words import nearest

if TYPE_CHECKING:
    from mmdeploy.catalog import Catalog
    from mmdeploy.catalog.metrics import Metrics, Page
    from mmdeploy.verify.evidence import Evidence


@dataclass(frozen=True)
class Facts:
    """Everything that does not change while a run goes on."""

    catalog: Catalog
    targets: Targets

    @classmethod
    def of(cls, catalog: Catalog, evidence: Evidence) -> Facts:
        """The facts that fit saved evidence. Raises `UsageError` for words that the catalog does not know."""
        found = from_data(evidence.targets)
        known = {
            "topology": tuple(catalog.topologies),
            "server": catalog.metrics.servers,
            "release": tuple(catalog.release_names),
        }
        for key, choices in known.items():
            if (said := getattr(found, key)) not in choices:
                raise UsageError(f"the evidence is of the {key} {said!r}", nearest=nearest(said, choices) or choices)
        roles = tuple(catalog.topologies[found.topology]["roles"])
        for pod in found.pods:
            if pod.role not in roles:
                raise UsageError(f"the evidence has {pod.name} in the role {pod.role!r}", nearest=roles)
        return cls(catalog, found)

    @cached_property
    def metrics(self) -> Metrics:
        """The catalog's table of metric families."""
        return self.catalog.metrics

    def page(self, role: str) -> Page:
        """What is kept of a page: of a pod by its role, of a picker by ``picker``."""
        return self.metrics.picker if role == "picker" else self._engines[role]

    @cached_property
    def _engines(self) -> Mapping[str, Page]:
        return {role: self.metrics.engine(self.targets.server, role) for role in self.roles}

    @cached_property
    def roles(self) -> tuple[str, ...]:
        """Roles of the topology."""
        return tuple(self.catalog.topologies[self.targets.topology]["roles"])

    @property
    def encodes(self) -> bool:
        """Whether there are encode pods."""
        return "encode" in self.roles

    @property
    def language_roles(self) -> tuple[str, ...]:
        """Roles that run the language model: each counts every request."""
        return tuple(self.catalog.topologies[self.targets.topology]["groups"]["language"])

    @property
    def router_encodes(self) -> bool:
        """Whether the router sends media to encode pods; SGLang's language server does that itself."""
        return self.encodes and not self.metrics.picks_own_encoders(self.targets.server)

    @property
    def pool(self) -> tuple[Pod, ...]:
        """Pods that belong to the InferencePool."""
        own = self.metrics.picks_own_encoders(self.targets.server)
        return tuple(pod for pod in self.targets.pods if not (own and pod.role == "encode"))

    @property
    def configured(self) -> bool:
        """Whether the picker's configuration is known."""
        return bool(self.picker_config)

    @property
    def picker_config(self) -> Mapping[str, Any]:
        """The EndpointPickerConfig; empty where no bundle says it."""
        found: Mapping[str, Any] = self.targets.configuration.get("picker") or {}
        return found

    @property
    def spreads(self) -> bool:
        """Whether the configuration asks for several encode pods a request."""
        return any(
            int((item.get("parameters") or {}).get("maxNumOfEndpoints") or 1) > 1
            for item in configuration.plugins(self.picker_config, "encode")
        )

    @property
    def cached_role(self) -> str:
        """The role whose prefix cache a repeated prompt should find: the one that prefills."""
        return "prefill" if "prefill" in self.roles else "decode"

    @property
    def follows_cache(self) -> bool:
        """Whether the configuration sends repeats where their cache is, as far as it is known."""
        if not self.configured:
            return not self.metrics.picks_own_encoders(self.targets.server)
        names = configuration.profiles(self.picker_config)
        own = (
            self.cached_role if self.cached_role in names else next((name for name in names if name != "encode"), None)
        )
        types = {item.get("type") for item in configuration.plugins(self.picker_config, own or "")}
        return bool(types & self.metrics.affinity_plugins)

    @property
    def raw_media(self) -> bool:
        """Whether the bundle says that consumers get the pictures themselves, besides what encode pods made of them."""
        return bool(self.targets.configuration.get("spec", {}).get("mediaHandoff") == "raw")
