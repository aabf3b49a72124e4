"""A picture through the router; the same picture straight to encode pods, whose answers say where its embeddings are,
and under which hash; what the engines logged of that hash; and another one that cannot use the encoder.

An encoder server of SGLang takes no chat requests: there only the first is sent, and its counters tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from mmdeploy.verify.bodies import Planned
from mmdeploy.verify.handoff import Logs, consumers
from mmdeploy.verify.window import Window

if TYPE_CHECKING:
    from mmdeploy.verify.evidence import Step
    from mmdeploy.verify.facts import Facts
    from mmdeploy.verify.pictures import Picture
    from mmdeploy.verify.session import Session
    from mmdeploy.verify.targets import Pod


def cost(facts: Facts) -> int:
    """Through the router, straight to up to so many encode pods, and past the encoder."""
    if not facts.encodes:
        return 0
    return 1 if not facts.router_encodes else 2 + len(_encoders(facts))


def run(session: Session, round: int) -> None:
    """The steps ``embeddings``, ``embeddings.direct`` and ``embeddings.control``."""
    facts, write = session.facts, session.write
    picture = write.picture(*_said(facts)["picture"])
    before = _logs(session)
    routed = write.colours(f"embeddings/{round}", "embeddings", [picture], streamed=True)
    step = session.step("embeddings", [routed], round)
    if not facts.router_encodes:
        return
    direct = [_direct(session, pod, picture, number) for number, pod in enumerate(_encoders(facts))]
    session.step("embeddings.direct", direct, round)
    _tell_logs(session, before)
    pod = _answering(session, step)
    if pod is None:
        return
    target = pod.engine.name if pod.engine is not None else pod.name
    control = write.colours(
        f"embeddings.control/{round}",
        "embeddings.control",
        [write.picture(picture.width, picture.height, picture.colour)],
        target=target,
        streamed=True,
    )
    session.step("embeddings.control", [control], round)


def _said(facts: Facts) -> Mapping[str, Any]:
    said: Mapping[str, Any] = facts.catalog.table("metrics")["embeddings"]
    return said


def _encoders(facts: Facts) -> Sequence[Pod]:
    return facts.targets.of("encode")[: _said(facts)["encoders"]]


def _direct(session: Session, pod: Pod, picture: Picture, number: int) -> Planned:
    """As the sidecar asks an encode pod: the picture alone, one token, not streamed."""
    planned = session.write.colours(f"embeddings.direct/{number}", "embeddings.direct", [picture], target=pod.name)
    message = planned.body["messages"][0] if planned.body else {}
    parts = [part for part in message["content"] if part["type"] != "text"]
    body = session.write.body(parts, max_tokens=1)
    return Planned(planned.id, planned.purpose, body, target=pod.name, media=planned.media)


def _answering(session: Session, step: Step) -> Pod | None:
    """A pod that takes whole requests: the one that answered before, if that is known; None where there is no pod."""
    pods = session.facts.targets.of("decode")
    where = Window.of(session.evidence, session.facts, step).moved("decode", "requests").where
    return next((pod for pod in pods if pod.name in where), pods[0] if pods else None)


def _logs(session: Session) -> dict[str, int]:
    """How many lines each pod's log had; {} where logs cannot be read."""
    if session.logs is None:
        return {}
    session.tell("reading logs")
    return {pod.name: len(lines) for pod, lines in _read(session).items()}


def _read(session: Session) -> dict[Pod, Sequence[str]]:
    """The lines of every log that tells of transfers; they are read at the same time."""
    pods, logs = _logging(session.facts), session.logs
    if logs is None:
        return {}
    return dict(zip(pods, session.all([partial(logs, pod.name) for pod in pods]), strict=True))


def _tell_logs(session: Session, before: Mapping[str, int]) -> None:
    """Keep the lines since then that tell of transfers. Logs come late, so that they are read again while lines at
    DEBUG come in and none is a consumer's own."""
    if session.logs is None:
        return
    table, patience = Logs(session.facts.catalog), session.facts.metrics.patience
    deadline = session.at + patience["settleSeconds"]
    while True:
        lines = {pod: said[before.get(pod.name, 0) :] for pod, said in _read(session).items()}
        events = {pod: table.events(said) for pod, said in lines.items()}
        told = any(events[pod] for pod in events if pod.role != "encode")
        if told or session.at >= deadline or not any(_debug(said) for said in lines.values()):
            break
        session.clock.sleep(patience["longestWait"])
    for pod, said in lines.items():
        numbers = {"role": pod.role, "lines": len(said), "debug": _debug(said)}
        session.observe("logs-read", pod.name, f"{len(said)} lines", **numbers)
        for event in events[pod]:
            session.observe("log", pod.name, event.text, role=pod.role, event=event.name, hash=event.digest)


def _debug(lines: Sequence[str]) -> int:
    """How many lines were logged at DEBUG."""
    return sum("DEBUG" in line[:80] for line in lines)


def _logging(facts: Facts) -> list[Pod]:
    return [*facts.targets.of("encode"), *facts.targets.of(consumers(facts.roles))]
