"""A simulated vLLM: aggregated, or one stage of E/PD and E/P/D.

Source: facts model-servers.md sections 2 and 3. What a request moves, how an encode worker answers, and what a
consumer does with a transfer that fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mmdeploy.rehearse import prompts
from mmdeploy.rehearse.engine import Answer, Engine, completion, streamed
from mmdeploy.rehearse.messages import EVENTS, Message, Reply, refusal
from mmdeploy.rehearse.prompts import Medium, Prompt

CHAT = "/v1/chat/completions"


class _FailedError(Exception):
    """The request ends with ``error``: a 500 to the client."""


@dataclass(frozen=True)
class _Work:
    """What a prompt cost."""

    cached: int
    """Prompt tokens from this engine's own blocks."""
    external: int
    """Prompt tokens whose blocks came from another pod."""
    encoded: int
    """Media that this engine encoded itself."""


class Vllm(Engine):
    """One vLLM process."""

    def common_labels(self) -> dict[str, str]:
        """``model_name`` and ``engine``."""
        return {"model_name": self.settings.served, "engine": "0"}

    def started(self) -> None:
        """``cache_config_info`` is a gauge at 1 whose labels say the block size."""
        caching = self.settings.prefix_caching and not self.settings.encoder_only
        self.metrics.set("processStart", self.around.clock.now() + self.pod.skew)
        self.metrics.set("cacheConfig", 1, block_size=str(self.settings.block_size), enable_prefix_caching=str(caching))

    def routes(self) -> Mapping[tuple[str, str], Callable[[Message], Reply]]:
        """The OpenAI paths, and the version."""
        return {
            ("GET", "/v1/models"): self.models,
            ("GET", "/version"): lambda _: Reply(200, {"version": self.settings.version.removeprefix("v")}),
            ("POST", CHAT): self._chat,
            ("POST", "/v1/completions"): self._completions,
        }

    def _completions(self, message: Message) -> Reply:
        """Text completion: the prompt as the one message, the answer in the other shape."""
        body = message.content
        if not isinstance(body, dict) or not isinstance(body.get("prompt"), str):
            return refusal(400, "prompt must be text")
        reply = self._chat(
            message, {**body, "stream": False, "messages": [{"role": "user", "content": body["prompt"]}]}
        )
        if reply.status == 200:
            choice = reply.content["choices"][0]
            text = {"index": 0, "text": choice["message"]["content"], "finish_reason": choice["finish_reason"]}
            reply.content = {**reply.content, "object": "text_completion", "choices": [text]}
        return reply

    def _chat(self, message: Message, content: Mapping[str, Any] | None = None) -> Reply:
        body = content if content is not None else message.content
        refused = self.refused_model(body)
        if refused is not None:
            return refused
        try:
            prompt = self.prompt_of(body)
        except prompts.RefusedError as problem:
            return refusal(400, str(problem))
        name = message.headers.get("x-request-id") or self.next_id()
        start = self.around.clock.now()
        try:
            with self.lock:
                self.metrics.add("running")
                work = self._work(name, prompt, body)
        except _FailedError as problem:
            with self.lock:
                self.metrics.add("requests", finished_reason="error")
                self.metrics.add("running", -1)
            return refusal(500, str(problem), "InternalServerError")
        self._wait(prompt, work)
        if self.settings.encoder_only:
            return self._encoded(name, prompt, body, start)
        answer = self.answer(prompt, body)
        if body.get("stream"):
            return Reply(200, kind=EVENTS, chunks=self._events(name, prompt, answer, body, start))
        self.wait(self.around.timings.output_token * answer.tokens)
        self._finished(prompt, answer, start)
        return Reply(200, completion(name, self.settings.served, prompt.tokens, answer, self._handed_on(name, body)))

    def _wait(self, prompt: Prompt, work: _Work) -> None:
        timings = self.around.timings
        computed = 0 if self.settings.encoder_only else prompt.tokens - work.cached - work.external
        self.wait(timings.first_token + timings.prompt_token * computed + timings.encode * work.encoded)

    def _work(self, name: str, prompt: Prompt, body: Mapping[str, Any]) -> _Work:
        """Take the prompt in: caches, transfers, and what they count."""
        if self.settings.fails:
            raise _FailedError("EngineCore encountered an issue. See stack trace (above) for the root cause.")
        self._process(prompt)
        if self.settings.encoder_only:
            return _Work(0, 0, sum(self._encode(medium) for medium in prompt.media))
        cached = self.cached_tokens(prompt)
        external = self._external(name, prompt, cached, body)
        encoded = 0 if cached + external >= prompt.tokens else self._embeddings(prompt, body)
        if self.settings.prefix_caching:
            self.metrics.add("prefixQueries", prompt.tokens)
            self.metrics.add("prefixHits", cached)
        for source, tokens in (
            ("local_compute", prompt.tokens - cached - external),
            ("local_cache_hit", cached),
            ("external_kv_transfer", external),
        ):
            self.metrics.add("promptTokensBySource", tokens, source=source)
        self.metrics.add("promptTokensCached", cached + external)
        return _Work(cached, external, encoded)

    def _process(self, prompt: Prompt) -> None:
        """The processor cache, by item."""
        if not self.settings.processor_cache:
            return
        for medium in prompt.media:
            self.metrics.add("mediaQueries")
            if medium.digest in self.pictures:
                self.metrics.add("mediaHits")
            self.pictures.add(medium.digest)

    def _encode(self, medium: Medium) -> int:
        """1 where the medium had to be encoded, 0 where its embeddings are there."""
        known = medium.digest in self.encodings
        self.encodings.add(medium.digest)
        if not known:
            self.log("DEBUG", f"EC producer: mm_hash={medium.digest} marked ready")
        return 0 if known else 1

    def _embeddings(self, prompt: Prompt, body: Mapping[str, Any]) -> int:
        """Fetch or compute the embeddings of a consumer's media; the number that it computed itself."""
        offered = body.get("ec_transfer_params")
        offered = offered if isinstance(offered, dict) else {}
        consumes = self.settings.ec_role in ("ec_consumer", "ec_both")
        if offered and not self.settings.ec_role:
            self.log("WARNING", "Got ec_transfer_params, but no ECConnector found.")
        computed = 0
        for medium in prompt.media:
            if medium.digest in self.encodings:
                continue
            entry = offered.get(medium.digest) if consumes else None
            if not isinstance(entry, dict) or not self._fetched(medium, entry):
                computed += 1
            self.encodings.add(medium.digest)
        return computed

    def _fetched(self, medium: Medium, entry: Mapping[str, Any]) -> bool:
        """Whether the embeddings came from the producer that ``entry`` names."""
        host, port = str(entry.get("peer_host", "")), entry.get("peer_port")
        if not self.settings.ec_nixl or not host:
            return False
        self.log("DEBUG", f"EC Connector: XferReq sent mm_hash={medium.digest}")
        peer = self.around.peer(host, int(port or 0))
        if not isinstance(peer, Vllm) or not peer.settings.ec_nixl:
            self.log(
                "WARNING",
                f"EC consumer: mm_hash={medium.digest} no XferAck from {host}:{port} in time; using local input",
            )
            return False
        if (peer.settings.version, peer.settings.model) != (self.settings.version, self.settings.model):
            self.log("WARNING", f"EC consumer: mm_hash={medium.digest} incompatible compat hash; using local input")
            return False
        if medium.digest not in peer.encodings:
            self.log("WARNING", f"EC consumer: mm_hash={medium.digest} NACK; using local input")
            return False
        peer.log("DEBUG", f"EC producer: serving NIXL READ request mm_hash={medium.digest} blocks={medium.tokens}")
        self.log(
            "DEBUG",
            f"EC consumer: starting NIXL xfer mm_hash={medium.digest} from {host}:{port} blocks={medium.tokens}",
        )
        self.log("DEBUG", f"EC consumer: NIXL READ completed mm_hash={medium.digest}")
        peer.log("DEBUG", f"EC producer: NIXL READ completed mm_hash={medium.digest}")
        self.log("DEBUG", f"EC consumer: mm_hash={medium.digest} unpinned after load")
        return True

    def _external(self, name: str, prompt: Prompt, cached: int, body: Mapping[str, Any]) -> int:
        """Prompt tokens whose KV blocks a prefill pod sends."""
        offered = body.get("kv_transfer_params")
        if not self.settings.kv:
            if offered:
                self.log("WARNING", "Got kv_transfer_params, but no KVConnector found.")
            return 0
        self.metrics.add("externalQueries", prompt.tokens - cached)
        if not isinstance(offered, dict) or not offered.get("do_remote_prefill"):
            return 0
        host, port = str(offered.get("remote_host", "")), int(offered.get("remote_port") or 0)
        peer = self.around.peer(host, port)
        same = isinstance(peer, Vllm) and peer.settings.kv and peer is not self
        if not same or (peer.settings.version, peer.settings.model) != (self.settings.version, self.settings.model):
            self.metrics.add("nixlFailed")
            self.log("ERROR", f"NIXL transfer failure: request_id={name} handshake with {host}:{port} failed")
            if not self.settings.kv_recompute:
                raise _FailedError("KV load failure")
            return 0
        moved = prompt.tokens - cached
        self.metrics.add("externalHits", moved)
        self.metrics.observe("nixlTime", 0.001)
        self.metrics.observe("nixlPostTime", 0.0001)
        self.metrics.observe("nixlBytes", moved * self.around.facts["engines"]["kvBytesPerToken"])
        self.metrics.observe("nixlDescriptors", -(-moved // self.settings.block_size))
        return moved

    def _encoded(self, name: str, prompt: Prompt, body: Mapping[str, Any], start: float) -> Reply:
        """An encode worker's answer: no text, and where the embeddings are."""
        answer = Answer("", 0, "stop")
        self._finished(prompt, answer, start)
        if body.get("stream"):
            pieces = streamed(
                name, self.settings.served, prompt.tokens, answer, usage=False, pieces=iter(()), pause=lambda: None
            )
            return Reply(200, kind=EVENTS, chunks=pieces)
        return Reply(
            200,
            completion(
                name, self.settings.served, prompt.tokens, answer, {"ec_transfer_params": self._published(name, prompt)}
            ),
        )

    def _published(self, name: str, prompt: Prompt) -> dict[str, Any] | None:
        settings = self.settings
        if not prompt.media or not settings.publishes or not settings.ec_nixl or settings.ec_role == "ec_consumer":
            return None
        found: dict[str, Any] = {}
        for index, medium in enumerate(prompt.media):
            entry = found.setdefault(medium.digest, {"item_indices": [], "metadata": self._layout(medium)})
            entry["item_indices"].append(index)
            entry |= {
                "peer_host": settings.ec_host,
                "peer_port": settings.ec_port,
                "size_bytes": medium.tokens * settings.token_bytes,
            }
        self.log("DEBUG", f"EC producer: announcing NIXL-readable encodings req_id={name} items={len(found)}")
        return found

    def _layout(self, medium: Medium) -> dict[str, Any]:
        """The grid of patches, two a token each way, for models that publish it; its shape is a stand-in's."""
        if medium.modality not in self.settings.metadata:
            return {}
        return {f"{medium.modality}_grid_thw": [1, 2, 2 * medium.tokens]}

    def _handed_on(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """What a prefill pod answers beside its token: where the KV blocks are."""
        asked = body.get("kv_transfer_params")
        if not self.settings.kv or not isinstance(asked, dict) or not asked.get("do_remote_decode"):
            return {"kv_transfer_params": None}
        return {
            "kv_transfer_params": {
                "do_remote_prefill": True,
                "do_remote_decode": False,
                "remote_engine_id": self.pod.name,
                "remote_request_id": name,
                "remote_block_ids": [0],
                "remote_host": self.settings.kv_host,
                "remote_port": self.settings.kv_port,
            }
        }

    def _events(
        self, name: str, prompt: Prompt, answer: Answer, body: Mapping[str, Any], start: float
    ) -> Iterator[bytes]:
        options = body.get("stream_options")
        done = False
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
            done = True
        finally:
            self._finished(prompt, answer if done else Answer("", 0, "abort"), start)

    def _finished(self, prompt: Prompt, answer: Answer, start: float) -> None:
        seconds = self.around.clock.now() - start
        with self.lock:
            self.metrics.add("running", -1)
            self.metrics.add("requests", finished_reason=answer.reason)
            self.metrics.add("promptTokens", prompt.tokens)
            self.metrics.add("generationTokens", answer.tokens)
            for key in ("firstToken", "latency", "prefillTime", "inferenceTime"):
                self.metrics.observe(key, seconds)
            self.metrics.observe("queueTime", 0)
