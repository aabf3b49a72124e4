"""The entry point: the proxy that asks the endpoint picker about each request, and sends it where the picker says.

Source: facts router-observed.md ("What each request does", "Wrong configurations"), router.md sections 4.3 and 5.2.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from mmdeploy.estimator import bodies
from mmdeploy.rehearse.ledger import Entry
from mmdeploy.rehearse.messages import METRICS, TEXT, Message, Reply, UnreachableError, refusal
from mmdeploy.rehearse.picker import Member, NobodyError, Picker
from mmdeploy.rehearse.settings import Clock, RouterSettings

Send = Callable[[str, int, Message], Reply]


class EntryPoint:
    """Proxy and picker as a client sees them."""

    def __init__(
        self,
        settings: RouterSettings,
        picker: Picker,
        clock: Clock,
        send: Send,
        members: Callable[[], Sequence[Member]],
        seed: int,
    ) -> None:
        self.settings, self.picker, self._clock, self._send = settings, picker, clock, send
        self._members = members
        self._lot = random.Random(seed)

    def __call__(self, message: Message) -> Reply:
        """Answer one request."""
        if not self.settings.up:
            return Reply(500, "", TEXT)
        if message.method != "POST":
            return self._anywhere(message)
        body = message.content
        request = bodies.read(body, message.path, message.headers)
        if request.rejected:
            return refusal(400, f"invalid request: {request.rejected}")
        try:
            route = self.picker.route(message, request)
        except NobodyError as problem:
            self.picker.ledger.refused(str(body.get("model")), self._fairness(message), problem.status)
            return refusal(problem.status, str(problem), "ServiceUnavailable")
        return self._sent(message, route.address, route.headers, route.entry)

    def _fairness(self, message: Message) -> str:
        said = self.picker.facts["fairness"]
        return message.headers.get(said["header"]) or said["default"]

    def _anywhere(self, message: Message) -> Reply:
        """What has no body goes to any pod of the pool, encode pods too."""
        members = self._members()
        if not members:
            return refusal(503, "no endpoints available for the given request", "ServiceUnavailable")
        pod = self._lot.choice(members).pod
        try:
            return self._send(pod.place, pod.port, message)
        except UnreachableError:
            return Reply(503, "upstream connect error or disconnect/reset before headers", TEXT)

    def _sent(self, message: Message, address: str, headers: Mapping[str, str], entry: Entry) -> Reply:
        """Headers of a client that the picker does not set survive."""
        ledger = self.picker.ledger
        host, _, port = address.rpartition(":")
        started = self._clock.now()
        try:
            reply = self._send(host, int(port), message.with_headers(**headers))
        except UnreachableError:
            ledger.ended(entry, 503, None)
            return Reply(503, "upstream connect error or disconnect/reset before headers", TEXT)
        limit = self.settings.route_seconds
        if limit and self._clock.now() - started > limit:
            ledger.ended(entry, 504, None)
            return Reply(504, "upstream request timeout", TEXT)
        if reply.chunks is not None:
            return Reply(reply.status, kind=reply.kind, chunks=self._passed_on(reply, entry))
        ledger.first_chunk(entry, streaming=False)
        usage = reply.content.get("usage") if isinstance(reply.content, dict) else None
        ledger.ended(entry, reply.status, usage)
        return reply

    def _passed_on(self, reply: Reply, entry: Entry) -> Iterator[bytes]:
        usage: dict[str, Any] | None = None
        first = True
        try:
            for chunk in reply.chunks or ():
                if first:
                    self.picker.ledger.first_chunk(entry, streaming=True)
                    first = False
                usage = _usage(chunk) or usage
                yield chunk
        finally:
            self.picker.ledger.ended(entry, reply.status, usage)


class PickerMetrics:
    """``/metrics`` of the picker, with its authentication."""

    def __init__(
        self,
        settings: RouterSettings,
        picker: Picker,
        fresh: Callable[[float], Sequence[str]],
        failing: Callable[[], Sequence[str]],
    ) -> None:
        self.settings, self.picker, self._fresh, self._failing = settings, picker, fresh, failing

    def __call__(self, message: Message) -> Reply:
        """Answer one request. Raises `UnreachableError` while the picker is down."""
        if not self.settings.up:
            raise UnreachableError("the endpoint picker is down")
        given = message.headers.get("authorization", "")
        if self.settings.authentication != "open" and not given:
            return Reply(401, "Unauthorized\n", TEXT)
        if self.settings.authentication == "broken":
            return Reply(500, "Authentication failed\n", TEXT)
        if self.settings.authentication == "token" and given != f"Bearer {self.settings.token}":
            return Reply(403, "Forbidden\n", TEXT)
        if message.path.partition("?")[0] != "/metrics":
            return Reply(404, "404 page not found\n", TEXT)
        return Reply(200, self.picker.ledger.text(self._fresh, self._failing()), METRICS)


def _usage(chunk: bytes) -> dict[str, Any] | None:
    """The usage in a server-sent event, where it carries one."""
    if b'"usage"' not in chunk:
        return None
    try:
        found = json.loads(chunk.removeprefix(b"data: "))
    except ValueError:
        return None
    usage = found.get("usage") if isinstance(found, dict) else None
    return usage if isinstance(usage, dict) else None
