"""Counters come late, or never, or keep moving: how long a step waits for them, on a clock that the test holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest

from mmdeploy.verify.evidence import Evidence
from mmdeploy.verify.session import BudgetSpentError, Clock, Session
from mmdeploy.verify.transport import Answer, Request
from mmdeploy.verify.window import Window
from tests.verify.made import facts
from tests.verify.simulated import HeldClock

PATIENCE = facts({"topology": "aggregation", "pods": {"decode": 1}}).metrics.patience


@dataclass
class Counting:
    """One pod that counts a request ``late`` seconds after it was answered, or never; others send ``rate`` a second."""

    clock: HeldClock
    late: float | None = 0.0
    rate: float = 0.0
    sent: list[float] = field(default_factory=list)
    reads: int = 0

    def send(self, request: Request) -> Answer:
        if request.method == "POST":
            self.clock.sleep(0.1)
            self.sent.append(self.clock.now())
            return Answer(200, {}, ((0.1, b'{"choices": [{"message": {"content": "94"}}]}'),))
        self.reads += 1
        counted = 0 if self.late is None else sum(self.clock.now() >= at + self.late for at in self.sent)
        others = int((self.clock.now() - 1_000_000.0) * self.rate)
        page = f'vllm:request_success_total{{finished_reason="stop"}} {counted + others}\n'
        return Answer(200, {}, ((0.0, f"# TYPE vllm:request_success_total counter\n{page}".encode()),))


def session(wire: Counting, budget: int = 9) -> Session:
    known = facts({"topology": "aggregation", "pods": {"decode": 1}, "picker": False})
    evidence = Evidence("mmdeploy", known.targets.as_data())
    return Session(known, wire, evidence, budget, clock=Clock(wire.clock.now, wire.clock.sleep), random=Random(1))


def step(running: Session, name: str = "text") -> Window:
    made = running.step(name, [running.write.text(f"{name}/0")])
    return Window.of(running.evidence, running.facts, made)


@pytest.mark.parametrize("late", [0.0, 0.05, 0.7, 3.0])
def test_late_counters_are_waited_for_and_not_longer(late: float) -> None:
    wire = Counting(HeldClock(), late)
    running = session(wire)
    window = step(running)
    assert window.moved("decode", "requests").known == {"decode-0": 1}
    assert window.quiet
    waited = running.at - 0.1
    assert waited <= late + 2 * PATIENCE["longestWait"]


def test_counters_that_never_come_are_waited_for_once() -> None:
    wire = Counting(HeldClock(), late=None)
    running = session(wire)
    assert step(running).moved("decode", "requests").known == {"decode-0": 0}
    first = running.at
    assert PATIENCE["settleSeconds"] <= first <= PATIENCE["settleSeconds"] + 2 * PATIENCE["longestWait"]
    step(running, "image")
    assert running.at - first < 1


def test_counters_that_others_keep_moving_are_taken_soon_and_marked() -> None:
    wire = Counting(HeldClock(), rate=200)
    running = session(wire)
    window = step(running)
    assert not window.steps[0].settled
    assert not window.quiet
    assert running.at < 2 * PATIENCE["busySeconds"] + PATIENCE["longestWait"]


def test_two_readings_that_agree_but_hold_too_much_are_not_quiet() -> None:
    wire = Counting(HeldClock(), rate=2)
    running = session(wire)
    running.read("start")
    wire.clock.sleep(2)  # four requests of others
    window = step(running)
    assert window.foreign == 4
    assert not window.quiet


def test_the_budget_is_kept_to_the_request() -> None:
    running = session(Counting(HeldClock()), budget=1)
    step(running)
    with pytest.raises(BudgetSpentError):
        step(running, "image")
    assert [sent.purpose for sent in running.evidence.requests] == ["text"]


def test_every_request_is_marked_as_this_run_and_holds_no_credential() -> None:
    running = session(Counting(HeldClock()))
    step(running)
    headers = running.evidence.requests[0].headers
    assert headers["x-llm-d-inference-fairness-id"] == running.run_id
    assert headers["x-request-id"].startswith(running.run_id)
    assert "authorization" not in {name.lower() for name in headers}
