"""Asks every pod what it serves, on the port that the pool targets, and which release it is. Costs no model time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mmdeploy.verify.bodies import Planned

if TYPE_CHECKING:
    from mmdeploy.verify.facts import Facts
    from mmdeploy.verify.session import Session


def cost(facts: Facts) -> int:
    """None of it runs the model."""
    return 0


def run(session: Session, round: int) -> None:
    """All pods at the same time."""
    planned = []
    for pod in session.facts.targets.pods:
        paths = session.facts.page(pod.role).paths
        for purpose in ("models", "health", "version"):
            if purpose in paths:
                planned.append(Planned(f"{purpose}/{pod.name}", purpose, None, paths[purpose], pod.name))
    session.tell(f"asking {len(session.facts.targets.pods)} pods what they serve")
    session.send_all(planned, session.facts.metrics.patience["pageSeconds"])
