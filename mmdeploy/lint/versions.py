"""Which versions a deployment was written for: said by the person, or read off its images and spellings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mmdeploy.lint.tables import ROUTER_VERSIONS

if TYPE_CHECKING:
    from mmdeploy.lint.index import Deployment

DEFAULT_ROUTER = "v0.10.0"
"""The newest tagged router: what documents without any sign of a version are judged by."""


@dataclass(frozen=True)
class Release:
    """Versions in use, and the signs they were read from."""

    router: str
    """``v0.9.0``, ``v0.10.0`` or ``main``: of the endpoint picker and the chart."""
    sidecar: str
    """The same scale, from the sidecar's own image."""
    reasons: tuple[str, ...]
    known: bool
    """False when nothing pointed to a version and the default was taken."""

    def router_at_least(self, version: str) -> bool:
        """Whether the router is ``version`` or newer."""
        return ROUTER_VERSIONS.index(self.router) >= ROUTER_VERSIONS.index(version)


def router_version(tag: str) -> str | None:
    """A tag or chart version as a router version; None for one that says nothing.

    ``main``, ``v0`` and anything after v0.10 are ``main``; patches count as their minor version.
    """
    if tag in ("main", "v0", "0", "latest", "nightly"):
        return "main"
    match = re.match(r"^v?(\d+)\.(\d+)", tag)
    if match is None:
        return None
    number = (int(match[1]), int(match[2]))
    if number < (0, 9):
        return None  # nothing older has a chart or an image under the present names (router.md §4.1)
    if number == (0, 9):
        return "v0.9.0"
    return "v0.10.0" if number == (0, 10) else "main"


def tag_of(image: str) -> str:
    """The tag of an image; empty where it has none."""
    name = image.split("@")[0]
    last = name.rsplit("/", 1)[-1]
    return last.partition(":")[2]


def infer(deployment: Deployment) -> Release:
    """The versions in use. A release that a person names decides for the router; the sidecar's image for itself."""
    signs = list(_router_signs(deployment))
    sidecars = [
        (version, f"sidecar image {pod.sidecar.image}")
        for pod in deployment.pods
        if pod.sidecar is not None and (version := router_version(tag_of(pod.sidecar.image))) is not None
    ]
    if deployment.as_release is not None:
        router = deployment.catalog.release(deployment.as_release).routerVersion
        reasons = [f"--as-release {deployment.as_release}"]
    elif signs:
        router, reasons = signs[0][0], [signs[0][1]]
    elif sidecars:
        router, reasons = sidecars[0][0], [sidecars[0][1]]
    else:
        router, reasons = DEFAULT_ROUTER, []
    sidecar = sidecars[0][0] if sidecars else router
    return Release(router, sidecar, tuple(reasons), bool(reasons))


def _router_signs(deployment: Deployment) -> Iterator[tuple[str, str]]:
    """Signs of the router's version, strongest first."""
    for document in deployment.documents:
        value = document.value
        versions = value.get("versions") if isinstance(value, dict) and "schemaVersion" in value else None
        if isinstance(versions, dict) and (version := router_version(str(versions.get("routerChart", "")))):
            yield version, f"versions.routerChart in {document.file}"
    tag = deployment.router.value("router", "epp", "image", "tag")
    if tag is not None and (version := router_version(str(tag[0]))) is not None:
        yield version, f"router.epp.image.tag {tag[0]}"
    for pod in deployment.pods:
        for container in pod.containers:
            if container.program == "epp" and (version := router_version(tag_of(container.image))) is not None:
                yield version, f"endpoint picker image {container.image}"
    for config in deployment.router.configs:
        value = config.document.value
        if isinstance(value, dict) and value.get("apiVersion") == "llm-d.ai/v1":
            yield "main", "apiVersion llm-d.ai/v1"
