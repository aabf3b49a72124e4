"""Text and a picture through the Gateway, where there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mmdeploy.verify.facts import Facts
    from mmdeploy.verify.session import Session


def cost(facts: Facts) -> int:
    """Two requests."""
    return 2 if facts.targets.gateway is not None else 0


def run(session: Session, round: int) -> None:
    """One step."""
    write = session.write
    text = write.text(f"gateway.text/{round}", "gateway.text", target="gateway")
    image = write.colours(f"gateway.image/{round}", "gateway.image", [write.picture()], target="gateway")
    session.step("gateway", [text, image], round)
