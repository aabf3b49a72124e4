"""Image references: their parts, and what is known of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mmdeploy.documents import KeyPath
from mmdeploy.lint.pods import Container
from mmdeploy.lint.source import Document

if TYPE_CHECKING:
    from mmdeploy.lint.index import Deployment

_REFERENCE = re.compile(
    r"^(?:(?=[^/]*[.:]|localhost/)[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::\d+)?/)?"
    r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@[A-Za-z][A-Za-z0-9+._-]*:[0-9a-fA-F]{32,})?$"
)
"""The grammar that container runtimes hold a reference to; without a registry the name is Docker Hub's."""


@dataclass(frozen=True)
class Image:
    """A reference, taken apart."""

    text: str
    repository: str
    tag: str
    digest: str

    @property
    def valid(self) -> bool:
        """Whether a runtime accepts the text as a reference at all."""
        return _REFERENCE.match(self.text) is not None


def image(text: str) -> Image:
    """The parts of a reference; nothing is refused."""
    name, _, digest = text.partition("@")
    last = name.rsplit("/", 1)[-1]
    tag = last.partition(":")[2]
    return Image(text, name[: len(name) - len(tag) - 1] if tag else name, tag, digest)


@dataclass(frozen=True)
class Use:
    """An image where it is used: by a container, or named in Helm values."""

    image: Image
    document: Document
    path: KeyPath
    subject: str
    container: Container | None = None


def uses(deployment: Deployment) -> Iterator[Use]:
    """Images of pods that serve a model or run the router, and those that values name for the router."""
    for pod in deployment.pods:
        if not any(container.program for container in pod.containers):
            continue
        for container in pod.containers:
            if container.image:
                subject = f"{pod.title} container {container.name}"
                yield Use(image(container.image), pod.document, (*container.path, "image"), subject, container)
