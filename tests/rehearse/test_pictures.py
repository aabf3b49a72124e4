"""What an engine sees: colours of PNGs in every filter, sizes of other formats, and what it cannot read."""

from __future__ import annotations

import base64
import struct
import zlib

import pytest

from mmdeploy.rehearse.pictures import UnreadableError, look
from tests.rehearse.client import png

COLOURS = {  # what verify's pictures are made of, and what people call these
    "red": (230, 20, 20), "green": (20, 160, 40), "blue": (20, 40, 230), "yellow": (245, 225, 20),
    "orange": (250, 130, 10), "purple": (130, 20, 150), "white": (250, 250, 250), "black": (8, 8, 8),
}  # fmt: skip


def url(data: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def filtered(kind: int, colour: tuple[int, int, int], side: int = 16) -> bytes:
    """A picture of one colour whose every row has PNG's filter ``kind``; written out by the standard's formulas."""
    row = bytes(colour) * side
    raw = b""
    above = bytes(len(row))
    for _ in range(side):
        line = bytearray()
        for at, value in enumerate(row):
            left = row[at - 3] if at >= 3 else 0
            corner = above[at - 3] if at >= 3 else 0
            guess = left + above[at] - corner
            nearest = sorted(
                ((abs(guess - left), 0, left), (abs(guess - above[at]), 1, above[at]), (abs(guess - corner), 2, corner))
            )
            predicted = (0, left, above[at], (left + above[at]) // 2, nearest[0][2])[kind]
            line.append((value - predicted) % 256)
        raw += bytes([kind]) + bytes(line)
        above = row
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")


@pytest.mark.parametrize(("name", "colour"), COLOURS.items())
def test_a_colour_is_named(name: str, colour: tuple[int, int, int]) -> None:
    assert look(url(png(64, 64, colour, corner=9))).colour == name


@pytest.mark.parametrize("kind", range(5))
def test_every_filter_is_undone(kind: int) -> None:
    assert look(url(filtered(kind, COLOURS["orange"]))).colour == "orange"


def test_a_large_picture_is_looked_at_in_part() -> None:
    """8000x6000 would unpack to 144 MB; its size still counts, and its top tells the colour."""
    seen = look(url(png(8000, 6000, COLOURS["blue"])))
    assert (seen.width, seen.height, seen.colour) == (8000, 6000, "blue")


def test_the_guides_own_picture_is_red() -> None:
    """The 64x64 PNG that the guide's verification sends."""
    data = (
        "iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAIAAAAlC+aJAAAAS0lEQVR42u3PQQkAAAgAsetfWiP4FgYrsKZeS0BAQEBAQEBAQEBAQEBAQEBAQEBA"
        "QEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEDgsqnc8OJg6Ln3AAAAAElFTkSuQmCC"
    )
    seen = look(f"data:image/png;base64,{data}")
    assert (seen.width, seen.height, seen.colour) == (64, 64, "red")


def test_a_gif_has_a_size_and_no_colour() -> None:
    seen = look(url(b"GIF89a" + struct.pack("<HH", 320, 200) + bytes(20), "gif"))
    assert (seen.width, seen.height, seen.colour) == (320, 200, "")


def test_the_same_bytes_are_the_same_picture_to_an_engine() -> None:
    data = png(8, 8, COLOURS["red"])
    assert look(url(data, "png")).digest == look(url(data, "x-png")).digest


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("https://example.com/a.png", "fetches nothing"),
        ("data:image/png;base64,@@@", "base64"),
        (url(b"no picture"), "cannot identify"),
    ],
)
def test_what_cannot_be_read_says_why(given: str, why: str) -> None:
    with pytest.raises(UnreadableError, match=why):
        look(given)
