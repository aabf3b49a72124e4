"""7xx: image references, charts, and releases that do not go together. The sidecar is in `versions_sidecar`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mmdeploy.documents import KeyPath
from mmdeploy.lint.findings import Found, Level, rule
from mmdeploy.lint.images import Use, image, uses
from mmdeploy.lint.index import Deployment
from mmdeploy.lint.pods import Container
from mmdeploy.lint.source import Document, dig
from mmdeploy.lint.versions import tag_of

_TEMPLATE = re.compile(r"[<>{}$]|\s")


def _notes(deployment: Deployment) -> Mapping[str, Any]:
    found: Mapping[str, Any] = deployment.tables.notes("platform")
    return found


@rule("MMD701", Level.warning, "model-servers.md §0.8, §1.3; llm-d/llm-d-benchmark#1572")
def floating_tag(deployment: Deployment) -> Iterator[Found]:
    """A tag that moves: what runs depends on the day on which a pod started."""
    floating = set(_notes(deployment)["images"]["floating"])
    engines = [item for item in uses(deployment) if item.container and item.container.program in ("vllm", "sglang")]
    for item in engines:
        if item.image.digest or item.image.tag not in floating:
            continue
        several = sum(1 for other in engines if other.image.repository == item.image.repository) > 1
        apart = "; engines of two days refuse each other's transfers" if several else ""
        yield _found(
            item, f"the tag {item.image.tag} moves: pods of different days run different builds{apart}",
            "pin a release, or the digest (name@sha256:…)",
        )  # fmt: skip


def _found(item: Use, message: str, fix: str, level: Level | None = None) -> Found:
    return Found(item.document, item.path, item.subject, f"{item.image.text}: {message}", fix, level)


@rule("MMD702", Level.warning, "llm-d/llm-d#1845")
def untagged(deployment: Deployment) -> Iterator[Found]:
    """No tag means latest."""
    for item in uses(deployment):
        if not item.image.tag and not item.image.digest and _usable(deployment, item):
            yield _found(item, "it has neither tag nor digest, so latest is pulled", "write the tag of a release")


def _usable(deployment: Deployment, item: Use) -> bool:
    return item.image.valid and not _placeholder(deployment, item.image.text)


def _placeholder(deployment: Deployment, text: str) -> bool:
    words = _notes(deployment)["images"]["placeholders"]
    name = text.split("@")[0]
    return _TEMPLATE.search(text) is not None or any(
        word in name if word != word.lower() else word in name.lower() for word in words
    )


@rule("MMD703", Level.error, "llm-d-guides.md §2.1, §2.2")
def placeholder(deployment: Deployment) -> Iterator[Found]:
    """A name that was to be replaced, or that no runtime accepts."""
    for item in uses(deployment):
        if _placeholder(deployment, item.image.text):
            yield _found(
                item, "this is a placeholder: the pod ends in InvalidImageName or ErrImagePull",
                "name the image, or add the images component or an images: entry that replaces it",
            )  # fmt: skip
        elif not item.image.valid:
            yield _found(
                item, "this is no image reference: the pod ends in InvalidImageName",
                "write registry/name:tag in lower case, a digest as @sha256: and 64 hexadecimal digits",
            )  # fmt: skip


@rule("MMD704", Level.error, "field.md §4.2; router.md §4.1; llm-d-guides.md §2.2")
def vanished(deployment: Deployment) -> Iterator[Found]:
    """An image that is no longer published under its name."""
    gone = _notes(deployment)["images"]["vanished"]
    named = [*uses(deployment), *_named_in_values(deployment)]
    for item in named:
        known = gone.get(item.image.repository)
        if known is not None:
            yield _found(item, known["why"], f"use {known['instead']}", Level[known["level"]])


def _named_in_values(deployment: Deployment) -> Iterator[Use]:
    for values in deployment.router.values:
        block = values.get("router", "epp", "image")
        if not isinstance(block, Mapping) or not isinstance(block.get("repository"), str):
            continue
        registry = str(block.get("registry") or _notes(deployment)["images"]["registry"]).rstrip("/")
        text = f"{registry}/{block['repository']}" + (f":{block['tag']}" if block.get("tag") else "")
        path: KeyPath = ("router", "epp", "image", "repository")
        yield Use(image(text), values.document, path, "router.epp.image")


@dataclass(frozen=True)
class Chart:
    """A router chart that something pins: a Helm release object, a kustomization, a chart's dependency, a spec."""

    name: str
    version: str
    document: Document
    path: KeyPath
    subject: str


def charts(deployment: Deployment) -> Iterator[Chart]:
    """Every pin of a router chart."""
    names = _notes(deployment)["charts"]["names"]
    gone = _notes(deployment)["charts"]["vanished"]
    for document in (*deployment.documents, *deployment.kustomizations):
        value = document.value
        if not isinstance(value, Mapping):
            continue
        if "schemaVersion" in value and isinstance(dig(value, ("versions", "routerChart")), str):
            pinned = str(dig(value, ("versions", "routerChart")))
            yield Chart(names[0], pinned, document, ("versions", "routerChart"), "versions.routerChart")
        for name, pinned, path in _pins(value, ()):
            short = name.rstrip("/").rsplit("/", 1)[-1]
            if short in names or short in gone:
                yield Chart(short, pinned, document, path, short)


_CHART_KEYS = (("chart", "version"), ("chart", "targetRevision"), ("name", "version"), ("repoURL", "targetRevision"))


def _pins(value: Any, path: KeyPath, depth: int = 0) -> Iterator[tuple[str, str, KeyPath]]:
    """``(chart, version, path of the version)`` of Flux, Argo CD, helmfile, Chart.yaml and kustomize's helmCharts."""
    if depth > 6:
        return
    if isinstance(value, Mapping):
        for name, pinned in _CHART_KEYS:
            if isinstance(value.get(name), str) and isinstance(value.get(pinned), str | int | float):
                yield str(value[name]), str(value[pinned]), (*path, pinned)
        for key in ("spec", "chart", "source", "sources", "template", "dependencies", "helmCharts", "releases"):
            if key in value:
                yield from _pins(value[key], (*path, key), depth + 1)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _pins(item, (*path, index), depth + 1)


@rule("MMD706", Level.warning, "router.md §4.1 (no -dev chart after 2026-07-17)")
def retired_chart(deployment: Deployment) -> Iterator[Found]:
    """A chart that is no longer built under its name."""
    gone = _notes(deployment)["charts"]["vanished"]
    for chart in charts(deployment):
        if chart.name in gone:
            yield Found(
                chart.document, chart.path, chart.subject,
                f"the chart {chart.name} is no longer built: {chart.version} stays what it was in July 2026",
                f"use {gone[chart.name]}",
            )  # fmt: skip


@dataclass(frozen=True)
class _Sign:
    """A version of one part of the router, and where it is said."""

    part: str
    version: str
    text: str
    document: Document
    path: KeyPath


@rule("MMD707", Level.warning, "router.md §0, §9 (endpoint picker, sidecar and charts share one version)")
def picker_and_chart(deployment: Deployment) -> Iterator[Found]:
    """An endpoint picker of another version than the chart that starts it, or two pickers of two versions."""
    signs = [*_chart_signs(deployment), *_picker_signs(deployment)]
    for sign in signs[1:]:
        first = signs[0]
        if sign.version != first.version:
            yield Found(
                sign.document, sign.path, sign.part,
                f"{sign.part} is {sign.text} and {first.part} is {first.text}: a chart gives flags and configuration "
                "that only its own endpoint picker is sure to take",
                "take both from one release; without image.tag the chart names its own",
            )  # fmt: skip


def _chart_signs(deployment: Deployment) -> Iterator[_Sign]:
    for chart in charts(deployment):
        found = deployment.routers.of(chart.version)
        if found is not None:
            yield _Sign("the chart", found, chart.version, chart.document, chart.path)
    for item in deployment.objects:
        label = item.get("metadata", "labels", "helm.sh/chart")
        match = re.fullmatch(r"(?:llm-d-router-\w+|routerlib)-(v?\d.*|v0)", label) if isinstance(label, str) else None
        found = deployment.routers.of(match[1]) if match and not match[1].startswith("0.0.0") else None
        if match and found is not None:
            yield _Sign("the chart", found, match[1], item.document, ("metadata", "labels", "helm.sh/chart"))


def _picker_signs(deployment: Deployment) -> Iterator[_Sign]:
    for values in deployment.router.values:
        tag = values.get("router", "epp", "image", "tag")
        found = deployment.routers.of(str(tag)) if isinstance(tag, str) else None
        if found is not None:
            yield _Sign("the endpoint picker", found, str(tag), values.document, ("router", "epp", "image", "tag"))
    yield from (_of_image(deployment, "the endpoint picker", item) for item in _versioned(deployment, "epp"))


def _versioned(deployment: Deployment, program: str) -> Iterator[Container]:
    for pod in deployment.pods:
        for container in pod.containers:
            if container.program == program and deployment.routers.of(tag_of(container.image)) is not None:
                yield container


def _of_image(deployment: Deployment, part: str, container: Container) -> _Sign:
    tag = tag_of(container.image)
    return _Sign(part, deployment.routers.of(tag) or "", tag, container.pod.document, (*container.path, "image"))
