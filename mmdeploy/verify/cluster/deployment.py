"""A deployment on a cluster, ready to be verified: found, and reached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mmdeploy.errors import ClusterError
from mmdeploy.verify.cluster import discovery, looking, reaching, rights, routers
from mmdeploy.verify.cluster.podlogs import PodLogs
from mmdeploy.verify.cluster.reaching import Way
from mmdeploy.verify.evidence import Observation
from mmdeploy.verify.facts import Facts

if TYPE_CHECKING:
    from mmdeploy.catalog import Catalog
    from mmdeploy.cluster.session import Session
    from mmdeploy.intended import Intended

MODEL_SECONDS = 10.0
Recorded = Callable[[str], "Intended | None"]
"""What was deployed under a name, by what apply left on the cluster; None where nothing says it."""


@dataclass(frozen=True)
class Asked:
    """What a person said about the deployment that is meant."""

    namespace: str
    name: str | None = None
    """The release; None for the only one there is."""
    via: str | None = None
    """``proxy``, ``port-forward``, ``pod``, or the address of the entry point; None for whatever works."""
    model: str | None = None
    token: str = ""
    """``env:NAME`` or ``file:PATH`` of a bearer token for the picker's metrics."""
    meant: Intended | None = None
    """The bundle."""

    @property
    def entry(self) -> str | None:
        """The address of the entry point, where one was said."""
        return self.via if self.via and "://" in self.via else None

    @property
    def way(self) -> str | None:
        """The way into the cluster that was said."""
        return None if self.entry else self.via


@dataclass(frozen=True)
class Reached:
    """A deployment that can be verified."""

    facts: Facts
    found: discovery.Found
    way: Way
    logs: PodLogs | None
    """None where logs may not be read."""

    def close(self) -> None:
        """Take away what getting there left on the cluster."""
        self.way.close()


def reach(
    session: Session, catalog: Catalog, asked: Asked, tell: Callable[[str], None],
    recorded: Recorded = lambda name: None,
) -> Reached:  # fmt: skip
    """Find the deployment and a way to it.

    Raises `ClusterError` and its kin where there is none, `UsageError` where it is not clear which.
    """
    seen = looking.look(session, asked.namespace, catalog)
    router = routers.find(seen, catalog, asked.name or (asked.meant.name if asked.meant else None))
    place = router.configuration_file
    if place is not None:
        seen = looking.with_configurations(session, seen, place[0])
    meant = asked.meant
    if meant is None:
        try:
            meant = recorded(router.release)
        except ClusterError as problem:
            why = f"what apply left there is not known: {problem.found}"
            seen = replace(seen, missing={**seen.missing, "inventory": why})
    where = f"{session.where.context}, namespace {asked.namespace}"
    found = discovery.discover(
        seen, router, catalog, meant=meant, model=asked.model, entry=asked.entry, token=asked.token, where=where
    )
    way = reaching.choose(session, seen, catalog, found.trial, tell, asked.way)
    try:
        if not found.targets.model:
            found = replace(found, targets=replace(found.targets, model=_served(found, way)))
    except BaseException:
        way.close()
        raise
    logs = PodLogs(session, asked.namespace, found.containers)
    silent = rights.lacking(session, asked.namespace, rights.reading())
    if silent:
        said = Observation(discovery.KIND, "logs", f"not read: no right to {', '.join(silent)}")
        found = replace(found, observations=(*found.observations, said))
    return Reached(Facts(catalog, found.targets), found, way, None if silent else logs)


def _served(found: discovery.Found, way: Way) -> str:
    """The model that a pod of the language role lists. Raises `ClusterError` where none says one."""
    from mmdeploy.verify import answers
    from mmdeploy.verify.transport import Request

    for pod in found.trial:
        if pod.role != "encode":
            answer = way.transport.send(Request(pod.api, MODEL_SECONDS, path="/v1/models"))
            models = answers.read(answer, streamed=False).fields.get("models") or ()
            if models and models[0]:
                return str(models[0])
    raise ClusterError(
        "neither a command line nor an answer of a pod says which model is served",
        origin=found.targets.where,
        next_step="--model NAME says it",
    )
