"""What the first bytes of a picture say: its format and size, and whether the router can read them.

The router reads dimensions with Go's PNG, JPEG and GIF decoders only (facts router.md section 3.2); a model server
reads every format here. Sizes are those stored in the file: a rotation mark (EXIF) does not change the area.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mmdeploy.errors import UsageError
from mmdeploy.estimator.boxes import children

HEADER_BYTES = 1 << 16
"""Bytes from the start of a file that hold the header of nearly every picture; JPEGs with large embedded profiles
and previews need more."""

ROUTER_FORMATS = ("png", "jpeg", "gif")
"""Formats whose size the router reads, when the picture is inline in standard base64."""


_HEIF_BRANDS = frozenset({b"avif", b"avis", b"heic", b"heix", b"heim", b"heis", b"hevc", b"mif1", b"msf1"})


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """Format and stored size in pixels."""

    format: str
    width: int
    height: int

    @property
    def router_reads(self) -> bool:
        """True when the router can price the picture by its own size."""
        return self.format in ROUTER_FORMATS


def recognise(data: bytes) -> str | None:
    """The picture format that ``data`` begins like, None for anything else. AVIF counts as ``heic``."""
    return next((name for name, begins, _ in _FORMATS if begins(data)), None)


def read_header(data: bytes) -> ImageHeader:
    """Format and size of the picture that starts with ``data``.

    Knows PNG, JPEG, GIF, WebP, BMP, TIFF, AVIF and HEIC. Raises `UsageError` for anything else, for a header that
    is cut off and for a picture without pixels.
    """
    for name, begins, size in _FORMATS:
        if begins(data):
            try:
                width, height = size(data)
            except (struct.error, IndexError, ValueError):
                raise UsageError(f"the {name.upper()} header is damaged or cut off") from None
            if width < 1 or height < 1:
                raise UsageError(f"the {name.upper()} header says {width}x{height} pixels")
            brand = _heif_brand(data) if name == "heic" else name
            return ImageHeader(brand, width, height)
    raise UsageError("this is no PNG, JPEG, GIF, WebP, BMP, TIFF, AVIF or HEIC picture")


def _png(data: bytes) -> tuple[int, int]:
    """The IHDR chunk is the first one and holds both sides."""
    if data[12:16] != b"IHDR":
        raise ValueError("IHDR is not first")
    width, height = struct.unpack_from(">II", data, 16)
    return width, height


def _gif(data: bytes) -> tuple[int, int]:
    """The logical screen, which is what decoders report."""
    width, height = struct.unpack_from("<HH", data, 6)
    return width, height


def _jpeg(data: bytes) -> tuple[int, int]:
    """The frame header: the first marker C0 to CF that is none of DHT (C4), JPG (C8) and DAC (CC)."""
    at = 2
    while True:
        if data[at] != 0xFF or data[at + 1] == 0xFF:  # stray or fill bytes, which decoders pass over
            at += 1
            continue
        marker = data[at + 1]
        if marker == 0x01 or 0xD0 <= marker <= 0xD8:  # markers without a length
            at += 2
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        elif marker in (0xD9, 0xDA):
            raise ValueError("the picture starts before its size is said")
        else:
            at += 2 + int(struct.unpack_from(">H", data, at + 2)[0])


def _webp(data: bytes) -> tuple[int, int]:
    kind = data[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(_all(data[27:30], 3), "little")
    if kind == b"VP8L":
        bits = struct.unpack_from("<I", data, 21)[0]
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    raise ValueError(f"chunk {kind!r}")


def _bmp(data: bytes) -> tuple[int, int]:
    """Twelve-byte headers have 16-bit sides; a negative height means that rows run from the top."""
    if struct.unpack_from("<I", data, 14)[0] == 12:
        width, height = struct.unpack_from("<HH", data, 18)
        return width, height
    width, height = struct.unpack_from("<ii", data, 18)
    return width, abs(height)


def _tiff(data: bytes) -> tuple[int, int]:
    """Tags 256 and 257 of the first directory, as 16- or 32-bit numbers."""
    order = "<" if data[:2] == b"II" else ">"
    at = struct.unpack_from(order + "I", data, 4)[0]
    sides: dict[int, int] = {}
    for index in range(struct.unpack_from(order + "H", data, at)[0]):
        entry = at + 2 + 12 * index
        tag, kind = struct.unpack_from(order + "HH", data, entry)
        if tag in (256, 257):
            sides[tag] = struct.unpack_from(order + ("H" if kind == 3 else "I"), data, entry + 8)[0]
    if len(sides) < 2:
        raise ValueError("no size in the first directory")
    return sides[256], sides[257]


def _heif(data: bytes) -> tuple[int, int]:
    """The largest spatial extent property (``ispe``): a file also lists those of its thumbnail and its tiles."""
    found = [struct.unpack_from(">II", data, start + 4) for start in _boxes(data, (b"meta", b"iprp", b"ipco"), b"ispe")]
    width, height = max(found, key=lambda sides: int(sides[0]) * int(sides[1]))
    return width, height


def _boxes(data: bytes, inside: tuple[bytes, ...], wanted: bytes) -> Iterator[int]:
    """Where the content of each ``wanted`` box starts that lies in the nest of boxes ``inside``."""
    start, end = 0, len(data)
    for name in inside:
        start, end = next(((at, stop) for kind, at, stop in children(data, start, end) if kind == name), (0, 0))
        if name == b"meta":
            start += 4  # version and flags come before its children
    yield from (at for kind, at, _ in children(data, start, end) if kind == wanted)


def _heif_brand(data: bytes) -> str:
    size = struct.unpack_from(">I", data, 0)[0]
    return "avif" if b"avif" in data[8:size] or b"avis" in data[8:size] else "heic"


def _all(piece: bytes, length: int) -> bytes:
    if len(piece) < length:
        raise ValueError("cut off")
    return piece


_FORMATS: tuple[tuple[str, Callable[[bytes], bool], Callable[[bytes], tuple[int, int]]], ...] = (
    ("png", lambda data: data.startswith(b"\x89PNG\r\n\x1a\n"), _png),
    ("jpeg", lambda data: data.startswith(b"\xff\xd8"), _jpeg),
    ("gif", lambda data: data.startswith((b"GIF87a", b"GIF89a")), _gif),
    ("webp", lambda data: data.startswith(b"RIFF") and data[8:12] == b"WEBP", _webp),
    ("bmp", lambda data: data.startswith(b"BM"), _bmp),
    ("tiff", lambda data: data.startswith((b"II*\0", b"MM\0*")), _tiff),
    ("heic", lambda data: data[4:8] == b"ftyp" and data[8:12] in _HEIF_BRANDS, _heif),
)
