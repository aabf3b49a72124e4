"""What the catalog knows about clusters: ``blueprints/catalog/preflight.yaml`` and where CRDs come from."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mmdeploy.errors import BlueprintError

if TYPE_CHECKING:
    from mmdeploy.catalog import Catalog


@dataclass(frozen=True)
class Facts:
    """The catalog's word on clusters, by topic. Raises `BlueprintError` for a topic that is not there."""

    catalog: Catalog

    @cached_property
    def _topics(self) -> Mapping[str, Any]:
        document = self.catalog.document("catalog", "preflight.yaml")
        if not isinstance(document.value, dict):
            raise BlueprintError("must hold a mapping", origin=f"{document.name}:1:1")
        return document.value

    def __getitem__(self, topic: str) -> Any:
        if topic not in self._topics:
            raise BlueprintError(f"lacks {topic}", origin=f"{self.catalog.label}/catalog/preflight.yaml")
        return self._topics[topic]

    def kind(self, name: str) -> tuple[str, str]:
        """``apiVersion`` and kind of one of the kinds beside a bundle's own."""
        entry = self["kinds"][name]
        return str(entry["apiVersion"]), str(entry["kind"])

    def bringing(self, group: str, versions: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
        """What brings an API group, and the commands that install it in the version that a spec asks for."""
        entry = self["origins"].get(group)
        if not isinstance(entry, dict):
            return group, ()
        version = str(versions.get(entry.get("version", ""), ""))
        if "manifests" in entry and version:
            address = self.catalog.sources["manifests"][entry["manifests"]].replace("{}", version)
            return entry["title"], (f"kubectl apply --server-side -f {address}",)
        if "charts" in entry and version:
            return f"{entry['title']} ({version} or newer)", self._sets(entry, version)
        if "chart" in entry:
            return entry["title"], (
                f"helm upgrade --install prometheus {entry['chart']} --namespace monitoring --create-namespace",
            )
        return entry["title"], ()

    def _sets(self, entry: Mapping[str, Any], version: str) -> tuple[str, ...]:
        """helm upgrade never updates CRDs, so the chart's own come first (kubernetes-sigs/lws#883)."""
        chart, place = self.catalog.sources["charts"][entry["charts"]], self["sets"]
        return (
            f"helm pull {chart} --version {version} --untar",
            "kubectl apply --server-side --force-conflicts -f lws/crds",
            f"helm upgrade --install {place['release']} {chart} --version {version} --namespace {place['namespace']} "
            f"--create-namespace --set {place['switch']}=true --wait --timeout 300s",
        )


def version_of(text: str) -> tuple[int, ...]:
    """The numbers that a version starts with: ``v1.35.4-gke.1`` is (1, 35, 4); () for a word such as ``main``."""
    match = re.match(r"v?(\d+(?:\.\d+)*)", text)
    return tuple(int(number) for number in match[1].split(".")) if match else ()


def older(version: str, oldest: str) -> bool:
    """Whether ``version`` is before ``oldest``, as far as ``oldest`` is written; False where either has no number."""
    found, wanted = version_of(version), version_of(oldest)
    return bool(found and wanted) and found[: len(wanted)] < wanted


def listed(words: Sequence[str], last: str = "and") -> str:
    """``a, b and c``."""
    return f"{', '.join(words[:-1])} {last} {words[-1]}" if len(words) > 1 else "".join(words)


__all__ = ["Facts", "listed", "older", "version_of"]
