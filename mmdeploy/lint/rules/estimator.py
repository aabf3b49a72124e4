"""6xx: the router's prices against what the served model really takes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from mmdeploy.catalog import Catalog
from mmdeploy.documents import KeyPath
from mmdeploy.errors import UsageError
from mmdeploy.lint.commands import NotJsonError
from mmdeploy.lint.findings import Found, Level, rule
from mmdeploy.lint.index import Deployment
from mmdeploy.lint.pods import Engine
from mmdeploy.lint.router import PickerConfig
from mmdeploy.lint.router_facts import facts
from mmdeploy.lint.source import dig
from mmdeploy.words import counted

if TYPE_CHECKING:
    from mmdeploy.catalog.families import Family
    from mmdeploy.estimator.pairing import Pairing

PRODUCER = "token-producer"
PROCESSOR_FLAGS = ("--mm-processor-kwargs", "--mm-process-config")
"""vLLM's flag, whose effect on the count is known, and SGLang's, whose effect is not."""


@dataclass(frozen=True)
class Block:
    """The ``estimate:`` in force, and where it stands (or what should hold it)."""

    config: PickerConfig
    value: Mapping[str, Any]
    path: KeyPath

    def found(self, path: KeyPath, message: str, fix: str) -> Found:
        """A find at ``path`` in the block."""
        return Found(self.config.document, (*self.path, *path), PRODUCER, message, fix)

    def part(self, path: KeyPath) -> Mapping[str, Any]:
        """A section of it; empty where it is not there."""
        value = dig(self.value, path)
        return value if isinstance(value, Mapping) else {}


@dataclass(frozen=True)
class Served:
    """A model that the pool serves, as one of its engines configures it."""

    name: str
    family: Family
    engine: Engine


@cache
def _lint_data(catalog: Catalog) -> Mapping[str, Any]:
    value = catalog.document("catalog", "lint-estimator.yaml").value
    return value if isinstance(value, Mapping) else {}


def estimate_in_force(deployment: Deployment) -> Block | None:
    """The block that prices are made with; None where nothing is priced by an estimate, or nobody can tell."""
    config = deployment.config
    if config is None:
        return None
    declared = config.of_type(PRODUCER)
    own = next((plugin for plugin in declared if plugin.name == PRODUCER), None)
    if own is not None:
        if any(key in own.parameters for key in ("modelName", "vllm", "udsTokenizerConfig")):
            return None
        value = own.parameters.get("estimate")
        path: KeyPath = (*own.path, "parameters", "estimate") if value is not None else own.path
        return Block(config, value, path) if isinstance(value, Mapping) else Block(config, {}, path)
    if declared:
        return Block(config, {}, declared[0].path)  # one under another name is not asked; the default one is
    needs = config.of_type(*_lint_data(deployment.catalog).get("needsTokens", ()))
    return Block(config, {}, ("plugins",)) if needs else None


def served(deployment: Deployment) -> list[Served]:
    """Models that the router's pool serves, each with a family once; models that nobody knows are left out."""
    engines = [engine for engine in _pooled(deployment) if not engine.encodes_only] or _pooled(deployment)
    found: dict[tuple[str, str], Served] = {}
    for engine in engines:
        family = family_of(deployment.catalog, engine)
        if family is not None and engine.model is not None:
            found.setdefault((engine.model, repr(family.image)), Served(engine.model, family, engine))
    return list(found.values())


def _pooled(deployment: Deployment) -> list[Engine]:
    selectors = {tuple(sorted(labels.items())) for labels, *_ in deployment.pool_selectors}
    if len(selectors) > 1:
        return []  # several pools: which of them this configuration belongs to is not said
    pods = deployment.selected(dict(*selectors)) if selectors else deployment.pods
    return [pod.engine for pod in pods if pod.engine is not None]


def family_of(catalog: Catalog, engine: Engine) -> Family | None:
    """How the engine turns pictures into tokens; None where the catalog cannot tell."""
    slug = _slug(catalog, engine.model or "")
    family = catalog.families.get(slug) if slug else None
    if family is None or engine.command.last(PROCESSOR_FLAGS[1]) is not None or _sees_no_pictures(engine):
        return None
    try:
        return family.with_processor_kwargs(engine.command.json(PROCESSOR_FLAGS[0]) or {})
    except (UsageError, NotJsonError):
        return None


def _slug(catalog: Catalog, model: str) -> str | None:
    if model in catalog.models:
        return catalog.models[model].family
    name = model.rstrip("/").rsplit("/", 1)[-1].lower()
    names = _lint_data(catalog).get("names", {})
    return next((slug for pattern, slug in names.items() if re.search(pattern, name)), None)


def _sees_no_pictures(engine: Engine) -> bool:
    try:
        limits = engine.command.json("--limit-mm-per-prompt") or {}
    except NotJsonError:
        return False
    limit = limits.get("image")
    count = limit.get("count") if isinstance(limit, Mapping) else limit
    return count == 0 or engine.command.on("--language-model-only")


def _judged(deployment: Deployment, block: Block, model: Served) -> Pairing | None:
    from mmdeploy.estimator.pairing import judge  # only where a model that is known is served

    video = facts(deployment).has("videoEstimate")
    try:
        return judge(block.value, model.family, video_supported=video)
    except UsageError:  # the router does not start with it, which is for the rules of the configuration to say
        return None


@rule("MMD601", Level.warning, "router.md §3.3; model-servers.md §5; llm-d-guides.md §19.9")
def does_not_fit(deployment: Deployment) -> Iterator[Found]:
    """The estimate prices the pictures of the model that is served wrongly."""
    block, models = estimate_in_force(deployment), served(deployment)
    if block is None or _ineffective(deployment, block, "image") or len(_conflict(deployment, models)) > 1:
        return
    for model in models:
        pairing = _judged(deployment, block, model)
        if pairing is None or pairing.fits:
            continue
        how = "" if block.value else "without an estimate of its own the router takes factor 1024: "
        block_that_fits = json.dumps(pairing.suggestion, separators=(", ", ": ")).replace('"', "")
        fix = f"write under {PRODUCER}'s parameters: estimate: {block_that_fits}"
        advice = f"; {pairing.advice}" if pairing.advice else ""
        yield block.found(_image_at(block), f"served model {model.name}: {how}{pairing.reason}", fix + advice)


def _image_at(block: Block) -> KeyPath:
    image = block.part(("image",))
    for section in ("dynamic", "static"):
        if section in image and str(image.get("mode") or "dynamic") == section:
            return ("image", section)
    return ("image",)


def _conflict(deployment: Deployment, models: list[Served]) -> list[tuple[Served, Mapping[str, Any]]]:
    """Models of one pool that each need another estimate: no block fits all of them."""
    best: list[tuple[Served, Mapping[str, Any]]] = []
    for model in models:
        pairing = _judged(deployment, Block(deployment.router.configs[-1], {}, ()), model)
        image = pairing.suggestion.get("image", {}) if pairing else {}
        if image and all(not _agree(image, other) for _, other in best):
            best.append((model, image))
    return best


def _agree(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(one.get(key) == other.get(key) for key in ("mode", "static", "dynamic"))


@rule("MMD602", Level.error, "router.md §3.1 (staticToken and numTokensPerFrame have no default)")
def no_price(deployment: Deployment) -> Iterator[Found]:
    """A fixed price that is not said: the router takes one token."""
    block = estimate_in_force(deployment)
    for entry in _lint_data(deployment.catalog).get("prices", ()) if block is not None else ():
        assert block is not None
        part, key = block.part(tuple(entry["at"])), ".".join(entry["price"])
        if part.get("mode") == entry["mode"] and dig(part, tuple(entry["price"])) is None:
            yield block.found(
                (*entry["at"], *entry["price"][:1]) if entry["price"][0] in part else (*entry["at"], "mode"),
                f"mode is {entry['mode']} but {key} is not set, so every {entry['item']} is priced at 1 token",
                f"set {key} to what the model takes",
            )


@rule("MMD603", Level.warning, "router.md §3.1 (a mode reads its own section only; the default modes)")
def section_of_another_mode(deployment: Deployment) -> Iterator[Found]:
    """Settings for a mode that is not on, while the one that is on has none."""
    block = estimate_in_force(deployment)
    for entry in _lint_data(deployment.catalog).get("modes", ()) if block is not None else ():
        assert block is not None
        other = _unread(block, entry)
        if other is not None:
            *parents, key = entry["at"]
            mode = block.part(tuple(parents)).get(key)
            said = f"{key} is {mode}" if mode else f"{key} is not set, which means {entry['default']}"
            yield block.found(
                (*parents, other), f"{said}, so the {other} settings of {'.'.join(parents)} have no effect",
                f"set {key}: {other}, or write the settings of the mode that is on",
            )  # fmt: skip


def _unread(block: Block, entry: Mapping[str, Any]) -> str | None:
    """The section that is written for a mode that is off, where the mode that is on has no section."""
    *parents, key = entry["at"]
    part = block.part(tuple(parents))
    sections = entry["sections"]
    active = sections.get(part.get(key) or entry["default"]) if isinstance(part.get(key), str | None) else None
    if active is None or active == "static" or part.get(active):
        return None  # a fixed price that is missing is worse than a section too many, and MMD602 says so
    return next((name for name in sections.values() if name != active and part.get(name)), None)


def _ineffective(deployment: Deployment, block: Block, part: str) -> bool:
    """Whether another rule already says why the prices of a part are not what they seem."""
    data = _lint_data(deployment.catalog)
    unread = any(_unread(block, entry) for entry in data.get("modes", ()) if entry["at"][0] == part)
    static = dig(block.value, (part, "static", "staticToken"))
    unpriced = dig(block.value, (part, "mode")) == "static" and (not _is_number(static) or static <= 0)
    factor = dig(block.value, (part, "dynamic", "factor"))
    return unread or unpriced or (_is_number(factor) and factor <= 0)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@rule("MMD604", Level.warning, "router.md §3.1 (one estimate an endpoint picker); model-servers.md §5")
def models_that_disagree(deployment: Deployment) -> Iterator[Found]:
    """One pool serves models that take different numbers of tokens for the same picture."""
    block = estimate_in_force(deployment)
    if block is None:
        return
    conflict = _conflict(deployment, served(deployment))
    if len(conflict) < 2 or _judged(deployment, block, conflict[0][0]) is None:
        return
    (first, _), (second, _) = conflict[:2]
    fitting = [model.name for model, _ in conflict if (pairing := _judged(deployment, block, model)) and pairing.fits]
    fits = (
        f"it fits {fitting[0]} only" if len(fitting) == 1 else "it fits none of them" if not fitting else "it fits some"
    )
    yield block.found(
        (), f"the pool serves {first.name} and {second.name}, which need different estimates; {fits}",
        "give each model an InferencePool and an endpoint picker of its own, or the same processor settings",
    )  # fmt: skip


@rule("MMD605", Level.warning, "model-servers.md §5 (the processors' own checks)")
def refused_by_the_processor(deployment: Deployment) -> Iterator[Found]:
    """Processor settings that the model's processor refuses."""
    for engine in deployment.engines:
        slug = _slug(deployment.catalog, engine.model or "")
        family = deployment.catalog.families.get(slug) if slug else None
        if family is None:
            continue
        try:
            family.with_processor_kwargs(engine.command.json(PROCESSOR_FLAGS[0]) or {})
        except NotJsonError:
            continue
        except UsageError as problem:
            yield Found(
                engine.pod.document, engine.command.path_of(PROCESSOR_FLAGS[0]), engine.pod.title,
                f"{PROCESSOR_FLAGS[0]} does not suit {engine.model}: {problem}",
                "write a value that the model's processor takes",
            )  # fmt: skip


@rule("MMD606", Level.warning, "router.md §3.2 (the maximum is applied after the minimum)")
def maximum_below_minimum(deployment: Deployment) -> Iterator[Found]:
    """Bounds of a video's frames that cross: the maximum wins."""
    block = estimate_in_force(deployment)
    if block is None:
        return
    frames = block.part(("video", "frames"))
    least: Any
    most: Any
    least, most = frames.get("minFrames"), frames.get("maxFrames")
    if _is_number(least) and _is_number(most) and 0 < most < least:
        yield block.found(
            ("video", "frames", "minFrames"),
            f"minFrames {least} is above maxFrames {most}; the maximum wins, so every video counts "
            f"{counted(most, 'frame')}",
            "swap them, or leave one out",
        )
