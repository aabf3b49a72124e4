"""3xx: SGLang's encoders and the language server that calls them by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from mmdeploy.documents import KeyPath
from mmdeploy.lint.commands import Flag
from mmdeploy.lint.engines import model_of
from mmdeploy.lint.findings import Found, Level, rule
from mmdeploy.lint.index import Deployment
from mmdeploy.lint.peers import DECODE, ENCODE, PREFILL, arguments, of_kind, opaque, peers, subject
from mmdeploy.lint.pods import Engine
from mmdeploy.words import counted

_MANY = 1000
"""Replicas above which nobody lists encoders one by one."""


def _notes(deployment: Deployment) -> Mapping[str, Any]:
    notes: Mapping[str, Any] = deployment.tables.notes("engine")["sglang"]
    return notes


def _servers(deployment: Deployment) -> list[Engine]:
    return [engine for engine in deployment.engines if engine.kind == "sglang"]


@rule("MMD323", Level.error, "model-servers.md §4")
def refused_by_sglang(deployment: Deployment) -> Iterator[Found]:
    """SGLang flags that it refuses together, or with this model."""
    notes = _notes(deployment)
    for engine in _servers(deployment):
        encoder = engine.command.last("--encoder-only")
        mode = engine.command.last("--disaggregation-mode")
        refused = [engine.command.last(name) for name in notes["notWithEncoder"]]
        if mode is not None and mode.value in ("prefill", "decode"):
            refused.append(mode)
        for flag in refused if encoder is not None else ():
            if flag is not None:
                yield Found(
                    engine.pod.document, flag.path, subject(engine),
                    f"SGLang refuses {flag.name} together with --encoder-only",
                    f"remove {flag.name} from the encoder, or --encoder-only from the language server",
                )  # fmt: skip
        for name in notes["onlyWithEncoder"]:
            flag = engine.command.last(name)
            if flag is not None and encoder is None and not opaque(engine):
                yield Found(
                    engine.pod.document, flag.path, subject(engine), f"{name} is refused without --encoder-only",
                    f"remove {name} here; it belongs on encoders",
                )  # fmt: skip
        family = model_of(deployment.tables, deployment.catalog.models, engine.model).family
        flag = encoder or engine.command.last("--language-only")
        if flag is not None and family in notes["refused"]:
            yield Found(
                engine.pod.document, flag.path, subject(engine),
                f"SGLang does not support encoder disaggregation for {engine.model}",
                "serve this model without --encoder-only and --language-only, or with vLLM",
            )  # fmt: skip


@rule("MMD324", Level.warning, "model-servers.md §4")
def language_server(deployment: Deployment) -> Iterator[Found]:
    """A language server that keeps its own encoder, or has none to call, or handles no media at all."""
    for engine in of_kind(deployment, "sglang", PREFILL, DECODE):
        command, title = engine.command, subject(engine)
        urls = command.last("--encoder-urls")
        encoders = peers(deployment, engine, ENCODE)
        alone, only = command.last("--language-model-only"), command.last("--language-only")
        if alone is not None and (urls is not None or encoders):
            yield Found(
                engine.pod.document, alone.path, title,
                "--language-model-only serves text alone and never calls an encoder: images are not handled",
                "write --language-only", Level.error,
            )  # fmt: skip
        elif urls is not None and only is None and not opaque(engine):
            yield Found(
                engine.pod.document, urls.path, title,
                "--encoder-urls without --language-only: the server loads the vision tower and encodes by itself",
                "add --language-only (with --enable-adaptive-dispatch-to-encoder where some local encoding is meant)",
            )  # fmt: skip
        elif only is not None and not (urls and urls.values) and encoders and not opaque(engine):
            registers = [encoder for encoder in encoders if encoder.command.last("--encoder-register-urls")]
            if not registers and all(not opaque(encoder) for encoder in encoders):
                yield Found(
                    engine.pod.document, only.path, title,
                    "--language-only without encoders: --encoder-urls lists none, and none registers itself",
                    "list the encoders in --encoder-urls, or give them --encoder-register-urls",
                )  # fmt: skip
    for engine in of_kind(deployment, "sglang", ENCODE):
        yield from _encoder(engine)


def _encoder(engine: Engine) -> Iterator[Found]:
    if engine.command.last("--encoder-only") is not None or opaque(engine):
        return
    wrong = engine.command.last("--language-only", "--language-model-only", "--encoder-urls")
    yield Found(
        engine.pod.document, wrong.path if wrong else arguments(engine.container), subject(engine),
        "this encode engine runs without --encoder-only: it has no /encode for the language server to call",
        "add --encoder-only" + (f" and remove {wrong.name}" if wrong else ""),
    )  # fmt: skip


@rule("MMD325", Level.warning, "llm-d-guides.md §8; model-servers.md §4")
def encoder_addresses(deployment: Deployment) -> Iterator[Found]:
    """Encoders that no URL names, URLs with another port than the encoders', and transfer backends that differ."""
    for engine in of_kind(deployment, "sglang", PREFILL, DECODE):
        encoders = peers(deployment, engine, ENCODE)
        urls = engine.command.last("--encoder-urls")
        if urls is not None and urls.values and not any("$" in text for text in urls.values):
            for encoder in encoders:
                yield from _reached(engine, urls, encoder)
        mine = engine.command.last("--encoder-transfer-backend")
        for encoder in encoders:
            theirs = encoder.command.last("--encoder-transfer-backend")
            if mine is not None and theirs is not None and mine.value != theirs.value:
                yield Found(
                    engine.pod.document, mine.value_path or mine.path, subject(engine),
                    f"--encoder-transfer-backend is {mine.value} here and {theirs.value} on {encoder.pod.title}",
                    "give both the same backend",
                )  # fmt: skip


def _reached(engine: Engine, urls: Flag, encoder: Engine) -> Iterator[Found]:
    """The pods of a StatefulSet by the names that URLs give them."""
    pod = encoder.pod
    if pod.kind != "StatefulSet" or not pod.replicas or pod.replicas > _MANY:
        return
    wanted = {f"{pod.name}-{number}" for number in range(pod.replicas)}
    named: set[str] = set()
    for number, text in enumerate(urls.values):
        host, port = _host_and_port(text)
        if host not in wanted:
            continue
        named.add(host)
        if port is not None and port != encoder.port:
            yield Found(
                engine.pod.document, _place(engine, urls, number), subject(engine),
                f"{text}: the encoders of {pod.title} listen on {encoder.port}", f"write port {encoder.port}",
            )  # fmt: skip
            return
    missing = sorted(wanted - named, key=lambda name: int(name.rsplit("-", 1)[1]))
    if named and missing:
        yield Found(
            engine.pod.document, urls.path, subject(engine),
            f"{pod.title} has {counted(pod.replicas or 1, 'encoder')}, but --encoder-urls leaves out "
            f"{', '.join(missing)}: idle pods",
            "list every encoder, or lower the replicas",
        )  # fmt: skip


def _host_and_port(text: str) -> tuple[str, int | None]:
    """The first part of a URL's host name, and its port; None for a URL that says none or is none."""
    try:
        parts = urlsplit(text if "://" in text else f"//{text}")
        return (parts.hostname or "").split(".")[0], parts.port
    except ValueError:
        return "", None


def _place(engine: Engine, flag: Flag, number: int) -> KeyPath:
    """Where one of several values stands."""
    last = flag.value_path[-1] if flag.value_path else None
    if flag.joined or engine.command.shell or not isinstance(last, int):
        return flag.value_path or flag.path
    return (*flag.value_path[:-1], last + number)
