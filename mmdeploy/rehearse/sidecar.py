"""The routing sidecar: encode, then prefill, then the engine behind it, as the router's headers say.

Source: facts router.md section 5, router-observed.md ("What each request does", "Wrong configurations").
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from mmdeploy.rehearse.engine import Engine
from mmdeploy.rehearse.messages import Message, Reply, UnreachableError, refusal
from mmdeploy.rehearse.prompts import MODALITIES
from mmdeploy.rehearse.settings import SidecarSettings

CHAT = "/v1/chat/completions"
PLAIN_TO_TLS = "Client sent an HTTP request to an HTTPS server.\n"
"""What a TLS listener answers to plain HTTP, with a 400."""


class Sidecar:
    """One sidecar process, in the pod of ``engine``. Calling it with a request is asking it over HTTP."""

    def __init__(self, settings: SidecarSettings, engine: Engine) -> None:
        self.settings, self.engine = settings, engine
        self._headers = engine.around.facts["headers"]
        self._count = itertools.count(1)

    def __call__(self, message: Message) -> Reply:
        """Answer one request."""
        if self.settings.tls:
            return Reply(400, PLAIN_TO_TLS, "text/plain")
        path = message.path.partition("?")[0]
        if path == "/health":
            return Reply(200, "")
        prefiller = message.headers.get(self._headers["prefiller"], "")
        encoders = [
            each.strip() for each in message.headers.get(self._headers["encoders"], "").split(",") if each.strip()
        ]
        inner = _without(message, (self._headers["prefiller"], self._headers["encoders"]))
        body = message.content
        if message.method != "POST" or path != CHAT or not isinstance(body, dict):
            return self._local(inner)
        return self._staged(inner, dict(body), prefiller, encoders)

    def _staged(self, message: Message, body: dict[str, Any], prefiller: str, encoders: Sequence[str]) -> Reply:
        name = hashlib.sha256(f"{self.engine.pod.name}/sidecar/{next(self._count)}".encode()).hexdigest()[:32]
        if encoders and self.settings.ec_connector:
            items = media_items(body)
            if items:
                self._log(f"processing multimodal items count={len(items)} encoderHostPorts={','.join(encoders)}")
                failed = self._encode(message, body, items, encoders, name)
                if failed is not None:
                    return failed
        if prefiller:
            reply = self._prefill(message, body, prefiller, name)
            if reply.status != 200:
                return reply
            moved = reply.content.get("kv_transfer_params") if isinstance(reply.content, dict) else None
            if moved:
                body = {**body, "kv_transfer_params": moved}
            else:
                self._log("warning: missing 'kv_transfer_params' field in prefiller response")
        return self._local(_with_body(message, body))

    def _encode(
        self,
        message: Message,
        body: dict[str, Any],
        items: Sequence[Mapping[str, Any]],
        encoders: Sequence[str],
        name: str,
    ) -> Reply | None:
        """Ask for each item, round robin over ``encoders``, and merge what they hand over into ``body``; or a 502."""
        merged: dict[str, Any] = {}
        for index, item in enumerate(items):
            asked = {**body, "messages": [{"role": "user", "content": [item]}], "max_tokens": 1, "stream": False}
            asked.pop("stream_options", None)
            if "max_completion_tokens" in asked:
                asked["max_completion_tokens"] = 1
            sent = _with_body(message, asked).with_headers(**{self._headers["request"]: f"{name}-enc-{index}"})
            try:
                reply = self._send(encoders[index % len(encoders)], sent)
            except UnreachableError as problem:
                return refusal(502, f"encoder request failed: {problem}", "BadGateway")
            if reply.status >= 400:
                return refusal(502, f"encoder request failed: status {reply.status}", "BadGateway")
            found = reply.content.get("ec_transfer_params") if isinstance(reply.content, dict) else None
            if isinstance(found, dict):
                merged |= found
        if self.settings.ec_connector != "ec-nixl":
            return None
        if merged:
            body["ec_transfer_params"] = merged
        else:
            self._log("warning: no encoder response carried ec_transfer_params; forwarding without them")
        return None

    def _prefill(self, message: Message, body: Mapping[str, Any], prefiller: str, name: str) -> Reply:
        handed = {"do_remote_decode": True, "do_remote_prefill": False}
        asked = {**body, "max_tokens": 1, "stream": False, "kv_transfer_params": handed}
        asked.pop("stream_options", None)
        if "max_completion_tokens" in asked:
            asked["max_completion_tokens"] = 1
        try:
            return self._send(prefiller, _with_body(message, asked).with_headers(**{self._headers["request"]: name}))
        except UnreachableError as problem:
            return refusal(502, f"prefiller request failed: {problem}", "BadGateway")

    def _send(self, place: str, message: Message) -> Reply:
        host, _, port = place.rpartition(":")
        if not port.isdigit():
            raise UnreachableError(f"{place!r} is no host and port")
        return self.engine.around.send(host, int(port), message)

    def _local(self, message: Message) -> Reply:
        return self.engine(message)

    def _log(self, text: str) -> None:
        self.engine.log("INFO", f"sidecar: {text}")


def media_items(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Media parts of a chat request, in order, each URL once."""
    found: dict[str, Mapping[str, Any]] = {}
    messages = body.get("messages")
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, Mapping) else None
        for part in content if isinstance(content, list) else ():
            if isinstance(part, Mapping) and part.get("type") in MODALITIES:
                found.setdefault(json.dumps(part, sort_keys=True), part)
    return list(found.values())


def _without(message: Message, names: Sequence[str]) -> Message:
    headers = {name: value for name, value in message.headers.items() if name not in names}
    return Message(message.method, message.path, headers, message.body)


def _with_body(message: Message, body: Mapping[str, Any]) -> Message:
    return Message(message.method, message.path, message.headers, json.dumps(body).encode())
