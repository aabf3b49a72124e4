"""``mmdeploy verify --debug-logs``: asks, raises the engines' log level for the time of a run, and puts it back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from mmdeploy.catalog import Catalog
    from mmdeploy.cli.verifying import OnCluster, Subject
    from mmdeploy.verify.facts import Facts
    from mmdeploy.verify.probes.debuglogs import DebugLogs

CLAIM = "embeddings"

DebugOption = Annotated[
    bool,
    typer.Option(
        "--debug-logs", help="Restart encode pods and consumers with DEBUG logs, which show transfers; put back after."
    ),
]


@contextmanager
def debugging(
    wanted: bool, yes: bool, catalog: Catalog, cluster: OnCluster | None, claims: Sequence[str],
    find: Callable[[Callable[[str], None]], Subject],
) -> Iterator[None]:  # fmt: skip
    """Inside, the engines log at DEBUG, if that is ``wanted`` and agreed to. ``cluster`` is None without one.

    Raises `UsageError` where it would show nothing, `StoppedError` without agreement, and what changing a workload
    raises.
    """
    if not wanted:
        yield
        return
    from mmdeploy.cli.performing import agreed, must_be_answerable
    from mmdeploy.errors import StoppedError, UsageError

    if cluster is None:
        raise UsageError(
            "the log level of engines that are listed in a file cannot be changed from here", origin="--debug-logs",
            next_step="start them with VLLM_LOGGING_LEVEL=DEBUG, and name each engine's log in the targets file "
            "(log: FILE or address); in a rehearsal: mmdeploy rehearse --debug-logs",
        )  # fmt: skip
    if CLAIM not in claims:
        raise UsageError(f"it serves the claim {CLAIM}, which is not verified", origin="--debug-logs", nearest=[CLAIM])
    must_be_answerable(yes)
    subject = find(_tell)
    subject.close()
    raising = _raising(cluster, catalog, subject.facts)
    if not yes and not agreed(f"--debug-logs {raising.warning()}. Go on?"):
        raise StoppedError("nothing was changed")
    with raising.raised():
        yield


def _raising(cluster: OnCluster, catalog: Catalog, facts: Facts) -> DebugLogs:
    from mmdeploy.errors import UsageError
    from mmdeploy.verify.cluster.places import place
    from mmdeploy.verify.handoff import consumers
    from mmdeploy.verify.probes.debuglogs import DebugLogs, owners

    targets = facts.targets
    if not facts.router_encodes:
        raise UsageError(
            f"{targets.topology} on {targets.server} hands over no embeddings that logs would show",
            origin="--debug-logs",
        )
    roles = ("encode", consumers(facts.roles))
    session = cluster.connected()
    pods = [pod for role in roles for pod in targets.of(role)]
    inside = place(pods[0].api.url)
    if inside is None:
        raise UsageError("its pods are not on the cluster", origin="--debug-logs")
    workloads = owners(session, inside.namespace, [pod.name for pod in pods])
    if not workloads:
        raise UsageError("no workload makes its pods", origin="--debug-logs")
    return DebugLogs.of(session, catalog, inside.namespace, workloads, roles, tell=_tell)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
