"""Pictures, videos and sounds that a test makes by itself: headers without content."""

from __future__ import annotations

import base64
import io
import struct
import wave


def box(kind: bytes, *contents: bytes) -> bytes:
    content = b"".join(contents)
    return struct.pack(">I4s", 8 + len(content), kind) + content


def movie(
    width: int = 1280,
    height: int = 720,
    frames: int = 240,
    ticks: int = 512,
    scale: int = 12288,
    version: int = 0,
    moov_first: bool = False,
) -> bytes:
    """An MP4 file with a sound track and a video track of ``frames`` frames, ``ticks`` / ``scale`` seconds each."""

    def track(handler: bytes, entry: bytes) -> bytes:
        length = frames * ticks
        header = struct.pack(">IQQIQ", 1 << 24, 0, 0, scale, length) if version else struct.pack(
            ">IIIII", 0, 0, 0, scale, length
        )  # fmt: skip
        table = box(
            b"stbl",
            box(b"stsd", struct.pack(">II", 0, 1), entry),
            box(b"stts", struct.pack(">IIII", 0, 1, frames, ticks)),
        )
        return box(
            b"trak",
            box(b"tkhd", bytes(84)),
            box(
                b"mdia",
                box(b"mdhd", header, bytes(4)),
                box(b"hdlr", bytes(8), handler, bytes(13)),
                box(b"minf", box(b"vmhd", bytes(12)), table),
            ),
        )

    sample = box(b"avc1", bytes(24), struct.pack(">HH", width, height), bytes(50))
    moov = box(b"moov", box(b"mvhd", bytes(100)), track(b"soun", box(b"mp4a", bytes(28))), track(b"vide", sample))
    start, content = box(b"ftyp", b"isom", bytes(4), b"isommp42"), box(b"mdat", bytes(100_000))
    return start + (moov + content if moov_first else content + moov)


def sound(seconds: float, rate: int = 16000) -> bytes:
    """A WAV file of silence, 16 bit, one channel."""
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(rate)
        writer.writeframes(bytes(2 * round(seconds * rate)))
    return file.getvalue()


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height) + b"\x08\x06\0\0\0" + bytes(40)


def webp(width: int, height: int) -> bytes:
    return b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height)


def data_url(data: bytes, kind: str = "image/png", url_safe: bool = False) -> str:
    encode = base64.urlsafe_b64encode if url_safe else base64.b64encode
    return f"data:{kind};base64,{encode(data).decode()}"
