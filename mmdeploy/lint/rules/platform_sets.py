"""9xx: LeaderWorkerSets and DisaggregatedSets, much of which is accepted first and refused where nobody looks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from mmdeploy.documents import KeyPath
from mmdeploy.lint.findings import Found, Level, rule
from mmdeploy.lint.images import image
from mmdeploy.lint.index import Deployment, Object
from mmdeploy.lint.pods import Engine
from mmdeploy.lint.source import dig

KINDS = ("DisaggregatedSet", "LeaderWorkerSet")
_DNS_LABEL = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")


def _notes(deployment: Deployment) -> Mapping[str, Any]:
    found: Mapping[str, Any] = deployment.tables.notes("platform")["sets"]
    return found


def _roles(item: Object) -> Iterator[tuple[KeyPath, Mapping[str, Any]]]:
    listed = item.get("spec", "roles")
    for index, role in enumerate(listed if isinstance(listed, list) else ()):
        if isinstance(role, Mapping):
            yield ("spec", "roles", index), role


def _parts(item: Object) -> Iterator[tuple[KeyPath, Any]]:
    """The specs that say replicas, rollout and group: of the object itself, or of each role."""
    if item.kind == "LeaderWorkerSet":
        yield ("spec",), item.get("spec")
    for path, role in _roles(item) if item.kind == "DisaggregatedSet" else ():
        yield ((*path, "spec"), role.get("spec")) if isinstance(role.get("spec"), Mapping) else (path, role)


@rule("MMD930", Level.error, "llm-d-guides.md §11.1; llm-d/llm-d#1633; disaggregatedset-observed.md")
def set_version(deployment: Deployment) -> Iterator[Found]:
    """An API version that no released LeaderWorkerSet serves."""
    known = _notes(deployment)["apiVersions"]
    for item in deployment.kind(*KINDS):
        served = item.get("apiVersion")
        if served not in known[item.kind]:
            nested = item.kind == "DisaggregatedSet" and any(role.get("replicas") for _, role in _roles(item))
            shape = ", with replicas and leaderWorkerTemplate under roles[].spec" if nested else ""
            yield Found(
                item.document, ("apiVersion",), item.title,
                f"no released LeaderWorkerSet serves {item.kind} as {served}: no matches for kind",
                f"write apiVersion: {known[item.kind][0]}{shape}",
            )  # fmt: skip


@rule("MMD931", Level.error, "llm-d-guides.md §11.1; disaggregatedset-observed.md (answers of the API server)")
def set_roles(deployment: Deployment) -> Iterator[Found]:
    """Roles: two to ten, each once, and with pods either in all of them or in none."""
    limits = _notes(deployment)["roles"]
    for item in deployment.kind("DisaggregatedSet"):
        roles = list(_roles(item))
        names = [str(role.get("name") or "") for _, role in roles]
        if not limits["fewest"] <= len(roles) <= limits["most"]:
            yield Found(
                item.document, ("spec", "roles"), item.title,
                f"it has {len(roles)} role{'' if len(roles) == 1 else 's'} ({', '.join(names)}), and a set has "
                f"{limits['fewest']} to {limits['most']}: the API server refuses it",
                "give each stage a role; a single one is a LeaderWorkerSet or a Deployment",
            )  # fmt: skip
        for (path, _), name in zip(roles, names, strict=True):
            if names.count(name) > 1 and names.index(name) != path[-1]:
                yield Found(
                    item.document, (*path, "name"), item.title, f"two roles are called {name!r}: the set is refused",
                    "give each role a name of its own",
                )  # fmt: skip
        yield from _replicas(item, roles)


def _replicas(item: Object, roles: list[tuple[KeyPath, Mapping[str, Any]]]) -> Iterator[Found]:
    counted = []
    for path, role in roles:
        inner = (*path, "spec") if isinstance(role.get("spec"), Mapping) else path
        external = dig(role, ("scaling", "mode")) == "External" or dig(role, ("spec", "scaling", "mode")) == "External"
        value = item.get(*inner, "replicas")
        number = 1 if value is None else value
        if not external and isinstance(number, int) and not isinstance(number, bool):
            counted.append((number, (*inner, "replicas"), str(role.get("name"))))
    if not any(number == 0 for number, _, _ in counted) or all(number == 0 for number, _, _ in counted):
        return
    zero = next(entry for entry in counted if entry[0] == 0)
    others = ", ".join(f"{name} {number}" for number, _, name in counted if number)
    yield Found(
        item.document, zero[1], item.title,
        f"role {zero[2]} has 0 replicas beside {others}: it is refused, or hangs where the webhook is off",
        "set all roles to 0, or none; a role that is scaled from outside says scaling.mode: External",
    )  # fmt: skip


@rule("MMD932", Level.error, "disaggregatedset-observed.md (the webhook is off by default, then nothing says so)")
def set_names(deployment: Deployment) -> Iterator[Found]:
    """Names that make the names of Services too long, or that no Service can have."""
    longest = int(_notes(deployment)["longestName"])
    for item in deployment.kind("DisaggregatedSet"):
        if item.name and _DNS_LABEL.fullmatch(item.name) is None:
            yield Found(
                item.document, ("metadata", "name"), item.title,
                f"{item.name!r} is no name for the set's Services (lower-case letters, digits and dashes, a letter "
                "first): it is accepted and then never becomes ready, as only the manager's log says",
                "choose a name such as mm-epd",
            )  # fmt: skip
        for _, role in _roles(item):
            name = str(role.get("name") or "")
            if len(item.name) + len(name) > longest:
                yield Found(
                    item.document, ("metadata", "name"), item.title,
                    f"the names of the set and of its role {name} have {len(item.name) + len(name)} characters, and "
                    f"more than {longest} make the Service's name too long",
                    f"shorten the name of the set by {len(item.name) + len(name) - longest}",
                )  # fmt: skip
                break


@rule("MMD933", Level.error, "llm-d-guides.md §11.1; disaggregatedset-observed.md")
def set_rollout(deployment: Deployment) -> Iterator[Found]:
    """Rollouts that cannot take a step, or that the webhook refuses."""
    for item in deployment.kind(*KINDS):
        for path, part in _parts(item):
            strategy = dig(part, ("rolloutStrategy",))
            rolling = dig(strategy, ("rollingUpdateConfiguration",))
            at: KeyPath = (*path, "rolloutStrategy")
            kind = dig(strategy, ("type",))
            if kind not in (None, "RollingUpdate"):
                yield Found(
                    item.document, (*at, "type"), item.title, f"rollout type {kind} is refused",
                    "write type: RollingUpdate",
                )  # fmt: skip
            inner = (*at, "rollingUpdateConfiguration")
            if item.kind == "DisaggregatedSet" and dig(rolling, ("partition",)) not in (None, 0):
                yield Found(
                    item.document, (*inner, "partition"), item.title,
                    "a DisaggregatedSet takes no partition; with its webhook off nothing says so", "remove partition",
                )  # fmt: skip
            surge, unavailable = dig(rolling, ("maxSurge",)), dig(rolling, ("maxUnavailable",))
            if surge in (0, "0", "0%", None) and unavailable in (0, "0", "0%"):
                yield Found(
                    item.document, (*inner, "maxUnavailable"), item.title,
                    "neither a surge nor an unavailable pod is allowed, so no rollout can take a step",
                    "set maxSurge or maxUnavailable to 1",
                )  # fmt: skip


@rule("MMD934", Level.error, "disaggregatedset-observed.md (size 0 is refused later, seen only in the manager's log)")
def group_without_members(deployment: Deployment) -> Iterator[Found]:
    """A group of no pods."""
    for item in deployment.kind(*KINDS):
        for path, part in _parts(item):
            size = dig(part, ("leaderWorkerTemplate", "size"))
            if isinstance(size, int) and not isinstance(size, bool) and size < 1:
                yield Found(
                    item.document, (*path, "leaderWorkerTemplate", "size"), item.title,
                    f"size {size} is accepted, and no pod is ever made", "write size: 1, or the number of hosts",
                )  # fmt: skip


@rule("MMD935", Level.warning, "kubernetes-sigs/lws#508; aws-samples/aws-do-eks#68")
def restarts_alone(deployment: Deployment) -> Iterator[Found]:
    """One crashed rank of a collective comes back alone, and the others wait for it for ever."""
    alone = _notes(deployment)["restartsAlone"]
    for item in deployment.kind(*KINDS):
        for path, part in _parts(item):
            size = dig(part, ("leaderWorkerTemplate", "size"))
            policy = dig(part, ("leaderWorkerTemplate", "restartPolicy"))
            if isinstance(size, int) and size > 1 and policy in alone:
                yield Found(
                    item.document, (*path, "leaderWorkerTemplate", "restartPolicy"), item.title,
                    f"restartPolicy {policy} in groups of {size}: a crashed rank restarts alone, and the group hangs",
                    "write RecreateGroupOnPodRestart, the default",
                )  # fmt: skip


@rule("MMD936", Level.warning, "llm-d-guides.md §11.3 (shared components patch roles 0 and 1 by their position)")
def role_left_out(deployment: Deployment) -> Iterator[Found]:
    """A variable of the whole platform that all roles of a set have but one."""
    names = deployment.tables.notes("platform")["env"]["everywhere"]
    for item in deployment.kind("DisaggregatedSet"):
        engines = [engine for engine in deployment.engines if engine.pod.document is item.document]
        for name in names:
            having = [engine for engine in engines if engine.container.variable(name) is not None]
            repositories = {image(engine.container.image).repository for engine in having}
            lacking = [
                engine
                for engine in engines
                if engine.container.variable(name) is None and image(engine.container.image).repository in repositories
            ]
            if len(having) < 2 or not lacking or any(engine.container.spec.get("envFrom") for engine in lacking):
                continue
            for engine in lacking:
                yield Found(
                    item.document, _env_path(engine), engine.pod.title,
                    f"{name} is set in {', '.join(str(other.pod.set_role) for other in having)} and not in "
                    f"{engine.pod.set_role}: was it patched in by the position of the roles?",
                    f"set {name} in every role",
                )  # fmt: skip


def _env_path(engine: Engine) -> KeyPath:
    path = engine.container.path
    return (*path, "env") if engine.container.spec.get("env") else (*path, "name")
