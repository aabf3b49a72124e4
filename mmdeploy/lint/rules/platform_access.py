"""9xx: tokens and Secrets, and what the platform's nodes want."""

from __future__ import annotations

import base64
import binascii
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from typing import Any

from mmdeploy.documents import KeyPath
from mmdeploy.lint.accelerators import accelerators_of, parallel_of
from mmdeploy.lint.findings import Found, Level, rule
from mmdeploy.lint.index import Deployment
from mmdeploy.lint.peers import subject
from mmdeploy.lint.pods import Container, Engine, Pod
from mmdeploy.lint.source import dig
from mmdeploy.words import counted

_TOKEN = re.compile(r"hf_[A-Za-z0-9]{20,}")


def _notes(deployment: Deployment, part: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = deployment.tables.notes("platform")[part]
    return found


def _from_environment_files(deployment: Deployment, container: Container) -> set[str] | None:
    """Names that ``envFrom`` brings in; None where some of its sources are not here."""
    names: set[str] = set()
    sources = container.spec.get("envFrom")
    for item in sources if isinstance(sources, list) else ():
        kind = "Secret" if dig(item, ("secretRef",)) is not None else "ConfigMap"
        name = dig(item, ("secretRef", "name")) or dig(item, ("configMapRef", "name"))
        held = next((entry for entry in deployment.kind(kind) if entry.name == name), None)
        if held is None:
            return None
        prefix = str(dig(item, ("prefix",)) or "")
        names |= {prefix + key for key in _keys(held.document.value)}
    return names


def _keys(value: Any) -> set[str]:
    found: set[str] = set()
    for part in ("data", "stringData"):
        block = dig(value, (part,))
        found |= {str(key) for key in block} if isinstance(block, Mapping) else set()
    return found


@rule("MMD950", Level.error, "kserve/kserve#3832; opea-project/GenAIInfra#100")
def hub_token(deployment: Deployment) -> Iterator[Found]:
    """A gated model whose token has a name that the hub client does not read, or that is not there at all."""
    notes, gated = _notes(deployment, "env"), tuple(_notes(deployment, "gated")["models"])
    for engine in deployment.engines:
        if not (engine.model or "").startswith(gated):
            continue
        container = engine.container
        brought = _from_environment_files(deployment, container)
        if brought is None or any(container.variable(name) for name in notes["hubToken"]):
            continue
        if brought & set(notes["hubToken"]) or _prepared(engine, notes["offline"]):
            continue
        misnamed = next((name for name in notes["notHubToken"] if container.variable(name)), None)
        path: KeyPath = container.variable_path(misnamed or notes["hubToken"][0])
        what = f"{misnamed} is not read by the hub client" if misnamed else "no HF_TOKEN is set"
        yield Found(
            engine.pod.document, (*path, "name") if misnamed else path, subject(engine),
            f"{engine.model} is gated, and {what}: 401 on the first file", "call the variable HF_TOKEN",
            None if misnamed else Level.warning,
        )  # fmt: skip


def _prepared(engine: Engine, offline: list[str]) -> bool:
    """Whether the files may be there already: offline, or on a volume that outlives the pod."""
    if any(str((engine.container.variable(name) or {}).get("value")).lower() in ("1", "true") for name in offline):
        return True
    lasting = ("persistentVolumeClaim", "hostPath", "nfs", "csi", "image", "ephemeral")
    for mount, name, _ in engine.container.mounts():
        volume = engine.pod.volume(name) or {}
        if any(kind in volume for kind in lasting) and not mount.startswith(("/dev", "/etc", "/usr")):
            return True
    return False


@rule("MMD951", Level.error, "llm-d-guides.md §2.4; llm-d/llm-d-deployer#138")
def secret_keys(deployment: Deployment) -> Iterator[Found]:
    """A key that the Secret (or ConfigMap) among the files does not have."""
    held = {(item.kind, item.name): item for item in deployment.kind("Secret", "ConfigMap")}
    for pod in deployment.pods if held else ():
        for container in pod.containers if any(item.program for item in pod.containers) else ():
            for index, item in enumerate(_list(container.spec.get("env"))):
                for kind, ref in (("Secret", "secretKeyRef"), ("ConfigMap", "configMapKeyRef")):
                    wanted = dig(item, ("valueFrom", ref))
                    known = held.get((kind, str(dig(wanted, ("name",)))))
                    if known is None or dig(wanted, ("optional",)) is True or not _same_place(known.namespace, pod):
                        continue
                    key, keys = dig(wanted, ("key",)), _keys(known.document.value)
                    if keys and str(key) not in keys:
                        yield Found(
                            pod.document, (*container.path, "env", index, "valueFrom", ref, "key"),
                            f"{pod.title} container {container.name}",
                            f"{known.title} has no key {key} (it has {', '.join(sorted(keys))}): "
                            "CreateContainerConfigError on every pod",
                            f"write key: {sorted(keys)[0]}",
                        )  # fmt: skip


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _same_place(namespace: str | None, pod: Pod) -> bool:
    return namespace is None or pod.namespace is None or namespace == pod.namespace


@rule("MMD952", Level.warning, "llm-d-guides.md §2.4 (the token comes from the Secret)")
def token_in_the_open(deployment: Deployment) -> Iterator[Found]:
    """A token in a manifest, and a Secret whose token ends in a line break."""
    for pod in deployment.pods:
        for container in pod.containers:
            for index, item in enumerate(_list(container.spec.get("env"))):
                value = dig(item, ("value",))
                if isinstance(value, str) and _TOKEN.search(value):
                    yield Found(
                        pod.document, (*container.path, "env", index, "value"),
                        f"{pod.title} container {container.name}",
                        f"{dig(item, ('name',))} holds a token in plain text, for everybody who may read the manifest",
                        "keep it in a Secret and use valueFrom.secretKeyRef; revoke this one",
                    )  # fmt: skip
    for secret in deployment.kind("Secret"):
        for name in _notes(deployment, "env")["hubToken"]:
            text = _decoded(secret.get("data", name), secret.get("stringData", name))
            if text is not None and text != text.strip():
                at = "data" if secret.get("data", name) is not None else "stringData"
                yield Found(
                    secret.document, (at, name), secret.title,
                    f"{name} ends in white space, which goes into the request's header: 401",
                    "leave out the line break", Level.error,
                )  # fmt: skip


def _decoded(data: Any, plain: Any) -> str | None:
    if isinstance(plain, str):
        return plain
    if not isinstance(data, str):
        return None
    try:
        return base64.b64decode(data, validate=True).decode()
    except (binascii.Error, ValueError):
        return None


@rule("MMD955", Level.error, "llm-d/llm-d#1282; llm-d-guides.md §2.3")
def nccl_tuner(deployment: Deployment) -> Iterator[Found]:
    """GKE's nodes with gIB put a tuner in the way of NCCL that does not load in the engines' images."""
    notes = _notes(deployment, "gke")
    told = [engine for engine in deployment.engines if engine.container.variable(notes["tuner"]) is not None]
    inside = Counter(id(engine.pod.document) for engine in told)
    elsewhere = {engine.pod.namespace for engine in told}
    if any(dig(item.value, ("provider",)) == "gke" and "schemaVersion" in item.value for item in deployment.documents):
        elsewhere |= {engine.pod.namespace for engine in deployment.engines}
    for engine in deployment.engines:
        container = engine.container
        ranks, held = parallel_of(engine, deployment.tables), accelerators_of(container, deployment)
        if ranks is None or ranks.tensor * ranks.pipeline < 2 or held is None or not held.resource.startswith(
            ("nvidia.com/", "gpu.nvidia.com")
        ):  # fmt: skip
            continue
        known = container.variable(notes["tuner"]) is not None or container.spec.get("envFrom")
        # Where the other roles of a set have it, that is told as one finding about the set.
        forgotten = inside[id(engine.pod.document)] > 1
        if known or forgotten or not _on_gib(engine, notes, elsewhere):
            continue
        path = (*container.path, "env") if container.spec.get("env") else (*container.path, "name")
        yield Found(
            engine.pod.document, path, subject(engine),
            f"{notes['tuner']} is not set on a GKE node: NCCL loads the gIB tuner and fails to start with TP "
            f"{ranks.tensor}",
            f"set {notes['tuner']}: none",
        )  # fmt: skip


def _on_gib(engine: Engine, notes: Mapping[str, Any], elsewhere: Set[str | None]) -> bool:
    """Whether the pod runs on GKE nodes with gIB: its node selector tells, else the others in its namespace."""
    wanted = dig(engine.pod.spec, ("nodeSelector", notes["acceleratorLabel"]))
    if wanted is not None:
        return str(wanted) in notes["gib"]
    return engine.container.variable(notes["net"]) is not None or engine.pod.namespace in elsewhere


@rule("MMD956", Level.error, "llm-d-guides.md §5 (a pod asks for every chip of its node)")
def tpu_slice(deployment: Deployment) -> Iterator[Found]:
    """Chips, topology and accelerator of a TPU pod, which GKE wants to agree."""
    notes = _notes(deployment, "gke")
    for engine in deployment.engines:
        selector = engine.pod.spec.get("nodeSelector")
        held = accelerators_of(engine.container, deployment)
        if not isinstance(selector, Mapping) or held is None or held.resource != "google.com/tpu":
            continue
        topology = selector.get(notes["tpuTopologyLabel"])
        path: KeyPath = (*engine.pod.path, "spec", "nodeSelector")
        if (topology is None) != (selector.get(notes["tpuAcceleratorLabel"]) is None):
            missing = notes["tpuTopologyLabel"] if topology is None else notes["tpuAcceleratorLabel"]
            yield Found(
                engine.pod.document, path, subject(engine), f"the node selector lacks {missing}: GKE wants both",
                f"add {missing}",
            )  # fmt: skip
        elif isinstance(topology, str) and re.fullmatch(r"\d+(x\d+)+", topology):
            chips = 1
            for side in topology.split("x"):
                chips *= int(side)
            if held.count != min(chips, notes["chipsPerHost"]) and held.count != chips:
                yield Found(
                    engine.pod.document, held.path, subject(engine),
                    f"topology {topology} has {counted(chips, 'chip')}, and the pod asks for {held.count}: it is not "
                    "scheduled",
                    f"ask for {min(chips, notes['chipsPerHost'])}, and set the tensor parallel size with it",
                )  # fmt: skip


@rule("MMD958", Level.warning, "llm-d/llm-d#1430, #1450")
def unwritable(deployment: Deployment) -> Iterator[Found]:
    """A folder that the engine fills, prepared as a volume and not mounted, where it may not write by itself."""
    for engine in deployment.engines:
        container = engine.container
        if not _unprivileged(engine) or container.variable("HOME") is not None:
            continue
        mounted = {name for _, name, _ in container.mounts()}
        places = {path.rstrip("/") for path, _, _ in container.mounts()}
        for folder in _notes(deployment, "writable")["folders"]:
            word = folder.strip("/.")
            spare = [name for name in _volumes(engine.pod) if word in name and name not in mounted]
            if folder not in places and spare:
                path = (*container.path, "volumeMounts") if mounted else (*container.path, "name")
                yield Found(
                    engine.pod.document, path, subject(engine),
                    f"the container is not root and cannot make {folder}; the volume {spare[0]} is not mounted",
                    f"mount {spare[0]} at {folder}",
                )  # fmt: skip


def _volumes(pod: Pod) -> list[str]:
    return [str(dig(item, ("name",))) for item in _list(pod.spec.get("volumes"))]


def _unprivileged(engine: Engine) -> bool:
    for context in (engine.container.spec.get("securityContext"), engine.pod.spec.get("securityContext")):
        user = dig(context, ("runAsUser",))
        if user is not None:
            return bool(user != 0)
        if dig(context, ("runAsNonRoot",)) is True:
            return True
    return False
