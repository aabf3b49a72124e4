"""All checks, category by category, as a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from mmdeploy.preflight import (
    capacity,
    changes,
    collisions,
    custom,
    dryrun,
    gateways,
    names,
    permissions,
    quota,
    scheduling,
    security,
    server,
    surroundings,
)
from mmdeploy.preflight.check import Check, Options
from mmdeploy.preflight.facts import Facts
from mmdeploy.preflight.observed import observe
from mmdeploy.preflight.subject import Subject

if TYPE_CHECKING:
    from mmdeploy.cluster.session import Session
    from mmdeploy.intended import Intended

CATEGORIES: tuple[Callable[[Subject], Iterator[Check]], ...] = (
    server.checks,
    server.programs,
    permissions.checks,
    custom.checks,
    names.checks,
    surroundings.checks,
    surroundings.model,
    capacity.checks,
    scheduling.priorities,
    scheduling.volumes,
    quota.checks,
    security.checks,
    gateways.checks,
    collisions.checks,
    changes.checks,
    dryrun.checks,
)
"""In the order in which they are shown: what stops everything first."""


def run(session: Session, intended: Intended, options: Options) -> Iterator[Check]:
    """Every check of what ``intended`` needs. Only reads and dry runs; nothing on the cluster changes.

    Raises `ClusterError` where the cluster cannot be reached or the credentials are not accepted.
    """
    _ = session.version  # the first request: whether there is a cluster at all
    facts = Facts(options.catalog)
    subject = Subject(session, intended, facts, options, observe(session, intended, facts, options))
    for checks in CATEGORIES:
        yield from checks(subject)


__all__ = ["CATEGORIES", "run"]
