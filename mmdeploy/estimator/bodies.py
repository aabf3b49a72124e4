"""Request bodies, read as the router reads them: what it counts, what it passes over and what it rejects.

Source: the router's openai-parser and token-producer (llm-d router main of 2026-08-22, requesthandling/types.go and
dataproducer/tokenizer/estimate.go; facts router.md section 3.2), confirmed on the running program
(router-observed.md). Field names match without regard to case, as Go's JSON decoder has it.
"""

from __future__ import annotations

import base64
import binascii
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mmdeploy.errors import UsageError
from mmdeploy.estimator import clips, gojson
from mmdeploy.estimator.items import Clip, Item, Picture, Sound, format_title
from mmdeploy.estimator.media import HEADER_BYTES, ImageHeader, read_header
from mmdeploy.estimator.router import BYTES_PER_TOKEN, VideoMetadata

CHAT, COMPLETIONS, RESPONSES, EMBEDDINGS, CONVERSATIONS = (
    "/chat/completions",
    "/completions",
    "/responses",
    "/embeddings",
    "/conversations",
)
_SHAPES = (("messages", CHAT), ("prompt", COMPLETIONS), ("input", RESPONSES), ("items", CONVERSATIONS))
"""The field that shows which API a body without a path is for."""

_CHAT_TYPES: dict[str, type] = {
    "messages": list,
    "tools": list,
    "documents": list,
    "chat_template": str,
    "return_assistant_tokens_mask": bool,
    "continue_final_message": bool,
    "add_generation_prompt": bool,
    "chat_template_kwargs": dict,
    "cache_salt": str,
}
_MESSAGE_TYPES: dict[str, type] = {"role": str, "tool_calls": list}
_PART_TYPES: dict[str, type] = {"type": str, "text": str, "image_url": dict, "input_audio": dict, "video_url": dict}
_MEDIA_TYPES: dict[str, dict[str, type]] = {
    "image_url": {"url": str},
    "input_audio": {"data": str, "format": str},
    "video_url": {"url": str},
}
_WORDS = {list: "a list", str: "text", bool: "true or false", dict: "an object"}
_STANDARD = re.compile(r"[A-Za-z0-9+/\r\n]*")
_URL_SAFE = str.maketrans("-_", "+/")


@dataclass(slots=True)
class Request:
    """What the router makes of one body."""

    items: list[Item] = field(default_factory=list)
    """Media that it prices, in order."""
    text_tokens: int = 0
    """Tokens that it counts for everything else."""
    unpriced: list[str] = field(default_factory=list)
    """Media that the model reads and the router counts nothing for, by type."""
    rejected: str = ""
    """Why it answers 400; empty when it does not."""


class _RejectedError(Exception):
    """The router does not take this body."""


def read(body: Any, path: str = "", headers: Mapping[str, str] | None = None) -> Request:
    """What the router makes of ``body``, sent to ``path`` (empty: the API that the body's fields show)."""
    request = Request()
    try:
        if not isinstance(body, dict):
            raise _RejectedError("the body is no JSON object")
        api = _api(body, path)
        if api == CHAT:
            _Chat(request, VideoMetadata.from_headers(headers or {})).read(body)
        elif api == COMPLETIONS:
            _completions(body, request)
        else:
            _by_json(body, api, request)
    except _RejectedError as refusal:
        return Request(rejected=str(refusal))
    return request


def _api(body: Mapping[str, Any], path: str) -> str:
    """By the path's end, as the router does; what it does not know is a completion to it."""
    if path:
        plain = path.partition("?")[0].rstrip("/").removesuffix("/render")
        known = (CONVERSATIONS, RESPONSES, CHAT, COMPLETIONS, EMBEDDINGS)
        return next((api for api in known if plain.endswith(api)), COMPLETIONS)
    return next((api for name, api in _SHAPES if _get(body, name) is not None), CHAT)


class _Chat:
    """Roles, text and media of a chat request, in one stream that is cut into tokens at each medium."""

    def __init__(self, request: Request, said: VideoMetadata) -> None:
        self._request, self._said = request, said
        self._bytes = 0

    def read(self, body: Mapping[str, Any]) -> None:
        _check(body, _CHAT_TYPES, "")
        messages = _get(body, "messages")
        if not messages:
            raise _RejectedError("messages is missing or empty")
        tools = _get(body, "tools")
        if tools:
            self._bytes += gojson.length(tools)
        for at, message in enumerate(messages):
            if message is not None:
                self._message(message, f"messages[{at}]")
        self._cut()

    def _message(self, message: Any, at: str) -> None:
        _check(message, _MESSAGE_TYPES, at)
        self._bytes += gojson.utf8_length(_get(message, "role") or "")
        content = _get(message, "content")
        if isinstance(content, str):
            self._bytes += gojson.utf8_length(content)
        elif isinstance(content, list):
            for index, part in enumerate(content):
                if part is not None:
                    self._part(part, f"{at}.content[{index}]")
        elif content is not None:
            raise _RejectedError(f"{at}.content must be text or a list of parts")

    def _part(self, part: Any, at: str) -> None:
        _check(part, _PART_TYPES, at)
        media = {name: _get(part, name) or {} for name in _MEDIA_TYPES}
        for name, value in media.items():
            _check(value, _MEDIA_TYPES[name], f"{at}.{name}")
        kind = _get(part, "type")
        if kind == "text":
            self._bytes += gojson.utf8_length(_get(part, "text") or "")
        elif kind == "image_url":
            self._add(picture(_get(media[kind], "url") or ""))
        elif kind == "video_url":
            self._add(_video(_get(media[kind], "url") or "", self._said))
        elif kind in ("input_audio", "audio_url"):
            sound = media["input_audio"]
            self._add(_sound(_get(sound, "data") or "", _get(sound, "format") or ""))
        elif kind:
            self._request.unpriced.append(str(kind))

    def _add(self, item: Item) -> None:
        self._cut()
        self._request.items.append(item)

    def _cut(self) -> None:
        """A medium starts on a whole token."""
        self._request.text_tokens += _packed(self._bytes)
        self._bytes = 0


def _completions(body: Mapping[str, Any], request: Request) -> None:
    prompt = _get(body, "prompt")
    texts = [prompt] if isinstance(prompt, str) else prompt
    if not prompt or not isinstance(texts, list):
        raise _RejectedError("prompt is missing or empty")
    if all(isinstance(text, str) for text in texts):
        request.text_tokens = sum(_packed(gojson.utf8_length(text)) for text in texts)
    elif all(isinstance(token, int | float) and token == int(token) and 0 <= token < 1 << 32 for token in texts):
        request.text_tokens = len(texts)
    else:
        raise _RejectedError("prompt mixes text and token numbers")


def _by_json(body: Mapping[str, Any], api: str, request: Request) -> None:
    """APIs that are priced by the length of their JSON, embedded media included."""
    if api == CONVERSATIONS:
        counted = _get(body, "items")
    else:
        counted = _get(body, "input")
    if not counted:
        raise _RejectedError(f"{'items' if api == CONVERSATIONS else 'input'} is missing or empty")
    if api == RESPONSES:
        parts = [{name: _get(body, name)} for name in ("instructions", "tools") if _get(body, name) is not None]
        counted = [*parts, {"input": counted}]
    request.text_tokens = _packed(gojson.length(counted))
    request.unpriced += _media_in(counted)


def _media_in(value: Any) -> list[str]:
    """Types of the media parts anywhere in ``value``."""
    if isinstance(value, list):
        return [kind for item in value for kind in _media_in(item)]
    if not isinstance(value, dict):
        return []
    kind = value.get("type")
    own = [kind] if kind in ("input_image", "input_audio", "input_video", "input_file") else []
    return own + [kind for item in value.values() for kind in _media_in(item)]


def picture(url: str) -> Picture:
    """A picture by its URL: its true size where the URL holds it, and whether the router finds it there.

    The router wants ``data:image/`` and standard base64, and stops at the first character that is none.
    """
    if not url.startswith("data:"):
        return Picture(0, 0, "URL")
    payload = url.partition("base64,")[2]
    header = _header(payload)
    if header is None:
        other = _header(payload.translate(_URL_SAFE))
        if other is None:
            return Picture(0, 0, "what the data URL holds")
        return Picture(other.width, other.height, "url-safe base64")
    if not url.startswith("data:image/"):
        return Picture(header.width, header.height, "a data URL that does not begin with data:image/")
    hidden = "" if header.router_reads else format_title(header.format)
    return Picture(header.width, header.height, hidden)


def _header(payload: str) -> ImageHeader | None:
    for length in (HEADER_BYTES // 3 * 4, len(payload)):
        data = _decoded(payload[:length])
        try:
            return read_header(data)
        except UsageError:
            if length >= len(payload):
                return None
    return None


def _decoded(payload: str) -> bytes:
    """The bytes up to the first character that is not standard base64."""
    match = _STANDARD.match(payload)
    clean = match[0].replace("\r", "").replace("\n", "") if match else ""
    whole = len(clean) // 4 * 4
    rest = clean[whole:]
    return base64.b64decode(clean[:whole] + (rest + "=" * (4 - len(rest)) if len(rest) > 1 else ""))


def _video(url: str, said: VideoMetadata) -> Clip:
    """A video: what its data URL holds, or else what the headers say of it, is taken for true."""
    nbytes = gojson.utf8_length(url)
    if url.startswith("data:"):
        data = _decoded(url.partition("base64,")[2])
        try:
            movie = clips.read_movie(io.BytesIO(data), len(data))
        except UsageError as problem:
            return Clip(0, 0, 0.0, 0.0, said, nbytes, problem.found)
        if movie.frames and movie.duration:
            return Clip(movie.width, movie.height, movie.fps, movie.duration, said, nbytes)
    known = said.width and said.fps and said.duration
    unread = "" if known else "nobody says its size, length and frame rate"
    return Clip(said.width, said.height, said.fps, said.duration, said, nbytes, unread)


def _sound(data: str, kind: str) -> Sound:
    nbytes = gojson.utf8_length(data) + gojson.utf8_length(kind)
    if not nbytes:
        return Sound(0.0, 0, "the router does not read audio URLs")
    if kind.lower() == "wav":
        try:
            return Sound(clips.read_wave(io.BytesIO(_decoded(data))), nbytes)
        except (UsageError, binascii.Error):
            return Sound(0.0, nbytes, "its WAV header cannot be read")
    return Sound(0.0, nbytes, f"the length of a sound in {kind.upper() or 'no format'} is not read")


def _get(value: Mapping[str, Any], name: str) -> Any:
    """A field by its name, or by another spelling of it in capitals."""
    if name in value:
        return value[name]
    return next((item for key, item in value.items() if key.lower() == name), None)


def _check(value: Any, types: Mapping[str, type], at: str) -> None:
    if not isinstance(value, dict):
        raise _RejectedError(f"{at} must be an object, not {_short(value)}")
    for name, kind in types.items():
        found = _get(value, name)
        if found is not None and not isinstance(found, kind):
            where = f"{at}.{name}" if at else name
            raise _RejectedError(f"{where} must be {_WORDS[kind]}, not {_short(found)}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _packed(nbytes: int) -> int:
    return -(-nbytes // BYTES_PER_TOKEN)
