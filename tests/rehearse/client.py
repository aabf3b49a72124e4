"""Requests as a client sends them, and metrics as a scraper reads them. Shares no code with what it tests."""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from mmdeploy.rehearse.deployment import Deployment
from mmdeploy.rehearse.messages import Handler, Message, Reply

RED, BLUE = (230, 20, 20), (20, 40, 230)
CHAT = "/v1/chat/completions"


class HeldClock:
    """Time that moves when somebody sleeps, or is told to."""

    def __init__(self) -> None:
        self.time = 1_000_000.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


def png(width: int, height: int, colour: tuple[int, int, int], corner: int = 0) -> bytes:
    """A picture of one colour; ``corner`` sets its first pixel apart."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    row = b"\0" + bytes(colour) * width
    first = b"\0" + bytes((corner, 0, 0)) + row[4:] if corner else row
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress(first + row * (height - 1), 1)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def image(width: int = 64, height: int = 64, colour: tuple[int, int, int] = RED, corner: int = 0) -> dict[str, Any]:
    data = base64.b64encode(png(width, height, colour, corner)).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def body(model: str, *parts: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": model, "max_tokens": 16, **more, "messages": [{"role": "user", "content": list(parts)}]}


def chat(
    to: Handler, model: str, *parts: Mapping[str, Any], headers: Mapping[str, str] | None = None, **more: Any
) -> Reply:
    """A chat request to a handler."""
    return to(Message("POST", CHAT, headers or {}, json.dumps(body(model, *parts, **more)).encode()))


def said(reply: Reply) -> str:
    """The text of an answer that does not stream."""
    return str(reply.content["choices"][0]["message"]["content"])


Counters = dict[tuple[str, str], float]


_SAMPLE = re.compile(r"^([^#{ ]+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def samples(page: str) -> list[tuple[str, dict[str, str], float]]:
    """Every sample of a page; test_series.py holds this reader against Prometheus' own."""
    return [(name, dict(_LABEL.findall(labels)), float(value)) for name, labels, value in _SAMPLE.findall(page)]


def total(page: str, name: str, **labels: str) -> float:
    """All series of one name together. Raises KeyError where there is none."""
    found = [value for known, at, value in samples(page) if known == name and labels.items() <= at.items()]
    if not found:
        raise KeyError(name)
    return sum(found)


class Watch:
    """Differences of counters over the pods of a deployment since the watch was made, or reset."""

    def __init__(self, deployment: Deployment, *, picker: bool = True) -> None:
        self.deployment, self._picker = deployment, picker
        self.reset()

    def _pages(self) -> dict[str, str]:
        pages = {}
        for name, pod in self.deployment.pods.items():
            reply = pod.engine(Message("GET", "/metrics"))
            assert reply.status == 200
            pages[name] = str(reply.content)
        if self._picker:
            pages["picker"] = str(self.deployment.scrape_picker(Message("GET", "/metrics")).content)
        return pages

    def reset(self) -> None:
        self._before = {name: self._flat(page) for name, page in self._pages().items()}

    @staticmethod
    def _flat(page: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        return {(name, frozenset(at.items())): value for name, at, value in samples(page)}

    def moved(self, name: str, **labels: str) -> dict[str, float]:
        """By pod (or ``picker``), what the series of ``name`` rose by; those that did not move are left out."""
        found: dict[str, float] = defaultdict(float)
        for pod, page in self._pages().items():
            for (known, at), value in self._flat(page).items():
                if known == name and labels.items() <= dict(at).items():
                    found[pod] += value - self._before.get(pod, {}).get((known, at), 0)
        return {pod: value for pod, value in found.items() if value}

    def by(self, name: str, label: str) -> dict[str, float]:
        """Of the picker, what the series of ``name`` rose by, by one label."""
        found: dict[str, float] = defaultdict(float)
        for (known, at), value in self._flat(self._pages()["picker"]).items():
            if known == name:
                found[dict(at)[label]] += value - self._before["picker"].get((known, at), 0)
        return {key: value for key, value in found.items() if value}

    def roles(self, name: str, **labels: str) -> dict[str, float]:
        """As `moved`, by role."""
        found: dict[str, float] = defaultdict(float)
        for pod, value in self.moved(name, **labels).items():
            found[pod.rpartition("-")[0] or pod] += value
        return dict(found)


Start = Callable[..., Deployment]
