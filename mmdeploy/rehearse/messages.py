"""Requests and replies as plain data, so that engines, sidecars and the router are functions and need no sockets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
METRICS = "text/plain; version=0.0.4; charset=utf-8"
EVENTS = "text/event-stream; charset=utf-8"


@dataclass(frozen=True)
class Message:
    """One HTTP request. Header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @cached_property
    def content(self) -> Any:
        """The body as JSON; None for a body that is none. Halves of surrogate pairs, which nobody can write down again,
        are question marks."""
        try:
            return _writable(json.loads(self.body))
        except (ValueError, RecursionError):
            return None

    def with_headers(self, **changes: str | None) -> Message:
        """The same request with some headers set (``_`` stands for ``-``) or, with None, taken away."""
        named = {name.replace("_", "-"): value for name, value in changes.items()}
        kept = {name: value for name, value in self.headers.items() if name not in named}
        return Message(self.method, self.path, {**kept, **{k: v for k, v in named.items() if v is not None}}, self.body)


@dataclass
class Reply:
    """One HTTP answer: whole, or as chunks that are made while they are sent."""

    status: int
    content: Any = None
    """JSON data, or text, or bytes."""
    kind: str = JSON
    chunks: Iterator[bytes] | None = None
    """Of an answer that streams; ``content`` is then not looked at."""
    headers: Mapping[str, str] = field(default_factory=dict)

    def encoded(self) -> bytes:
        """The body of an answer that does not stream."""
        if isinstance(self.content, bytes):
            return self.content
        if isinstance(self.content, str):
            return self.content.encode()
        return json.dumps(self.content, separators=(",", ":")).encode() if self.content is not None else b""


def _writable(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_writable(key): _writable(item) for key, item in value.items()}
    return [_writable(item) for item in value] if isinstance(value, list) else value


Handler = Callable[[Message], Reply]
"""Whatever answers: an engine, a sidecar, the entry point, the picker's metrics."""


class UnreachableError(Exception):
    """Nothing answers at an address: a stopped pod, a wrong port, a pod without the process."""


def post(path: str, body: Any, headers: Mapping[str, str] | None = None) -> Message:
    """A POST of JSON."""
    return Message("POST", path, {"content-type": JSON, **(headers or {})}, json.dumps(body).encode())


def refusal(status: int, text: str, kind: str = "BadRequestError") -> Reply:
    """An error as both engines word it."""
    return Reply(status, {"error": {"message": text, "type": kind, "param": None, "code": status}})
