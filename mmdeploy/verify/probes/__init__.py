"""Probes, in the order in which they run. Each sends what some claims need, and judges nothing.

A probe's module is imported when it runs; it has ``cost(facts)``, chat requests a round (0 where it does not apply),
and ``run(session, round)``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mmdeploy.verify.facts import Facts
    from mmdeploy.verify.session import Session


@dataclass(frozen=True)
class Probe:
    """Requests that serve some claims."""

    name: str
    claims: tuple[str, ...]
    repeats: bool = True
    """Whether ``--repeat`` runs it several times."""

    def cost(self, facts: Facts) -> int:
        """Chat requests of one round."""
        return int(import_module(f"{__name__}.{self.name}").cost(facts))

    def run(self, session: Session, round: int) -> None:
        """Send one round. Raises `BudgetSpentError`."""
        import_module(f"{__name__}.{self.name}").run(session, round)


ALL = (
    Probe("roles", ("roles", "stages", "affinity", "entry", "embeddings", "kv"), repeats=False),
    Probe(
        "quiet",
        ("roles", "text", "image", "affinity", "stages", "spread", "embeddings", "kv", "pricing", "entry"),
        repeats=False,
    ),
    Probe("text", ("text", "stages", "entry", "kv")),
    Probe("image", ("image", "stages", "entry", "kv", "embeddings")),
    Probe("affinity", ("affinity", "stages", "kv")),
    Probe("pictures", ("spread", "stages")),
    Probe("gateway", ("entry",), repeats=False),
    Probe("headers", ("entry",), repeats=False),
    Probe("embeddings", ("embeddings",), repeats=False),
    Probe("pricing", ("pricing",), repeats=False),
    Probe("hold", ("entry",), repeats=False),
)


def serving(claims: Iterable[str], hold: bool = False) -> tuple[Probe, ...]:
    """The probes that these claims need; the one that holds a request open only where it is asked for."""
    wanted = set(claims)
    return tuple(probe for probe in ALL if wanted & set(probe.claims) and (hold or probe.name != "hold"))
