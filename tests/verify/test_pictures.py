"""Pictures that verify makes, read back with another decoder: chunk by chunk, by the PNG specification."""

from __future__ import annotations

import struct
import zlib

import pytest

from mmdeploy.verify.pictures import COLOURS, picture


def decoded(data: bytes) -> tuple[int, int, list[tuple[int, int, int]]]:
    """Width, height and pixels of an 8-bit RGB file without filters."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, chunks = 8, []
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        (crc,) = struct.unpack(">I", data[at + 8 + length : at + 12 + length])
        assert crc == zlib.crc32(kind + body)
        chunks.append((kind, body))
        at += 12 + length
    assert [kind for kind, _ in chunks] == [b"IHDR", b"IDAT", b"IEND"]
    width, height, depth, colour, compression, filters, interlace = struct.unpack(">IIBBBBB", chunks[0][1])
    assert (depth, colour, compression, filters, interlace) == (8, 2, 0, 0, 0)
    raw = zlib.decompress(chunks[1][1])
    assert len(raw) == height * (1 + 3 * width)
    rows = [raw[y * (1 + 3 * width) :][: 1 + 3 * width] for y in range(height)]
    assert all(row[0] == 0 for row in rows)
    return width, height, [tuple(row[1 + 3 * x : 4 + 3 * x]) for row in rows for x in range(width)]


@pytest.mark.parametrize("colour", COLOURS)
def test_a_picture_is_of_its_colour_but_for_shades_in_the_corner(colour: str) -> None:
    width, height, pixels = decoded(picture(colour, bytes.fromhex("00ff1be4a5c3")).data)
    assert (width, height) == (64, 64)
    base = COLOURS[colour]
    assert max(abs(a - b) for pixel in pixels for a, b in zip(pixel, base, strict=True)) == 3
    assert sum(pixel == base for pixel in pixels) >= 64 * 64 - 24  # six bytes, two bits a pixel


def test_the_nonce_can_be_read_back() -> None:
    nonce = bytes.fromhex("0123456789ab")
    base = COLOURS["blue"]
    _, _, pixels = decoded(picture("blue", nonce).data)
    corner = [pixels[64 * (at // 8) + at % 8] for at in range(24)]
    bits = [abs(pixel[0] - base[0]) for pixel in corner]
    read = bytes(sum(bits[4 * at + place] << 2 * place for place in range(4)) for at in range(6))
    assert read == nonce


def test_two_nonces_make_two_pictures() -> None:
    one, other = picture("red", b"\0\0\0\0\0\0"), picture("red", b"\0\0\0\0\0\1")
    assert one.medium.digest != other.medium.digest


@pytest.mark.parametrize("size", [(1, 1), (3, 200), (640, 360)])
def test_any_size_will_do(size: tuple[int, int]) -> None:
    width, height, _ = decoded(picture("green", b"abcdef", *size).data)
    assert (width, height) == size
