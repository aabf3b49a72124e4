"""``mmdeploy apply --verify``: the claims of ``mmdeploy verify``, judged as the last stage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mmdeploy.errors import ContradictedError

if TYPE_CHECKING:
    from mmdeploy.apply.events import Event
    from mmdeploy.catalog import Catalog


def verified(bundle: Path, kubeconfig: Path | None, context: str | None, catalog: Catalog) -> Iterator[Event]:
    """The verdict on every claim. Raises `ContradictedError` where one does not hold, `ClusterError` where nothing
    answers."""
    from mmdeploy.apply.events import Verified, Warned
    from mmdeploy.cli.verifying import OnCluster
    from mmdeploy.verify import run
    from mmdeploy.verify.judges import CLAIMS

    said: list[str] = []
    cluster = OnCluster(kubeconfig, context, None, None, None, None, bundle, None)
    subject = cluster.subject(cluster.connected(), catalog, said.append)
    try:
        plan = run.plan(subject.facts, run.chosen((), ()), 1)
        settings = run.Settings(logs=subject.logs)
        evidence = run.collect(
            subject.facts, plan, subject.transport, run.BUDGET, settings, lambda text: None, subject.observations,
            subject.barred,
        )  # fmt: skip
    finally:
        subject.close()
    yield from (Warned(text) for text in said)
    outcome = run.judge(subject.facts, evidence, list(CLAIMS))
    for verdict in outcome.verdicts:
        yield Verified(verdict.claim, verdict.verdict, verdict.summary)
    for claim in outcome.inapplicable:
        yield Verified(claim.claim, "not applicable", claim.reason)
    if outcome.contradicted:
        raise ContradictedError(
            f"the deployment does not do what it was deployed to do: {', '.join(outcome.contradicted)}",
            next_step=f"mmdeploy verify {bundle} shows the evidence and what would explain it",
        )


__all__ = ["verified"]
