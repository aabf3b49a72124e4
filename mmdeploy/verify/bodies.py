"""Requests of known content, as an OpenAI client sends them."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from mmdeploy.verify.evidence import Medium
from mmdeploy.verify.pictures import COLOURS, Picture, picture

CHAT = "/v1/chat/completions"
NONCE_BYTES = 6
LONG_SENTENCES = 40
"""A prompt of about 700 tokens, as the guide's routing test: several KV blocks of any size in use."""

_SENTENCE = "The harbour keeps a list of every boat, its cargo and the hour at which it came in. "
_COLOUR_QUESTION = "What is the main colour of this picture? Answer with one word."


@dataclass(frozen=True)
class Planned:
    """A request that is to be sent."""

    id: str
    purpose: str
    body: Mapping[str, Any] | None
    """None for GET."""
    path: str = CHAT
    target: str = "entry"
    headers: Mapping[str, str] = field(default_factory=dict)
    nonce: str = ""
    expected: tuple[str, ...] = ()
    media: tuple[Medium, ...] = ()
    streamed: bool = False

    @property
    def method(self) -> str:
        """GET or POST."""
        return "GET" if self.body is None else "POST"

    @property
    def data(self) -> bytes | None:
        """The body as it travels."""
        return None if self.body is None else json.dumps(self.body, separators=(",", ":")).encode()


class Writer:
    """Writes requests that nobody else sends. ``random`` decides all of them, for tests; None: unpredictable."""

    def __init__(self, model: str, random: Random | None = None) -> None:
        self.model = model
        self._random = random or secrets.SystemRandom()

    def nonce(self) -> str:
        """Twelve hex digits."""
        return self._random.randbytes(NONCE_BYTES).hex()

    def picture(self, width: int | None = None, height: int | None = None, colour: str | None = None) -> Picture:
        """A new picture of a random colour; 64 pixels a side unless said otherwise."""
        size = {key: value for key, value in (("width", width), ("height", height)) if value}
        return picture(colour or self._random.choice(list(COLOURS)), self._random.randbytes(NONCE_BYTES), **size)

    def text(self, id: str, purpose: str = "text", *, target: str = "entry", **more: Any) -> Planned:
        """A sum: one right answer, which an echo of the question does not hold; and no picture."""
        nonce, one, other = self.nonce(), self._random.randint(11, 98), self._random.randint(11, 98)
        question = f"[{nonce}] What is {one} + {other}? Answer with the number only."
        body = self.body([_text(question)], max_tokens=32)
        return Planned(id, purpose, body, target=target, nonce=nonce, expected=(str(one + other),), **more)

    def colours(
        self, id: str, purpose: str, pictures: Sequence[Picture], *, target: str = "entry", **more: Any
    ) -> Planned:
        """The question after the main colour of each picture."""
        nonce = self.nonce()
        question = _COLOUR_QUESTION if len(pictures) == 1 else (
            f"These are {len(pictures)} pictures. What is the main colour of each? Answer with one word for each."
        )  # fmt: skip
        parts = [_image(item) for item in pictures] + [_text(f"[{nonce}] {question}")]
        return self._seen(id, purpose, parts, pictures, nonce, target=target, **more)

    def long(
        self,
        id: str,
        purpose: str,
        nonce: str,
        item: Picture,
        *,
        streamed: bool = True,
        target: str = "entry",
        **more: Any,
    ) -> Planned:
        """About 700 tokens of text that begin with ``nonce``, then a picture: the same nonce and picture make the same
        request, byte by byte."""
        parts = [_text(f"[{nonce}] {_SENTENCE * LONG_SENTENCES}{_COLOUR_QUESTION}"), _image(item)]
        return self._seen(id, purpose, parts, [item], nonce, streamed=streamed, target=target, **more)

    def endless(self, id: str, tokens: int, *, target: str) -> Planned:
        """A text of so many tokens, streamed. vLLM and SGLang both go on past the model's own end with ignore_eos."""
        nonce = self.nonce()
        parts = [_text(f"[{nonce}] Count upwards from 1, one number a line, and do not stop.")]
        body = {**self.body(parts, tokens, streamed=True), "ignore_eos": True}
        return Planned(id, "hold", body, target=target, nonce=nonce, streamed=True)

    def body(self, parts: Sequence[Mapping[str, Any]], max_tokens: int, streamed: bool = False) -> dict[str, Any]:
        """A chat request of one user message."""
        content: Any = parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else list(parts)
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "user", "content": content}],
            "max_tokens": max_tokens,
            "temperature": 0,
        }
        return {**body, "stream": True, "stream_options": {"include_usage": True}} if streamed else body

    def _seen(
        self,
        id: str,
        purpose: str,
        parts: Sequence[Mapping[str, Any]],
        pictures: Sequence[Picture],
        nonce: str,
        *,
        streamed: bool = False,
        target: str,
        **more: Any,
    ) -> Planned:
        return Planned(
            id,
            purpose,
            self.body(parts, max_tokens=32, streamed=streamed),
            target=target,
            nonce=nonce,
            expected=tuple(item.colour for item in pictures),
            media=tuple(item.medium for item in pictures),
            streamed=streamed,
            **more,
        )


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _image(item: Picture) -> dict[str, Any]:
    url = f"data:image/png;base64,{base64.b64encode(item.data).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}
