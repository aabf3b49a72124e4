"""One thing that a request may hold: a picture, a video, a sound or text, with what the router can see of it.

A person writes items as ``3x4000x3000,url`` or ``1280x720@24fps:10s``; files are looked at; request bodies are read by
`mmdeploy.estimator.bodies`. All end as the same four classes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from mmdeploy.errors import UsageError
from mmdeploy.estimator import clips
from mmdeploy.estimator.media import HEADER_BYTES, ROUTER_FORMATS, ImageHeader, read_header, recognise
from mmdeploy.estimator.router import VideoMetadata

UNSEEN_FORMATS = ("webp", "avif", "heic", "bmp", "tiff")
"""Picture formats that a model server reads and the router does not."""

FORMAT_TITLES = {"webp": "WebP", "jpeg": "JPEG", "jpg": "JPEG"}

_WAV_HEADER_BYTES = 44
_WAV_BYTES_PER_SECOND = 32000
"""16 kHz, 16 bit, one channel: what speech models are sent (facts router.md section 3.2)."""

WHOLE_LIMIT = 64 << 20
"""Bytes that are read at most to find a picture's size behind its embedded profiles."""

LIMIT = 1 << 31
"""Sides, counts and token numbers above this are typing mistakes."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of ``width`` x ``height`` pixels; 0 x 0 when its size is not known."""

    width: int
    height: int
    hidden: str = ""
    """Why the router cannot read the size ("URL", "WebP", ...); empty when it can."""


@dataclass(frozen=True, slots=True)
class Clip:
    """A video; a figure that is not known is 0. ``said`` is what the request's headers tell the router."""

    width: int
    height: int
    fps: float
    duration: float
    """Seconds."""
    said: VideoMetadata = VideoMetadata()
    url_bytes: int = 0
    """Length of its URL: all that routers before v0.10.0 count."""
    unread: str = ""
    """What could not be found out about it; empty when everything is known or nothing was looked for."""

    @property
    def truth(self) -> VideoMetadata:
        """The headers that a client should send."""
        return VideoMetadata(self.width, self.height, self.duration, self.fps)


@dataclass(frozen=True, slots=True)
class Sound:
    """A sound of ``seconds`` seconds (0: not known), inline as ``inline_bytes`` of base64 and format, or a URL (0)."""

    seconds: float
    inline_bytes: int
    unread: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    """Text of a known number of tokens."""

    tokens: int


Item = Picture | Clip | Sound | Text


@dataclass(frozen=True, slots=True)
class Asked:
    """An item, how often it occurs, and what the person called it."""

    label: str
    item: Item
    count: int = 1


_COUNT = r"(?:(?P<count>\d{1,12})x)?"
_SIZE = r"(?P<width>\d{1,12})x(?P<height>\d{1,12})"
_NUMBER = r"\d{1,12}(?:\.\d{1,12})?"
_IMAGE = re.compile(rf"{_COUNT}{_SIZE}(?P<words>(?:,\w+)*)")
_VIDEO = re.compile(
    rf"{_COUNT}{_SIZE}(?:@(?P<fps>{_NUMBER})(?:fps)?)?(?::(?P<duration>{_NUMBER})s?)?(?P<words>(?:,[\w-]+)*)"
)
_AUDIO = re.compile(rf"{_COUNT}(?P<duration>{_NUMBER})s?(?P<words>(?:,\w+)*)")
_BITRATE = re.compile(r"(\d{1,6})kbps")


def image(text: str) -> Asked:
    """``[Nx]WIDTHxHEIGHT[,url|inline][,FORMAT]``: inline PNG unless said otherwise. Raises `UsageError`."""
    match, words = _parts(_IMAGE, text, "--image", "1280x720, 3x4000x3000, 4000x3000,url or 1280x720,webp")
    hidden = ""
    for word in words:
        if word == "url":
            hidden = "URL"
        elif word in UNSEEN_FORMATS:
            hidden = hidden or format_title(word)
        elif word not in (*ROUTER_FORMATS, "jpg", "inline"):
            raise _unknown_word(word, text, "--image", ("url", "inline", *ROUTER_FORMATS, *UNSEEN_FORMATS))
    return Asked(text, Picture(_side(match, "width", text), _side(match, "height", text), hidden), _count(match, text))


def video(text: str) -> Asked:
    """``[Nx]WIDTHxHEIGHT[@FPSfps][:DURATIONs][,no-headers]``. Raises `UsageError`.

    The request is taken to say as much in its ``x-llm-d-video-*`` headers, unless ``no-headers`` is there.
    """
    match, words = _parts(_VIDEO, text, "--video", "1280x720@24fps:10s or 1280x720@24fps:10s,no-headers")
    for word in words:
        if word not in ("headers", "no-headers"):
            raise _unknown_word(word, text, "--video", ("headers", "no-headers"))
    width, height = _side(match, "width", text), _side(match, "height", text)
    fps, duration = _positive(match, "fps", text), _positive(match, "duration", text)
    missing = [name for name, value in (("@24fps", fps), (":10s", duration)) if not value]
    unread = f"add {' and '.join(missing)} to count the model's tokens" if missing else ""
    said = VideoMetadata() if "no-headers" in words else VideoMetadata(width, height, duration, fps)
    return Asked(text, Clip(width, height, fps, duration, said, unread=unread), _count(match, text))


def audio(text: str) -> Asked:
    """``[Nx]SECONDSs[,url|inline][,NNNkbps]``: inline 16 kHz 16-bit WAV unless said otherwise. Raises `UsageError`."""
    match, words = _parts(_AUDIO, text, "--audio", "30s, 30s,url or 30s,128kbps")
    seconds = _positive(match, "duration", text)
    file_bytes, kind, inline = _WAV_HEADER_BYTES + round(seconds * _WAV_BYTES_PER_SECOND), "wav", True
    for word in words:
        bitrate = _BITRATE.fullmatch(word)
        if bitrate:
            file_bytes, kind = round(seconds * int(bitrate[1]) * 125), "mp3"
        elif word not in ("url", "inline"):
            raise _unknown_word(word, text, "--audio", ("url", "inline", "128kbps"))
        inline = inline and word != "url"
    return Asked(text, Sound(seconds, base64_bytes(file_bytes) + len(kind) if inline else 0), _count(match, text))


def text(tokens: int) -> Asked:
    """``tokens`` tokens of text. Raises `UsageError` for a number below 0."""
    if not 0 <= tokens < LIMIT:
        raise UsageError(f"{tokens} is no number of tokens", origin="--text-tokens")
    return Asked("text", Text(tokens))


def of_size(width: int, height: int) -> Asked:
    """A picture that the router sees."""
    return Asked(f"{width}x{height}", Picture(width, height))


def file(path: str) -> Asked:
    """The picture, video or sound in the file at ``path``, as a client that embeds it in a request sends it.

    Raises `UsageError` with the path for a file that cannot be read or is none of these.
    """
    try:
        return Asked(path, _look(Path(path)))
    except OSError as problem:
        raise UsageError(f"cannot be read: {problem.strerror}", origin=path) from None
    except UsageError as problem:
        raise UsageError(problem.found, origin=path, next_step=problem.next_step) from None


def format_title(name: str) -> str:
    """How people write the name of a format."""
    return FORMAT_TITLES.get(name, name.upper())


def base64_bytes(nbytes: int) -> int:
    """Length of ``nbytes`` bytes in base64, padding included."""
    return -(-nbytes // 3) * 4


def _look(path: Path) -> Item:
    with path.open("rb") as stream:
        start = stream.read(HEADER_BYTES)
        size = stream.seek(0, 2)
        stream.seek(0)
        if not start:
            raise UsageError("the file is empty")
        if clips.is_wave(start):
            return Sound(clips.read_wave(stream), base64_bytes(size) + len("wav"))
        kind = clips.unread_sound(start)
        if kind:
            return Sound(0.0, base64_bytes(size) + len(kind), f"the length of a sound in {kind.upper()} is not read")
        container = clips.unread_video(start)
        if container:
            return Clip(0, 0, 0.0, 0.0, unread=f"{container} files are not read: give --video WxH@FPSfps:DURs instead")
        if recognise(start):
            return _picture(_header(start, stream))
        if not clips.is_movie(start):
            raise UsageError("this is no picture, video or sound that mmdeploy knows")
        movie = clips.read_movie(stream, size)
    unread = "" if movie.frames and movie.duration else "its index does not list the frames (a fragmented MP4)"
    inline = len("data:video/mp4;base64,") + base64_bytes(size)
    return Clip(movie.width, movie.height, movie.fps, movie.duration, url_bytes=inline, unread=unread)


def _picture(header: ImageHeader) -> Picture:
    return Picture(header.width, header.height, "" if header.router_reads else format_title(header.format))


def _header(start: bytes, stream: BinaryIO) -> ImageHeader:
    """The picture's header, for which large embedded profiles and previews need more than the start of the file."""
    try:
        return read_header(start)
    except UsageError:
        stream.seek(len(start))
        rest = stream.read(WHOLE_LIMIT)
        if not rest:
            raise
        return read_header(start + rest)


def _parts(pattern: re.Pattern[str], text: str, option: str, examples: str) -> tuple[re.Match[str], list[str]]:
    match = pattern.fullmatch(text.strip().lower())
    if match is None:
        raise UsageError(f"{text!r} cannot be read", origin=option, next_step=f"write it as {examples}")
    return match, [word for word in match["words"].split(",") if word]


def _unknown_word(word: str, text: str, option: str, known: tuple[str, ...]) -> UsageError:
    return UsageError(f"{word!r} in {text!r} means nothing here; known: {', '.join(known)}", origin=option)


def _side(match: re.Match[str], name: str, text: str) -> int:
    return _number(int(match[name]), name, text)


def _count(match: re.Match[str], text: str) -> int:
    return _number(int(match["count"] or 1), "number of items", text)


def _number(value: int, name: str, text: str) -> int:
    if not 0 < value < LIMIT:
        raise UsageError(f"the {name} in {text!r} must be 1 or more, and below {LIMIT}")
    return value


def _positive(match: re.Match[str], name: str, text: str) -> float:
    if match[name] is None:
        return 0.0
    value = float(match[name])
    if not 0 < value < LIMIT:
        raise UsageError(f"the {name} in {text!r} must be above 0")
    return value
