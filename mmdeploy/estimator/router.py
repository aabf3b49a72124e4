"""What the router charges for a picture, a video, a sound and text: its token-producer's estimate, to the token.

Source: the router's own estimator (llm-d router v0.10.0, ``token-producer`` with an ``estimate`` block; facts
router.md section 3), confirmed on the running program (router-observed.md). All numbers are Go's: integers of 64
bits, divisions that floor, values of 0 and below silently replaced by the built-in default.

`Estimator.from_block` takes the block as written in Helm values or an EndpointPickerConfig; `block_problems` says
what the router would refuse to start with.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mmdeploy.errors import UsageError

DEFAULT_WIDTH, DEFAULT_HEIGHT = 640, 360
"""Pixels that an unseen picture or video is taken for when the block has no defaultResolution."""
DEFAULT_FACTOR = 1024
DEFAULT_DURATION = 10.0
DEFAULT_SAMPLE_FPS = 2.0
DEFAULT_SOURCE_FPS = 24.0
BYTES_PER_TOKEN = 4

HEADER_FPS = "x-llm-d-video-fps"
HEADER_DURATION = "x-llm-d-video-duration-seconds"
HEADER_RESOLUTION = "x-llm-d-video-resolution"

_RESOLUTION = {"width": "int", "height": "int"}
_SCHEMA: dict[str, Any] = {
    "image": {
        "mode": ("dynamic", "static"),
        "defaultResolution": _RESOLUTION,
        "static": {"staticToken": "int"},
        "dynamic": {"factor": "int"},
    },
    "video": {
        "defaultResolution": _RESOLUTION,
        "defaultDuration": "float",
        "maxVideoTokens": "int",
        "tokensPerFrame": {
            "mode": ("dynamic", "static"),
            "static": {"numTokensPerFrame": "int"},
            "dynamic": {"factor": "int"},
        },
        "frames": {
            "mode": ("sampled", "strided"),
            "minFrames": "int",
            "maxFrames": "int",
            "sampled": {"sampleFPS": "float", "temporalPatchSize": "int"},
            "strided": {"defaultSourceFPS": "float", "frameStride": "int"},
        },
    },
}
"""Fields of the block: an object, "int", "float", or the tuple of a mode's names (router-plugin-parameters.csv)."""

_GO_FLOAT = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_GO_INT = re.compile(r"[+-]?\d+")


@dataclass(frozen=True, slots=True)
class VideoMetadata:
    """What a request's headers say about its videos; 0 means not said (missing, malformed or not above 0)."""

    width: int = 0
    height: int = 0
    duration: float = 0.0
    """Seconds."""
    fps: float = 0.0
    """Frames a second of the source."""

    @classmethod
    def from_headers(cls, headers: Mapping[str, str]) -> VideoMetadata:
        """Parse the three ``x-llm-d-video-*`` headers (names in any case) as the router does.

        A number that is not Go's floating point syntax, or not above 0, counts as not said, and so does a
        resolution whose two sides are not both whole numbers above 0; spaces are allowed around its sides only.
        """
        lower = {name.lower(): value for name, value in headers.items()}
        width, height = _resolution(lower.get(HEADER_RESOLUTION, ""))
        return cls(width, height, _positive(lower.get(HEADER_DURATION, "")), _positive(lower.get(HEADER_FPS, "")))


@dataclass(frozen=True, slots=True)
class Estimator:
    """The router's prices under one ``estimate:`` block. Every price is 1 token or more."""

    image_mode: Literal["dynamic", "static"] = "dynamic"
    image_width: int = DEFAULT_WIDTH
    image_height: int = DEFAULT_HEIGHT
    image_factor: int = DEFAULT_FACTOR
    image_static: int = 1
    video_supported: bool = True
    """False for router releases before v0.10.0, which count the bytes of a video's URL."""
    video_width: int = DEFAULT_WIDTH
    video_height: int = DEFAULT_HEIGHT
    video_duration: float = DEFAULT_DURATION
    max_video_tokens: int = 0
    frame_mode: Literal["dynamic", "static"] = "dynamic"
    frame_factor: int = DEFAULT_FACTOR
    frame_static: int = 1
    frames_mode: Literal["sampled", "strided"] = "sampled"
    min_frames: int = 0
    max_frames: int = 0
    sample_fps: float = DEFAULT_SAMPLE_FPS
    temporal_patch: int = 1
    source_fps: float = DEFAULT_SOURCE_FPS
    frame_stride: int = 1

    @classmethod
    def from_block(cls, block: Mapping[str, Any] | None, *, video_supported: bool = True) -> Estimator:
        """The estimator that the router builds from ``estimate:``; None or ``{}`` is all defaults.

        Raises `UsageError` naming every field that would stop the router from starting.
        """
        problems = block_problems(block, video_supported=video_supported)
        if problems:
            raise UsageError(f"the router does not start with this estimate: {'; '.join(problems)}")
        image, video = _section(block, "image"), _section(block, "video")
        image_size, video_size = _section(image, "defaultResolution"), _section(video, "defaultResolution")
        per_frame, frames = _section(video, "tokensPerFrame"), _section(video, "frames")
        sampled, strided = _section(frames, "sampled"), _section(frames, "strided")
        return cls(
            image_mode=image.get("mode") or "dynamic",
            image_width=_above_zero(image_size, "width", DEFAULT_WIDTH),
            image_height=_above_zero(image_size, "height", DEFAULT_HEIGHT),
            image_factor=_above_zero(_section(image, "dynamic"), "factor", DEFAULT_FACTOR),
            image_static=_above_zero(_section(image, "static"), "staticToken", 1),
            video_supported=video_supported,
            video_width=_above_zero(video_size, "width", DEFAULT_WIDTH),
            video_height=_above_zero(video_size, "height", DEFAULT_HEIGHT),
            video_duration=float(_above_zero(video, "defaultDuration", DEFAULT_DURATION)),
            max_video_tokens=_above_zero(video, "maxVideoTokens", 0),
            frame_mode=per_frame.get("mode") or "dynamic",
            frame_factor=_above_zero(_section(per_frame, "dynamic"), "factor", DEFAULT_FACTOR),
            frame_static=_above_zero(_section(per_frame, "static"), "numTokensPerFrame", 1),
            frames_mode=frames.get("mode") or "sampled",
            min_frames=_above_zero(frames, "minFrames", 0),
            max_frames=_above_zero(frames, "maxFrames", 0),
            sample_fps=float(_above_zero(sampled, "sampleFPS", DEFAULT_SAMPLE_FPS)),
            temporal_patch=_above_zero(sampled, "temporalPatchSize", 1),
            source_fps=float(_above_zero(strided, "defaultSourceFPS", DEFAULT_SOURCE_FPS)),
            frame_stride=_above_zero(strided, "frameStride", 1),
        )

    def image(self, width: int, height: int) -> int:
        """Price of a picture whose size the router can read: PNG, JPEG or GIF inline in standard base64."""
        if self.image_mode == "static":
            return self.image_static
        return max(1, _int64(width * height) // self.image_factor)

    def image_unseen(self) -> int:
        """Price of every other picture (URLs, WebP, AVIF, HEIC, BMP, TIFF ...): that of ``defaultResolution``."""
        return self.image(self.image_width, self.image_height)

    def video(
        self,
        width: int | None = None,
        height: int | None = None,
        *,
        duration: float | None = None,
        fps: float | None = None,
        url_bytes: int = 0,
    ) -> int:
        """Price of one video with what the request's headers say of it; None = that header is missing.

        ``duration`` is seconds, ``fps`` the source's. The video itself is never looked at. ``url_bytes`` is the
        length of its URL, which is all that counts where videos are not supported.
        """
        return self.video_with(VideoMetadata(width or 0, height or 0, duration or 0.0, fps or 0.0), url_bytes=url_bytes)

    def video_with(self, said: VideoMetadata, *, url_bytes: int = 0) -> int:
        """`video` for headers that were parsed by `VideoMetadata.from_headers`."""
        if not self.video_supported:
            return _packed(url_bytes)
        tokens = _int64(self.video_frames(said) * self.frame_tokens(said))
        if self.max_video_tokens and tokens > self.max_video_tokens:
            tokens = self.max_video_tokens
        return max(1, tokens)

    def video_frames(self, said: VideoMetadata = VideoMetadata()) -> int:  # noqa: B008  (it is frozen)
        """Groups of frames that a video counts: clamped as frames, then merged ``temporalPatchSize`` at a time."""
        duration = said.duration if said.duration > 0 else self.video_duration
        if self.frames_mode == "strided":
            fps = said.fps if said.fps > 0 else self.source_fps
            return self._clamped(_truncated(duration * fps) // self.frame_stride)
        return self._clamped(_truncated(duration * self.sample_fps)) // self.temporal_patch

    def frame_tokens(self, said: VideoMetadata = VideoMetadata()) -> int:  # noqa: B008  (it is frozen)
        """Price of one group of frames; the resolution header counts only with both sides above 0."""
        if self.frame_mode == "static":
            return self.frame_static
        seen = said.width > 0 and said.height > 0
        width, height = (said.width, said.height) if seen else (self.video_width, self.video_height)
        return max(1, _int64(width * height) // self.frame_factor)

    def _clamped(self, frames: int) -> int:
        """The maximum is applied last, so it wins over a larger minimum."""
        if self.min_frames:
            frames = max(frames, self.min_frames)
        return min(frames, self.max_frames) if self.max_frames else frames

    def audio_inline(self, nbytes: int) -> int:
        """Price of an ``input_audio`` part: ``nbytes`` is the length of its base64 data and format together."""
        return _packed(nbytes)

    def audio_url(self) -> int:
        """Price of an ``audio_url`` part: its field is not read, so every one costs 1."""
        return 1

    def text(self, nbytes: int) -> int:
        """Tokens of ``nbytes`` bytes of tools JSON, roles and text between two media items; 0 for none."""
        return -(-nbytes // BYTES_PER_TOKEN)


def block_problems(block: Any, *, video_supported: bool = True) -> list[str]:
    """What in an ``estimate:`` block would stop the router from starting, each with its path; [] when nothing would.

    Field names are matched without regard to case, as Go's JSON decoder does; unknown ones, wrong types and unknown
    modes are refused. Numbers of 0 and below are accepted (they mean the default).
    """
    if block is None:
        return []
    schema = _SCHEMA if video_supported else {"image": _SCHEMA["image"]}
    return list(_object_problems(block, schema, "estimate"))


def _object_problems(value: Any, schema: Mapping[str, Any], path: str) -> list[str]:
    if not isinstance(value, Mapping):
        return [f"{path} must be an object, not {value!r}"]
    known = {name.lower(): name for name in schema}
    problems: list[str] = []
    for key, item in value.items():
        name = known.get(str(key).lower())
        if name is None:
            reason = "videos are estimated from router v0.10.0 on" if key == "video" else f"known: {', '.join(schema)}"
            problems.append(f"{path}.{key} is unknown ({reason})")
        elif item is not None:  # null leaves the field as if it were not there
            problems += _value_problems(item, schema[name], f"{path}.{name}")
    return problems


def _value_problems(value: Any, wanted: Any, path: str) -> list[str]:
    if isinstance(wanted, Mapping):
        return _object_problems(value, wanted, path)
    if isinstance(wanted, tuple):
        if value in ("", *wanted):
            return []
        return [f"{path} must be {' or '.join(wanted)}, not {value!r}"]
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or (wanted == "int" and (value != int(value) or _int64(int(value)) != value)):
        return [f"{path} must be a {'whole ' if wanted == 'int' else ''}number, not {value!r}"]
    return []


def _section(block: Mapping[str, Any] | None, name: str) -> dict[str, Any]:
    """A sub-object with the router's own spelling of its fields; empty when missing or null."""
    wanted = name.lower()
    section: Mapping[str, Any] = {}
    for key, value in (block or {}).items():
        if str(key).lower() == wanted and value is not None:
            section = value  # of two spellings the last one wins, as in Go
    spellings = {field.lower(): field for field in _field_names()}
    return {spellings.get(str(key).lower(), str(key)): value for key, value in section.items() if value is not None}


def _field_names(schema: Mapping[str, Any] = _SCHEMA) -> set[str]:
    names = set(schema)
    for value in schema.values():
        if isinstance(value, Mapping):
            names |= _field_names(value)
    return names


def _above_zero(section: Mapping[str, Any], name: str, default: Any) -> Any:
    value = section.get(name, 0)
    if value <= 0:
        return default
    return value if isinstance(default, float) else int(value)


def _positive(text: str) -> float:
    """A header's number, or 0. Infinity is taken as not said: what Go makes of it depends on the processor."""
    if not _GO_FLOAT.fullmatch(text):
        return 0.0
    value = float(text)
    return value if 0 < value < math.inf else 0.0


def _resolution(text: str) -> tuple[int, int]:
    left, separator, right = text.replace("X", "x").partition("x")
    width, height = (_GO_INT.fullmatch(side.strip()) for side in (left, right))
    if not separator or width is None or height is None:
        return 0, 0
    sides = int(width[0]), int(height[0])
    return sides if all(0 < side < 1 << 63 for side in sides) else (0, 0)


def _packed(nbytes: int) -> int:
    """Tokens of a medium that is priced by its bytes: 4 bytes a token, rounded up."""
    return max(1, -(-nbytes // BYTES_PER_TOKEN))


def _truncated(value: float) -> int:
    """Go's conversion to a 64-bit integer: cut toward 0; out of range it is the smallest integer (amd64)."""
    return int(value) if abs(value) < 1 << 63 else -(1 << 63)


def _int64(value: int) -> int:
    """Go's integers wrap around at 64 bits."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
