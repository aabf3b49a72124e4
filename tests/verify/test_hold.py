"""``--hold``: one answer that is kept coming, sent only where it is asked for, last, and within the budget."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from mmdeploy.verify import run
from mmdeploy.verify.evidence import Evidence, Sent
from mmdeploy.verify.probes import hold
from mmdeploy.verify.run import Settings
from mmdeploy.verify.session import Clock, Session
from mmdeploy.verify.transport import HttpTransport
from tests.verify.made import facts
from tests.verify.simulated import stage

KNOWN = facts({"topology": "aggregation", "pods": {"decode": 1}, "picker": False})
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = b'data: {"choices": [{"delta": {"content": "1"}}]}\n\n'


@contextmanager
def streaming(events: int) -> Iterator[str]:
    """An entry point that sends so many tokens, one in 0.05 s, and then breaks off without an end."""
    listener = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            try:
                connection.sendall(HEAD)
                for _ in range(events):
                    connection.sendall(b"%x\r\n%s\r\n" % (len(EVENT), EVENT))
                    if ended.wait(0.05):
                        return
            except OSError:
                return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        ended.set()
        listener.close()
        thread.join(5)


def held(url: str, seconds: float) -> Sent:
    entry = replace(KNOWN.targets.entry, url=url)
    known = replace(KNOWN, targets=replace(KNOWN.targets, entry=entry))
    session = Session(known, HttpTransport(), Evidence("mmdeploy", {}), 1, random=Random(1), hold=seconds)
    hold.run(session, 0)
    session.close()
    return session.evidence.requests[0]


def test_an_answer_that_keeps_coming_is_ended_from_here() -> None:
    with streaming(events=1000) as url:
        sent = held(url, 0.5)
    assert (sent.status, sent.error) == (200, "timeout: not all of it within 0.5 s")
    assert 0.5 <= sent.seconds < 1.5


def test_an_answer_that_something_cuts_is_cut() -> None:
    with streaming(events=3) as url:
        sent = held(url, 5)
    assert sent.status == 200
    assert sent.error.startswith("cut")
    assert 0.1 <= sent.seconds < 2


@pytest.mark.parametrize("seconds", [0.0, 30.0])
def test_it_is_sent_last_and_only_where_it_is_asked_for(seconds: float, tmp_path: Path) -> None:
    built = stage("aggregation", tmp_path)
    plan = run.plan(built.facts, ("text", "entry"), 1, hold=bool(seconds))
    clock = Clock(built.clock.now, built.clock.sleep)
    settings = Settings(60.0, clock, Random(0), hold=seconds)
    evidence = run.collect(built.facts, plan, built.wire, plan.requests, settings, lambda line: None)
    purposes = [sent.purpose for sent in evidence.requests if sent.method == "POST"]
    assert purposes.count("hold") == bool(seconds)
    assert len(purposes) == plan.requests
    assert not seconds or purposes[-1] == "hold"
    outcome = run.judge(built.facts, evidence, plan.claims)
    assert not outcome.contradicted
    assert not outcome.unseen
