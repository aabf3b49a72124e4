"""One picture that nobody has seen, and the question after its colour."""

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
    planned = session.write.colours(f"image/{round}", "image", [session.write.picture()])
    session.step("image", [planned], round)
