"""Claims, in the order in which they are told, and the judge of each: a pure function from evidence to verdict.

A judge's module is imported when its claim is judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from mmdeploy.verify.verdicts import NotApplicable, Verdict

if TYPE_CHECKING:
    from mmdeploy.verify.evidence import Evidence
    from mmdeploy.verify.facts import Facts

Judge = Callable[["Evidence", "Facts"], "Verdict | NotApplicable"]


@dataclass(frozen=True)
class Claim:
    """Something a deployment is said to do."""

    name: str
    title: str
    judge: str
    """``module:function`` under this package."""

    def judged(self, evidence: Evidence, facts: Facts) -> Verdict | NotApplicable:
        """The verdict of its judge."""
        module, _, name = self.judge.partition(":")
        judge: Judge = getattr(import_module(f"{__name__}.{module}"), name)
        return judge(evidence, facts)


CLAIMS: Mapping[str, Claim] = {
    claim.name: claim
    for claim in (
        Claim("roles", "every role serves", "roles:judge"),
        Claim("text", "text is answered", "answers:text"),
        Claim("image", "an image is seen", "answers:image"),
        Claim("affinity", "repeats go where their cache is", "affinity:judge"),
        Claim("stages", "stages run where they should", "stages:judge"),
        Claim("spread", "several pictures of a request are encoded as configured", "spread:judge"),
        Claim("embeddings", "embeddings are used, not recomputed", "embeddings:judge"),
        Claim("kv", "KV moves from prefill to decode", "kv:judge"),
        Claim("pricing", "the router prices what the model takes", "pricing:judge"),
        Claim("entry", "the entry point leads to the pool", "entry:judge"),
    )
}
