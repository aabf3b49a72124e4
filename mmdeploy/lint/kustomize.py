"""What kustomize makes of a directory: worked out here for the plainest kustomizations, by the program for all others.

Starting ``kubectl`` costs more than all of lint; a kustomization that only lists files and sets a namespace, as
mmdeploy's own do, needs no program. Whatever is not certain is left to it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mmdeploy.lint.source import Defect, Document

BUILD_SECONDS = 60
"""A kustomization with remote bases may hang; nobody waits longer for a linter."""

_PLAIN_KEYS = frozenset({"apiVersion", "kind", "metadata", "namespace", "resources"})
_NAMESPACED = frozenset(
    {
        "ConfigMap",
        "Deployment",
        "DisaggregatedSet",
        "Gateway",
        "HTTPRoute",
        "InferencePool",
        "Job",
        "LeaderWorkerSet",
        "PersistentVolumeClaim",
        "Pod",
        "PodMonitor",
        "ResourceClaimTemplate",
        "Secret",
        "Service",
        "ServiceAccount",
        "ServiceMonitor",
        "StatefulSet",
    }  # fmt: skip
)
"""Kinds that a namespace means nothing else to than ``metadata.namespace``."""


def in_namespace(value: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    """An object, in a namespace."""
    metadata = value.get("metadata")
    return {**value, "metadata": {**(metadata if isinstance(metadata, Mapping) else {}), "namespace": namespace}}


def plain(
    directory: Path, written: Sequence[Document], sources: Mapping[Path, Sequence[Document]], defects: Sequence[Defect]
) -> list[Document] | None:
    """The objects of a kustomization that only lists files below it and sets a namespace; None for any other."""
    value = written[0].value if len(written) == 1 else None
    if not isinstance(value, dict) or value.keys() - _PLAIN_KEYS or is_component(written):
        return None
    namespace, resources = value.get("namespace"), value.get("resources")
    if not isinstance(resources, list) or not isinstance(namespace, str | None):
        return None
    files = [sources.get(directory / name) if isinstance(name, str) else None for name in resources]
    troubled = {defect.position.file for defect in defects}
    found: list[Document] = []
    for documents in files:
        if not documents or any(document.file in troubled or not _is_plain(document) for document in documents):
            return None
        found += documents
    names = {(item.value["apiVersion"], item.value["kind"], item.value["metadata"]["name"]) for item in found}
    if len(names) != len(found):
        return None
    return [_moved(document, namespace) for document in found]


def _is_plain(document: Document) -> bool:
    value = document.value
    metadata = value.get("metadata") if isinstance(value, dict) else None
    return (
        isinstance(metadata, dict)
        and isinstance(metadata.get("name"), str)
        and isinstance(value.get("apiVersion"), str)
        and isinstance(value.get("kind"), str)
        and value["kind"] in _NAMESPACED
        and "config.kubernetes.io/" not in document.text
    )


def _moved(document: Document, namespace: str | None) -> Document:
    if not namespace:
        return document
    value = in_namespace(document.value, namespace)
    return Document(
        document.file, document.index, value, document.composed, document.text, document.line_offset,
        document.column_offset,
    )  # fmt: skip


def build(directory: Path) -> tuple[str | None, str | None]:
    """What kustomize makes of a directory, or why it cannot: ``(text, None)``, ``(None, problem)``, or two Nones
    where no program is there to build it."""
    for program in (("kubectl", "kustomize"), ("kustomize", "build")):
        if shutil.which(program[0]) is None:
            continue
        try:
            done = subprocess.run(
                [*program, str(directory)], capture_output=True, text=True, encoding="utf-8", errors="replace",
                timeout=BUILD_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return None, f"{program[0]} did not finish within {BUILD_SECONDS} s"
        if done.returncode != 0:
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            # kubectl puts its log's time and process before the message: the message alone is the same every time.
            said = re.sub(r'^[EWIF]\d{4} \S+\s+\d+ \S+\] ("command failed" err=)?', "", lines[-1]) if lines else ""
            return None, f"{' '.join(program)} refuses it: {said or 'no message'}"
        return done.stdout, None
    return None, None


def bases(directory: Path, kustomization: Sequence[Document]) -> Iterator[Path]:
    """Directories that a kustomization in ``directory`` builds on."""
    value = kustomization[0].value if kustomization and isinstance(kustomization[0].value, dict) else {}
    for key in ("resources", "bases", "components"):
        items = value.get(key)
        for item in items if isinstance(items, list) else ():
            if isinstance(item, str) and "\0" not in item and (directory / item).is_dir():
                yield (directory / item).resolve()


def is_component(kustomization: Sequence[Document]) -> bool:
    """Whether it can only be built as part of another one."""
    return any(isinstance(item.value, dict) and item.value.get("kind") == "Component" for item in kustomization)
