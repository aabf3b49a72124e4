"""Text is answered; an image is seen. A 200 proves neither: the answer has to say what only a reader could say."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mmdeploy.verify.evidence import Evidence, Sent
from mmdeploy.verify.facts import Facts
from mmdeploy.verify.judges.findings import contradicted, not_sent, proved
from mmdeploy.verify.pictures import COLOURS
from mmdeploy.verify.verdicts import Line, Verdict

_SHOWN = 80


def text(evidence: Evidence, facts: Facts) -> Verdict:
    """The sum that was asked for stands in the answer."""
    return _judge("text", list(evidence.of("text")), evidence, facts)


def image(evidence: Evidence, facts: Facts) -> Verdict:
    """The answer names the colour of a picture that nobody has sent before."""
    return _judge("image", list(evidence.of("image")), evidence, facts)


def symptom(sent: Sent) -> str | None:
    """What is wrong with an answer: ``no-answer``, ``http-503``, ``empty``, ``no-chat-answer``,
    ``broken-off``, ``off-topic``; None for a right one."""
    if sent.status is None:
        return "no-answer"
    if not sent.answered:
        return f"http-{sent.status}"
    if not sent.text.strip():
        broken = sent.error.startswith(("cut", "timeout"))
        return "broken-off" if broken else "no-chat-answer" if sent.error else "empty"
    return None if names(sent) else "off-topic"


def names(sent: Sent) -> bool:
    """Whether the answer names every expected word. Of colours it may name no other first: a list of all of them is no
    answer."""
    words = re.findall(r"[a-z]+|[0-9]+", sent.text.lower())
    if not set(sent.expected) <= set(words):
        return False
    wrong = [word for word in words if word in COLOURS and word not in sent.expected]
    right = [word for word in words if word in sent.expected]
    return not (sent.media and wrong) or (words.index(right[0]) < words.index(wrong[0]) and len(set(wrong)) < 2)


def _judge(claim: str, sent: Sequence[Sent], evidence: Evidence, facts: Facts) -> Verdict:
    if not sent:
        return not_sent(claim, evidence)
    found = [(item, symptom(item)) for item in sent]
    lines = [_line(item, wrong) for item, wrong in found]
    bad = [(item, wrong) for item, wrong in found if wrong is not None]
    if not bad:
        what = "the colour" if claim == "image" else "the sum"
        times = "" if len(sent) == 1 else f" in {len(sent)} of {len(sent)} requests"
        return proved(claim, f"the answer names {what} that was asked for{times}", lines)
    first, wrong = bad[0]
    said = {
        "no-answer": f"no answer: {first.error}",
        "empty": f"HTTP {first.status} with an empty answer",
        "no-chat-answer": f"HTTP {first.status}, and no chat answer: {_shown(first.error)}",
        "broken-off": f"HTTP {first.status}, but the answer broke off: {_shown(first.error)}",
        "off-topic": f"HTTP {first.status}, but the answer is {_shown(first.text)}, not {' and '.join(first.expected)}",
    }.get(str(wrong), f"HTTP {first.status}: {_shown(first.error) or 'no message'}")
    share = "" if len(sent) == 1 else f" ({len(bad)} of {len(sent)} requests)"
    return contradicted(claim, said + share, lines, [str(wrong) for _, wrong in bad], evidence, facts)


def _line(sent: Sent, wrong: str | None) -> Line:
    numbers = {
        "status": sent.status,
        "seconds": sent.seconds,
        "promptTokens": sent.prompt_tokens,
        "completionTokens": sent.usage.get("completion_tokens"),
        "symptom": wrong,
    }
    asked = f"a picture of {sent.expected[0]}" if sent.media else f"the sum {sent.expected[0]}"
    if sent.status is None:
        return Line(f"{sent.id}: asked for {asked}; no answer after {sent.seconds:.2f} s: {sent.error}", numbers)
    tokens = "" if sent.prompt_tokens is None else f", {sent.prompt_tokens} prompt tokens"
    model = sent.fields.get("model")
    by = f" by {model}" if model else ""
    return Line(
        f"{sent.id}: asked for {asked}; HTTP {sent.status}{by} in {sent.seconds:.2f} s{tokens}: "
        f"{_shown(sent.text or sent.error) or 'nothing'}",
        numbers,
    )


def _shown(said: str) -> str:
    text = " ".join(said.split())
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...") if text else ""
