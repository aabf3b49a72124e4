"""Pictures of one colour, each different from any other that was ever sent: PNG files made here.

The nonce stands in the corner as shades of the same colour, three levels apart at most: a hash sees another picture, an
eye (and a model) sees the colour.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from mmdeploy.verify.evidence import Medium

Colour = tuple[int, int, int]

COLOURS: Mapping[str, Colour] = {
    "red": (230, 20, 20),
    "green": (20, 160, 40),
    "blue": (20, 40, 230),
    "yellow": (245, 225, 20),
    "orange": (250, 130, 10),
    "purple": (130, 20, 150),
    "white": (250, 250, 250),
    "black": (8, 8, 8),
}
"""Far enough apart to be told from each other."""

SIDE = 64
"""Pixels, as the guide's own test picture."""

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_BITS_A_PIXEL = 2


@dataclass(frozen=True)
class Picture:
    """One PNG file."""

    colour: str
    width: int
    height: int
    data: bytes

    @property
    def medium(self) -> Medium:
        """Facts about it, for the evidence."""
        return Medium("image", self.colour, self.width, self.height, len(self.data), digest(self.data))


def digest(data: bytes) -> str:
    """First 16 hex digits of the SHA-256."""
    return hashlib.sha256(data).hexdigest()[:16]


def picture(colour: str, nonce: bytes, width: int = SIDE, height: int = SIDE) -> Picture:
    """A picture of that colour with the nonce in its upper left corner. Raises KeyError for an unknown colour."""
    base = COLOURS[colour]
    shades = _shades(nonce)
    across = min(8, width)
    rows = []
    for y in range(height):
        line = bytearray(bytes(base) * width)
        for x in range(across):
            at = y * across + x
            if at < len(shades):
                line[3 * x : 3 * x + 3] = _shaded(base, shades[at])
        rows.append(b"\0" + bytes(line))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits a channel, RGB
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(b"".join(rows), 9)), (b"IEND", b"")
    return Picture(colour, width, height, _SIGNATURE + b"".join(_chunk(name, data) for name, data in chunks))


def _shades(nonce: bytes) -> list[int]:
    """The nonce as numbers from 0 to 3, one a pixel."""
    return [(byte >> shift) & 3 for byte in nonce for shift in range(0, 8, _BITS_A_PIXEL)]


def _shaded(base: Colour, shade: int) -> bytes:
    """The colour, ``shade`` levels nearer to the middle in every channel."""
    return bytes(value + shade if value < 128 else value - shade for value in base)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
