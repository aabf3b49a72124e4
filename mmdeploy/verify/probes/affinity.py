"""The same long prompt with the same picture, twice; then the picture under another prompt, straight to the pod that
has it, so that no load balancing stands between the picture and its cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mmdeploy.verify.window import Window

if TYPE_CHECKING:
    from mmdeploy.verify.facts import Facts
    from mmdeploy.verify.session import Session


def cost(facts: Facts) -> int:
    """Two requests through the entry point; where caches are followed, a third to a pod."""
    return 3 if facts.follows_cache else 2


def run(session: Session, round: int) -> None:
    """The steps ``affinity.first``, ``affinity.again``, ``affinity.other``."""
    write, picture = session.write, session.write.picture()
    nonce = write.nonce()
    for name in ("affinity.first", "affinity.again"):
        step = session.step(name, [write.long(f"{name}/{round}", name, nonce, picture)], round)
    if not session.facts.follows_cache:
        return
    where = Window.of(session.evidence, session.facts, step).moved(session.facts.cached_role, "requests").where
    if len(where) == 1:
        name = "affinity.other"
        target = next(iter(where))
        session.step(name, [write.colours(f"{name}/{round}", name, [picture], target=target)], round)
