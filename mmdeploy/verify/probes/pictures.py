"""Two pictures in one request: how many encode pods take part."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mmdeploy.verify.facts import Facts
    from mmdeploy.verify.session import Session


def cost(facts: Facts) -> int:
    """One request, where the router picks encode pods."""
    return int(facts.router_encodes)


def run(session: Session, round: int) -> None:
    """Through the entry point."""
    pictures = [session.write.picture(), session.write.picture()]
    session.step("pictures", [session.write.colours(f"pictures/{round}", "pictures", pictures)], round)
