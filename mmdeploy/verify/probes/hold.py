"""One answer that is kept coming on purpose, for as long as ``--hold`` says: does anything on the way cut it?

It keeps a model busy that long, so that nobody sends it unasked. It is the last request of a run, and is ended from
here, so that no window holds it.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mmdeploy.verify.facts import Facts
    from mmdeploy.verify.session import Session


def cost(facts: Facts) -> int:
    """One request."""
    return 1


def run(session: Session, round: int) -> None:
    """By the outermost way in."""
    target = "gateway" if session.facts.targets.gateway is not None else "entry"
    tokens = session.facts.catalog.table("metrics")["holding"]["tokensASecond"]
    session.send(session.write.endless("hold/0", ceil(session.hold * tokens), target=target), session.hold)
