"""What is in a namespace, as far as it may be read. What may not be read is known by the right that is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mmdeploy.errors import ClusterError, ForbiddenError, NotFoundError

if TYPE_CHECKING:
    from mmdeploy.catalog import Catalog
    from mmdeploy.cluster.session import Session

Object = Mapping[str, Any]
FACTS = "discovery"
_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True)
class Seen:
    """One look at a namespace."""

    namespace: str
    pods: Sequence[Object] = ()
    """Those that have not ended and are not ending."""
    services: Sequence[Object] = ()
    pools: Sequence[Object] = ()
    routes: Sequence[Object] = ()
    gateways: Sequence[Object] = ()
    configurations: Mapping[str, Object] = field(default_factory=dict)
    """ConfigMaps that were asked for, by name."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """What could not be read (``services``, ``pools``, ``configmaps`` …) → why: ``no right to list services``."""

    def service(self, name: str) -> Object | None:
        """A Service by name."""
        return next((item for item in self.services if item["metadata"]["name"] == name), None)


def facts_of(catalog: Catalog) -> Mapping[str, Any]:
    """The catalog's table of what to look for."""
    found: Mapping[str, Any] = catalog.table(FACTS)
    return found


def look(session: Session, namespace: str, catalog: Catalog) -> Seen:
    """Pods, Services, pools and routes of a namespace; the lists are read at the same time.

    Raises `ForbiddenError` where pods may not be listed: without them nothing can be found.
    """
    kinds = facts_of(catalog)["kinds"]
    core = f"/api/v1/namespaces/{namespace}"
    wanted: dict[str, Callable[[], Iterator[Object]]] = {
        "pods": lambda: session.items(f"{core}/pods"),
        "services": lambda: session.items(f"{core}/services"),
    }
    for name in ("pools", "routes", "gateways"):
        group, resource = kinds[name]["apiVersion"], f"{kinds[name]['kind'].lower()}s"
        wanted[name] = lambda group=group, resource=resource: session.items(  # type: ignore[misc]
            f"/apis/{group}/namespaces/{namespace}/{resource}"
        )
    found = dict(zip(wanted, session.all([_guarded(call) for call in wanted.values()]), strict=True))
    missing: dict[str, str] = {name: problem for name, (_, problem) in found.items() if problem}
    if "pods" in missing:
        raise ForbiddenError(
            f"{missing['pods']}, and nothing can be found without them",
            origin=f"namespace {namespace}",
            next_step=f"mmdeploy verify --print-rbac --namespace {namespace} prints the rights for an administrator",
        )
    items = {name: tuple(objects) for name, (objects, _) in found.items()}
    return Seen(
        namespace,
        pods=tuple(item for item in items["pods"] if _lives(item)),
        services=items["services"],
        pools=items["pools"],
        routes=items["routes"],
        gateways=items["gateways"],
        missing=missing,
    )


def with_configurations(session: Session, seen: Seen, *names: str) -> Seen:
    """The same, with ConfigMaps of these names where they exist and may be read."""
    from dataclasses import replace

    path = f"/api/v1/namespaces/{seen.namespace}/configmaps"
    found = dict(seen.configurations)
    missing = dict(seen.missing)
    answers = session.all([lambda name=name: _one(session, f"{path}/{name}") for name in names])  # type: ignore[misc]
    for name, (item, why) in zip(names, answers, strict=True):
        if item is not None:
            found[name] = item
        if why:
            missing["configmaps"] = f"no right to get configmaps {name}"
    return replace(seen, configurations=found, missing=missing)


def _one(session: Session, path: str) -> tuple[Object | None, str]:
    try:
        return session.find(path), ""
    except ForbiddenError as problem:
        return None, problem.found


def _guarded(call: Callable[[], Iterator[Object]]) -> Callable[[], tuple[list[Object], str]]:
    def read() -> tuple[list[Object], str]:
        try:
            return list(call()), ""
        except NotFoundError:
            return [], ""  # the cluster does not serve that kind: there is none
        except ForbiddenError as problem:
            return [], _right(problem)

    return read


def _right(problem: ClusterError) -> str:
    """``no right to list services``, out of the API server's own sentence."""
    import re

    match = re.search(r'cannot (\w+) resource "([^"]+)" in API group "([^"]*)"', problem.found)
    if match is None:
        return problem.found
    return f"no right to {match[1]} {match[2]}" + (f".{match[3]}" if match[3] else "")


def _lives(pod: Object) -> bool:
    return not pod["metadata"].get("deletionTimestamp") and (pod.get("status") or {}).get("phase") not in _ENDED


def labels(item: Object) -> dict[str, str]:
    """Labels of an object."""
    return dict(item["metadata"].get("labels") or {})


def selects(selector: Mapping[str, str], item: Object) -> bool:
    """Whether labels match a selector; an empty one selects nothing."""
    return bool(selector) and selector.items() <= labels(item).items()


def ready(pod: Object) -> bool:
    """Whether Kubernetes calls a pod ready."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def address(pod: Object) -> str:
    """A pod's address; empty before it has one."""
    return str((pod.get("status") or {}).get("podIP") or "")
