"""What the headers of a video or sound file say: its size, length and frame rate.

MP4, MOV and their relatives, and WAV, are read with the standard library. Other containers are recognised by name
only, so that a person learns what could not be read instead of getting a wrong number.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import BinaryIO

from mmdeploy.errors import UsageError
from mmdeploy.estimator.boxes import children

MOOV_LIMIT = 64 << 20
"""Bytes; an index larger than this belongs to no clip that anybody sends to a model."""

_UNREAD_VIDEO = {b"\x1aE\xdf\xa3": "WebM or Matroska", b"FLV": "FLV", b"\0\0\1\xba": "MPEG program stream"}
_UNREAD_SOUND = {b"ID3": "mp3", b"fLaC": "flac", b"OggS": "ogg", b"\xff\xfb": "mp3", b"\xff\xf1": "aac"}


@dataclass(frozen=True, slots=True)
class ClipHeader:
    """A video as its container describes it."""

    width: int
    """Pixels, as coded; a rotation mark does not change the area."""
    height: int
    duration: float
    """Seconds; 0 when the file does not say."""
    frames: int
    """0 when the file does not say: the frames of a fragmented file are listed in its fragments."""

    @property
    def fps(self) -> float:
        """Mean frames a second, 0 when unknown."""
        return self.frames / self.duration if self.duration > 0 else 0.0


def unread_video(start: bytes) -> str | None:
    """The name of a video container that is recognised by its first bytes but not read."""
    if start[:4] == b"RIFF" and start[8:12] == b"AVI ":
        return "AVI"
    return next((name for magic, name in _UNREAD_VIDEO.items() if start.startswith(magic)), None)


def unread_sound(start: bytes) -> str | None:
    """The format of a sound that is recognised by its first bytes but whose length is not read."""
    return next((name for magic, name in _UNREAD_SOUND.items() if start.startswith(magic)), None)


def is_movie(start: bytes) -> bool:
    """True for MP4, MOV and their relatives (an AVIF or HEIC picture begins alike: ask for those first)."""
    return start[4:8] in (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip")


def is_wave(start: bytes) -> bool:
    """True for a WAV file."""
    return start[:4] == b"RIFF" and start[8:12] == b"WAVE"


def read_movie(file: BinaryIO, size: int) -> ClipHeader:
    """Size, length and frame count of the first video track of an MP4 or MOV file of ``size`` bytes.

    Raises `UsageError` for a file without an index (``moov``) or without a video track, and for one that is damaged
    or cut off.
    """
    try:
        data = _index(file, size)
        for kind, start, end in children(data, 0, len(data)):
            if kind == b"trak":
                clip = _track(data, start, end)
                if clip is not None:
                    return clip
    except (struct.error, ValueError, IndexError):
        raise UsageError("the MP4 index is damaged or cut off") from None
    raise UsageError("the MP4 file has no video track")


def _index(file: BinaryIO, size: int) -> bytes:
    """The content of ``moov``, which may stand at the end of a large file: other boxes are skipped, not read."""
    at = 0
    while at + 8 <= size:
        file.seek(at)
        header = file.read(16)
        length, kind = struct.unpack_from(">I4s", header)
        head = 8
        if length == 1:
            length, head = struct.unpack_from(">Q", header, 8)[0], 16
        length = length or size - at
        if length < head:
            raise ValueError("a box is smaller than its own header")
        if kind == b"moov":
            if length > MOOV_LIMIT or at + length > size:
                raise ValueError("cut off")
            file.seek(at + head)
            return file.read(length - head)
        at += length
    raise UsageError("the MP4 file has no index (moov): it is cut off, or was never finished")


def _track(data: bytes, start: int, end: int) -> ClipHeader | None:
    """The track between ``start`` and ``end`` if it is a video."""
    media = _find(data, start, end, b"mdia")
    handler = media and _find(data, *media, b"hdlr")
    if not media or not handler or data[handler[0] + 8 : handler[0] + 12] != b"vide":
        return None
    table = _find(data, *media, b"minf", b"stbl")
    described = table and _find(data, *table, b"stsd")
    header = _find(data, *media, b"mdhd")
    if not table or not described or not header:
        raise ValueError("a video track without a description")
    # stsd: version and flags, number of entries, then the first entry, whose sides stand 32 bytes into it
    width, height = struct.unpack_from(">HH", data, described[0] + 8 + 32)
    if not width or not height:
        raise ValueError("no size")
    scale, length = _time(data, header[0])
    times = _find(data, *table, b"stts")
    frames, ticks = _frames(data, *times) if times else (0, 0)
    return ClipHeader(width, height, (ticks or length) / scale if scale else 0.0, frames)


def _time(data: bytes, at: int) -> tuple[int, int]:
    """Ticks a second and length in ticks; version 1 has 64-bit numbers."""
    scale, length = struct.unpack_from(">IQ" if data[at] == 1 else ">II", data, at + (20 if data[at] == 1 else 12))
    return scale, length


def _frames(data: bytes, start: int, end: int) -> tuple[int, int]:
    """Number of frames and ticks that they last, from the table of runs of equal frame lengths."""
    runs = min(struct.unpack_from(">I", data, start + 4)[0], (end - start - 8) // 8)
    numbers = struct.unpack_from(f">{2 * runs}I", data, start + 8)
    return sum(numbers[::2]), sum(count * ticks for count, ticks in zip(numbers[::2], numbers[1::2], strict=True))


def _find(data: bytes, start: int, end: int, *path: bytes) -> tuple[int, int] | None:
    """Where the content of the box at ``path`` (names, outermost first) starts and ends."""
    for name in path:
        found = next(((at, stop) for kind, at, stop in children(data, start, end) if kind == name), None)
        if found is None:
            return None
        start, end = found
    return start, end


def read_wave(file: BinaryIO) -> float:
    """Seconds of a WAV file. Raises `UsageError` for one that is damaged, compressed or empty."""
    import wave  # few estimates are about a sound

    try:
        with wave.open(file) as sound:
            seconds: float = sound.getnframes() / sound.getframerate()
    except (wave.Error, EOFError, ZeroDivisionError) as problem:
        raise UsageError(f"the WAV header cannot be read: {problem or 'it is cut off'}") from None
    if seconds <= 0:
        raise UsageError("the WAV file holds no sound")
    return seconds
