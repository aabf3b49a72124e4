"""What all simulated engines share: their HTTP surface, caches, logs and answers."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mmdeploy.rehearse import prompts
from mmdeploy.rehearse.messages import METRICS, Message, Reply, refusal
from mmdeploy.rehearse.prompts import Prompt, Tokenizer
from mmdeploy.rehearse.series import Registry, families, numbers
from mmdeploy.rehearse.settings import Clock, PodSettings, Timings

LOG_LINES = 2000
"""Kept of each engine's log."""

_SUM = re.compile(r"(\d{1,6})\s*(?:\+|plus)\s*(\d{1,6})")


class Recent:
    """A set that forgets what was used least recently."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: OrderedDict[Any, None] = OrderedDict()

    def __contains__(self, item: object) -> bool:
        return item in self._held

    def __len__(self) -> int:
        return len(self._held)

    def add(self, item: Any) -> None:
        """Put in, or mark as just used."""
        self._held[item] = None
        self._held.move_to_end(item)
        if len(self._held) > self._limit:
            self._held.popitem(last=False)


@dataclass(frozen=True)
class Surroundings:
    """What an engine needs of the world."""

    clock: Clock
    timings: Timings
    facts: Mapping[str, Any]
    """``catalog/rehearse.yaml``."""
    send: Callable[[str, int, Message], Reply]
    """A request to another pod; raises `UnreachableError`."""
    peer: Callable[[str, int], Any]
    """The engine behind a side channel's host and port; None where nobody answers."""
    named: Callable[[str, int], tuple[str, int] | None]
    """Where a pod's port answers, by the host name that its headless Service gives it."""


@dataclass(frozen=True)
class Answer:
    """What an engine says."""

    text: str
    tokens: int
    reason: str


class Engine(ABC):
    """One engine process. Calling it with a request is asking it over HTTP."""

    def __init__(self, pod: PodSettings, around: Surroundings) -> None:
        self.pod, self.settings, self.around = pod, pod.engine, around
        facts = around.facts["engines"]
        template = facts["template"]
        self.tokenizer = Tokenizer(
            facts["charactersPerToken"], template["message"], template["media"], template["answer"]
        )
        self.lock = threading.RLock()
        self._numbers = 0
        self.logs: deque[str] = deque(maxlen=LOG_LINES)
        self.restart()

    def restart(self) -> None:
        """Start anew: counters at 0, caches and log empty."""
        with self.lock:
            facts, section = self.around.facts["engines"], self.around.facts[self.settings.server]
            self.logs.clear()
            self.pictures = Recent(facts["cachedPictures"])
            self.encodings = Recent(facts["cachedPictures"])
            self.blocks = Recent(facts["cachedBlocks"])
            having = frozenset({"nixl"} if self.settings.kv else ())
            self.metrics = Registry(
                families(section, numbers(self.settings.version), having),
                self.common_labels(),
                section["created"],
                self.around.clock.now,
                self.around.timings.lag,
                self.pod.skew,
            )
            self.started()

    @abstractmethod
    def common_labels(self) -> dict[str, str]:
        """Labels of every series."""

    @abstractmethod
    def started(self) -> None:
        """Set the gauges that stand from the start."""

    @abstractmethod
    def routes(self) -> Mapping[tuple[str, str], Callable[[Message], Reply]]:
        """What answers by method and path, beside what every engine has."""

    def __call__(self, message: Message) -> Reply:
        """Answer one request."""
        path = message.path.partition("?")[0]
        known = {("GET", "/health"): _alive, ("GET", "/metrics"): self._scraped, **self.routes()}
        found = known.get((message.method, path))
        if found is None:
            if any(path == other for _, other in known):
                return Reply(405, {"detail": "Method Not Allowed"})
            return Reply(404, {"detail": "Not Found"})
        return found(message)

    def _scraped(self, message: Message) -> Reply:
        with self.lock:
            return Reply(200, self.metrics.text(), METRICS)

    def log(self, level: str, text: str) -> None:
        """Write a line; DEBUG lines only where the level is on."""
        if level != "DEBUG" or self.settings.debug:
            self.logs.append(f"{level} {text}")

    def wait(self, seconds: float) -> None:
        """Take so long."""
        if seconds:
            self.around.clock.sleep(seconds)

    def next_id(self) -> str:
        """A request's id, from nothing but the pod's name and a count."""
        with self.lock:
            self._numbers += 1
            return hashlib.sha256(f"{self.pod.name}/{self._numbers}".encode()).hexdigest()[:32]

    def refused_model(self, body: Any) -> Reply | None:
        """404 for another model than the one that is served, 400 for no JSON object."""
        if not isinstance(body, dict):
            return refusal(400, "the body is no JSON object")
        if body.get("model") != self.settings.served:
            return refusal(404, f"The model `{body.get('model')}` does not exist.", "NotFoundError")
        return None

    def prompt_of(self, body: Mapping[str, Any]) -> Prompt:
        """Raises `prompts.RefusedError`."""
        return prompts.read(body, self.settings.family, self.tokenizer)

    def cached_tokens(self, prompt: Prompt) -> int:
        """Prompt tokens whose KV blocks are there, in whole blocks; the last token is always computed. The prompt's own
        blocks are then kept."""
        if not self.settings.prefix_caching:
            return 0
        hits = 0
        blocks = prompt.blocks(self.settings.block_size)
        for block in blocks[: (prompt.tokens - 1) // self.settings.block_size]:
            if block not in self.blocks:
                break
            hits += self.settings.block_size
        for block in blocks:
            self.blocks.add(block)
        return hits

    def answer(self, prompt: Prompt, body: Mapping[str, Any]) -> Answer:
        """What the model says to a prompt."""
        limit = body.get("max_completion_tokens", body.get("max_tokens"))
        text = _ANSWERS[self.settings.answers](prompt)
        tokens = self.tokenizer.count(text)
        if isinstance(limit, int) and 0 < limit < tokens:
            return Answer(text[: limit * self.tokenizer.characters], limit, "length")
        return (
            Answer(text, tokens + 1, "stop") if tokens + 1 <= (limit or tokens + 1) else Answer(text, tokens, "length")
        )

    def models(self, message: Message) -> Reply:
        """``/v1/models``."""
        entry = {"id": self.settings.served, "object": "model", "owned_by": self.settings.server}
        return Reply(200, {"object": "list", "data": [{**entry, "root": self.settings.model}]})


def said(prompt: Prompt) -> str:
    """The colours of the pictures, the sum that was asked for, or the question given back."""
    if prompt.media:
        colours = [medium.colour or "something" for medium in prompt.media if medium.modality == "image"]
        if not colours:
            return f"I see {', '.join(medium.modality for medium in prompt.media)}."
        return f"The picture is {colours[0]}." if len(colours) == 1 else f"The pictures are {' and '.join(colours)}."
    found = _SUM.search(prompt.text)
    if found:
        return str(int(found[1]) + int(found[2]))
    return f"You said: {prompt.text[-200:]}"


def _garbage(prompt: Prompt) -> str:
    """Letters, the same for the same prompt."""
    return "".join(chr(0x4E00 + byte) for byte in hashlib.sha256(prompt.text.encode()).digest())


_ANSWERS: Mapping[str, Callable[[Prompt], str]] = {
    "true": said,
    "empty": lambda prompt: "",
    "garbage": _garbage,
    "blind": lambda prompt: "I cannot see any picture." if prompt.media else said(prompt),
}


def _alive(message: Message) -> Reply:
    return Reply(200, "")


def completion(name: str, model: str, prompt: int, answer: Answer, more: Mapping[str, Any]) -> dict[str, Any]:
    """A chat completion's JSON."""
    message = {"role": "assistant", "content": answer.text}
    usage = {"prompt_tokens": prompt, "completion_tokens": answer.tokens, "total_tokens": prompt + answer.tokens}
    choice = {"index": 0, "message": message, "finish_reason": answer.reason}
    head = {"id": f"chatcmpl-{name}", "object": "chat.completion", "created": 0, "model": model}
    return {**head, "choices": [choice], "usage": usage, **more}


def event(content: Mapping[str, Any] | str) -> bytes:
    """One server-sent event."""
    text = content if isinstance(content, str) else json.dumps(content, separators=(",", ":"))
    return f"data: {text}\n\n".encode()


def streamed(
    name: str, model: str, prompt: int, answer: Answer, *, usage: bool, pieces: Iterator[str], pause: Callable[[], None]
) -> Iterator[bytes]:
    """A chat completion's events: one a token, then the reason it ended, then the usage where it was asked for."""
    head = {"id": f"chatcmpl-{name}", "object": "chat.completion.chunk", "created": 0, "model": model}

    def chunk(delta: Mapping[str, Any], reason: str | None) -> bytes:
        return event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})

    yield chunk({"role": "assistant", "content": ""}, None)
    for number, piece in enumerate(pieces):
        if number:
            pause()
        yield chunk({"content": piece}, None)
    yield chunk({}, answer.reason)
    if usage:
        counted = {"prompt_tokens": prompt, "completion_tokens": answer.tokens, "total_tokens": prompt + answer.tokens}
        yield event({**head, "choices": [], "usage": counted})
    yield event("[DONE]")
