"""Headers of pictures, written by hand so that no image library is needed."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmdeploy.errors import UsageError
from mmdeploy.estimator.media import ImageHeader, read_header


def box(kind: bytes, *contents: bytes) -> bytes:
    content = b"".join(contents)
    return struct.pack(">I4s", 8 + len(content), kind) + content


def ispe(width: int, height: int) -> bytes:
    return box(b"ispe", bytes(4), struct.pack(">II", width, height))


def heif(brand: bytes, *properties: bytes) -> bytes:
    meta = box(b"meta", bytes(4), box(b"hdlr", bytes(20)), box(b"iprp", box(b"ipco", *properties)))
    return box(b"ftyp", brand, bytes(4), b"mif1") + meta


def tiff(order: str, mark: bytes) -> bytes:
    entries = struct.pack(order + "HHII", 256, 4, 1, 300), struct.pack(order + "HHIHH", 257, 3, 1, 200, 0)
    return mark + struct.pack(order + "IH", 8, 2) + b"".join(entries)


JPEG_START = b"\xff\xd8" + b"\xff\xe1" + struct.pack(">H", 2 + 6) + b"Exif\0\0"
SOF = struct.pack(">HBHH", 17, 8, 200, 300)
PICTURES = {
    "png": b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 300, 200),
    "gif": b"GIF89a" + struct.pack("<HH", 300, 200),
    "jpeg": JPEG_START + b"\xff\xc0" + SOF,
    "jpeg (progressive)": JPEG_START + b"\xff\xc4\x00\x03\x00" + b"\xff\xff\xc2" + SOF,
    "webp (lossy)": b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 300, 200),
    "webp (lossless)": b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f" + struct.pack("<I", 299 | 199 << 14),
    "webp (extended)": b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0" + b"\x2b\x01\0" + b"\xc7\0\0",
    "bmp": b"BM" + bytes(12) + struct.pack("<Iii", 40, 300, -200),
    "bmp (old)": b"BM" + bytes(12) + struct.pack("<IHH", 12, 300, 200),
    "tiff": tiff("<", b"II*\0"),
    "tiff (big-endian)": tiff(">", b"MM\0*"),
    "avif": heif(b"avif", ispe(300, 200)),
    "heic": heif(b"heic", ispe(64, 64), ispe(300, 200)),
}


@pytest.mark.parametrize("name", PICTURES)
def test_reads(name: str) -> None:
    header = read_header(PICTURES[name])
    assert header == ImageHeader(name.partition(" ")[0], 300, 200)
    assert header.router_reads == (header.format in ("png", "jpeg", "gif"))


@pytest.mark.parametrize("name", PICTURES)
def test_every_cut_is_told(name: str) -> None:
    picture = PICTURES[name]
    unread = 2 if name.startswith("tiff") else 0  # the padding of a 16-bit value
    for length in range(len(picture) - unread):
        with pytest.raises(UsageError, match=r"cut off|this is no"):
            read_header(picture[:length])


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"%PDF-1.7", "this is no PNG"),
        (b"", "this is no PNG"),
        (b"GIF89a\0\0\x05\0", "0x5 pixels"),
        (JPEG_START + b"\xff\xda", "damaged"),
        (b"RIFF\0\0\0\0WEBPALPH" + bytes(20), "damaged"),
        (b"II*\0" + struct.pack("<IH", 8, 0), "damaged"),
        (heif(b"avif"), "damaged"),
        (b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IDAT", 300, 200), "damaged"),
    ],
)
def test_what_cannot_be_read(data: bytes, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_header(data)


@given(start=st.sampled_from(list(PICTURES.values())), cut=st.integers(2, 30), noise=st.binary(max_size=64))
def test_noise_never_crashes(start: bytes, cut: int, noise: bytes) -> None:
    try:
        header = read_header(start[:cut] + noise)
    except UsageError:
        return
    assert header.width >= 1
    assert header.height >= 1
