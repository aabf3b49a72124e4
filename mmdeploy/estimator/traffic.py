"""Recorded traffic, one JSON value a line: priced and counted in one pass, in memory that does not grow with it.

A line is one of

- a size: ``{"width": 1280, "height": 720}`` with ``via`` (``inline``, the default, or ``url``), ``format`` (``png``,
  the default, ``jpeg``, ``gif``, ``webp``, ``avif``, ``heic``, ``bmp``, ``tiff``) and ``count`` (default 1);
- the same with ``"type": "video"``, ``fps``, ``duration`` in seconds, and ``headers`` (true, the default, when the
  client sends the three ``x-llm-d-video-*`` headers);
- ``{"type": "audio", "duration": 30}``, with ``via``;
- a request body: OpenAI chat, completions or responses;
- a request: ``{"url": "/v1/chat/completions", "headers": {...}, "body": {...}}``, the form of batch files.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, BinaryIO, NoReturn

from mmdeploy.catalog.families import Family
from mmdeploy.errors import UsageError
from mmdeploy.estimator import bodies, items
from mmdeploy.estimator.costs import KINDS, cost
from mmdeploy.estimator.distribution import Distribution
from mmdeploy.estimator.items import LIMIT, Asked, Clip, Item, Picture, Sound
from mmdeploy.estimator.media import ROUTER_FORMATS
from mmdeploy.estimator.router import Estimator, VideoMetadata
from mmdeploy.estimator.sample import Samples
from mmdeploy.estimator.visual import image_counter

CHUNK_BYTES = 1 << 18
LINE_LIMIT = 64 << 20
"""Bytes; a longer line is no request that a router takes (Envoy's and the engines' limits are far below)."""

SHOWN = 5
"""Problems that are kept word for word; the rest are only counted."""

_HIDDEN: dict[tuple[Any, Any], str] = {
    (via, name): "URL" if via == "url" else "" if name in seen else items.format_title(str(name))
    for seen in [(None, *ROUTER_FORMATS, "jpg")]
    for via in (None, "inline", "url")
    for name in (*seen, *items.UNSEEN_FORMATS)
}
"""``via`` and ``format`` of a line → why the router does not see the size; empty when it does."""

_KNOWN_SIZES = 1 << 15
"""Sizes whose true count is remembered, for models where counting takes longer than remembering."""


@dataclass
class Tally:
    """What was found in the traffic."""

    lines: int = 0
    requests: int = 0
    """Lines that hold a request body."""
    rejected: int = 0
    """Requests that the router answers with 400."""
    unreadable: int = 0
    problems: list[tuple[int, str]] = field(default_factory=list)
    """Line number and what is wrong: the first `SHOWN` of the rejected and unreadable ones."""
    items: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS.values(), 0))
    """Media items by kind."""
    hidden: dict[str, int] = field(default_factory=dict)
    """Why the router cannot see an item → how many."""
    unpriced: dict[str, int] = field(default_factory=dict)
    """Types of media that the router counts nothing for → how many."""
    refused: int = 0
    """Pictures that the model refuses."""
    uncounted: int = 0
    """Items whose true count is not known; their price is in ``uncounted_router_tokens``."""
    uncounted_router_tokens: int = 0
    text_router_tokens: int = 0
    """Tokens that the router counts for the text around the media."""
    errors: Distribution = field(default_factory=Distribution)

    @property
    def media(self) -> int:
        """Media items of every kind."""
        return sum(self.items.values())


class Traffic:
    """Reads lines, prices them under ``estimator`` (None: precise routing), and counts them for ``family``."""

    def __init__(self, family: Family, estimator: Estimator | None, samples: Samples | None = None) -> None:
        self.tally = Tally()
        self.samples = samples
        self._family, self._estimator = family, estimator
        counter = image_counter(family)
        self._count = lru_cache(_KNOWN_SIZES)(counter) if family.kind == "tiles" else counter
        self._unseen = estimator.image_unseen() if estimator else None
        self._scan = json.JSONDecoder(parse_constant=_no_constant).raw_decode

    def read(self, stream: BinaryIO) -> None:
        """Read ``stream`` to its end."""
        for lines in _batches(stream):
            self._sizes(lines)
            self.tally.lines += len(lines)

    def _sizes(self, lines: list[str | None]) -> None:
        """Count plain size lines of pictures; everything else is read one by one.

        This loop runs for every line of files that may be long, so it does as little as it can, and lines that occur
        again in the same batch are read once.
        """
        scan, tokens, samples = self._scan, self._count, self.samples
        unseen = self._unseen
        price_of = self._estimator.image if self._estimator else tokens
        hidden = dict.fromkeys(_HIDDEN.values(), 0)
        others: set[str | None] = set()
        priced: list[tuple[int, int, int]] = []
        for line, count in Counter(lines).items():
            try:
                value, end = scan(line)  # type: ignore[arg-type]  # None raises, and is told of below
                width, height, via, name = value["width"], value["height"], value.get("via"), value.get("format")
                plain = (via is None) + (name is None) + len(value) == 4 and end == len(line)  # type: ignore[arg-type]
                why = _HIDDEN[via, name]
                if not (plain and type(width) is type(height) is int and 0 < width < LIMIT and 0 < height < LIMIT):
                    raise ValueError
                true = tokens(width, height)
            except Exception:  # whatever it is, the slow way says it in words
                others.add(line)
                continue
            price = (true if unseen is None else unseen) if why else price_of(width, height)
            priced.append((price, true, count))
            hidden[why] += count
            if samples:
                samples.add_picture(width, height, not why, true, count)
        self.tally.errors.extend(priced)
        self.tally.items["image"] += sum(hidden.values())
        for why, count in hidden.items():
            if why and count:
                self.tally.hidden[why] = self.tally.hidden.get(why, 0) + count
        if others:
            for at, each in enumerate(lines):
                if each in others:
                    self._line(at, each)

    def _line(self, at: int, line: str | None) -> None:
        """One line the slow way; ``at`` counts from 0 within the batch."""
        number = self.tally.lines + at + 1
        try:
            if line is None:
                raise UsageError(f"longer than {LINE_LIMIT >> 20} MiB")
            if not line.strip():
                return
            self._value(json.loads(line, parse_constant=_no_constant), number)
        except UsageError as problem:
            self.tally.unreadable += 1
            self._problem(number, problem.found)
        except (ValueError, RecursionError) as problem:
            self.tally.unreadable += 1
            words = problem.msg if isinstance(problem, json.JSONDecodeError) else problem
            self._problem(number, f"not JSON: {words}")

    def _problem(self, number: int, words: str) -> None:
        if len(self.tally.problems) < SHOWN:
            self.tally.problems.append((number, words))

    def _value(self, value: Any, number: int) -> None:
        if not isinstance(value, dict):
            raise UsageError("neither a size nor a request: no JSON object")
        if "body" in value:
            self._request(value["body"], value, number)
        elif any(name in value for name in ("messages", "prompt", "input", "items")):
            self._request(value, {}, number)
        else:
            item = _described(value)
            self._item(item, _whole(value, "count", 1))

    def _request(self, body: Any, around: Mapping[str, Any], number: int) -> None:
        path, headers = around.get("url", ""), around.get("headers") or {}
        if not isinstance(path, str) or not isinstance(headers, dict):
            raise UsageError("`url` must be text and `headers` an object")
        if path.partition("?")[0].endswith("/messages"):
            raise UsageError("bodies for Anthropic's /v1/messages are not read")
        request = bodies.read(body, path, {name: str(said) for name, said in headers.items()})
        self.tally.requests += 1
        if request.rejected:
            self.tally.rejected += 1
            self._problem(number, f"the router answers 400: {request.rejected}")
            return
        self.tally.text_router_tokens += request.text_tokens
        for kind in request.unpriced:
            self.tally.unpriced[kind] = self.tally.unpriced.get(kind, 0) + 1
        for item in request.items:
            self._item(item, 1)

    def _item(self, item: Item, count: int) -> None:
        tally, found = self.tally, cost(Asked("", item), self._family, self._estimator)
        tally.items[found.kind] += count
        hidden = _why_hidden(item)
        if hidden:
            tally.hidden[hidden] = tally.hidden.get(hidden, 0) + count
        if found.model is None:
            if isinstance(item, Picture) and item.width:
                tally.refused += count
            else:
                tally.uncounted += count
            tally.uncounted_router_tokens += (found.router or 0) * count
            return
        tally.errors.add(found.model if found.router is None else found.router, found.model, count)
        if self.samples and isinstance(item, Picture):
            self.samples.add_picture(item.width, item.height, not item.hidden, found.model, count)
        elif self.samples and isinstance(item, Clip):
            told = item.said != VideoMetadata()
            self.samples.videos.add((item.width, item.height, item.fps, item.duration, told, found.model), count)


def _why_hidden(item: Item) -> str:
    match item:
        case Picture():
            return item.hidden
        case Clip():
            return "video without headers" if item.said == VideoMetadata() else ""
        case Sound():
            return "" if item.inline_bytes else "audio URL"
        case _:
            return ""


def _described(value: Mapping[str, Any]) -> Item:
    """A line that describes one item. Raises `UsageError` for what is missing or cannot be."""
    kind, via, name = value.get("type", "image"), value.get("via"), value.get("format")
    if kind == "audio":
        words = ("", ",url")[via == "url"]
        return items.audio(f"{_above_zero(value, 'duration'):.12g}s{words}").item
    if kind not in ("image", "video"):
        raise UsageError(f"`type` must be image, video or audio, not {kind!r}")
    if "width" not in value or "height" not in value:
        raise UsageError("neither a size (`width` and `height`) nor a request (`messages` or `body`)")
    width, height = _whole(value, "width"), _whole(value, "height")
    if kind == "video":
        fps, duration = _above_zero(value, "fps"), _above_zero(value, "duration")
        told = value.get("headers", True)
        said = VideoMetadata(width, height, duration, fps) if told else VideoMetadata()
        return Clip(width, height, fps, duration, said)
    if not isinstance(via, str | None) or via not in (None, "inline", "url"):
        raise UsageError(f"`via` must be inline or url, not {via!r}")
    hidden = _HIDDEN.get((via, name)) if isinstance(name, str | None) else None
    if hidden is None:
        known = ", ".join((*ROUTER_FORMATS, *items.UNSEEN_FORMATS))
        raise UsageError(f"`format` must be one of {known}, not {name!r}")
    return Picture(width, height, hidden)


def _whole(value: Mapping[str, Any], name: str, default: int | None = None) -> int:
    number = value.get(name, default)
    if type(number) is float and number.is_integer():
        number = int(number)
    if type(number) is not int or not 0 < number < LIMIT:
        raise UsageError(f"`{name}` must be a whole number of 1 or more, not {number!r}")
    return number


def _above_zero(value: Mapping[str, Any], name: str) -> float:
    number = value.get(name)
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < LIMIT:
        raise UsageError(f"`{name}` must be a number above 0, not {number!r}")
    return float(number)


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON number")


def _batches(stream: BinaryIO) -> Iterator[list[str | None]]:
    """Lines without their ends, some thousands at a time; None stands for one that is too long.

    Bytes that are not UTF-8 become the mark that Go's decoder puts there.
    """
    parts: list[bytes] = []
    held, start = 0, True
    while chunk := stream.read(CHUNK_BYTES):
        if start:
            chunk, start = chunk.removeprefix(b"\xef\xbb\xbf"), False
        head, newline, tail = chunk.rpartition(b"\n")
        if newline:
            too_long = held > LINE_LIMIT
            first, newline, rest = head.partition(b"\n")
            lines: list[str | None] = [None if too_long else _text(b"".join([*parts, first]))]
            yield lines + _lines(rest) if newline else lines
            parts, held = [tail], len(tail)
        else:
            held += len(chunk)
            if held <= LINE_LIMIT:
                parts.append(chunk)
            else:
                parts = []
    if held:
        yield [_text(b"".join(parts)) if held <= LINE_LIMIT else None]


def _lines(data: bytes) -> list[str | None]:
    return [*_text(data).replace("\r\n", "\n").split("\n")]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").removesuffix("\r")
