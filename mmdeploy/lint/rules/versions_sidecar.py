"""7xx: flags of the routing sidecar, by the version of its own image."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from mmdeploy.documents import KeyPath
from mmdeploy.lint.commands import Flag
from mmdeploy.lint.findings import Found, Level, rule
from mmdeploy.lint.index import Deployment
from mmdeploy.lint.pods import Container
from mmdeploy.lint.source import read_text
from mmdeploy.lint.tables import age
from mmdeploy.lint.versions import tag_of

_FALSE = ("0", "f", "F", "false", "FALSE", "False")
"""What Go reads as false."""
_TRUE = ("1", "t", "T", "true", "TRUE", "True")


def _notes(deployment: Deployment) -> Mapping[str, Any]:
    found: Mapping[str, Any] = deployment.tables.notes("platform")["sidecar"]
    return found


def sidecars(deployment: Deployment) -> Iterator[tuple[Container, str | None]]:
    """Every sidecar with its version; None where its image does not tell one."""
    for pod in deployment.pods:
        for container in pod.containers:
            if container.program == "sidecar":
                yield container, deployment.routers.of(tag_of(container.image))


def _subject(container: Container) -> str:
    return f"{container.pod.title} container {container.name}"


def _state(deployment: Deployment, name: str, at: str) -> str:
    """``known``, ``removed``, ``later`` or ``unknown`` in a version of the sidecar."""
    extra = _notes(deployment)["flags"].get(name)
    rows = list(deployment.tables.of("router-flags", "program", "flag").get(("sidecar", name), ()))
    if extra is not None:
        rows.append({"first": extra["first"], "last": ""})
    if name in _notes(deployment)["removed"]:
        return "removed"
    return age(rows, at)


def _spelling(deployment: Deployment, names: list[str], at: str | None) -> str:
    """The first of a flag's spellings, newest first, that a version of the sidecar has; the oldest where it is not
    known."""
    return next((name for name in names if at is not None and _state(deployment, name, at) == "known"), names[-1])


@rule("MMD710", Level.error, "router.md §0, §5.1; router-flags.csv (an unknown flag exits 2)")
def sidecar_flag(deployment: Deployment) -> Iterator[Found]:
    """A flag that the sidecar's own version does not have: it exits, and the pod never starts."""
    for container, at in sidecars(deployment):
        for flag in container.command.flags if at is not None else ():
            state = _state(deployment, flag.name, at or "")
            found = None if state == "known" else _refused(deployment, container, flag, state, at or "")
            if found is not None:
                yield found


def _refused(deployment: Deployment, container: Container, flag: Flag, state: str, at: str) -> Found | None:
    notes = _notes(deployment)
    instead = notes["removed"].get(flag.name) or notes["instead"].get(flag.name)
    table = deployment.tables.of("router-flags", "program", "flag")
    known = [name for program, name in table if program == "sidecar"]
    near = difflib.get_close_matches(flag.name, known, n=1, cutoff=0.8)
    level = None
    if state == "removed":
        message, fix = f"{flag.name} was removed", f"write {instead}" if instead else "remove it"
    elif state == "later":
        message = f"{flag.name} is newer than the image"
        fix = f"write {instead}" if instead else "remove it, or pin a newer sidecar"
    elif near:
        message, fix = f"{flag.name} is no flag of the sidecar", f"write {near[0]}"
        level = Level.warning if at == deployment.routers.rolling else None
    else:
        message, fix = f"{flag.name} is not known to the catalog", "check it against the sidecar's help"
        level = Level.info
    ends = "" if level is Level.info else ": it exits with 2 and the pod does not start"
    return Found(
        container.pod.document, flag.path, _subject(container), f"sidecar {tag_of(container.image)}: {message}{ends}",
        fix, level,
    )  # fmt: skip


@rule("MMD711", Level.error, "router.md §5.1 (the listener speaks TLS unless told not to)")
def sidecar_tls(deployment: Deployment) -> Iterator[Found]:
    """The listener speaks TLS by default, and endpoint picker and proxy talk plain HTTP to it."""
    names = _notes(deployment)["tls"]
    for container, at in sidecars(deployment):
        command = container.command
        if command.last("--configuration-file") is not None or _configured(container, names):
            continue
        flag = command.last(*names)
        document, subject = container.pod.document, _subject(container)
        spelling = _spelling(deployment, names, at)
        if flag is None:
            yield Found(
                document, _args(container), subject,
                f"{spelling}=false is missing: the sidecar speaks TLS with a certificate of its own, and the router "
                "sends plain HTTP, so every request is reset",
                f"add {spelling}=false",
            )  # fmt: skip
        elif "=" not in flag.spelling and not _is_joined(container, flag):
            if flag.value in _FALSE:
                yield Found(
                    document, flag.path, subject,
                    f"{flag.name} {flag.value} with a space is {flag.name} and a stray argument: TLS stays on",
                    f"write {flag.name}=false",
                )  # fmt: skip
            else:
                yield Found(
                    document, flag.path, subject, f"{flag.name} switches TLS on, and the router sends plain HTTP",
                    f"write {flag.name}=false",
                )  # fmt: skip
        elif flag.value in _TRUE:
            yield Found(
                document, flag.path, subject, f"{flag.name}={flag.value}: the router sends plain HTTP to it",
                f"write {flag.name}=false",
            )  # fmt: skip


def _is_joined(container: Container, flag: Flag) -> bool:
    """Whether flag and value are one word (``--flag=value``)."""
    texts = [str(item) for part in ("command", "args") for item in _list(container.spec.get(part))]
    return any(f"{flag.name}={flag.value}" in text.replace("_", "-") for text in texts)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _configured(container: Container, names: list[str]) -> bool:
    """Whether the YAML of ``--configuration`` switches TLS off."""
    text = container.command.value("--configuration")
    for document in read_text(text, "", []) if text else ():
        if isinstance(document.value, Mapping):
            return any(document.value.get(name.lstrip("-")) is False for name in names)
    return False


def _args(container: Container) -> KeyPath:
    for part in ("args", "command"):
        if container.spec.get(part):
            return (*container.path, part)
    return (*container.path, "name")


@rule("MMD712", Level.error, "router-flags.csv (an invalid value ends the sidecar with exit code 0)")
def sidecar_value(deployment: Deployment) -> Iterator[Found]:
    """Values that the sidecar refuses: it ends as Completed and is started again, for ever."""
    choices = _notes(deployment)["choices"]
    for container, at in sidecars(deployment):
        for flag in container.command.flags:
            allowed = choices.get(flag.name)
            text = flag.value or ""
            if allowed is None or "$" in text:
                continue
            words = [word.strip() for word in text.split(",")] if allowed.get("list") else [text]
            known = [*allowed["values"], *(allowed.get(at, []) if at else sum(_newer(allowed), []))]
            wrong = next((word for word in words if word not in known), None)
            if wrong is not None:
                near, listed = difflib.get_close_matches(wrong, known, n=1), ", ".join(filter(None, known))
                yield Found(
                    container.pod.document, flag.path, _subject(container),
                    f"{flag.name} takes {listed}, not {wrong!r}: the sidecar ends with exit code 0, again and again",
                    f"write {near[0]}" if near else f"write one of {listed}",
                )  # fmt: skip


def _newer(allowed: Mapping[str, Any]) -> list[list[str]]:
    return [value for key, value in allowed.items() if key not in ("values", "list") and isinstance(value, list)]


@rule("MMD713", Level.error, "router-flags.csv; llm-d-guides.md §18 (the default was 8001 until v0.9.0)")
def sidecar_engine_port(deployment: Deployment) -> Iterator[Found]:
    """A sidecar that looks for the engine on a port on which it does not listen."""
    notes = _notes(deployment)
    for container, at in sidecars(deployment):
        engine, command = container.pod.engine, container.command
        if engine is None or command.last("--configuration", "--configuration-file", "--data-parallel-size"):
            continue
        given = command.last(*notes["enginePort"])
        looks = command.integer(*notes["enginePort"]) if given else notes["enginePortDefault"].get(at)
        taken = engine.port == (
            command.integer("--port") or deployment.catalog.ports["modelServer"]
        )  # MMD116 speaks of that
        if looks is None or looks == engine.port or taken:
            continue
        spelling = given.spelling if given else _spelling(deployment, notes["enginePort"], at)
        yield Found(
            container.pod.document, given.path if given else _args(container), _subject(container),
            f"the sidecar {tag_of(container.image)} looks for the engine on {looks}{' by default' * (given is None)}, "
            f"and it listens on {engine.port}: every request ends in 503",
            f"write {spelling}={engine.port}, or let the engine listen on {looks}",
        )  # fmt: skip
