"""The router's guess at which prompts a pod holds: the approximate prefix index, and the tokens it is made of.

A request is one stream of tokens as the router counts them: four bytes of roles and text are a token, a medium is as
many equal tokens as it is priced at. The stream is cut into blocks of ``size`` tokens, the last one partial, and each
pod's blocks are remembered when a request is sent to it. Source: facts router.md sections 2.4 and 3.2;
router-observed.md, whose bisection reads prices from the size of what matched.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mmdeploy.estimator import bodies, gojson
from mmdeploy.estimator.items import Clip, Item, Picture, Sound
from mmdeploy.estimator.router import Estimator
from mmdeploy.rehearse.engine import Recent

_URLS = {"image_url": ("image_url", "url"), "video_url": ("video_url", "url"), "input_audio": ("input_audio", "data")}


@dataclass(frozen=True)
class Stream:
    """A request as the router counts it."""

    units: tuple[bytes, ...]
    """One for each token."""
    features: int
    """Media in it."""
    salt: bytes
    """What sets its first block apart: the model, and ``cache_salt``."""

    @property
    def tokens(self) -> int:
        """The price."""
        return len(self.units)

    def blocks(self, size: int, limit: int) -> list[bytes]:
        """Hashes of its blocks, the partial last one too, over the first ``limit`` tokens (0: all)."""
        chain = hashlib.blake2b(self.salt, digest_size=8)
        found = []
        units = self.units[:limit] if limit else self.units
        for at in range(0, len(units), size):
            chain.update(b"\0".join(units[at : at + size]) + b"\0\0")
            found.append(chain.digest())
        return found


def stream(body: Mapping[str, Any], request: bodies.Request, price: Callable[[Item], int]) -> Stream:
    """The stream of a chat request that the router has read as ``request``; other APIs are text of the same length."""
    salt = f"{body.get('model')}\0{body.get('cache_salt') or ''}".encode("utf-8", "surrogatepass")
    messages = body.get("messages")
    if not isinstance(messages, list):
        pieces = _pieces(_utf8(repr(body.get("prompt") or body.get("input"))))[: request.text_tokens]
        return Stream((*pieces, *[b"."] * (request.text_tokens - len(pieces))), 0, salt)
    items = iter(request.items)
    units: list[bytes] = []
    text = bytearray(_tools(body.get("tools")))
    for message in filter(None, messages):
        text += _utf8(message.get("role"))
        content = message.get("content")
        for part in filter(None, content if isinstance(content, list) else [{"type": "text", "text": content}]):
            kind = part.get("type")
            if kind == "text":
                text += _utf8(part.get("text"))
            elif kind in _URLS or kind == "audio_url":
                units += _pieces(bytes(text))
                text.clear()
                units += [_identity(part, str(kind))] * price(next(items))
    units += _pieces(bytes(text))
    return Stream(tuple(units), len(request.items), salt)


def pricing(estimator: Estimator) -> Callable[[Item], int]:
    """What the router charges for one medium."""

    def price(item: Item) -> int:
        match item:
            case Picture() if item.hidden:
                return estimator.image_unseen()
            case Picture():
                return estimator.image(item.width, item.height)
            case Clip():
                return estimator.video_with(item.said, url_bytes=item.url_bytes)
            case Sound():
                return estimator.audio_inline(item.inline_bytes) if item.inline_bytes else estimator.audio_url()
            case _:
                return item.tokens

    return price


class Index:
    """Blocks that each pod is thought to hold."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: dict[str, Recent] = {}

    def matched(self, pod: str, blocks: list[bytes]) -> int:
        """How many of the first ``blocks`` the pod holds in a row."""
        held = self._held.get(pod)
        if held is None:
            return 0
        return next((at for at, block in enumerate(blocks) if block not in held), len(blocks))

    def remember(self, pod: str, blocks: list[bytes]) -> None:
        """A request with these blocks was sent to the pod."""
        held = self._held.setdefault(pod, Recent(self._limit))
        for block in blocks:
            held.add(block)

    def __len__(self) -> int:
        return sum(len(held) for held in self._held.values())


def _identity(part: Mapping[str, Any], kind: str) -> bytes:
    """By the URL's text, not by what it holds; all audio URLs are one."""
    outer, inner = _URLS.get(kind, ("", ""))
    value = part.get(outer)
    text = value.get(inner) if isinstance(value, Mapping) else ""
    return hashlib.blake2b(_utf8(text), digest_size=8).digest()


def _tools(tools: Any) -> bytes:
    """As many bytes as the router counts of them."""
    if not tools:
        return b""
    counted = gojson.length(tools)
    return json.dumps(tools).encode()[:counted].ljust(counted, b".")


def _pieces(text: bytes) -> list[bytes]:
    return [text[at : at + 4] for at in range(0, len(text), 4)]


def _utf8(value: Any) -> bytes:
    return str(value or "").encode("utf-8", "surrogatepass")
