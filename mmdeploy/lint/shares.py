"""Several routers in one namespace, each with the pods that it schedules over: what belongs to one is judged by itself.

Versions, configuration, estimate and hand-offs are a router's own. Which pools overlap, what a monitor finds and what a
route leads to are questions about the whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from mmdeploy.documents import KeyPath
from mmdeploy.lint.index import Deployment, index
from mmdeploy.lint.pools import pickers_of
from mmdeploy.lint.reading import Read
from mmdeploy.lint.source import Document, dig

GROUPS: Final = frozenset("23467")
"""Groups of codes that are about one router and its pods."""
HELM_RELEASE: Final[KeyPath] = ("metadata", "annotations", "meta.helm.sh/release-name")
"""Where Helm notes whose an object is."""
_OF_FILES: Final = ""
"""Name of a router that no Helm release made: the one among the files."""


def shares(whole: Deployment) -> Mapping[str, Deployment]:
    """A deployment for each router, by the name of its Helm release; empty where there are not several.

    A pod that no pool selects may be anybody's, and is in all of them.
    """
    makers = {id(document): _name(document) for document in _making_routers(whole)}
    names = dict.fromkeys(makers.values())
    if len(names) < 2:
        return {}
    owners: dict[int, set[str]] = {}
    for pool in whole.pools:
        for pod in pool.selected:
            owners.setdefault(id(pod.document), set()).add(_name(pool.document))
    found = {}
    for name in names:
        documents = [
            document
            for document in whole.documents
            if makers.get(id(document), name) == name and name in owners.get(id(document), names)
        ]
        found[name] = index(whole.catalog, Read(documents, whole.kustomizations, whole.sources), whole.as_release)
    return found


def _making_routers(whole: Deployment) -> Iterator[Document]:
    """Documents that make or configure a router, or say which release it is of."""
    tops = {id(document) for document in whole.documents}
    made_of = [item.document for item in whole.router.values] + [item.document for item in whole.router.configs]
    for document in made_of:
        while id(document) not in tops and document.parent is not None:
            document = document.parent[0]
        yield document
    yield from (item.document for item in whole.kind("InferencePool"))
    yield from (container.pod.document for container in pickers_of(whole))
    if whole.router.values:  # a spec is the files'
        yield from (item for item in whole.documents if dig(item.value, ("schemaVersion",)) is not None)


def _name(document: Document) -> str:
    return str(dig(document.value, HELM_RELEASE) or _OF_FILES)


def told(parts: Mapping[str, Deployment]) -> Iterator[str]:
    """What a person is told about several routers."""
    if parts:
        routers = ", ".join(f"{name or 'the one in the files'} ({part.release.router})" for name, part in parts.items())
        yield f"{len(parts)} routers are here, each judged with the pods that it selects: {routers}"


__all__ = ["GROUPS", "HELM_RELEASE", "shares", "told"]
