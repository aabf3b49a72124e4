"""The router: a Helm release, installed or brought up to date, unlocked where an interrupted helm left it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from mmdeploy.apply import charts
from mmdeploy.cluster import processes
from mmdeploy.cluster.helm import WRITE_SECONDS, Chart, Helm, Release, work
from mmdeploy.cluster.releases import Stored, stored
from mmdeploy.errors import ClusterError, ConflictError, DeployError

if TYPE_CHECKING:
    from mmdeploy.apply.inventory import Inventory
    from mmdeploy.catalog import Catalog
    from mmdeploy.cluster.session import Session
    from mmdeploy.intended import Intended

OPTION: Final = "--router-chart"
SETTLE_SECONDS: Final = 20.0
"""A helm whose mmdeploy was killed goes on by itself: it has so long, from its start, before its lock is broken."""
_LOOK_SECONDS: Final = 0.5
_UNREACHED: Final = re.compile(
    r"dial tcp|no such host|i/o timeout|TLS handshake|x509|connection refused|connection reset|failed to (perform|do "
    r"request|fetch|authorize|download)|proxyconnect|unexpected status|ghcr\.io.*denied",
    re.IGNORECASE,
)
"""What helm says of a registry that does not answer, or not with the chart."""
_RESTARTED: Final = "kubectl.kubernetes.io/restartedAt"
"""What ``kubectl rollout restart`` writes."""


def chart_of(intended: Intended, catalog: Catalog, said: str | None = None) -> Chart:
    """The router's chart: the catalog's, in the spec's version, or what somebody said: a path, or a mirror's
    reference. Raises `UsageError` for a path at which there is no chart."""
    if said is None:
        return Chart(catalog.sources["charts"][intended.mode], intended.chart_version)
    if "://" in said:
        return Chart(said, intended.chart_version)
    fetch = f"helm pull {catalog.sources['charts'][intended.mode]} --version {intended.chart_version}"
    return Chart(str(charts.local(said, OPTION, fetch)))


@contextlib.contextmanager
def reached(chart: Chart) -> Iterator[None]:
    """Inside, an error of helm about a registry that it does not reach says how to do without it."""
    try:
        yield
    except (ClusterError, DeployError) as problem:
        if "://" in chart.reference and _UNREACHED.search(problem.found):
            problem.next_step = (
                f"{OPTION} PATH takes the chart from a file or directory, {OPTION} oci://… from a mirror"
            )
        raise


def settled(before: Inventory | None, pause: Callable[[float], None]) -> bool:
    """Wait for a helm of this machine whose mmdeploy was killed: it goes on by itself, and what is read before it has
    ended is soon wrong. Whether there was one.

    Looks only where the inventory says that the router was begun and not finished. Raises `ConflictError` where it
    does not end, and what ``pause`` raises.
    """
    if before is None or before.release is None or "router" in before.stages:
        return False
    waited = 0.0
    while left := processes.left_behind(work(before.namespace, before.release.name)):
        if waited >= SETTLE_SECONDS:
            pids = " ".join(map(str, left))
            raise ConflictError(
                f"a helm that an mmdeploy left behind when it was killed is still at work (process {pids})",
                origin=f"Helm release {before.release.name}",
                next_step=f"wait until it has ended, or end it: kill {pids}; then run the command again",
            )
        pause(_LOOK_SECONDS)
        waited += _LOOK_SECONDS
    return waited > 0


def unlocked(
    session: Session, helm: Helm, namespace: str, name: str, *, ours: bool, pause: Callable[[float], None],
    left: Callable[[float], float],
) -> bool:  # fmt: skip
    """Make a release that is locked usable again; whether there was anything to do.

    A lock that an apply of this deployment left is broken, once that helm had time to finish. ``left``: seconds that
    there still are, of so many. Raises `ConflictError`
    where somebody else's helm is at work.
    """
    found = stored(session, namespace, name)
    if found is None or not found.locked:
        return False
    while ours and _age(found, session.now()) < timedelta(seconds=SETTLE_SECONDS):
        pause(_LOOK_SECONDS)
        found = stored(session, namespace, name)
        if found is None or not found.locked:
            return True
    if not ours:
        raise ConflictError(
            f"another helm changes the release {name}: it is {found.status} since {found.updated[:19]}",
            origin=f"Helm release {name}",
            next_step=f"wait for it; if that helm is gone: helm rollback {name} --namespace {namespace}",
        )
    helm.unlock(found, left(WRITE_SECONDS))
    return True


def unrecorded(session: Session, namespace: str, name: str) -> Stored | None:
    """The release that helm just changed, where its record does not say so.

    A helm that has written every object and then cannot reach the server to record that ends well all the same: the
    release stays locked, and the next helm refuses it (seen with helm 4.3.1 and a connection that broke).
    """
    found = stored(session, namespace, name)
    return found if found is not None and found.locked else None


def not_recorded(release: Release, namespace: str) -> DeployError:
    """What to say of a release that stays locked though helm ended well."""
    return DeployError(
        f"helm wrote the router's objects and could not record it: the release is {release.status}",
        origin=f"Helm release {release.name}",
        next_step=f"kubectl get events --namespace {namespace}; then run the command again",
    )


def _age(release: Stored, now: datetime) -> timedelta:
    """Since when it is as it is. helm writes nanoseconds, which are more digits than Python reads."""
    match = re.fullmatch(r"(\S{19})(?:\.\d+)?(Z|[+-]\d\d:\d\d)", release.updated)
    return now - datetime.fromisoformat(match[1] + match[2]) if match else timedelta.max


def restart(session: Session, namespace: str, deployments: Sequence[str]) -> None:
    """Start the pods of Deployments anew, as ``kubectl rollout restart`` does: they read their configuration once."""
    now = session.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    for name in deployments:
        item = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": namespace}}
        session.patch(item, {"spec": {"template": {"metadata": {"annotations": {_RESTARTED: now}}}}})


__all__ = ["OPTION", "chart_of", "not_recorded", "reached", "restart", "settled", "unlocked", "unrecorded"]
