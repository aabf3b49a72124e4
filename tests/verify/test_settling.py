"""Which pages are read again before a step ends: those that may still move, and no others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from mmdeploy.verify.evidence import Evidence
from mmdeploy.verify.session import Clock, Session
from mmdeploy.verify.transport import Answer, Request
from mmdeploy.verify.window import Window
from tests.verify.made import facts
from tests.verify.simulated import HeldClock

KNOWN = facts({"topology": "e-pd", "pods": {"encode": 2, "decode": 3}, "picker": False})


@dataclass
class Pods:
    """Each request is counted by ``counting``: pod → seconds until it shows."""

    clock: HeldClock
    counting: Mapping[str, float]
    sent: list[float] = field(default_factory=list)
    reads: Counter[str] = field(default_factory=Counter)

    def send(self, request: Request) -> Answer:
        if request.method == "POST":
            self.sent.append(self.clock.now())
            return Answer(200, {}, ((0.1, b'{"choices": [{"message": {"content": "94"}}]}'),))
        self.reads[request.endpoint.name] += 1
        late = self.counting.get(request.endpoint.name)
        counted = 0 if late is None else sum(self.clock.now() >= at + late for at in self.sent)
        page = f"# TYPE vllm:request_success_total counter\nvllm:request_success_total {counted}\n"
        return Answer(200, {}, ((0.0, page.encode()),))


def step(**counting: float) -> tuple[Pods, Window]:
    """One text through the router."""
    clock = HeldClock()
    wire = Pods(clock, {name.replace("_", "-"): late for name, late in counting.items()})
    evidence = Evidence("mmdeploy", KNOWN.targets.as_data())
    running = Session(KNOWN, wire, evidence, 9, clock=Clock(clock.now, clock.sleep), random=Random(1))
    running.read("start")
    wire.reads.clear()
    made = running.step("text", [running.write.text("text/0")])
    running.close()
    return wire, Window.of(evidence, KNOWN, made)


def test_pods_that_had_no_part_are_read_once() -> None:
    wire, window = step(decode_1=0.0)
    assert window.quiet
    assert {name: wire.reads[name] for name in ("decode-0", "decode-1", "decode-2")} == {
        "decode-0": 1, "decode-1": 2, "decode-2": 1,
    }  # fmt: skip


def test_pods_that_should_have_no_part_are_read_twice() -> None:
    """That a text reaches no encode pod is a claim: one that counts it a moment later is still seen."""
    wire, window = step(decode_1=0.0, encode_0=0.01)
    assert window.moved("encode", "requests").known == {"encode-0": 1, "encode-1": 0}
    assert wire.reads["encode-1"] >= 2


def test_all_pods_of_a_role_are_read_until_one_has_counted() -> None:
    wire, window = step(decode_2=0.3)
    assert window.moved("decode", "requests").known == {"decode-0": 0, "decode-1": 0, "decode-2": 1}
    assert window.quiet
    assert wire.reads["decode-0"] > 2


def test_what_is_counted_twice_is_found_on_both_pods() -> None:
    _, window = step(decode_0=0.0, decode_1=0.0)
    assert window.moved("decode", "requests").total == 2
    assert window.foreign == 1


def test_a_request_of_others_meanwhile_is_looked_for_on_all_pages() -> None:
    """It comes between the two readings, on the pod that served ours and on another: both readings after it agree."""
    clock = HeldClock()
    wire = Pods(clock, {"decode-0": 0.0})
    evidence = Evidence("mmdeploy", KNOWN.targets.as_data())

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        wire.counting = {"decode-0": 0.0, "encode-1": 0.0}  # what was sent shows on another page from now on
        wire.sent.append(clock.now()) if len(wire.sent) == 1 else None

    running = Session(KNOWN, wire, evidence, 9, clock=Clock(clock.now, sleep), random=Random(1))
    running.read("start")
    made = running.step("text", [running.write.text("text/0")])
    running.close()
    window = Window.of(evidence, KNOWN, made)
    assert made.settled
    assert window.moved("decode", "requests").known == {"decode-0": 2, "decode-1": 0, "decode-2": 0}
    assert window.moved("encode", "requests").known == {"encode-0": 0, "encode-1": 2}
    assert not window.quiet
