"""A chat request as an engine reads it: a prompt of so many tokens, with the media in it.

The stand-in's tokenizer takes four characters a token, each part of a message rounded up; its chat template adds a
fixed number around each message, each medium and the answer (``engines.template`` of ``catalog/rehearse.yaml``).
Pictures take what the model's own processor takes (`mmdeploy.estimator.visual`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mmdeploy.catalog.families import Family
from mmdeploy.errors import UsageError
from mmdeploy.estimator import audio, bodies, video
from mmdeploy.estimator.items import Clip, Sound
from mmdeploy.estimator.router import VideoMetadata
from mmdeploy.estimator.visual import image_tokens
from mmdeploy.rehearse import pictures

MODALITIES = {"image_url": "image", "video_url": "video", "audio_url": "audio", "input_audio": "audio"}
"""Parts that an encoder is asked for, and what they hold."""


class RefusedError(Exception):
    """The engine answers 400; ``str`` says why."""


@dataclass(frozen=True)
class Tokenizer:
    """How long a prompt is."""

    characters: int
    """Characters a token."""
    message: int
    media: int
    answer: int
    """Tokens around a message, a medium, and before the answer."""

    def count(self, text: str) -> int:
        """Tokens of one piece of text."""
        return -(-len(text) // self.characters)

    def pieces(self, text: str) -> Iterator[str]:
        """Its tokens."""
        for at in range(0, len(text), self.characters):
            yield text[at : at + self.characters]


@dataclass(frozen=True)
class Medium:
    """One picture, video or sound of a prompt."""

    modality: str
    tokens: int
    digest: str
    """Identity by content, as the engine's hash."""
    colour: str = ""
    width: int = 0
    height: int = 0


@dataclass(frozen=True)
class Prompt:
    """What a request comes to."""

    units: tuple[str, ...]
    """One for each token; equal prefixes of two prompts have equal units."""
    media: tuple[Medium, ...]
    """In order; the same picture twice stands here twice."""
    text: str
    """The last message's text."""

    @property
    def tokens(self) -> int:
        """``usage.prompt_tokens``."""
        return len(self.units)

    def blocks(self, size: int) -> list[bytes]:
        """Hashes of the whole KV blocks, each of everything up to its end."""
        found, chain = [], hashlib.blake2b(digest_size=16)
        for at in range(0, len(self.units) - size + 1, size):
            chain.update("\x1f".join(self.units[at : at + size]).encode("utf-8", "surrogatepass"))
            found.append(chain.digest())
        return found


def read(body: Mapping[str, Any], family: Family, tokenizer: Tokenizer) -> Prompt:
    """The prompt of a chat request. Raises `RefusedError` for what an engine refuses."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RefusedError("messages must be a list of at least one message")
    units: list[str] = []
    media: list[Medium] = []
    text = ""
    for message in messages:
        if not isinstance(message, Mapping):
            raise RefusedError("a message must be an object")
        units += [f"<{message.get('role', '')}>"] * tokenizer.message
        texts = []
        for part in _parts(message.get("content")):
            if isinstance(part, str):
                texts.append(part)
                units += tokenizer.pieces(part)
            else:
                medium = _medium(part, family)
                media.append(medium)
                units += [f"<{medium.modality}>"] * tokenizer.media + [medium.digest] * medium.tokens
        text = "\n".join(texts)
    units += ["<answer>"] * tokenizer.answer
    return Prompt(tuple(units), tuple(media), text)


def _parts(content: Any) -> Iterator[str | Mapping[str, Any]]:
    """Text, and media parts, in order."""
    if content is None:
        return
    if isinstance(content, str):
        yield content
        return
    if not isinstance(content, list):
        raise RefusedError("content must be text or a list of parts")
    for part in content:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind == "text":
            yield str(part.get("text") or "")
        elif kind in MODALITIES:
            yield part
        else:
            raise RefusedError(f"unknown part type {kind!r}")


def _medium(part: Mapping[str, Any], family: Family) -> Medium:
    modality = MODALITIES[part["type"]]
    if modality not in family.modalities:
        raise RefusedError(f"At most 0 {modality}(s) may be provided in one prompt.")
    if modality == "image":
        return _picture(part, family)
    try:
        item, digest = _heard(part) if modality == "audio" else _clip(part)
        if isinstance(item, Sound):
            return Medium(modality, audio.audio_tokens(family, item.seconds), digest)
        counted = video.video_tokens(family, item.width, item.height, item.fps, item.duration)
        return Medium(modality, counted.visual + counted.text, digest, width=item.width, height=item.height)
    except UsageError as refusal:
        raise RefusedError(refusal.found) from None


def _picture(part: Mapping[str, Any], family: Family) -> Medium:
    url = _field(part, "image_url", "url")
    try:
        seen = pictures.look(url)
        tokens = image_tokens(family, seen.width, seen.height)
    except pictures.UnreadableError as problem:
        raise RefusedError(str(problem)) from None
    except UsageError as refusal:
        raise RefusedError(refusal.found) from None
    return Medium("image", tokens, str(part.get("uuid") or seen.digest), seen.colour, seen.width, seen.height)


def _clip(part: Mapping[str, Any]) -> tuple[Clip, str]:
    url = _field(part, "video_url", "url")
    item = bodies.read({"messages": [{"role": "user", "content": [part]}]}).items[0]
    if not isinstance(item, Clip) or item.unread or item.said != VideoMetadata():
        raise RefusedError("cannot read the video")
    return item, _digest(url)


def _heard(part: Mapping[str, Any]) -> tuple[Sound, str]:
    item = bodies.read({"messages": [{"role": "user", "content": [part]}]}).items[0]
    if not isinstance(item, Sound) or item.unread or not item.seconds:
        raise RefusedError("cannot read the sound")
    return item, _digest(_field(part, "input_audio", "data"))


def _field(part: Mapping[str, Any], outer: str, inner: str) -> str:
    value = part.get(outer)
    found = value.get(inner) if isinstance(value, Mapping) else None
    if not isinstance(found, str):
        raise RefusedError(f"{outer} must be an object with {inner!r}")
    return found


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
