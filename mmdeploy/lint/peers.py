"""Which engines hand work to which: the stages of a deployment, and who belongs together."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mmdeploy.documents import KeyPath
from mmdeploy.lint.index import Deployment
from mmdeploy.lint.pods import Container, Engine

ENCODE, PREFILL, DECODE = "encode", "prefill", "decode"
_BY_LABEL = {
    "encode": ENCODE,
    "prefill": PREFILL,
    "encode-prefill": PREFILL,
    "decode": DECODE,
    "prefill-decode": DECODE,
    "encode-prefill-decode": DECODE,
    "both": DECODE,
}
_SHARED_LABELS = ("guide", "model")
_MORE = re.compile(r"^\$(?:[@*]|[({]?\w*(?:ARG|OPT|FLAG|EXTRA|PARAM)\w*[)}]?)$", re.IGNORECASE)
"""A variable that stands for further arguments."""


def stage(engine: Engine) -> str:
    """``encode``, ``prefill`` or ``decode``: by the role label, else by the role of the set, else by the flags."""
    if engine.stage is None:  # asked for every pair of engines, worked out once
        engine.stage = _stage(engine)
    return engine.stage


def _stage(engine: Engine) -> str:
    for word in (engine.pod.role, engine.pod.set_role):
        if word in _BY_LABEL:
            return _BY_LABEL[word]
    if engine.encodes_only:
        return ENCODE
    if (engine.kv or {}).get("kv_role") == "kv_producer":
        return PREFILL
    return PREFILL if engine.command.value("--disaggregation-mode") == "prefill" else DECODE


def together(deployment: Deployment, one: Engine, other: Engine) -> bool:
    """Whether two engines can be parts of one deployment: same server, namespace, guide and model label."""
    if one.kind != other.kind:
        return False
    if one.pod.namespace and other.pod.namespace and one.pod.namespace != other.pod.namespace:
        return False
    for name in _SHARED_LABELS:
        key = deployment.catalog.labels[name]
        mine, theirs = one.pod.labels.get(key), other.pod.labels.get(key)
        if mine and theirs and mine != theirs:
            return False
    return True


def peers(deployment: Deployment, engine: Engine, *stages: str) -> list[Engine]:
    """Other engines of some stages that belong to the same deployment."""
    return [
        other
        for other in deployment.engines
        if (other.stage or stage(other)) in stages and other is not engine and together(deployment, engine, other)
    ]


def of_kind(deployment: Deployment, kind: str, *stages: str) -> list[Engine]:
    """Engines of one server, in some stages or in all."""
    return [engine for engine in deployment.engines if engine.kind == kind and (not stages or stage(engine) in stages)]


def consumers(deployment: Deployment, encoder: Engine) -> list[Engine]:
    """Engines that take an encoder's output: prefill where it has pods of its own, else decode."""
    return peers(deployment, encoder, PREFILL) or peers(deployment, encoder, DECODE)


def encoder_pairs(deployment: Deployment, kind: str = "vllm") -> Iterator[tuple[Engine, Engine]]:
    """Encoders of one server with each consumer."""
    for encoder in of_kind(deployment, kind, ENCODE):
        for consumer in consumers(deployment, encoder):
            yield encoder, consumer


def cache_pairs(deployment: Deployment) -> Iterator[tuple[Engine, Engine]]:
    """Prefill engines with each decode engine of the same server."""
    for engine in deployment.engines:
        if stage(engine) == PREFILL:
            for decode in peers(deployment, engine, DECODE):
                yield engine, decode


def opaque(engine: Engine) -> bool:
    """Whether some of the arguments stand where they cannot be read: then nothing can be called missing."""
    command = engine.command
    if command.last("--config") is not None:
        return True
    words = [word for word, _ in command.words] + [value for flag in command.flags for value in flag.values]
    return any(_MORE.match(word) for word in words)


def arguments(container: Container) -> KeyPath:
    """Where an argument that is missing would stand."""
    for part in ("args", "command"):
        if container.spec.get(part):
            return (*container.path, part)
    return container.path


def subject(engine: Engine) -> str:
    """An engine as people call it."""
    return f"{engine.pod.title} container {engine.container.name}"


def set_in_script(container: Container, variable: str) -> bool:
    """Whether a variable may get its value where it cannot be read: in the script itself, or from ``envFrom``."""
    if container.spec.get("envFrom"):
        return True
    return container.command.shell and any(f"{variable}=" in text for text, _ in raw_arguments(container))


def raw_arguments(container: Container) -> Iterator[tuple[str, KeyPath]]:
    """Arguments as they were written, before anything is expanded."""
    for part in ("command", "args"):
        items = container.spec.get(part)
        for index, item in enumerate(items if isinstance(items, list) else ()):
            yield str(item), (*container.path, part, index)
