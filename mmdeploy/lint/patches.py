"""Kustomizations as they were written: their patches, image overrides, and what was built of them."""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmdeploy.documents import KeyPath
from mmdeploy.lint.source import Document, dig

if TYPE_CHECKING:
    from mmdeploy.lint.index import Deployment

_CONTENT = ("resources", "bases", "components", "generators", "configMapGenerator", "secretGenerator", "helmCharts",
            "helmChartInflationGenerator", "crds")  # fmt: skip


@dataclass(frozen=True)
class Patch:
    """One patch: what it says, whom it is for, and where the kustomization names it."""

    document: Document
    """The patch itself, in its own file or inside the kustomization."""
    target: Mapping[str, Any] | None
    at: KeyPath
    """Leads to the entry in the kustomization."""

    @property
    def operations(self) -> bool:
        """Whether it is a list of JSON6902 operations rather than a piece of an object."""
        return isinstance(self.document.value, list)

    @property
    def kind(self) -> str:
        """The kind of object that it changes; empty where it does not say."""
        named = self.document.value.get("kind") if isinstance(self.document.value, Mapping) else None
        return str(named or (self.target or {}).get("kind") or "")

    @property
    def title(self) -> str:
        """What findings call it."""
        name = dig(self.document.value, ("metadata", "name")) or (self.target or {}).get("name") or "…"
        return f"patch of {self.kind or 'objects'}/{name}"


@dataclass(frozen=True)
class Kustomization:
    """A kustomization with what belongs to it."""

    document: Document
    built: Sequence[Document]
    """Objects that the program made of it; empty where it was not built by itself."""
    patches: Sequence[Patch]

    @property
    def value(self) -> Mapping[str, Any]:
        """What it says."""
        return self.document.value if isinstance(self.document.value, Mapping) else {}

    @property
    def component(self) -> bool:
        """Whether it only adds to others."""
        return self.value.get("kind") == "Component"

    @property
    def empty(self) -> bool:
        """Whether nothing in it makes an object."""
        return not any(self.value.get(key) for key in _CONTENT)

    @property
    def title(self) -> str:
        """The file, as people call it."""
        return self.document.file

    def items(self, key: str) -> Iterator[tuple[int, Any]]:
        """Entries of one of its lists."""
        listed = self.value.get(key)
        return enumerate(listed if isinstance(listed, list) else ())


def kustomizations(deployment: Deployment) -> Iterator[Kustomization]:
    """Every kustomization that was read."""
    for document in deployment.kustomizations:
        if isinstance(document.value, Mapping) and document.value.get("kind", "Kustomization") in (
            "Kustomization", "Component",
        ):  # fmt: skip
            directory = str(Path(document.file).parent)
            built = [item for item in deployment.documents if item.file == directory]
            yield Kustomization(document, built, list(_patches(deployment, document)))


def _patches(deployment: Deployment, document: Document) -> Iterator[Patch]:
    for key in ("patches", "patchesStrategicMerge", "patchesJson6902"):
        listed = document.value.get(key)
        for index, item in enumerate(listed if isinstance(listed, list) else ()):
            at: KeyPath = (key, index)
            target = item.get("target") if isinstance(item, Mapping) else None
            for found in _texts(deployment, document, item, at):
                yield Patch(found, target if isinstance(target, Mapping) else None, at)


def _texts(deployment: Deployment, document: Document, item: Any, at: KeyPath) -> Iterator[Document]:
    if isinstance(item, str):
        if "\n" in item:
            inner = document.embedded(at, [])
            if inner is not None:
                yield inner
        else:
            yield from _file(deployment, document, item)
    elif isinstance(item, Mapping):
        if isinstance(item.get("patch"), str):
            inner = document.embedded((*at, "patch"), [])
            if inner is not None:
                yield inner
        elif isinstance(item.get("path"), str):
            yield from _file(deployment, document, item["path"])


def _file(deployment: Deployment, document: Document, name: str) -> Iterator[Document]:
    wanted = os.path.normpath(Path(document.file).parent / name)
    return (item for item in deployment.sources if os.path.normpath(item.file) == wanted)


def selects(kustomization: Kustomization, target: Mapping[str, Any], document: Document) -> bool:
    """Whether a patch's target means an object: kustomize takes every name that the object ever had."""
    value = document.value
    if not isinstance(value, Mapping):
        return False
    group, _, version = str(value.get("apiVersion") or "").rpartition("/")
    facts = {"group": group, "version": version, "kind": str(value.get("kind") or "")}
    for key, text in facts.items():
        wanted = target.get(key)
        if isinstance(wanted, str) and wanted and not _fits(wanted, text):
            return False
    name = target.get("name")
    own = str(dig(value, ("metadata", "name")) or "")
    if isinstance(name, str) and name and not any(_fits(name, text) for text in _former_names(kustomization, own)):
        return False
    return _labelled(target.get("labelSelector"), dig(value, ("metadata", "labels"))) and _labelled(
        target.get("annotationSelector"), dig(value, ("metadata", "annotations"))
    )


def _fits(pattern: str, text: str) -> bool:
    try:
        return re.fullmatch(pattern, text) is not None
    except re.error:
        return pattern == text


def _former_names(kustomization: Kustomization, name: str) -> Iterator[str]:
    suffix = kustomization.value.get("nameSuffix")
    bare = name.removesuffix(suffix) if isinstance(suffix, str) else name
    for text in {name, bare}:
        for start in range(len(text)):
            yield text[start:]


def _labelled(selector: Any, labels: Any) -> bool:
    """Equality selectors only; anything else is taken to match."""
    if not isinstance(selector, str) or not re.fullmatch(r"[\w./-]+==?[\w.-]+(,[\w./-]+==?[\w.-]+)*", selector.strip()):
        return True
    have = labels if isinstance(labels, Mapping) else {}
    pairs = (part.replace("==", "=").split("=", 1) for part in selector.strip().split(","))
    return all(str(have.get(key)) == value for key, value in pairs)
