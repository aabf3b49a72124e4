"""9xx: mistakes in kustomizations that kustomize builds without a word."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mmdeploy.documents import KeyPath
from mmdeploy.lint.findings import Found, Level, rule
from mmdeploy.lint.images import image
from mmdeploy.lint.index import Deployment
from mmdeploy.lint.patches import Kustomization, Patch, kustomizations, selects
from mmdeploy.lint.source import Document, dig
from mmdeploy.words import nearest

_CORE = ("", "apps", "batch", "autoscaling", "policy", "rbac.authorization.k8s.io", "networking.k8s.io")
"""API groups whose lists kustomize merges by name; in all others a patch's list replaces the whole list."""


def _merge_keys(deployment: Deployment) -> Mapping[str, str]:
    found: dict[str, str] = dict(deployment.tables.notes("platform")["mergeKeys"])
    found.pop("source", None)
    return found


def keyless(value: Any, keys: Mapping[str, str], path: KeyPath = (), depth: int = 0) -> Iterator[tuple[KeyPath, str]]:
    """``(path, key)`` of list entries that lack the key by which their list is merged."""
    if depth > 30:
        return
    if isinstance(value, Mapping):
        for name, item in value.items():
            key = keys.get(str(name))
            if key is not None and isinstance(item, list):
                for index, entry in enumerate(item):
                    directive = isinstance(entry, Mapping) and set(entry) == {"$patch"}
                    if isinstance(entry, Mapping) and not entry.get(key) and not directive:
                        yield (*path, str(name), index), key
            yield from keyless(item, keys, (*path, name), depth + 1)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from keyless(item, keys, (*path, index), depth + 1)


@rule("MMD920", Level.error, "kubernetes-sigs/kustomize#5369 (observed on kustomize 5.5)")
def without_merge_key(deployment: Deployment) -> Iterator[Found]:
    """A list entry without its name: in a patch it empties the list, in an object the API server refuses it."""
    keys = _merge_keys(deployment)
    for kustomization in kustomizations(deployment):
        for patch in kustomization.patches:
            if not patch.operations:
                for path, key in keyless(patch.document.value, keys):
                    yield _keyless_patch(patch, path, key)
    for pod in deployment.pods:
        spec = pod.spec
        for path, key in keyless(spec, keys):
            yield Found(
                pod.document, (*pod.path, "spec", *path), pod.title,
                f"an entry of {path[-2]} has no {key}: the API server refuses the object", f"give it its {key}",
            )  # fmt: skip


def _keyless_patch(patch: Patch, path: KeyPath, key: str) -> Found:
    what = str(path[-2])
    lost = {
        "containers": "the built pod has no containers",
        "initContainers": "the init containers are gone, a sidecar among them",
        "env": "all variables are gone",
        "volumes": "all volumes are gone",
        "volumeMounts": "all mounts are gone",
    }.get(what, "the list is emptied")
    return Found(
        patch.document, path, patch.title,
        f"an entry of {what} has no {key}, so kustomize cannot merge it and drops the list: {lost}",
        f"write {key}: of the entry that it changes",
    )  # fmt: skip


@rule("MMD921", Level.error, "llm-d/llm-d#1345 (kustomize builds nothing, with exit code 0)")
def builds_nothing(deployment: Deployment) -> Iterator[Found]:
    """A kustomization without resources: it builds, and there is nothing in it."""
    for kustomization in kustomizations(deployment):
        if kustomization.empty and not kustomization.component and not kustomization.built:
            key = "resources" if "resources" in kustomization.value else "kind"
            yield Found(
                kustomization.document, (key,), kustomization.title,
                "it lists no resources, so nothing is built and kubectl apply -k succeeds without an object",
                "list the files or bases under resources:, or write kind: Component",
            )  # fmt: skip


@rule("MMD922", Level.error, "field.md §4.3.1 (which of two equal entries wins depends on kustomize's version)")
def two_overrides(deployment: Deployment) -> Iterator[Found]:
    """Two image overrides for one name: one of them is dropped."""
    for kustomization in kustomizations(deployment):
        first: dict[str, Mapping[str, Any]] = {}
        for index, item in kustomization.items("images"):
            name = item.get("name") if isinstance(item, Mapping) else None
            if not isinstance(name, str):
                continue
            known = first.setdefault(name, item)
            if known is not item and known != item:
                yield Found(
                    kustomization.document, ("images", index), kustomization.title,
                    f"{name} is overridden twice, as {_wanted(known)} and as {_wanted(item)}: kustomize keeps one of "
                    "them and drops the other without a word",
                    "keep one entry",
                )  # fmt: skip


def _wanted(item: Mapping[str, Any]) -> str:
    text = str(item.get("newName") or item.get("name"))
    text += f":{item['newTag']}" if item.get("newTag") else ""
    return text + (f"@{item['digest']}" if item.get("digest") else "")


@rule("MMD923", Level.warning, "llm-d-guides.md §2.2; llm-d/llm-d#1845")
def override_without_effect(deployment: Deployment) -> Iterator[Found]:
    """An image override whose name no image has: components run first, and may have renamed it already."""
    for kustomization in kustomizations(deployment):
        used = {text for document in kustomization.built for text in _images(document.value)}
        for index, item in kustomization.items("images") if used and not kustomization.component else ():
            if not isinstance(item, Mapping) or not isinstance(item.get("name"), str):
                continue
            wanted = str(item.get("newName") or item["name"])
            alike = [image(text) for text in used if image(text).repository == wanted]
            done = [
                found
                for found in alike
                if (not item.get("newTag") or found.tag == str(item["newTag"]))
                and (not item.get("digest") or found.digest == str(item["digest"]))
            ]
            if not done:
                near = sorted({image(text).repository for text in used})
                yield Found(
                    kustomization.document, ("images", index, "name"), kustomization.title,
                    f"no image in what is built became {_wanted(item)}: at this point none is called {item['name']} "
                    f"(there are {', '.join(near)})",
                    f"name the image as the component made it: {(nearest(str(item['name']), near) or near)[0]}",
                )  # fmt: skip


def _images(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, Mapping) and depth < 30:
        if isinstance(value.get("image"), str):
            yield value["image"]
        for item in value.values():
            yield from _images(item, depth + 1)
    elif isinstance(value, list) and depth < 30:
        for item in value:
            yield from _images(item, depth + 1)


@rule("MMD924", Level.warning, "kustomize (a patch with target that matches nothing is no error)")
def patch_of_nothing(deployment: Deployment) -> Iterator[Found]:
    """A patch whose target names an object that is not there: it is skipped without a word."""
    for kustomization in kustomizations(deployment):
        if not kustomization.built or kustomization.component:
            continue
        told: set[KeyPath] = set()
        for patch in kustomization.patches:
            target = patch.target
            if target is None or patch.at in told or not (target.get("name") or target.get("labelSelector")):
                continue
            if any(selects(kustomization, target, document) for document in kustomization.built):
                continue
            told.add(patch.at)
            names = sorted(
                str(dig(document.value, ("metadata", "name")))
                for document in kustomization.built
                if isinstance(document.value, Mapping) and document.value.get("kind") == target.get("kind")
            )
            there = f"the {target.get('kind')}s are {', '.join(names)}" if names else "there is none of its kind"
            words = ", ".join(f"{key} {text}" for key, text in target.items())
            yield Found(
                kustomization.document, (*patch.at, "target"), kustomization.title,
                f"the patch's target ({words}) matches nothing, so it is skipped; {there}",
                "correct the target",
            )  # fmt: skip


@rule("MMD925", Level.error, "kubernetes-sigs/kustomize#1027, #1510; llm-d-guides.md §2.3")
def list_replaced(deployment: Deployment) -> Iterator[Found]:
    """Kustomize merges lists of custom resources only with a schema; without one the patch's list is all there is."""
    schema = any(item.value.get("openapi") for item in kustomizations(deployment))
    for kustomization in kustomizations(deployment) if not schema else ():
        for patch in kustomization.patches:
            value = patch.document.value
            group = str(dig(value, ("apiVersion",)) or "").rpartition("/")[0]
            if patch.operations or not isinstance(value, Mapping) or group in _CORE:
                continue
            built = [item for item in kustomization.built if _is_patched(kustomization, patch, item)]
            for path in _lists(value, ()):
                if any(dig(item.value, path) == dig(value, path) for item in built) and _partial(dig(value, path)):
                    yield Found(
                        patch.document, path, patch.title,
                        f"kustomize does not know how to merge {path[-1]} of a {patch.kind}: this list replaces the "
                        "whole one, and what it does not repeat is gone",
                        "add the schema component (openapi: with merge keys), or write JSON6902 operations",
                    )  # fmt: skip
                    break


def _is_patched(kustomization: Kustomization, patch: Patch, document: Document) -> bool:
    name = dig(patch.document.value, ("metadata", "name"))
    target = patch.target or {"kind": patch.kind, "name": str(name or "")}
    return selects(kustomization, target, document)


def _lists(value: Any, path: KeyPath) -> Iterator[KeyPath]:
    """Paths of lists of mappings, outermost first."""
    if isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        yield path
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _lists(item, (*path, str(key)))


def _partial(value: Any, depth: int = 0) -> bool:
    """Whether a list holds a container without an image: then it was meant to be merged."""
    if depth > 30:
        return False
    if isinstance(value, Mapping):
        listed = value.get("containers")
        if isinstance(listed, list) and any(isinstance(item, Mapping) and not item.get("image") for item in listed):
            return True
        return any(_partial(item, depth + 1) for item in value.values())
    return isinstance(value, list) and any(_partial(item, depth + 1) for item in value)


@rule("MMD926", Level.error, "Kubernetes API; kubernetes-sigs/kustomize#5369")
def incomplete_pod(deployment: Deployment) -> Iterator[Found]:
    """Pods without containers, and containers without an image, where no other finding says why."""
    explained = any(True for check in (without_merge_key, list_replaced) for _ in check(deployment))
    for pod in deployment.pods if not explained else ():
        if not pod.labels and pod.kind != "Pod":
            continue  # a patch in a file by itself, rather than an object to be applied
        if all(container.init for container in pod.containers):
            yield Found(
                pod.document, (*pod.path, "spec", "containers"), pod.title,
                "the pod has no containers: the API server refuses it", "give it its containers",
            )  # fmt: skip
        for container in pod.containers:
            if not container.image:
                yield Found(
                    pod.document, (*container.path, "name"), f"{pod.title} container {container.name}",
                    "the container has no image: the API server refuses it",
                    "write image:, or correct the name if an entry of a patch was to be merged",
                )  # fmt: skip
