"""What an OpenAI answer says, streamed or whole."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mmdeploy.verify.transport import Answer

LONGEST_TEXT = 2000
LARGEST_NUMBER = 2**63
DEEPEST = 40
"""Levels of an answer that are looked at; a chat answer has about six."""
_KEPT_HEADERS = (
    "x-llm-d-request-dropped-reason",
    "server",
    "x-envoy-upstream-service-time",
    "content-type",
    "location",
)


@dataclass(frozen=True)
class Reading:
    """An answer, read."""

    text: str = ""
    usage: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)
    first: float | None = None
    error: str = ""


def read(answer: Answer, streamed: bool) -> Reading:
    """What the body says; a body that is no such answer gives its beginning as ``error``."""
    kept = {f"header:{name}": answer.headers[name] for name in _KEPT_HEADERS if name in answer.headers}
    if answer.trouble:
        said = f"{answer.trouble}: {answer.detail}" if answer.detail else answer.trouble
        return Reading(fields=kept, error=said)
    if streamed and answer.body.lstrip().startswith(b"data:"):
        return _streamed(answer, kept)
    try:
        document = _plain(json.loads(answer.body))
    except (ValueError, RecursionError):
        return Reading(fields=kept, error=_beginning(answer.body) if answer.body else "")
    if not isinstance(document, dict):
        return Reading(fields=kept, error=_beginning(answer.body))
    if answer.status is not None and answer.status >= 300:
        return Reading(fields=kept, error=_beginning(answer.body))
    return _whole(document, kept)


def _whole(document: Mapping[str, Any], kept: Mapping[str, Any]) -> Reading:
    fields = {**kept, **{key: document[key] for key in ("model", "version") if isinstance(document.get(key), str)}}
    if "ec_transfer_params" in document:
        fields["ec_transfer_params"] = document["ec_transfer_params"]
    if isinstance(document.get("data"), list):
        ids = (item.get("id") for item in document["data"] if isinstance(item, dict))
        fields["models"] = [id for id in ids if isinstance(id, str)]
    choice = _first(document.get("choices"))
    message = choice.get("message")
    text = _text(message if isinstance(message, dict) else {})
    if choice.get("finish_reason"):
        fields["finish_reason"] = str(choice["finish_reason"])
    return Reading(text, _usage(document.get("usage")), fields)


def _streamed(answer: Answer, kept: Mapping[str, Any]) -> Reading:
    text, first = "", None
    usage: Mapping[str, Any] = {}
    fields = dict(kept)
    for at, event in _events(answer):
        usage = _usage(event.get("usage")) or usage
        if isinstance(event.get("model"), str) and event["model"]:
            fields["model"] = event["model"]
        if "error" in event:
            return Reading(text, usage, fields, first, _beginning(json.dumps(event["error"]).encode()))
        choice = _first(event.get("choices"))
        delta = choice.get("delta")
        piece = _text(delta if isinstance(delta, dict) else {}, cut=False)
        if piece and first is None:
            first = at
        text += piece
        if choice.get("finish_reason"):
            fields["finish_reason"] = str(choice["finish_reason"])
    return Reading(text[:LONGEST_TEXT], usage, fields, first)


def _events(answer: Answer) -> Iterator[tuple[float, dict[str, Any]]]:
    """Each ``data:`` line that holds an object, with the time at which it was there in full."""
    left = b""
    for at, piece in (*answer.pieces, (answer.seconds, b"\n")):
        *lines, left = (left + piece).split(b"\n")
        for line in lines:
            name, _, data = line.strip().partition(b":")
            if name != b"data":
                continue
            try:
                event = _plain(json.loads(data))
            except (ValueError, RecursionError):
                continue  # [DONE], or a line that broke off
            if isinstance(event, dict):
                yield at, event


def _plain(value: Any, depth: int = 0) -> Any:
    """What a server says, as it can be kept, added and printed: no number that is none or that no counter holds, no
    half of a surrogate pair, nothing nested without end; null in their place. Servers are not trusted to be well."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value if -LARGEST_NUMBER < value < LARGEST_NUMBER else None
    if isinstance(value, (dict, list)) and depth >= DEEPEST:
        return None
    if isinstance(value, dict):
        return {_plain(key): _plain(item, depth + 1) for key, item in value.items()}
    return [_plain(item, depth + 1) for item in value] if isinstance(value, list) else value


def _usage(said: Any) -> dict[str, Any]:
    """Counts, and ``..._details`` of counts; anything else that stands there is left out."""
    if not isinstance(said, dict):
        return {}
    found: dict[str, Any] = {}
    for key, value in said.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found[key] = value
        elif key.endswith("_details"):
            found[key] = _usage(value)
    return found


def _first(choices: Any) -> Mapping[str, Any]:
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}


def _text(message: Mapping[str, Any], cut: bool = True) -> str:
    """The content; of a model that thinks aloud and was cut short, its thoughts."""
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    said = content or message.get("reasoning_content") or message.get("reasoning") or ""
    return str(said)[:LONGEST_TEXT] if cut else str(said)


def _beginning(body: bytes) -> str:
    text = " ".join(body[:400].decode("utf-8", "replace").split())
    return text if len(body) <= 400 else f"{text}..."
