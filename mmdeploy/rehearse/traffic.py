"""Requests of others, at a steady rate, each different from all before it.

They are sent when somebody looks: whoever asks anything first lets those happen that were due since. So a rehearsal
with a clock that a test holds has exactly the traffic that the rate says.
"""

from __future__ import annotations

import base64
import random
import struct
import threading
import zlib

from mmdeploy.rehearse.messages import Handler, UnreachableError, post
from mmdeploy.rehearse.settings import Clock, Traffic

AT_ONCE = 500
"""Most requests that are made up for at one time."""

_SIZES = ((64, 64), (128, 128), (256, 128))


class Others:
    """Background clients."""

    def __init__(self, traffic: Traffic, model: str, clock: Clock, entry: Handler, seed: int) -> None:
        self._traffic, self._model, self._clock, self._entry = traffic, model, clock, entry
        self._lot = random.Random(f"others/{seed}")
        self._upto = clock.now()
        self._lock = threading.Lock()

    def catch_up(self) -> None:
        """Send what was due since the last time."""
        if not self._traffic.rate or not self._lock.acquire(blocking=False):
            return
        try:
            due = int((self._clock.now() - self._upto) * self._traffic.rate)
            self._upto += due / self._traffic.rate
            for _ in range(min(due, AT_ONCE)):
                self._one()
        finally:
            self._lock.release()

    def _one(self) -> None:
        nonce = f"{self._lot.getrandbits(64):016x}"
        content: list[dict[str, object]] = [
            {"type": "text", "text": f"{nonce} " + "What is new? " * self._lot.randint(1, 20)}
        ]
        if self._lot.random() < self._traffic.pictures:
            content.append({"type": "image_url", "image_url": {"url": self._picture()}})
        body = {"model": self._model, "messages": [{"role": "user", "content": content}], "max_tokens": 16}
        try:
            reply = self._entry(post("/v1/chat/completions", body))
        except UnreachableError:
            return
        for _ in reply.chunks or ():
            pass

    def _picture(self) -> str:
        width, height = self._lot.choice(_SIZES)
        pixel = bytes(self._lot.randrange(256) for _ in range(3))
        return "data:image/png;base64," + base64.b64encode(png(width, height, pixel)).decode()


def png(width: int, height: int, pixel: bytes) -> bytes:
    """A picture of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress((b"\0" + pixel * width) * height, 1)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
