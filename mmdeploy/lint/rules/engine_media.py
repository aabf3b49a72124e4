"""3xx: how one engine treats media: its caches, limits, and where it may fetch from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from mmdeploy.lint.commands import NotJsonError
from mmdeploy.lint.engines import before, model_of, whole_number
from mmdeploy.lint.findings import Found, Level, rule
from mmdeploy.lint.index import Deployment
from mmdeploy.lint.peers import DECODE, ENCODE, PREFILL, arguments, of_kind, opaque, stage, subject
from mmdeploy.lint.pods import Engine
from mmdeploy.lint.source import dig

_HOST = re.compile(r"^\[?[A-Za-z0-9.:_-]+\]?$")
_ALWAYS_THERE = ("", "/tmp", "/dev/shm", "/var/tmp", "/mnt", "/home", "/root")


def _vllm(deployment: Deployment) -> list[Engine]:
    return [engine for engine in deployment.engines if engine.kind == "vllm"]


def _notes(deployment: Deployment) -> Mapping[str, Any]:
    media: Mapping[str, Any] = deployment.tables.notes("engine")["media"]
    return media


def _json(engine: Engine, flag: str) -> dict[str, Any]:
    try:
        return engine.command.json(flag) or {}
    except NotJsonError:
        return {}


@rule("MMD309", Level.error, "model-servers.md §1.1, §1.4")
def refused_combination(deployment: Deployment) -> Iterator[Found]:
    """Multimodal flags that the engine refuses together, or whose value is out of range."""
    for engine in _vllm(deployment):
        notes = _notes(deployment)
        for name, needed in notes["needs"].items():
            flag = engine.command.last(name)
            if flag is not None and not opaque(engine) and engine.command.value(needed["flag"]) != needed["value"]:
                yield Found(
                    engine.pod.document, flag.path, subject(engine),
                    f"{name} is refused unless {needed['flag']} is {needed['value']}",
                    f"add {needed['flag']}={needed['value']}, or remove {name}",
                )  # fmt: skip
        for name, limits in notes["ranges"].items():
            yield from _out_of_range(engine, name, limits)
        for name, gone in notes["gone"].items():
            if engine.command.value(name) in gone:
                yield Found(
                    engine.pod.document, engine.command.path_of(name), subject(engine),
                    f"{name} does not take {engine.command.value(name)} any more", f"remove {name}, or name another",
                )  # fmt: skip
        yield from _processor_device(engine)


def _out_of_range(engine: Engine, name: str, limits: Mapping[str, float]) -> Iterator[Found]:
    flag = engine.command.last(name)
    try:
        value = float(flag.value) if flag is not None and flag.value is not None else None
    except ValueError:
        return
    if flag is None or value is None:
        return
    if value < limits["least"] or ("below" in limits and value >= limits["below"]):
        upper = f" and below {limits['below']}" if "below" in limits else ""
        yield Found(
            engine.pod.document, flag.value_path or flag.path, subject(engine),
            f"{name} must be at least {limits['least']}{upper}, not {flag.value}", f"correct the value of {name}",
        )  # fmt: skip


def _processor_device(engine: Engine) -> Iterator[Found]:
    flag = engine.command.last("--mm-processor-device")
    if flag is not None and flag.value not in (None, "auto", "cpu") and not engine.encodes_only:
        yield Found(
            engine.pod.document, flag.path, subject(engine),
            f"--mm-processor-device={flag.value} is refused here: this engine also runs the language model",
            "leave it at auto or cpu on engines that do more than encode",
        )  # fmt: skip


@rule("MMD313", Level.warning, "model-servers.md §0.4, §0.5, §1.1")
def wrong_half(deployment: Deployment) -> Iterator[Found]:
    """A flag that takes away the half of the model that a role is there for."""
    for engine in of_kind(deployment, "vllm", PREFILL, DECODE):
        flag = engine.command.last("--mm-encoder-only", "--no-mm-encoder-only")
        if flag is not None and flag.name == "--mm-encoder-only":
            yield Found(
                engine.pod.document, flag.path, subject(engine),
                f"--mm-encoder-only leaves a {stage(engine)} engine without its language model",
                "remove it here; it belongs on encode pods",
            )  # fmt: skip
        flag = engine.command.last("--language-model-only", "--no-language-model-only")
        takes = engine.ec_role in ("ec_consumer", "ec_both")
        if flag is not None and flag.name == "--language-model-only" and takes:
            yield Found(
                engine.pod.document, flag.path, subject(engine),
                "--language-model-only sets the limit of every modality to 0: requests with media are refused, "
                "although this engine is to take encodings",
                "remove it; a consumer needs no flag to accept encodings",
            )  # fmt: skip
    for engine in _vllm(deployment):
        encodes, takes = stage(engine) == ENCODE, engine.ec_role in ("ec_consumer", "ec_both")
        limits = _json(engine, "--limit-mm-per-prompt") if encodes or takes else {}
        none = [name for name, limit in limits.items() if limit in (0, {"count": 0})]
        if none and (len(none) == len(limits) or "image" in none):
            what = "is there to encode media" if encodes else "gets the media of each request beside their encodings"
            yield Found(
                engine.pod.document, engine.command.path_of("--limit-mm-per-prompt"), subject(engine),
                f"--limit-mm-per-prompt allows no {' and no '.join(none)}, but this engine {what}: such requests get "
                "400",
                "allow as many items as requests may hold",
            )  # fmt: skip


@rule("MMD314", Level.warning, "model-servers.md §1.1, §1.5; llm-d-guides.md §6")
def prefix_caching(deployment: Deployment) -> Iterator[Found]:
    """Prefix caching off where the router counts on it, or on where an old encode engine cannot have it."""
    for engine in deployment.engines:
        flag = engine.command.last("--no-enable-prefix-caching", "--disable-prefix-caching", "--disable-radix-cache")
        off = flag is not None and not (engine.kind == "vllm" and engine.command.on("--enable-prefix-caching", True))
        plugin = _affinity(deployment, stage(engine)) if off and stage(engine) != ENCODE else None
        if flag is not None and plugin is not None:
            yield Found(
                engine.pod.document, flag.path, subject(engine),
                f"{flag.name} leaves nothing to reuse, while the router packs requests by prefix ({plugin})",
                f"remove {flag.name}, or take {plugin} out of the router's profiles",
            )  # fmt: skip
    limits = _notes(deployment)["encoderFlags"]
    for engine in of_kind(deployment, "vllm", ENCODE):
        if before(engine, limits["until"]) and engine.encodes_only and not opaque(engine):
            yield from _old_encoder(engine, limits)


def _affinity(deployment: Deployment, name: str) -> str | None:
    """A plugin in the profile of a stage that routes by prefix."""
    config = deployment.config
    if config is None:
        return None
    chosen = config.profile(config.stage_profile(name)) if config.handler is not None else None
    for profile in [chosen] if chosen is not None else config.profiles if config.handler is None else []:
        for kind in config.profile_types(profile):
            if "prefix" in kind:
                return kind
    return None


def _old_encoder(engine: Engine, limits: Mapping[str, Any]) -> Iterator[Found]:
    for name, wanted in limits.items():
        if not isinstance(wanted, Mapping):
            continue
        on = engine.command.on(name, default="switchedOff" in wanted)
        if on != ("switchedOn" in wanted):
            instead = wanted.get("switchedOff") or wanted.get("switchedOn")
            yield Found(
                engine.pod.document, arguments(engine.container), subject(engine),
                f"vLLM {engine.version} does not set {instead} for an encode-only engine by itself: encodes can be "
                "skipped or fail",
                f"add {instead}, or pin {limits['until']} or newer",
            )  # fmt: skip


@rule("MMD315", Level.warning, "model-servers.md §1.3")
def events_of_nothing(deployment: Deployment) -> Iterator[Found]:
    """KV cache events that an engine will never publish."""
    for engine in _vllm(deployment):
        config = _json(engine, "--kv-events-config")
        if not config:
            continue
        path = engine.command.path_of("--kv-events-config")
        flag = engine.command.last("--kv-events-config")
        path = flag.value_path or path if flag is not None else path
        title = subject(engine)
        on = config.get("enable_kv_cache_events") in (True, "true", "True", 1, "1")
        if not on and (config.get("endpoint") or config.get("publisher") == "zmq"):
            yield Found(
                engine.pod.document, path, title,
                "--kv-events-config names a publisher, but enable_kv_cache_events is not true: nothing is published",
                'write "enable_kv_cache_events": true',
            )  # fmt: skip
        elif on and (stage(engine) == ENCODE or engine.encodes_only):
            yield Found(
                engine.pod.document, path, title,
                "an encode engine has no KV cache to tell of: it publishes no events, and a router that waits for "
                "them waits for ever",
                "remove --kv-events-config here; it belongs on prefill and decode",
            )  # fmt: skip
        elif on and not engine.command.on("--enable-prefix-caching", True):
            yield Found(
                engine.pod.document, path, title,
                "KV cache events are on, but prefix caching is off: there is nothing to tell of",
                "remove --no-enable-prefix-caching, or the events",
            )  # fmt: skip


@rule("MMD316", Level.error, "model-servers.md §1.1")
def media_domains(deployment: Deployment) -> Iterator[Found]:
    """An allowed media domain in a form that no host name equals."""
    for engine in deployment.engines:
        flag = engine.command.last("--allowed-media-domains")
        for text in flag.values if flag is not None else ():
            problem = _domain_problem(text)
            if flag is not None and problem is not None:
                host = re.sub(r"^[a-z]+://", "", text, flags=re.IGNORECASE).split("/")[0].split(":")[0]
                yield Found(
                    engine.pod.document, flag.value_path or flag.path, subject(engine),
                    f"--allowed-media-domains compares host names letter by letter, but {text!r} {problem}: every "
                    "such URL is refused with 400",
                    f"write {host.lstrip('*.') or 'the host name alone'}"
                    + (" and each further host" if "*" in text or "," in text else ""),
                )  # fmt: skip


def _domain_problem(text: str) -> str | None:
    if "$" in text:
        return None
    if "://" in text:
        return "is a URL"
    if "/" in text:
        return "has a path"
    if "*" in text:
        return "has a wildcard"
    if "," in text or " " in text.strip():
        return "is a list in one value"
    if re.fullmatch(r"[^:\[\]]+:\d+", text):
        return "has a port"
    return None if _HOST.match(text) else "is no host name"


@rule("MMD317", Level.warning, "model-servers.md §1.1, §1.4")
def local_media(deployment: Deployment) -> Iterator[Found]:
    """A local media path that is not on any volume of the container."""
    for engine in _vllm(deployment):
        flag = engine.command.last("--allowed-local-media-path")
        path = (flag.value or "").rstrip("/") if flag is not None else ""
        if flag is None or path in _ALWAYS_THERE or "$" in path:
            continue
        mounts = [mount.rstrip("/") for mount, _, _ in engine.container.mounts()]
        if not any(path == mount or path.startswith(mount + "/") or mount.startswith(path + "/") for mount in mounts):
            yield Found(
                engine.pod.document, flag.value_path or flag.path, subject(engine),
                f"nothing is mounted at {path}: the engine starts, and the first file:// request fails",
                f"mount a volume at {path}, or name a path that is mounted",
            )  # fmt: skip


@rule("MMD320", Level.info, "model-servers.md §1.1; vllm-supported-multimodal.csv")
def no_encoder_parallelism(deployment: Deployment) -> Iterator[Found]:
    """--mm-encoder-tp-mode=data for a model that falls back to weights."""
    for engine in _vllm(deployment):
        flag = engine.command.last("--mm-encoder-tp-mode")
        if flag is None or flag.value != "data":
            continue
        architecture = model_of(deployment.tables, deployment.catalog.models, engine.model).architecture
        rows = deployment.tables.of("vllm-supported-multimodal", "architecture").get((architecture,), ())
        if rows and all(row["supports_encoder_tp_data"] == "False" for row in rows):
            yield Found(
                engine.pod.document, flag.path, subject(engine),
                f"{engine.model} ({architecture}) cannot split media items over ranks: vLLM warns once and falls back "
                "to weights",
                "remove --mm-encoder-tp-mode=data",
            )  # fmt: skip


@rule("MMD321", Level.error, "decoderesearch/interp-engine#2; families.yaml")
def item_does_not_fit(deployment: Deployment) -> Iterator[Found]:
    """A batch that cannot hold the largest item of a model whose items are not split."""
    unsplittable = _notes(deployment)["unsplittable"]["families"]
    for engine in _vllm(deployment):
        flag = engine.command.last("--max-num-batched-tokens")
        family = model_of(deployment.tables, deployment.catalog.models, engine.model).family
        number = whole_number(flag.value) if flag is not None and flag.value is not None else None
        if flag is None or number is None or family not in unsplittable or engine.encodes_only:
            continue
        if engine.command.on("--disable-chunked-mm-input"):
            continue  # MMD507 judges that for every model
        largest = _largest_item(deployment, engine, family)
        if number < largest:
            yield Found(
                engine.pod.document, flag.value_path or flag.path, subject(engine),
                f"--max-num-batched-tokens={flag.value} cannot hold one item of {engine.model} ({largest} tokens), "
                "whose items are never split: the engine refuses to start",
                f"raise it to {largest} or more, or leave it to the engine",
            )  # fmt: skip


def _largest_item(deployment: Deployment, engine: Engine, family: str) -> int:
    """Tokens of the largest image or video that the engine's limits and processor settings allow."""
    raw = deployment.catalog.document("catalog", "families.yaml").value
    entry = dig(raw, ("families", family))
    limits = _json(engine, "--limit-mm-per-prompt")
    kwargs = _json(engine, "--mm-processor-kwargs")
    sizes = [0]
    image, video = dig(entry, ("image",)), dig(entry, ("video",))
    if isinstance(image, Mapping) and limits.get("image") not in (0, {"count": 0}):
        soft = kwargs.get("max_soft_tokens", image.get("max_soft_tokens"))
        whole = image.get("view_tokens") or (soft if isinstance(soft, int) else 0)
        sizes.append(int(whole) + int(image.get("structural_tokens") or 0))
    if isinstance(video, Mapping) and limits.get("video") not in (0, {"count": 0}):
        frame = int(video.get("max_soft_tokens") or 0) + int(video.get("frame_text_tokens") or 0)
        sizes.append(int(video.get("max_frames") or 0) * frame)
    return max(sizes)


@rule("MMD322", Level.warning, "vllm-project/vllm#22173, #18550")
def unbounded_profiling(deployment: Deployment) -> Iterator[Found]:
    """Many large items an engine reserves memory for at start, with nothing that bounds their size."""
    notes = _notes(deployment)["profiling"]
    for engine in _vllm(deployment):
        limits = _json(engine, "--limit-mm-per-prompt")
        family = model_of(deployment.tables, deployment.catalog.models, engine.model).family
        if not before(engine, notes["before"]) or family not in notes["families"]:
            continue
        kwargs = _json(engine, "--mm-processor-kwargs")
        many = [f"{limit} {name}" for name, limit in limits.items() if isinstance(limit, int) and limit > 1]
        if many and not any(bound in kwargs for bound in notes["bounds"]):
            yield Found(
                engine.pod.document, engine.command.path_of("--limit-mm-per-prompt"), subject(engine),
                f"vLLM {engine.version} reserves memory at start for {' and '.join(many)} items of the largest size: "
                "out of memory before it serves",
                '''bound the size, for example --mm-processor-kwargs={"max_pixels":1003520}''',
            )  # fmt: skip
