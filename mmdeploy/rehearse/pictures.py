"""What a simulated engine sees in a picture: its size, its identity and its dominant colour.

Colours are read from non-interlaced PNGs of 8 bits a sample, which is what probes send; other formats are recognised
by their header, and their colour stays unknown.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
import zlib
from collections import Counter
from dataclasses import dataclass

from mmdeploy.errors import UsageError
from mmdeploy.estimator.media import read_header

_CHANNELS = {0: 1, 2: 3, 4: 2, 6: 4}
"""Samples a pixel of PNG's colour types; palettes (3) are left out."""

UNPACKED = 8 << 20
"""Bytes of a picture that are unpacked, from the top."""

UNFILTERED = 1 << 20
"""... and that are looked at where its rows are filtered, which is slow to undo here."""

SAMPLED = 256
"""Pixels that are looked at."""

COLOURS = {
    "black": (0, 0, 0),
    "white": (255, 255, 255),
    "grey": (128, 128, 128),
    "red": (220, 30, 30),
    "green": (30, 160, 50),
    "blue": (30, 60, 220),
    "yellow": (240, 220, 30),
    "orange": (245, 140, 20),
    "purple": (140, 40, 170),
    "pink": (245, 140, 190),
    "brown": (130, 80, 40),
    "cyan": (40, 210, 220),
    "magenta": (230, 30, 220),
}


@dataclass(frozen=True)
class Seen:
    """One picture."""

    width: int
    height: int
    digest: str
    """Identity by content: the same bytes through another URL are the same picture to an engine."""
    colour: str
    """Name of the dominant colour; empty where it cannot be told."""


_REMEMBERED = 512
_SEEN: dict[bytes, Seen] = {}


class UnreadableError(Exception):
    """What a part holds is no picture; ``str`` says why, as the client is told."""


def look(url: str) -> Seen:
    """The picture in a data URL. Raises `UnreadableError` for every other URL, and for what is no picture.

    Each pod that a request passes looks at its pictures: what was seen last is remembered.
    """
    key = hashlib.blake2b(url.encode(), digest_size=16).digest()
    seen = _SEEN.get(key)
    if seen is None:
        seen = _look(url)
        if len(_SEEN) >= _REMEMBERED:
            _SEEN.clear()
        _SEEN[key] = seen
    return seen


def _look(url: str) -> Seen:
    if not url.startswith("data:"):
        raise UnreadableError("a rehearsal fetches nothing: send the picture in the request, as a data URL")
    payload = url.partition("base64,")[2]
    try:
        data = base64.b64decode(payload, validate=True)
    except binascii.Error:
        raise UnreadableError("the data URL does not hold base64") from None
    try:
        header = read_header(data)
    except UsageError as refusal:
        raise UnreadableError(f"cannot identify the image: {refusal.found}") from None
    colour = _colour(data) if header.format == "png" else ""
    return Seen(header.width, header.height, hashlib.sha256(data).hexdigest(), colour)


def name_of(red: int, green: int, blue: int) -> str:
    """The nearest of `COLOURS`."""
    return min(
        COLOURS, key=lambda name: sum((a - b) ** 2 for a, b in zip(COLOURS[name], (red, green, blue), strict=True))
    )


def _colour(data: bytes) -> str:
    try:
        pixels = _pixels(data)
    except (zlib.error, struct.error, IndexError, ValueError):
        return ""
    return name_of(*Counter(pixels).most_common(1)[0][0]) if pixels else ""


def _pixels(data: bytes) -> list[tuple[int, int, int]]:
    """Some pixels, evenly spread; [] for a kind of PNG that is not read."""
    width, height, depth, kind, _, _, interlace = struct.unpack_from(">IIBBBBB", data, 16)
    channels = _CHANNELS.get(kind, 0)
    if depth != 8 or interlace or not channels:
        return []
    raw = zlib.decompressobj().decompress(b"".join(_chunks(data, b"IDAT")), UNPACKED)
    rows = _rows(raw, width * channels, height, channels)
    step = max(1, width * len(rows) // SAMPLED)
    found = []
    for at in range(0, width * len(rows), step):
        row, column = rows[at // width], at % width * channels
        found.append(_rgb(row[column : column + channels]))
    return found


def _rgb(sample: bytes) -> tuple[int, int, int]:
    return (sample[0], sample[1], sample[2]) if len(sample) > 2 else (sample[0], sample[0], sample[0])


def _chunks(data: bytes, wanted: bytes) -> list[bytes]:
    found, at = [], 8
    while at + 8 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        if kind == wanted:
            found.append(data[at + 8 : at + 8 + length])
        at += 12 + length
    return found


def _rows(raw: bytes, stride: int, height: int, channels: int) -> list[bytes]:
    """Scan lines without PNG's filters, as many as are to be looked at."""
    whole = min(height, len(raw) // (stride + 1))
    starts = range(0, whole * (stride + 1), stride + 1)
    if not any(raw[start] for start in starts):
        return [raw[start + 1 : start + 1 + stride] for start in starts]
    rows: list[bytes] = []
    before = bytes(stride)
    for start in starts[: max(1, UNFILTERED // stride)]:
        before = _unfiltered(raw[start], raw[start + 1 : start + 1 + stride], before, channels)
        rows.append(before)
    return rows


def _unfiltered(kind: int, line: bytes, above: bytes, channels: int) -> bytes:
    if kind == 0:
        return line
    out = bytearray(line)
    for at in range(len(out)):
        left = out[at - channels] if at >= channels else 0
        corner = above[at - channels] if at >= channels else 0
        predicted = (left, above[at], (left + above[at]) // 2, _paeth(left, above[at], corner))[kind - 1]
        out[at] = (out[at] + predicted) & 255
    return bytes(out)


def _paeth(left: int, above: int, corner: int) -> int:
    guess = left + above - corner
    return min((left, above, corner), key=lambda value: abs(guess - value))
