"""Attempts of ``mmdeploy verify``: one, or under ``--wait`` as many as time and budget allow."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mmdeploy.cli.verifying import Subject
    from mmdeploy.verify.run import Outcome, Plan, Settings, Spent
    from mmdeploy.verify.targets import Targets

AGAIN_SECONDS = 5.0
"""Between two attempts under ``--wait``."""


@dataclass(frozen=True)
class Budget:
    """Requests that may be sent."""

    requests: int
    whole: bool
    """For all attempts together; else for each."""

    def left(self, spent: Spent) -> int:
        """For the next attempt."""
        return self.requests - spent.requests if self.whole else self.requests


@dataclass(frozen=True)
class Attempts:
    """What is tried again and again."""

    find: Callable[[Callable[[str], None]], Subject]
    """The deployment as it stands when it is called; is told what to say meanwhile."""
    claims: tuple[str, ...]
    repeat: int
    budget: Budget
    settings: Settings
    patience: float | None
    """Seconds for all of them; None for a single one."""

    def run(self) -> tuple[Outcome, bool]:
        """The last attempt, and whether time, or the budget, ran out before all was proved.

        Raises `UsageError` at once, which time does not mend, and what the last attempt raised where time is up.
        """
        from mmdeploy.errors import UsageError
        from mmdeploy.verify.run import Spent

        spent, clock = Spent(), self.settings.clock
        deadline = None if self.patience is None else clock.now() + self.patience
        tell, done = _teller()
        while True:
            outcome: Outcome | None = None
            try:
                outcome = self._once(spent, tell)
                spent = outcome.before + Spent.of(outcome.evidence)
            except UsageError:
                raise
            except Exception:
                if self._last(deadline):
                    raise
            finally:
                done()
            if outcome is not None and (deadline is None or self._proved(outcome)):
                return outcome, False
            if outcome is not None and (self._last(deadline) or self._too_little(outcome, spent)):
                return outcome, True
            tell("not all is proved yet; trying again")
            clock.sleep(AGAIN_SECONDS)

    def _last(self, deadline: float | None) -> bool:
        """Whether there is no time for another one."""
        return deadline is None or self.settings.clock.now() + AGAIN_SECONDS > deadline

    @staticmethod
    def _proved(outcome: Outcome) -> bool:
        return not (outcome.contradicted or outcome.unseen)

    def _too_little(self, outcome: Outcome, spent: Spent) -> bool:
        """Whether the budget does not do for another attempt like this one; says so."""
        left = self.budget.left(spent)
        if left >= sum(item["requests"] for item in outcome.evidence.plan):
            return False
        line(f"not all is proved yet, and {left} of --budget {self.budget.requests} are left: too few")
        return True

    def _once(self, spent: Spent, tell: Callable[[str], None]) -> Outcome:
        from mmdeploy.verify import run

        subject = self.find(line)
        facts, left = subject.facts, self.budget.left(spent)
        settings = replace(self.settings, spent=spent, logs=subject.logs)
        try:
            plan = run.plan(facts, self.claims, self.repeat, hold=bool(settings.hold))
            _announce(plan, facts.targets, left)
            evidence = run.collect(
                facts, plan, subject.transport, left, settings, tell, subject.observations, subject.barred
            )
        finally:
            subject.close()
        return replace(run.judge(facts, evidence, plan.claims), before=spent)


def line(text: str) -> None:
    """A line on stderr."""
    print(text, file=sys.stderr, flush=True)


def _announce(plan: Plan, targets: Targets, budget: int) -> None:
    """What it may spend, before it starts."""
    most, pages = min(plan.requests, budget), sum(1 for _ in targets.pages())
    line(
        f"verify sends up to {most} small request{'s' * (most != 1)} (--budget {budget}) and reads {pages} "
        f"metrics page{'s' * (pages != 1)}"
    )


def _teller() -> tuple[Callable[[str], None], Callable[[], None]]:
    """Progress on stderr: one line that changes on a terminal, lines elsewhere; and what clears it."""
    if not sys.stderr.isatty():
        return line, (lambda: None)
    from mmdeploy.report.terminal import style, width

    def tell(text: str) -> None:
        shown = f"  {text}"[: max(10, width(sys.stderr) - 1)]
        print("\r\x1b[K" + style(shown, "dim", sys.stderr), end="", file=sys.stderr, flush=True)

    def done() -> None:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    return tell, done
