"""3xx: variables of the engine, and variables that are expanded by nobody."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from mmdeploy.documents import KeyPath
from mmdeploy.lint.engines import EngineFacts, Knowledge, facts_of, model_of
from mmdeploy.lint.findings import Found, Level, rule
from mmdeploy.lint.index import Deployment
from mmdeploy.lint.peers import opaque, raw_arguments, set_in_script, subject
from mmdeploy.lint.pods import Container, Engine
from mmdeploy.lint.source import dig

_PROGRAMS = ("vllm", "vllm-render", "sglang", "sidecar", "epp")
_SHELL_STYLE = re.compile(r"(?<![\\$\w])\$(?:\{([A-Z_][A-Z0-9_]*)\}|([A-Z_][A-Z0-9_]*))")
_KUBERNETES_STYLE = re.compile(r"(?<!\$)\$\(([A-Z_][A-Z0-9_]*)\)")
_QUOTED = re.compile(r"\"(?:\\.|[^\"\\])*\"|'([^']*)'")
_FROM_SERVICES = re.compile(r"_SERVICE_(HOST|PORT)|_PORT(_\d+_(TCP|UDP)(_(ADDR|PORT|PROTO))?)?$")


def _containers(deployment: Deployment) -> Iterator[Container]:
    for pod in deployment.pods:
        for container in pod.containers:
            if container.program in _PROGRAMS:
                yield container


def _variables(container: Container) -> list[tuple[str, Mapping[str, Any], KeyPath]]:
    items = container.spec.get("env")
    return [
        (item["name"], item, (*container.path, "env", index))
        for index, item in enumerate(items if isinstance(items, list) else ())
        if isinstance(item, Mapping) and isinstance(item.get("name"), str)
    ]


def _title(container: Container) -> str:
    return f"{container.pod.title} container {container.name}"


@rule("MMD306", Level.error, "volcano-sh/kthena#937; the Kubernetes API on args and env")
def unexpanded(deployment: Deployment) -> Iterator[Found]:
    """A variable in a form that neither Kubernetes nor a shell expands where it stands."""
    for container in _containers(deployment):
        names = {name for name, _, _ in _variables(container)}
        for message, fix, path in (*_in_arguments(container, names), *_in_values(container, names)):
            yield Found(container.pod.document, path, _title(container), message, fix)


def _in_arguments(container: Container, names: set[str]) -> Iterator[tuple[str, str, KeyPath]]:
    for text, path in raw_arguments(container):
        if not container.command.shell:
            for match in _SHELL_STYLE.finditer(text):
                name = match[1] or match[2]
                yield (
                    f"{match[0]} reaches the program as it is written: Kubernetes expands only $({name}), and no shell "
                    "runs here",
                    f"write $({name})" + ("" if name in names else f", and define {name} in env"), path,
                )  # fmt: skip
        else:
            for quoted in _QUOTED.finditer(text):
                found = _SHELL_STYLE.search(quoted[1] or "") if (quoted[1] or "").startswith("{") else None
                if found is not None:
                    yield (
                        f"{found[0]} stands in single quotes, where the shell does not expand it",
                        f"write $({found[1] or found[2]}), which Kubernetes expands before the shell starts", path,
                    )  # fmt: skip
        yield from _undefined(container, text, path, names, "in the arguments")


def _in_values(container: Container, names: set[str]) -> Iterator[tuple[str, str, KeyPath]]:
    before: set[str] = set()
    for name, item, path in _variables(container):
        text = item.get("value")
        if isinstance(text, str):
            place = (*path, "value")
            for match in _SHELL_STYLE.finditer(text):
                inner = match[1] or match[2]
                if inner in names and not container.command.shell:
                    yield (
                        f"{name} is the literal text {text}: in env Kubernetes expands only $({inner})",
                        f"write $({inner})", place,
                    )  # fmt: skip
            for used in _KUBERNETES_STYLE.findall(text):
                if used in names - before and used != name:
                    yield (
                        f"{name} uses $({used}), which is defined after it: Kubernetes leaves the text as it is",
                        f"move {used} above {name}", place,
                    )  # fmt: skip
            yield from _undefined(container, text, place, names, f"in {name}")
        before.add(name)


def _undefined(
    container: Container, text: str, path: KeyPath, names: set[str], where: str
) -> Iterator[tuple[str, str, KeyPath]]:
    if container.spec.get("envFrom"):
        return
    for used in _KUBERNETES_STYLE.findall(text):
        if used not in names and not _FROM_SERVICES.search(used):
            message = f"$({used}) {where} names no variable of this container and stays as it is"
            yield message, f"define {used} in env", path


@rule("MMD307", Level.error, "vllm-project/vllm#5867; engine-tables.md, surprise 5")
def internal_port(deployment: Deployment) -> Iterator[Found]:
    """VLLM_PORT, which the engine takes for its own sockets, set to a port that something else needs."""
    for engine in deployment.engines:
        if engine.kind != "vllm":
            continue
        name = facts_of(deployment.tables, engine).notes["variables"]["internalPort"]["variable"]
        item = engine.container.variable(name)
        if item is not None:
            yield from _port_value(engine, name, item)
        else:
            yield from _port_of_service(deployment, engine, name)


def _port_value(engine: Engine, name: str, item: Mapping[str, Any]) -> Iterator[Found]:
    text = str(item.get("value", ""))
    path = (*engine.container.variable_path(name), "value")
    document, title = engine.pod.document, subject(engine)
    if "value" not in item or "$" in text:
        return
    if not text.isdigit():
        yield Found(
            document, path, title, f"{name} is {text!r}: vLLM wants a number there and refuses to start",
            f"remove {name}; the API port is --port",
        )  # fmt: skip
        return
    ports = {engine.port: "the API port"}
    for container in engine.pod.containers:
        listened = container.command.integer("--port") if container.program == "sidecar" else None
        ports.update({number: f"port of container {container.name}" for _, number, _ in container.ports()})
        if listened:
            ports[listened] = f"port of container {container.name}"
    ports[engine.port] = "the API port"
    if int(text) in ports:
        yield Found(
            document, path, title,
            f"{name}={text} is for vLLM's internal sockets, but {text} is {ports[int(text)]}: address already in use",
            f"remove {name}; the API port is --port",
        )  # fmt: skip


def _port_of_service(deployment: Deployment, engine: Engine, name: str) -> Iterator[Found]:
    if engine.pod.spec.get("enableServiceLinks") is False:
        return
    wanted = facts_of(deployment.tables, engine).notes["variables"]["internalPort"]["service"]
    for service in deployment.kind("Service"):
        same = not service.namespace or not engine.pod.namespace or service.namespace == engine.pod.namespace
        if service.name == wanted and same and service.get("spec", "clusterIP") != "None":
            yield Found(
                service.document, ("metadata", "name"), service.title,
                f"a Service named {wanted} makes Kubernetes set {name}=tcp://… in every pod beside it, and vLLM "
                "refuses to start",
                "rename the Service, or set enableServiceLinks: false in the pods",
            )  # fmt: skip
            return


@rule("MMD308", Level.warning, "vllm-env.csv; engine-tables.md, surprises 5 and 6")
def variable_without_effect(deployment: Deployment) -> Iterator[Found]:
    """A vLLM variable that the release does not read (any more, yet, or at all)."""
    told: set[str] = set()
    for engine in deployment.engines:
        facts = facts_of(deployment.tables, engine)
        notes = facts.notes["variables"]
        strict = engine.command.last(notes["strictFlag"]) is not None
        text = " ".join(text for text, _ in raw_arguments(engine.container))
        for name, _, path in _variables(engine.container):
            if engine.kind != "vllm" or not name.startswith(notes["prefix"]) or name in text:
                continue
            knowledge = facts.variable(name, engine.version)
            if knowledge.state == "known" or (knowledge.state == "unknown" and name in told):
                continue
            told.add(name)
            level = Level.error if strict else Level.info if knowledge.state == "unknown" else None
            message, fix = _without_effect(engine.version or "", name, knowledge, facts)
            instead = notes["instead"].get(name)
            yield Found(
                engine.pod.document, (*path, "name"), subject(engine), message,
                f"use {instead}" if instead and knowledge.state == "removed" else fix, level,
            )  # fmt: skip


def _without_effect(release: str, name: str, knowledge: Knowledge, facts: EngineFacts) -> tuple[str, str]:
    if knowledge.state == "removed":
        return f"{name} was last read by vLLM {knowledge.last}; {release} ignores it", "remove it"
    if knowledge.state == "later":
        return (
            f"{name} is read from vLLM {knowledge.first} on; {release} ignores it",
            "remove it, or pin a newer release",
        )
    near = difflib.get_close_matches(name, facts.variable_names(), n=1, cutoff=0.85)
    hint = f"; is {near[0]} meant?" if near else ""
    return f"no release of vLLM that the catalog knows reads {name}{hint}", f"write {near[0]}" if near else "remove it"


def _folders(engine: Engine, notes: Mapping[str, Any]) -> list[str]:
    """Where downloaded models may be kept; the first that is mounted counts."""
    for flag in notes["flags"]:
        found = engine.command.last(flag)
        if found is not None and found.value:
            return [found.value]
    for name in notes["variables"]:
        item = engine.container.variable(name)
        if item is not None and item.get("value"):
            return [str(item["value"]), f"{str(item['value']).rstrip('/')}/hub"]
    return list(notes["default"])


def _mount_of(engine: Engine, folder: str) -> tuple[str, Mapping[str, Any], KeyPath] | None:
    """The mount that a folder lies in: volume name, mount, path."""
    best = None
    for path, volume, place in engine.container.mounts():
        inside = folder.rstrip("/") == path.rstrip("/") or folder.startswith(path.rstrip("/") + "/")
        if inside and (best is None or len(path) > best[0]):
            mount = dig(engine.pod.document.value, place)
            best = (len(path), volume, mount if isinstance(mount, Mapping) else {}, place)
    return best[1:] if best else None


def _hub_id(engine: Engine) -> str | None:
    model = engine.model
    return model if model and not model.startswith((".", "/", "~", "$", "s3:", "gs:")) and "/" in model else None


def _offline(engine: Engine, notes: Mapping[str, Any]) -> KeyPath | None:
    for name in notes["offline"]:
        item = engine.container.variable(name)
        if item is not None and str(item.get("value", "")).lower() in ("1", "true", "yes", "on"):
            return engine.container.variable_path(name)
    return None


@rule("MMD318", Level.error, "llm-d-incubation/llm-d-modelservice#243, #175; huggingface/huggingface_hub#3394")
def model_cache(deployment: Deployment) -> Iterator[Found]:
    """A model that has to be downloaded where nothing can be written, or where downloading is switched off."""
    for engine in deployment.engines:
        notes = facts_of(deployment.tables, engine).notes["cacheFolders"]
        model = _hub_id(engine)
        if model is None or opaque(engine):
            continue
        folders = _folders(engine, notes)
        mounted = next((found for folder in folders if (found := _mount_of(engine, folder)) is not None), None)
        volume = engine.pod.volume(mounted[0]) if mounted else None
        offline = _offline(engine, notes)
        if offline is not None:
            if engine.version is not None and not _may_hold(engine, mounted[0] if mounted else "", volume):
                yield Found(
                    engine.pod.document, offline, subject(engine),
                    f"downloads are switched off, but {folders[0]} is not on a volume that could hold {model} already",
                    "mount a filled volume there, or give the path of a local copy as the model", Level.warning,
                )  # fmt: skip
        elif mounted is not None and _read_only(mounted[1], volume):
            yield Found(
                engine.pod.document, (*mounted[2], "readOnly"), subject(engine),
                f"{mounted[1].get('mountPath')} is mounted read-only, but loading {model} by its hub name writes lock "
                "files there",
                "mount it writable, or give the path of the local snapshot as the model",
            )  # fmt: skip


def _read_only(mount: Mapping[str, Any], volume: Mapping[str, Any] | None) -> bool:
    return mount.get("readOnly") is True or dig(volume, ("persistentVolumeClaim", "readOnly")) is True


def _may_hold(engine: Engine, name: str, volume: Mapping[str, Any] | None) -> bool:
    """Whether a volume can hold files before the engine starts: an emptyDir only if an init container fills it."""
    if volume is None:
        return False
    return "emptyDir" not in volume or any(
        container.init and any(volume_name == name for _, volume_name, _ in container.mounts())
        for container in engine.pod.containers
    )


@rule("MMD326", Level.warning, "llm-d-guides.md §2.3 (model-cache); field.md §4.2 (Storage and download)")
def unused_cache(deployment: Deployment) -> Iterator[Found]:
    """A volume for models that downloads do not go to."""
    for engine in deployment.engines:
        notes = facts_of(deployment.tables, engine).notes["cacheFolders"]
        if _hub_id(engine) is None or opaque(engine):
            continue
        if any(set_in_script(engine.container, name) for name in notes["variables"]):
            continue
        folders = _folders(engine, notes)
        if any((found := _mount_of(engine, folder)) is not None and _kept(engine, found[0]) for folder in folders):
            continue
        for path, name, place in engine.container.mounts():
            words = " ".join((path, name, str(dig(engine.pod.volume(name), ("persistentVolumeClaim", "claimName")))))
            used = any(path in text for text, _ in raw_arguments(engine.container))
            if _kept(engine, name) and not used and any(word in words.lower() for word in notes["words"]):
                yield Found(
                    engine.pod.document, place, subject(engine),
                    f"{path} looks like a place for models, but {engine.model} is downloaded to {folders[0]} at every "
                    "start of a pod",
                    f"set HF_HOME to {path}, or give the path of a local copy as the model",
                )  # fmt: skip


def _kept(engine: Engine, name: str) -> bool:
    """Whether a volume outlives the pod."""
    return any(kind in (engine.pod.volume(name) or {}) for kind in ("persistentVolumeClaim", "hostPath", "nfs"))


@rule("MMD319", Level.warning, "llm-d-guides.md §5")
def missing_workaround(deployment: Deployment) -> Iterator[Found]:
    """An accelerator on which a model only runs with variables that are not set."""
    for engine in deployment.engines:
        family = model_of(deployment.tables, deployment.catalog.models, engine.model).family
        for entry in deployment.tables.notes("engine")["workarounds"]:
            resources = dig(engine.container.spec, ("resources", "limits"))
            there = entry["image"] in engine.container.image or (
                isinstance(resources, Mapping) and entry["resource"] in resources
            )
            if not there or family not in entry["families"] or engine.container.spec.get("envFrom"):
                continue
            for name, value in entry["variables"].items():
                item = engine.container.variable(name)
                if item is None or ("value" in item and str(item["value"]) != value):
                    yield Found(
                        engine.pod.document, engine.container.variable_path(name), subject(engine),
                        f"{name} is not {value!r}: {entry['why']}", f"set {name} to {value!r} in env",
                    )  # fmt: skip
