"""Whether the model is served: what ``/v1/models`` lists, asked through the API server."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mmdeploy.apply.readiness.objects_seen import Object, Seen, labels, notes
from mmdeploy.apply.readiness.readiness import RoleState
from mmdeploy.apply.readiness.startup import Startup
from mmdeploy.errors import ClusterError

if TYPE_CHECKING:
    from mmdeploy.cluster.session import Session

ASK_SECONDS = 10.0
CONSUMER = "decode"
"""The role that answers requests in every topology."""


@dataclass(frozen=True)
class Served:
    """What was answered."""

    names: tuple[str, ...] | None
    """None where nothing could be learned."""
    by: str = ""
    """Who was asked."""
    why: str = ""
    """Why nothing could be learned."""
    forbidden: bool = False
    """Whether only a right is missing."""


def ask(
    session: Session, namespace: str, seen: Seen, release: str, roles: Sequence[RoleState], startup: Startup, port: int
) -> Served:
    """Ask the router's Service, and where that does not answer a pod of the role that serves."""
    last = Served(None, why="no pod is ready")
    for by, where in _places(namespace, seen, release, roles, startup, port):
        answer = _asked(session, f"{where}{startup['modelsPath']}", by)
        if answer.names is not None:
            return answer
        if last.by == "" or not answer.forbidden:
            last = answer
    return last


def _places(
    namespace: str, seen: Seen, release: str, roles: Sequence[RoleState], startup: Startup, port: int
) -> Iterator[tuple[str, str]]:
    root = f"/api/v1/namespaces/{namespace}"
    for service in seen.of("Service"):
        name = service["metadata"]["name"]
        names = [each.get("name") for each in service["spec"].get("ports") or ()]
        if notes(service).get(startup["releaseAnnotation"]) == release and startup["clientPort"] in names:
            yield f"service {name}", f"{root}/services/{name}:{startup['clientPort']}/proxy"
    for state in roles:
        if state.role == CONSUMER:
            leading = (pod for pod in state.pods if labels(pod.pod).get(startup["workerIndex"]) in (None, "0"))
            for pod in [pod for pod in leading if pod.ready][:1]:
                yield f"pod {pod.name}", f"{root}/pods/{pod.name}:{port}/proxy"


def _asked(session: Session, path: str, by: str) -> Served:
    try:
        answer = session.once("GET", path, timeout=ASK_SECONDS)
    except ClusterError as problem:
        return Served(None, by, problem.found)
    if answer.status == 403:
        return Served(None, by, f"no right to ask {by} through the API server", forbidden=True)
    if answer.status != 200:
        return Served(None, by, f"{by} answers {answer.status}: {_message(answer.data)}")
    try:
        listed = json.loads(answer.data)["data"]
        return Served(tuple(str(each["id"]) for each in listed), by)
    except (ValueError, KeyError, TypeError):
        return Served(None, by, f"{by} answers {_behind(path)} with something else than a list of models")


def _behind(path: str) -> str:
    """The path that was asked for, behind the proxy."""
    return path.partition("/proxy")[2]


def _message(data: bytes) -> str:
    text = data.decode("utf-8", "replace").strip()
    try:
        found = json.loads(text)
        text = str(found.get("message", text)) if isinstance(found, dict) else text
    except ValueError:
        pass
    return " ".join(text.split())[:160]


def expected_name(item: Object | None, model: str, startup: Startup) -> str:
    """The name under which a workload serves its model: its own flag, else the model's name."""
    if item is None:
        return model
    for words in _arguments(item["spec"]):
        for flag in startup["servedName"]:
            for word, following in zip(words, [*words[1:], ""], strict=True):
                if word.startswith(f"{flag}="):
                    return word.partition("=")[2]
                if word == flag and following:
                    return following
    return model


def _arguments(spec: Any) -> Iterator[list[str]]:
    """Command lines of every container under a workload's spec, of the role that serves."""
    roles = spec.get("roles")
    if roles:
        for role in roles:
            if role["name"] == CONSUMER:
                yield from _arguments(role["spec"])
        return
    group = spec.get("leaderWorkerTemplate") or {}
    template = group.get("leaderTemplate") or group.get("workerTemplate") or spec.get("template") or {}
    for container in (template.get("spec") or {}).get("containers") or ():
        yield [str(word) for word in (*(container.get("command") or ()), *(container.get("args") or ()))]
