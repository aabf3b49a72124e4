"""9xx: names, labels and lists that the API server refuses, or keeps only in part."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from mmdeploy.documents import KeyPath
from mmdeploy.lint.findings import Found, Level, rule
from mmdeploy.lint.index import Deployment, Object
from mmdeploy.lint.pods import Container, Pod
from mmdeploy.lint.source import Document, dig

_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
_KEY_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_PORT = re.compile(r"(?=.*[a-z])[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_LONGEST = {"port": 15, "label": 63, "subdomain": 253}
_OURS = ("vllm", "vllm-render", "sglang", "sidecar", "epp")
_SELECTORS: tuple[KeyPath, ...] = (
    ("metadata", "labels"),
    ("spec", "selector", "matchLabels"),
    ("spec", "template", "metadata", "labels"),
)


@lru_cache(4096, typed=True)
def _wrong_label(key: str, value: Any) -> tuple[str, str] | None:
    """Why a label is refused and what to write; None for a good one."""
    prefix, slash, name = key.rpartition("/")
    if not _KEY_NAME.fullmatch(name) or (slash and not _SUBDOMAIN.fullmatch(prefix)):
        return f"the label key {key!r} is not allowed", "use prefix/name of letters, digits, '-', '_' and '.'"
    if not isinstance(value, str):
        word = str(value).lower() if isinstance(value, bool) else value
        return f"the label {key} is {word} without quotes, and labels are text", f"write '{word}'"
    if _VALUE.fullmatch(value):
        return None
    short = re.sub(r"[^A-Za-z0-9._-]", "-", value.rsplit("/", 1)[-1])[:63].strip("._-")
    why = "longer than 63 characters" if len(value) > 63 else "letters, digits, '-', '_' and '.' only"
    return f"{value!r} is no value of a label ({why}): {key}", f"write {short}"


@rule("MMD940", Level.error, "Kubernetes API (labels); field.md §4.3.2")
def label_syntax(deployment: Deployment) -> Iterator[Found]:
    """A label that the API server refuses, each once."""
    told: set[tuple[str, str]] = set()
    for document, path, labels, subject in _labels(deployment):
        for key, value in labels.items():
            plain = value if isinstance(value, str | int | float | bool) else str(value)
            wrong = _wrong_label(str(key), plain) if value is not None else None
            if wrong is not None and (str(key), str(value)) not in told:
                told.add((str(key), str(value)))
                yield Found(document, (*path, str(key)), subject, f"{wrong[0]}: the object is refused", wrong[1])


def _labels(deployment: Deployment) -> Iterator[tuple[Document, KeyPath, Mapping[Any, Any], str]]:
    for item in deployment.objects:
        for path in _SELECTORS:
            labels = dig(item.document.value, path)
            if isinstance(labels, Mapping):
                yield item.document, path, labels, item.title
    for pod in deployment.pods:
        labels = dig(pod.template, ("metadata", "labels"))
        if isinstance(labels, Mapping):
            yield pod.document, (*pod.path, "metadata", "labels"), labels, pod.title
    for values in deployment.router.values:
        labels = values.get("router", "modelServers", "matchLabels")
        if isinstance(labels, Mapping):
            yield values.document, ("router", "modelServers", "matchLabels"), labels, "Helm values"


def _serving(deployment: Deployment) -> Iterator[Pod]:
    for pod in deployment.pods:
        if any(container.program in _OURS for container in pod.containers):
            yield pod


@rule("MMD941", Level.error, "Kubernetes API (names)")
def names(deployment: Deployment) -> Iterator[Found]:
    """Names of objects, containers and ports that the API server refuses."""
    for pod in _serving(deployment):
        for container in pod.containers:
            yield from _container_names(container)
    ours = {id(pod.document) for pod in _serving(deployment)}
    for item in deployment.objects:
        mine = id(item.document) in ours or item.kind in ("InferencePool", "PodMonitor", "HTTPRoute", "Service")
        if mine and item.name and (wrong := _wrong_name(item.name, _form(item))):
            yield Found(
                item.document, ("metadata", "name"), item.title, f"{item.name!r} is no name of a {item.kind} ({wrong})",
                "use lower-case letters, digits and '-'",
            )  # fmt: skip


def _form(item: Object) -> str:
    return "label" if item.kind in ("Service", "StatefulSet", "LeaderWorkerSet") else "subdomain"


def _wrong_name(name: str, form: str) -> str | None:
    pattern = {"port": _PORT, "label": _LABEL, "subdomain": _SUBDOMAIN}[form]
    if len(name) > _LONGEST[form]:
        return f"{len(name)} characters, and {_LONGEST[form]} are allowed"
    return None if pattern.fullmatch(name) else "lower-case letters, digits and '-' only"


def _container_names(container: Container) -> Iterator[Found]:
    document, subject = container.pod.document, f"{container.pod.title} container {container.name}"
    if container.name and (wrong := _wrong_name(container.name, "label")):
        yield Found(
            document, (*container.path, "name"), subject, f"{container.name!r} is no name of a container ({wrong})",
            "use lower-case letters, digits and '-'",
        )  # fmt: skip
    for name, _, path in container.ports():
        if isinstance(name, str) and (wrong := _wrong_name(name, "port")):
            yield Found(
                document, (*path, "name"), subject, f"{name!r} is no name of a port ({wrong})",
                "use at most 15 lower-case letters, digits and '-'",
            )  # fmt: skip


@rule("MMD942", Level.error, "Kubernetes API; llm-d-guides.md §19.1")
def twice(deployment: Deployment) -> Iterator[Found]:
    """Two entries of one key in a list that is merged by it: refused, or the first one is lost."""
    for pod in _serving(deployment):
        spec: KeyPath = (*pod.path, "spec")
        yield from _repeated(pod, (*spec, "volumes"), "name", pod.title)
        yield from _repeated_containers(pod)
        for container in pod.containers:
            subject = f"{pod.title} container {container.name}"
            yield from _repeated(pod, (*container.path, "volumeMounts"), "mountPath", subject)
            yield from _repeated(pod, (*container.path, "env"), "name", subject)
            yield from _repeated(pod, (*container.path, "ports"), "name", subject)


def _repeated(pod: Pod, path: KeyPath, key: str, subject: str) -> Iterator[Found]:
    listed = dig(pod.document.value, path)
    seen: dict[str, Any] = {}
    for index, item in enumerate(listed if isinstance(listed, list) else ()):
        name = item.get(key) if isinstance(item, Mapping) else None
        if not isinstance(name, str):
            continue
        if name not in seen:
            seen[name] = item
            continue
        if path[-1] == "env":
            same = dict(seen[name]) == dict(item)
            which = "the same twice" if same else "the last one wins"
            message = f"{name} is set twice ({which}), and server-side apply refuses the list"
        else:
            message = f"{path[-1]} has two entries with {key} {name}: the object is refused"
        yield Found(
            pod.document, (*path, index, key), subject, message, "remove one of the two",
            Level.warning if path[-1] == "env" else None,
        )  # fmt: skip


def _repeated_containers(pod: Pod) -> Iterator[Found]:
    seen: set[str] = set()
    for container in pod.containers:
        if container.name and container.name in seen:
            yield Found(
                pod.document, (*container.path, "name"), pod.title,
                f"two containers are called {container.name}: the object is refused", "rename one of them",
            )  # fmt: skip
        seen.add(container.name)


@rule("MMD943", Level.error, "Kubernetes API (volumeMounts name a volume of the pod)")
def mount_of_nothing(deployment: Deployment) -> Iterator[Found]:
    """A mount whose volume the pod does not have, a claim that the pod does not list."""
    for pod in _serving(deployment):
        have = {str(item.get("name")) for item in _mappings(pod.spec.get("volumes"))}
        claims = dig(pod.document.value, ("spec", "volumeClaimTemplates"))
        have |= {str(dig(item, ("metadata", "name"))) for item in _mappings(claims)}
        promised = {str(item.get("name")) for item in _mappings(pod.spec.get("resourceClaims"))}
        for container in pod.containers:
            subject = f"{pod.title} container {container.name}"
            for _, name, path in container.mounts():
                if name and name not in have:
                    yield Found(
                        pod.document, (*path, "name"), subject,
                        f"it mounts the volume {name}, which the pod does not have ({_listed(have)}): it is refused",
                        f"add a volume called {name}",
                    )  # fmt: skip
            claimed = dig(container.spec, ("resources", "claims"))
            for index, item in enumerate(claimed if isinstance(claimed, list) else ()):
                name = str(dig(item, ("name",)))
                if isinstance(item, Mapping) and name not in promised:
                    yield Found(
                        pod.document, (*container.path, "resources", "claims", index, "name"), subject,
                        f"it claims {name}, which spec.resourceClaims does not list ({_listed(promised)})",
                        f"add {name} to resourceClaims of the pod",
                    )  # fmt: skip


@rule("MMD945", Level.error, "kustomize (a name prefix changes references only in kinds that it knows)")
def renamed_account(deployment: Deployment) -> Iterator[Found]:
    """A pod that names a ServiceAccount which a prefix renamed: the object is here, under a longer name."""
    accounts = {item.name for item in deployment.kind("ServiceAccount")}
    for pod in _serving(deployment):
        name = pod.spec.get("serviceAccountName")
        if not isinstance(name, str) or name in accounts:
            continue
        renamed = sorted(account for account in accounts if account.endswith((f"-{name}", f".{name}")))
        if renamed:
            yield Found(
                pod.document, (*pod.path, "spec", "serviceAccountName"), pod.title,
                f"it runs as the ServiceAccount {name}, and the one here is called {renamed[0]}: no pod is created",
                f"write {renamed[0]}, or leave the name prefix out",
            )  # fmt: skip


def _listed(names_: set[str]) -> str:
    return ", ".join(sorted(names_)) or "none"


def _mappings(value: Any) -> Iterator[Mapping[str, Any]]:
    return (item for item in (value if isinstance(value, list) else ()) if isinstance(item, Mapping))


@rule("MMD944", Level.warning, "router.md §4.3 (ConfigMap envoy is not named after the release)")
def same_object(deployment: Deployment) -> Iterator[Found]:
    """Two different objects of one kind, name and namespace: only one of them can exist."""
    ours = {id(pod.document) for pod in _serving(deployment)}
    ours |= {id(config.document.parent[0]) for config in deployment.router.configs if config.document.parent}
    first: dict[tuple[str, str, str], Object] = {}
    for item in deployment.objects:
        mine = id(item.document) in ours or item.kind == "InferencePool" or item.name == "envoy"
        if not mine or item.namespace is None:
            continue
        known = first.setdefault((item.kind, item.namespace, item.name), item)
        if known is not item and known.document.value != item.document.value:
            yield Found(
                item.document, ("metadata", "name"), item.title,
                f"{known.document.position()} describes {item.title} in {item.namespace} too, and otherwise: Helm "
                "refuses what another release owns, and kubectl keeps the last one",
                "give each release a namespace of its own, or name the objects apart",
            )  # fmt: skip
