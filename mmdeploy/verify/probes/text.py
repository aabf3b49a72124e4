"""One short question without media."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mmdeploy.verify.facts import Facts
    from mmdeploy.verify.session import Session


def cost(facts: Facts) -> int:
    """One request."""
    return 1


def run(session: Session, round: int) -> None:
    """Through the entry point."""
    session.step("text", [session.write.text(f"text/{round}")], round)
