"""9xx: the files themselves, gateways, workload kinds, secrets and nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mmdeploy.documents import KeyPath
from mmdeploy.lint.commands import repeated_keys
from mmdeploy.lint.findings import Found, Level, rule
from mmdeploy.lint.index import Deployment
from mmdeploy.lint.source import Document, dig


def _defects(deployment: Deployment, kind: str, fix: str) -> Iterator[Found]:
    for defect in deployment.defects:
        if defect.kind == kind:
            yield Found(defect.place, (), defect.position.file, defect.message, fix)


@rule("MMD901", Level.error, "YAML 1.2")
def unparsable(deployment: Deployment) -> Iterator[Found]:
    """A file that cannot be read as YAML."""
    return _defects(deployment, "unparsable", "correct the text; what stands after it was not judged")


@rule("MMD902", Level.error, "field.md §4.3 (kustomize keeps the last of two equal keys, silently)")
def duplicate_key(deployment: Deployment) -> Iterator[Found]:
    """A key given twice in one mapping."""
    fix = "keep one of the two"
    yield from _defects(deployment, "duplicate-key", fix)
    for pod in deployment.pods:
        for container in pod.containers:
            for flag in container.command.flags:
                for key in repeated_keys(flag.value or "") if (flag.value or "").startswith(("{", "[")) else ():
                    yield Found(
                        pod.document, flag.value_path or flag.path, f"{pod.title} container {container.name}",
                        f"{flag.name} holds the key {key!r} twice; the last one wins", fix,
                    )  # fmt: skip


@rule("MMD903", Level.error, "kubectl kustomize")
def unbuildable(deployment: Deployment) -> Iterator[Found]:
    """A kustomization that kustomize refuses."""
    fix = "run kubectl kustomize on the directory and follow its message"
    for found in _defects(deployment, "unbuildable", fix):
        entry = _entry_named(deployment, found)
        if entry is None:
            yield found
            continue
        document, path, name = entry
        yield Found(
            document, path, found.subject, f"{name} cannot be built: {found.message}",
            "correct the path; not every provider and accelerator has a directory of its own",
        )  # fmt: skip


def _entry_named(deployment: Deployment, found: Found) -> tuple[Document, KeyPath, str] | None:
    """The entry of a kustomization that kustomize's message speaks of."""
    for document in deployment.kustomizations:
        for key in ("resources", "components", "bases", "patches", "patchesStrategicMerge"):
            listed = dig(document.value, (key,))
            for index, item in enumerate(listed if isinstance(listed, list) else ()):
                name = item if isinstance(item, str) else dig(item, ("path",))
                mine = document.file == found.document.file
                if mine and isinstance(name, str) and re.search(rf"['/\s]{re.escape(name)}['\s:]", found.message):
                    return document, (key, index), name
    return None


@rule("MMD904", Level.warning, "mmdeploy")
def unused_ignore(deployment: Deployment) -> Iterator[Found]:
    """An ignore that matches nothing; found where ignores are applied, after every other rule."""
    return iter(())
