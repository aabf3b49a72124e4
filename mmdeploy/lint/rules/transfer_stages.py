"""4xx: encoder transfer between stages: who produces, who consumes, and what stands between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mmdeploy.documents import KeyPath
from mmdeploy.lint.connectors import EC, config_of, extra, name_of, place, readable
from mmdeploy.lint.findings import Found, Level, rule
from mmdeploy.lint.index import Deployment
from mmdeploy.lint.peers import (
    DECODE,
    ENCODE,
    PREFILL,
    arguments,
    cache_pairs,
    consumers,
    distinct,
    encoder_pairs,
    of_kind,
    peers,
    stage,
    subject,
)  # fmt: skip
from mmdeploy.lint.pods import Container, Engine
from mmdeploy.lint.router import PickerConfig
from mmdeploy.lint.source import dig
from mmdeploy.lint.tables import version

_NODE_LOCAL = ("emptyDir", "hostPath", "ephemeral")


def _notes(deployment: Deployment) -> Mapping[str, Any]:
    notes: Mapping[str, Any] = deployment.tables.notes("transfer")
    return notes


def _takes(engine: Engine) -> bool:
    return engine.ec_role in ("ec_consumer", "ec_both")


def _encode_decider(deployment: Deployment) -> PickerConfig | None:
    config = deployment.config
    return config if config is not None and config.decider("encode") else None


@rule("MMD410", Level.error, "model-servers.md §0.5, §3; llm-d-incubation/llm-d-modelservice#267")
def stage_without_transfer(deployment: Deployment) -> Iterator[Found]:
    """An encode engine that produces for nobody, or the stage after it that cannot take what it produces."""
    for engine in of_kind(deployment, "vllm", ENCODE):
        if config_of(engine, EC) is None and readable(engine, EC):
            only = engine.command.on("--mm-encoder-only")
            path = engine.command.path_of("--mm-encoder-only") if only else arguments(engine.container)
            yield Found(
                engine.pod.document, path, subject(engine),
                "an encode engine without --ec-transfer-config: it starts and reports Ready, and "
                + ("its first image kills it" if only else "hands nothing on"),
                "add --ec-transfer-config with ec_role ec_producer",
            )  # fmt: skip
    told: list[Engine] = []
    for encoder in distinct(deployment, of_kind(deployment, "vllm", ENCODE)):
        after = consumers(deployment, encoder)
        strict = any(stage(engine) == PREFILL for engine in after) or not any(_takes(engine) for engine in after)
        for engine in after if strict else ():
            if engine in told or config_of(engine, EC) is not None or not readable(engine, EC):
                continue
            told.append(engine)
            yield Found(
                engine.pod.document, arguments(engine.container), subject(engine),
                f"{encoder.pod.title} encodes for this {stage(engine)} engine, which has no --ec-transfer-config: it "
                "drops what it is sent and encodes every image again",
                "add --ec-transfer-config with ec_role ec_consumer",
            )  # fmt: skip
    yield from _without_producer(deployment)


def _without_producer(deployment: Deployment) -> Iterator[Found]:
    engines = of_kind(deployment, "vllm")
    if any(stage(engine) == ENCODE or engine.ec_role in ("ec_producer", "ec_both") for engine in engines):
        return
    for engine in engines:
        if engine.ec_role == "ec_consumer":
            yield Found(
                engine.pod.document, place(engine, EC, "ec_role"), subject(engine),
                "this engine is to take encodings, but nothing among these files produces any",
                "add the encode pods, or remove --ec-transfer-config", Level.warning,
            )  # fmt: skip


@rule("MMD411", Level.error, "llm-d-guides.md §7; llm-d-incubation/llm-d-modelservice#267")
def transfer_on_the_wrong_stage(deployment: Deployment) -> Iterator[Found]:
    """Encodings offered to decode engines that have prefill engines in front of them."""
    for engine in of_kind(deployment, "vllm", DECODE):
        before = peers(deployment, engine, PREFILL)
        if not _takes(engine) or not before or not peers(deployment, engine, ENCODE):
            continue
        both = all(_takes(other) for other in before)
        yield Found(
            engine.pod.document, place(engine, EC), subject(engine),
            "decode takes the KV cache of prefill and never sees an encoding: this --ec-transfer-config only pins "
            "memory here",
            "remove it" if both else f"move it to {before[0].pod.title}", Level.warning if both else None,
        )  # fmt: skip


@rule("MMD412", Level.error, "model-servers.md §0.4, §0.7, §1.2; router.md §5.3")
def wrong_encoder_role(deployment: Deployment) -> Iterator[Found]:
    """An EC role that makes an engine do another stage's work."""
    for engine in of_kind(deployment, "vllm", PREFILL, DECODE):
        if engine.ec_role == "ec_producer":
            yield Found(
                engine.pod.document, place(engine, EC, "ec_role"), subject(engine),
                f"ec_producer makes this {stage(engine)} engine an encoder only: the language model is not loaded, "
                "and answers are 200 with empty content",
                "write ec_consumer (or ec_both on a pod that does everything)",
            )  # fmt: skip
    for engine in of_kind(deployment, "vllm", ENCODE):
        if engine.ec_role not in ("ec_consumer", "ec_both"):
            continue
        effect = "it produces nothing" if engine.ec_role == "ec_consumer" else "it also loads the language model"
        yield Found(
            engine.pod.document, place(engine, EC, "ec_role"), subject(engine),
            f"{engine.ec_role} on an encode engine: {effect}", "write ec_producer", Level.warning,
        )  # fmt: skip


@rule("MMD413", Level.error, "model-servers.md §1.2, §3")
def different_connectors(deployment: Deployment) -> Iterator[Found]:
    """Producer and consumer that do not speak over the same connector, path or protocol."""
    notes = _notes(deployment)["encoder"]
    for one, other in encoder_pairs(deployment):
        mine, theirs = config_of(one, EC), config_of(other, EC)
        names = name_of(mine, "ec"), name_of(theirs, "ec")
        if None in names:
            continue
        if names[0] != names[1]:
            yield Found(
                one.pod.document, place(one, EC, "ec_connector"), subject(one),
                f"{names[0]} here, {names[1]} on {other.pod.title}: neither finds what the other keeps",
                "give both the same ec_connector",
            )  # fmt: skip
            continue
        keys = [notes["shared"]["key"]] if names[0] in notes["shared"]["connectors"] else []
        keys += [notes["mooncake"]["protocol"]] if names[0] == notes["mooncake"]["connector"] else []
        for key in keys:
            here, there = extra(mine, "ec").get(key), extra(theirs, "ec").get(key)
            if here != there:
                yield Found(
                    one.pod.document, place(one, EC, "ec_connector_extra_config", key), subject(one),
                    f"{key} is {here or 'unset'} here and {there or 'unset'} on {other.pod.title}",
                    f"give both the same {key}",
                )  # fmt: skip


@rule("MMD414", Level.error, "model-servers.md §1.2")
def storage_not_shared(deployment: Deployment) -> Iterator[Found]:
    """A shared storage path that only one pod, or one node, can see."""
    shared = _notes(deployment)["encoder"]["shared"]
    for one, other in encoder_pairs(deployment):
        if {name_of(config_of(engine, EC), "ec") for engine in (one, other)} - set(shared["connectors"]):
            continue
        sources = []
        for engine in (one, other):
            folder = str(extra(config_of(engine, EC), "ec").get(shared["key"]) or shared["default"])
            volume, path = _volume_of(engine, folder)
            kind = next((kind for kind in _NODE_LOCAL if volume is not None and kind in volume), None)
            sources.append((engine, dig(volume, ("persistentVolumeClaim", "claimName"))))
            if (volume is None or kind is not None) and "$" not in folder:
                where = f"the {kind} volume of one {'node' if kind == 'hostPath' else 'pod'}" if kind else "no volume"
                yield Found(
                    engine.pod.document, path or place(engine, EC, "ec_connector_extra_config", shared["key"]),
                    subject(engine),
                    f"{folder} lies on {where}: the other side never finds the encodings and encodes again",
                    "mount one ReadWriteMany claim at this path in both pods",
                    Level.warning if kind == "hostPath" else None,
                )  # fmt: skip
        claims = [claim for _, claim in sources]
        if None not in claims and claims[0] != claims[1]:
            yield Found(
                one.pod.document, place(one, EC, "ec_connector_extra_config", shared["key"]), subject(one),
                f"the path lies on claim {claims[0]} here and on {claims[1]} in {other.pod.title}",
                "mount the same ReadWriteMany claim in both pods",
            )  # fmt: skip
        yield from _access(deployment, [claim for claim in claims if isinstance(claim, str)])


def _volume_of(engine: Engine, folder: str) -> tuple[Mapping[str, Any] | None, KeyPath | None]:
    best: tuple[int, str, KeyPath] | None = None
    for mount, name, path in engine.container.mounts():
        base = mount.rstrip("/")
        if (folder.rstrip("/") == base or folder.startswith(base + "/")) and (best is None or len(base) > best[0]):
            best = (len(base), name, path)
    return (engine.pod.volume(best[1]), best[2]) if best is not None else (None, None)


def _access(deployment: Deployment, claims: list[str]) -> Iterator[Found]:
    for item in deployment.kind("PersistentVolumeClaim"):
        modes = item.get("spec", "accessModes")
        if item.name in claims and isinstance(modes, list) and modes and not {"ReadWriteMany"} & set(map(str, modes)):
            yield Found(
                item.document, ("spec", "accessModes"), item.title,
                f"{', '.join(map(str, modes))}: pods on different nodes cannot all write to the encoder cache",
                "ask for ReadWriteMany", Level.warning,
            )  # fmt: skip


@rule("MMD415", Level.error, "model-servers.md §0.8, §1.2, §1.3")
def mixed_releases(deployment: Deployment) -> Iterator[Found]:
    """Engines of different releases that hand work to each other."""
    for one, other in (*encoder_pairs(deployment), *cache_pairs(deployment)):
        mine, theirs = one.version, other.version
        if one.kind != "vllm" or one.container.image == other.container.image:
            continue
        same_tag = one.container.image.partition("@")[0] == other.container.image.partition("@")[0]
        both = mine is not None and theirs is not None
        if both and _padded(mine or "") != _padded(theirs or ""):
            what, level = f"vLLM {mine} here and {theirs}", None
        elif one.forked != other.forked and (both or mine or theirs):
            what, level = f"{one.container.image} here and {other.container.image}", None
        elif not both and same_tag and "@" in one.container.image and "@" in other.container.image:
            what, level = "one digest here and another", Level.warning
        else:
            continue
        yield Found(
            one.pod.document, (*one.container.path, "image"), subject(one),
            f"{what} on {other.pod.title}: the two compare releases before a transfer and refuse each other, so the "
            "work is done twice",
            "give both the same image", level,
        )  # fmt: skip


def _padded(text: str) -> tuple[int, ...]:
    return (*version(text), 0, 0)[:4]


@rule("MMD416", Level.error, "router.md §5.1, §5.3; router-observed.md")
def sidecar_without_encode(deployment: Deployment) -> Iterator[Found]:
    """A sidecar that drops the encode step, or hands it on in a way the engines do not read."""
    notes = _notes(deployment)["sidecar"]["ec"]
    for engine in of_kind(deployment, "vllm", DECODE):
        encoders = peers(deployment, engine, ENCODE)
        decided = _encode_decider(deployment)
        sidecar = engine.pod.sidecar
        if sidecar is None:
            if encoders and decided is not None:
                yield Found(
                    engine.pod.document, (*engine.pod.path, "spec"), engine.pod.title,
                    "the router chooses encode pods, but nothing in this pod calls them: there is no routing sidecar "
                    "in front of the engine",
                    "add the sidecar with --ec-connector, as an init container with restartPolicy Always",
                )  # fmt: skip
            continue
        flag = sidecar.command.last(notes["flag"])
        value = flag.value if flag is not None else None
        title = f"{engine.pod.title} container {sidecar.name}"
        path = (flag.value_path or flag.path) if flag is not None else arguments(sidecar)
        if not value and (encoders or decided is not None) and not _configured(sidecar):
            yield Found(
                engine.pod.document, path, title,
                f"the sidecar has no {notes['flag']}: it drops the encode step without an error, while the router "
                "still counts it",
                f"add {notes['flag']}={_wanted(deployment, engine, notes) or notes['values'][-1]}",
            )  # fmt: skip
        elif value and "$" not in value:
            yield from _wrong_sidecar(deployment, engine, path, title, value)


def _configured(sidecar: Container) -> bool:
    return sidecar.command.last("--configuration", "--configuration-file") is not None


def _wanted(deployment: Deployment, engine: Engine, notes: Mapping[str, Any]) -> str | None:
    """The sidecar's name for the connector that the engines behind it use."""
    for other in (*peers(deployment, engine, ENCODE), *peers(deployment, engine, PREFILL), engine):
        name = name_of(config_of(other, EC), "ec")
        if name in notes["of"]:
            return str(notes["of"][name])
    return None


def _wrong_sidecar(deployment: Deployment, engine: Engine, path: KeyPath, title: str, value: str) -> Iterator[Found]:
    notes = _notes(deployment)["sidecar"]["ec"]
    wanted = _wanted(deployment, engine, notes)
    if wanted is not None and value in notes["values"] and value != wanted and peers(deployment, engine, ENCODE):
        lost = value == "ec-example"
        effect = (
            "it throws away the answers that say where the encodings are"
            if lost
            else "it looks for places in answers that name none"
        )
        yield Found(
            engine.pod.document, path, title,
            f"{notes['flag']} is {value}, but the engines' connector goes with {wanted}: {effect}",
            f"write {wanted}", None if lost else Level.warning,
        )  # fmt: skip
