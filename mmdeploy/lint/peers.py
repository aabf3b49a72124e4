"""Which engines hand work to which: the stages of a deployment, and who belongs together."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

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
_Group = tuple[str | None, ...]
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
    return _fit(_group(deployment, one), _group(deployment, other))


def _group(deployment: Deployment, engine: Engine) -> _Group:
    """Server, namespace and the labels that a deployment's engines share."""
    pod, labels = engine.pod, deployment.catalog.labels
    return engine.kind, pod.namespace, *(pod.labels.get(labels[name]) for name in _SHARED_LABELS)


def _fit(one: _Group, other: _Group) -> bool:
    """Whether two groups differ in nothing that both say."""
    return one[0] == other[0] and all(
        not mine or not theirs or mine == theirs for mine, theirs in zip(one[1:], other[1:], strict=True)
    )


def peers(deployment: Deployment, engine: Engine, *stages: str) -> Sequence[Engine]:
    """Other engines of some stages that belong to the same deployment."""
    group, known = _group(deployment, engine), deployment.neighbours
    if (group, stages) not in known:
        if group not in known:
            known[group] = [other for other in deployment.engines if _fit(group, _group(deployment, other))]
        known[group, stages] = [other for other in known[group] if stage(other) in stages]
    found: list[Engine] = known[group, stages]
    return [other for other in found if other is not engine] if stage(engine) in stages else found


def distinct(deployment: Deployment, engines: Iterable[Engine]) -> list[Engine]:
    """The first of those engines that are alike, name aside: what holds between it and others holds for the rest."""
    return list({_likeness(deployment, engine): engine for engine in reversed([*engines])}.values())[::-1]


def _likeness(deployment: Deployment, engine: Engine) -> Any:
    """Everything about an engine that a comparison with another may look at."""
    known = deployment.neighbours
    if id(engine) not in known:
        pod = engine.pod
        said = json.dumps([pod.spec, pod.labels, pod.replicas, engine.container.name], sort_keys=True, default=str)
        known[id(engine)] = (_group(deployment, engine), stage(engine), said)
    return known[id(engine)]


def _pairs(
    deployment: Deployment, engines: Iterable[Engine], others_of: Callable[[Engine], Sequence[Engine]]
) -> Iterator[tuple[Engine, Engine]]:
    """Engines with those that they hand work to.

    Of engines that are alike only the first meets every other; the rest meet one of each kind, so that a thousand
    alike make no million pairs, and each of them still is in one.
    """
    seen: dict[Any, Sequence[Engine]] = {}
    for engine in engines:
        likeness = _likeness(deployment, engine)
        others = seen.get(likeness)
        if others is None:
            others = others_of(engine)
            seen[likeness] = distinct(deployment, others)
        for other in others:
            yield engine, other


def of_kind(deployment: Deployment, kind: str, *stages: str) -> list[Engine]:
    """Engines of one server, in some stages or in all."""
    return [engine for engine in deployment.engines if engine.kind == kind and (not stages or stage(engine) in stages)]


def consumers(deployment: Deployment, encoder: Engine) -> Sequence[Engine]:
    """Engines that take an encoder's output: prefill where it has pods of its own, else decode."""
    return peers(deployment, encoder, PREFILL) or peers(deployment, encoder, DECODE)


def encoder_pairs(deployment: Deployment, kind: str = "vllm") -> Iterator[tuple[Engine, Engine]]:
    """Encoders of one server with each consumer."""
    return _pairs(deployment, of_kind(deployment, kind, ENCODE), lambda encoder: consumers(deployment, encoder))


def cache_pairs(deployment: Deployment) -> Iterator[tuple[Engine, Engine]]:
    """Prefill engines with each decode engine of the same server."""
    engines = [engine for engine in deployment.engines if stage(engine) == PREFILL]
    return _pairs(deployment, engines, lambda engine: peers(deployment, engine, DECODE))


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
