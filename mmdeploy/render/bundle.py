"""A deployment as files: an ordered set of paths and texts, the same for the same deployment."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mmdeploy.catalog import Catalog
from mmdeploy.documents import KeyPath
from mmdeploy.render.deployment import BundleObject, Deployment
from mmdeploy.render.yamltext import dump

SPEC_FILE = "mmdeploy.yaml"
VALUES_FILE = "router/values.yaml"
SUMS_FILE = "mmdeploy.sum"
DIRECTORIES = ("modelserver", "monitoring", "gateway")
"""Directories of a bundle that hold a kustomization."""


@dataclass(frozen=True)
class Bundle:
    """Files by path relative to the bundle's root, ``/`` between names, and the deployment they were made from."""

    deployment: Deployment
    files: Mapping[str, str]

    def sums(self) -> str:
        """The bundle's own list of checksums, in the format of sha256sum(1)."""
        return sums_of(self.files)


def sums_of(files: Mapping[str, str]) -> str:
    """Checksums of files by path, in the format of sha256sum(1)."""
    return "".join(f"{digest(text)}  {path}\n" for path, text in sorted(files.items()))


def digest(text: str) -> str:
    """SHA-256 of a text as UTF-8, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def render(catalog: Catalog, deployment: Deployment) -> Bundle:
    """Every file of the bundle except its list of checksums, in the order in which a person reads them."""
    from mmdeploy.render.readme import readme

    files = {
        "README.md": readme(catalog, deployment),
        SPEC_FILE: spec_text(deployment),
        VALUES_FILE: values_text(deployment),
    }
    for directory in DIRECTORIES:
        objects = [item for item in deployment.objects if item.file.startswith(f"{directory}/")]
        if objects:
            files[f"{directory}/kustomization.yaml"] = _kustomization(deployment, directory, objects)
            files.update((item.file, dump(item.content, item.notes)) for item in objects)
    return Bundle(deployment, files)


def contents(bundle: Bundle) -> dict[str, Any]:
    """What the files hold, as plain data by path; objects as they are applied, in their namespace."""
    deployment = bundle.deployment
    namespace = deployment.spec["namespace"]
    found = {SPEC_FILE: dict(deployment.spec), VALUES_FILE: router_values(deployment)}
    for item in deployment.objects:
        found[item.file] = {**item.content, "metadata": {**item.content["metadata"], "namespace": namespace}}
    return found


def spec_text(deployment: Deployment) -> str:
    """The resolved spec as a file; rendering it again gives the same bundle."""
    return dump(
        deployment.spec,
        heading="The whole deployment, every value decided. Change it and run:\n"
        f"  mmdeploy render -f {SPEC_FILE} -d .\n"
        "A field that is left out is decided anew; mmdeploy render --explain says by whom.",
    )


def values_text(deployment: Deployment) -> str:
    """The router's Helm values, complete, with the endpoint picker's configuration inside."""
    values = router_values(deployment)
    return dump(
        values, deployment.router.valuesNotes, heading=f"Helm values of the llm-d router ({_charts(deployment)})."
    )


def router_values(deployment: Deployment) -> dict[str, Any]:
    """The values as plain data, as Helm takes them: the configuration is text under its file name."""
    router = deployment.router
    values: dict[str, Any] = copy.deepcopy(dict(router.values))
    config = dump(router.config, router.configNotes)
    values["router"]["epp"]["pluginsCustomConfig"] = {router.configFile: config}
    return values


def _charts(deployment: Deployment) -> str:
    return f"chart llm-d-router-{deployment.spec['mode']}, version {deployment.spec['versions']['routerChart']}"


def _kustomization(deployment: Deployment, directory: str, objects: Iterable[BundleObject]) -> str:
    notes: dict[KeyPath, str] = {("namespace",): "Your own kustomization on top may set another."}
    content = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": deployment.spec["namespace"],
        "resources": [item.file.removeprefix(f"{directory}/") for item in objects],
    }
    return dump(content, notes)


def manifests(deployment: Deployment) -> str:
    """All objects as one stream, each in its namespace; the router is a Helm release and not among them."""
    documents = []
    for item in deployment.objects:
        metadata = {"name": item.content["metadata"]["name"], "namespace": deployment.spec["namespace"]}
        content = {**item.content, "metadata": {**metadata, **item.content["metadata"]}}
        documents.append(dump(content, item.notes))
    return "---\n".join(documents)
