"""Objects of a cluster as documents, beside files: as if the files were applied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, Final

import yaml

from mmdeploy.lint.index import flattened
from mmdeploy.lint.reading import Read
from mmdeploy.lint.router import values_of
from mmdeploy.lint.shares import HELM_RELEASE
from mmdeploy.lint.source import Document, compose, dig

_ROUTED: Final = ("InferencePool",)
"""Kinds by which a Helm release is known to be a router."""

Object = Mapping[str, Any]


def document_of(item: Object) -> Document:
    """A live object as a document; its text is the object as YAML, its file is ``Kind/name (live)``."""
    text = cache(partial(_as_yaml, item))  # few are ever looked at
    name = f"{item['kind']}/{item['metadata']['name']} (live)"
    return Document(name, 0, dict(item), lambda: compose(text(), 0, text().count("\n") + 1), "", late=text)


def _as_yaml(item: Object) -> str:
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(_ordered(item), Dumper=dumper, sort_keys=False, allow_unicode=True, width=1 << 16)
    return text


def _ordered(item: Object) -> dict[str, Any]:
    """Kind and name first, as people write objects."""
    first = ("apiVersion", "kind", "metadata")
    return {key: item[key] for key in (*first, *(key for key in item if key not in first)) if key in item}


def namespaces(read: Read) -> list[str]:
    """Namespaces that files say they are for."""
    found = (dig(document.value, ("metadata", "namespace")) for document in flattened(read.documents))
    specs = (dig(document.value, ("namespace",)) for document in read.documents if _is_spec(document))
    return list(dict.fromkeys(str(name) for name in (*specs, *found) if name))


def add(read: Read, objects: Sequence[Object]) -> None:
    """Put live objects beside what was read from files, except those that the files replace.

    A file replaces the object of its kind, name and namespace (one without a namespace is applied wherever the objects
    are); router values replace every object of their release.
    """
    written = {_identity(document.value) for document in flattened(read.documents)
               if isinstance(document.value, Mapping)}  # fmt: skip
    releases = set(_replaced_releases(read, objects))
    for item in objects:
        identity, anywhere = _identity(item), (*_identity(item)[:3], "")
        if identity not in written and anywhere not in written and dig(item, HELM_RELEASE) not in releases:
            read.documents.append(document_of(item))


def _identity(item: Mapping[str, Any]) -> tuple[str, str, str, str]:
    group = str(item.get("apiVersion") or "").rpartition("/")[0]
    name, namespace = (str(dig(item, ("metadata", key)) or "") for key in ("name", "namespace"))
    return group, str(item.get("kind") or ""), name, namespace


def _is_spec(document: Document) -> bool:
    value = document.value
    return isinstance(value, Mapping) and "schemaVersion" in value and "topology" in value


def _replaced_releases(read: Read, objects: Sequence[Object]) -> Iterator[Any]:
    """Helm releases that the values among the files are for: by the name in a spec beside them, or every router."""
    if not any(values_of(document) is not None for document in read.documents if not _is_spec(document)):
        return
    named = [
        str(document.value["name"]) for document in read.documents if _is_spec(document) and "name" in document.value
    ]
    if named:
        yield from named
        return
    yield from (dig(item, HELM_RELEASE) for item in objects if item.get("kind") in _ROUTED and dig(item, HELM_RELEASE))
