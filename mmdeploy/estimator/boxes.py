"""Boxes: the nested pieces that MP4, MOV, AVIF and HEIC files are made of (ISO/IEC 14496-12, section 4.2)."""

from __future__ import annotations

import struct
from collections.abc import Iterator


def children(data: bytes, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Name, start and end of the content of each box between ``start`` and ``end``.

    Raises `ValueError` for a box that is smaller than its own header or reaches past ``end``, and `struct.error`
    for a header that is cut off.
    """
    while start + 8 <= end:
        size, kind = struct.unpack_from(">I4s", data, start)
        content = start + 8
        if size == 1:
            size, content = struct.unpack_from(">Q", data, start + 8)[0], start + 16
        stop = start + size if size else end
        if stop < content:
            raise ValueError("a box is smaller than its own header")
        if stop > end:
            raise ValueError("cut off")
        yield kind, content, stop
        start = stop
