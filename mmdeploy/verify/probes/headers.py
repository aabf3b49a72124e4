"""Text with a routing header that only the picker should set: does a client steer past it?

Only where the picker itself sets none for text: in E/P/D it names a prefill pod for every request, which overwrites the
client's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mmdeploy.verify.facts import Facts
    from mmdeploy.verify.session import Session


def cost(facts: Facts) -> int:
    """One request, where there is an encode pod to name."""
    return int(facts.router_encodes and "prefill" not in facts.roles and bool(_addresses(facts)))


def run(session: Session, round: int) -> None:
    """Through the Gateway where there is one: there, something could take the header away."""
    target = "gateway" if session.facts.targets.gateway is not None else "entry"
    headers = {session.facts.metrics.headers["prefiller"]: _addresses(session.facts)[0]}
    session.step("headers", [session.write.text(f"headers/{round}", "headers", target=target, headers=headers)], round)


def _addresses(facts: Facts) -> list[str]:
    """Of encode pods; one that has not been placed yet has none."""
    return [pod.address for pod in facts.targets.of("encode") if pod.address]
