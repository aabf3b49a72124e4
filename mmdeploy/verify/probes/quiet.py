"""Watches the counters before anything is sent: whatever moves then is traffic of others. A step without requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mmdeploy.verify.window import Window

if TYPE_CHECKING:
    from mmdeploy.verify.facts import Facts
    from mmdeploy.verify.session import Session


def cost(facts: Facts) -> int:
    """Nothing is sent."""
    return 0


def run(session: Session, round: int) -> None:
    """Two readings, some time apart, as long as there is anything to read."""
    session.tell("watching for requests of others")
    before = after = session.read("start")
    begun = session.at
    pages = [page for page in session.evidence.scrapes if page.moment == before]
    unread = [f"{page.endpoint} ({page.missing})" for page in pages if not page.readable]
    if unread:
        session.tell(f"without metrics: {', '.join(unread)}")
    if len(unread) < len(pages):
        session.clock.sleep(session.facts.metrics.patience["quietSeconds"])
        after = session.step("quiet", []).after
    foreign = Window(session.evidence, session.facts, before, after, ()).foreign
    detail = "no counter was readable" if foreign is None else f"{foreign} requests of others"
    session.observe("quiet-window", before, detail, seconds=session.at - begun, foreign=foreign)
