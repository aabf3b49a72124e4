"""Simulated SGLang servers: encoders, and the language server that asks them itself.

Source: facts model-servers.md section 4. The language server sends each medium to one of ``--encoder-urls`` in turn;
it has no vision tower, so a medium that no encoder takes is an error.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from mmdeploy.rehearse import prompts
from mmdeploy.rehearse.engine import Answer, Engine, completion, streamed
from mmdeploy.rehearse.messages import EVENTS, Message, Reply, UnreachableError, post, refusal
from mmdeploy.rehearse.prompts import Medium, Prompt

ENCODE = "/encode"


class Encoder(Engine):
    """``--encoder-only``: no model list, no chat."""

    def common_labels(self) -> dict[str, str]:
        """``model_name`` and ``dp_rank``."""
        return {"model_name": self.settings.served, "dp_rank": "0"}

    def started(self) -> None:
        """Nothing: the gauge of entries stands at 0."""

    def routes(self) -> Mapping[tuple[str, str], Callable[[Message], Reply]]:
        """``/encode`` and the health check that encodes."""
        return {("GET", "/health_generate"): self._generates, ("POST", ENCODE): self._encode}

    def _generates(self, message: Message) -> Reply:
        return Reply(503 if self.settings.fails else 200, "")

    def _encode(self, message: Message) -> Reply:
        """One medium: ``{"content": [PART]}``, wrapped as a message here; the wire's own shape is not imitated."""
        body = message.content
        if not isinstance(body, dict):
            return refusal(400, "the body is no JSON object")
        try:
            media = self.prompt_of({"messages": [{"role": "user", "content": body.get("content")}]}).media
        except prompts.RefusedError as problem:
            return refusal(400, str(problem))
        start = self.around.clock.now()
        fresh = 0
        with self.lock:
            for medium in media:
                fresh += self._counted(medium)
        self.wait(self.around.timings.encode * fresh)
        with self.lock:
            for medium in media:
                self._timed(medium, self.around.clock.now() - start)
        if self.settings.fails:
            return refusal(500, "encode failed", "InternalServerError")
        return Reply(200, {"embedding_tokens": sum(medium.tokens for medium in media)})

    def _counted(self, medium: Medium) -> int:
        kind = medium.modality
        self.metrics.add("received", modality=kind)
        self.metrics.add("requests", modality=kind, status="error" if self.settings.fails else "success")
        self.metrics.add("totalFiles", modality=kind)
        self.metrics.add("totalTokens", medium.tokens, modality=kind)
        known = self.settings.processor_cache and medium.digest in self.encodings
        if known:
            self.metrics.add("hitFiles", modality=kind)
            self.metrics.add("hitTokens", medium.tokens, modality=kind)
        self.encodings.add(medium.digest)
        self.metrics.set("entries", len(self.encodings))
        return 0 if known else 1

    def _timed(self, medium: Medium, seconds: float) -> None:
        self.metrics.observe("latency", seconds, modality=medium.modality)
        self.metrics.observe("forwardTime", seconds, modality=medium.modality)
        self.metrics.observe("items", 1, modality=medium.modality)
        self.metrics.observe("transferTime", 0.001, backend=self.settings.backend)


class Language(Engine):
    """The server that answers; ``--language-only`` when it has encoders."""

    def restart(self) -> None:
        """... and begin with the first encoder again."""
        self._turns = itertools.cycle(self.settings.encoder_urls)
        super().restart()

    def common_labels(self) -> dict[str, str]:
        """As of a server without ranks."""
        return {
            "model_name": self.settings.served,
            "engine_type": "unified",
            "tp_rank": "0",
            "pp_rank": "0",
            "moe_ep_rank": "0",
        }

    def started(self) -> None:
        """The page size, which the router takes for the block size."""
        self.metrics.set("pageSize", self.settings.block_size)

    def routes(self) -> Mapping[tuple[str, str], Callable[[Message], Reply]]:
        """The OpenAI paths."""
        return {
            ("GET", "/v1/models"): self.models,
            ("GET", "/health_generate"): lambda _: Reply(200, ""),
            ("GET", "/server_info"): lambda _: Reply(200, {"version": self.settings.version.removeprefix("v")}),
            ("POST", "/v1/chat/completions"): self._chat,
        }

    def _chat(self, message: Message) -> Reply:
        body = message.content
        refused = self.refused_model(body)
        if refused is not None:
            return refused
        try:
            prompt = self.prompt_of(body)
            start = self.around.clock.now()
            self._ask_encoders(body)
        except prompts.RefusedError as problem:
            return refusal(400, str(problem))
        except UnreachableError as problem:
            with self.lock:
                self.metrics.add("aborted")
            return refusal(500, f"no encoder took the media: {problem}", "InternalServerError")
        name = message.headers.get("x-request-id") or self.next_id()
        with self.lock:
            self.metrics.add("running")
            cached = self.cached_tokens(prompt)
        timings = self.around.timings
        self.wait(timings.first_token + timings.prompt_token * (prompt.tokens - cached))
        answer = self.answer(prompt, body)
        if body.get("stream"):
            return Reply(200, kind=EVENTS, chunks=self._events(name, prompt, answer, body, cached, start))
        self._finished(prompt, answer, cached, start, streaming=False)
        return Reply(200, completion(name, self.settings.served, prompt.tokens, answer, {}))

    def _ask_encoders(self, body: Mapping[str, Any]) -> None:
        """Each medium once to an encoder, in turn; the same URL twice is one."""
        if not self.settings.encoder_urls:
            return
        seen: set[str] = set()
        for message in body["messages"]:
            content = message.get("content")
            for part in content if isinstance(content, list) else ():
                if part.get("type") in prompts.MODALITIES and repr(part) not in seen:
                    seen.add(repr(part))
                    self._ask(part)

    def _ask(self, part: Mapping[str, Any]) -> None:
        """Raises `UnreachableError` where the encoder in turn does not answer, or fails."""
        url = urlsplit(next(self._turns))
        place = self.around.named(url.hostname or "", url.port or 80)
        if place is None:
            raise UnreachableError(f"{url.hostname} has no address")
        reply = self.around.send(*place, post(ENCODE, {"content": [part]}))
        if reply.status != 200:
            raise UnreachableError(f"{url.hostname} answered {reply.status}")

    def _events(
        self, name: str, prompt: Prompt, answer: Answer, body: Mapping[str, Any], cached: int, start: float
    ) -> Iterator[bytes]:
        options = body.get("stream_options")
        try:
            yield from streamed(
                name,
                self.settings.served,
                prompt.tokens,
                answer,
                usage=isinstance(options, dict) and bool(options.get("include_usage")),
                pieces=self.tokenizer.pieces(answer.text),
                pause=lambda: self.wait(self.around.timings.output_token),
            )
        finally:
            self._finished(prompt, answer, cached, start, streaming=True)

    def _finished(self, prompt: Prompt, answer: Answer, cached: int, start: float, *, streaming: bool) -> None:
        kind = str(streaming).lower()
        seconds = self.around.clock.now() - start
        with self.lock:
            self.metrics.add("running", -1)
            self.metrics.add("requests", is_streaming=kind)
            self.metrics.add("promptTokens", prompt.tokens, is_streaming=kind)
            self.metrics.add("generationTokens", answer.tokens, is_streaming=kind)
            if cached:
                self.metrics.add("cachedTokens", cached, cache_source="device")
            self.metrics.observe("firstToken", seconds, is_streaming=kind)
            self.metrics.observe("latency", seconds, is_streaming=kind)
