"""The same requests as lines for a shell: for those who may only paste.

The probes run against a transport that writes down what it is asked to send and answers nothing, so what is printed is
what would be sent.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from mmdeploy import __version__
from mmdeploy.verify.evidence import Evidence
from mmdeploy.verify.facts import Facts
from mmdeploy.verify.run import Plan
from mmdeploy.verify.session import BudgetSpentError, Clock, Session
from mmdeploy.verify.targets import VARIABLE, Endpoint
from mmdeploy.verify.transport import Answer, Request

WIDTH = 1000
"""Characters of a body on one line."""
_END = "END"


@dataclass
class Paper:
    """A transport that only writes down."""

    asked: list[Request] = field(default_factory=list)

    def send(self, request: Request) -> Answer:
        """No answer."""
        self.asked.append(request)
        return Answer(None, trouble="unreachable")


Spelling = Callable[[Request], str]


def curl(asked: Request) -> str:
    """One request as a curl command; a token is named, never shown."""
    words = ["curl", "-sS"]
    if asked.method != "GET":
        words += ["-X", asked.method]
    words += [asked.endpoint.url + asked.path]
    for name, value in asked.headers.items():
        if name != "accept":
            words += ["-H", f"{name}: {value}"]
    return with_body(asked, shlex.join(words) + _token(asked.endpoint), "--data-binary @-")


def with_body(asked: Request, command: str, option: str) -> str:
    """A command that takes the request's body, if there is one, on its standard input, where ``option`` says so.

    A terminal takes no line of more than 4,095 bytes (``N_TTY_BUF_SIZE`` of Linux), so that a long body, which is one
    line of JSON, is folded, and put together again on its way.
    """
    if asked.body is None:
        return command
    body = asked.body.decode()
    if len(body) <= WIDTH:
        return f"printf %s {shlex.quote(body)} | {command} {option}"
    folded = [body[at : at + WIDTH] for at in range(0, len(body), WIDTH)]
    return "\n".join([f"tr -d '\\n' <<'{_END}' | {command} {option}", *folded, _END])


def lines(facts: Facts, planned: Plan, budget: int, random: Random | None = None, spell: Spelling = curl) -> list[str]:
    """A script: each request under a remark that says what it is for, and the counters between them."""
    paper = Paper()
    said: list[str] = []
    session = Session(
        facts,
        paper,
        Evidence(f"mmdeploy {__version__}", facts.targets.as_data()),
        budget,
        clock=Clock(now=lambda: 0.0, sleep=lambda seconds: None),
        random=random,
    )
    try:
        for probe in planned.probes:
            for number in range(planned.rounds(probe) if probe.name in ("roles", "quiet") or probe.cost(facts) else 0):
                begun = len(paper.asked)
                try:
                    probe.run(session, number)
                except BudgetSpentError as problem:
                    said += _told(probe.name, paper.asked[begun:], facts, spell)
                    return [*_counters(facts, spell), *said, f"# the budget of {budget} is spent before {problem}"]
                said += _told(probe.name, paper.asked[begun:], facts, spell)
    finally:
        session.close()
    return [*_counters(facts, spell), *said]


def _told(name: str, asked: Sequence[Request], facts: Facts, spell: Spelling) -> list[str]:
    pages = {endpoint.url for endpoint, _ in facts.targets.pages()}
    found = [f"# {name}"]
    for item in asked:
        line = "counters" if item.endpoint.url in pages and not item.path else spell(item)
        if line != found[-1]:
            found.append(line)
    return found if len(found) > 1 else []


def _counters(facts: Facts, spell: Spelling) -> list[str]:
    """A shell function that prints what is read of every page."""
    found = ["counters() {"]
    for endpoint, role in facts.targets.pages():
        names = sorted(facts.page(role).kept - set(facts.page(role).restarts))
        stem = f"^({'|'.join(names)})[{{ ]"
        page = spell(Request.of_page(endpoint, facts.metrics.patience["pageSeconds"]))
        found += [f"  echo {shlex.quote(f'== {endpoint.name} ({role})')}", f"  {page} | grep -E {shlex.quote(stem)}"]
    return [*found, "}"]


def _token(endpoint: Endpoint) -> str:
    """The option that sends a token. What is no name of a variable is quoted: a shell would run it."""
    kind, _, name = endpoint.token.partition(":")
    if kind == "env":
        value = f"${name}" if re.fullmatch(VARIABLE, name) else ""
    else:
        value = f"$(cat -- {shlex.quote(name)})" if kind == "file" else ""
    return f' -H "authorization: Bearer {value}"' if value else ""
