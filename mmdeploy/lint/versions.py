"""Which versions a deployment was written for: said by the person, or read off its images and spellings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mmdeploy.lint.index import Deployment


@dataclass(frozen=True)
class Release:
    """Versions in use, and the signs they were read from."""

    router: str
    """Version of the endpoint picker and the chart: one of those of `mmdeploy.lint.routers`."""
    sidecar: str
    """The same scale, from the sidecar's own image."""
    reasons: tuple[str, ...]
    known: bool
    """False when nothing pointed to a version and the default was taken."""


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
        if pod.sidecar is not None and (version := deployment.routers.of(tag_of(pod.sidecar.image))) is not None
    ]
    if deployment.as_release is not None:
        router = deployment.catalog.release(deployment.as_release).routerVersion
        reasons = [f"--as-release {deployment.as_release}"]
    elif signs:
        router, reasons = signs[0][0], [signs[0][1]]
    elif sidecars:
        router, reasons = sidecars[0][0], [sidecars[0][1]]
    else:
        router, reasons = deployment.routers.assumed, []
    sidecar = sidecars[0][0] if sidecars else router
    return Release(router, sidecar, tuple(reasons), bool(reasons))


def _router_signs(deployment: Deployment) -> Iterator[tuple[str, str]]:
    """Signs of the router's version, strongest first."""
    routers = deployment.routers
    for document in deployment.documents:
        value = document.value
        versions = value.get("versions") if isinstance(value, dict) and "schemaVersion" in value else None
        if isinstance(versions, dict) and (version := routers.of(str(versions.get("routerChart", "")))):
            yield version, f"versions.routerChart in {document.file}"
    tag = deployment.router.value("router", "epp", "image", "tag")
    if tag is not None and (version := routers.of(str(tag[0]))) is not None:
        yield version, f"router.epp.image.tag {tag[0]}"
    for pod in deployment.pods:
        for container in pod.containers:
            if container.program == "epp" and (version := routers.of(tag_of(container.image))) is not None:
                yield version, f"endpoint picker image {container.image}"
    for config in deployment.router.configs:
        value = config.document.value
        api_version = value.get("apiVersion") if isinstance(value, dict) else None
        takers = [name for name, known in _api_versions(deployment).items() if name in routers.versions
                  and api_version in known]  # fmt: skip
        if len(takers) == 1:
            yield takers[0], f"apiVersion {api_version}"


def _api_versions(deployment: Deployment) -> Mapping[str, Sequence[str]]:
    """What a configuration may call itself, by version of the router."""
    found: Mapping[str, Sequence[str]] = deployment.tables.notes("router")["apiVersions"]
    return found
