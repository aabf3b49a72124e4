"""5xx, third part: a media item that no batch can hold."""

from __future__ import annotations

from collections.abc import Iterator

from mmdeploy.catalog.families import Family
from mmdeploy.catalog.family_parameters import BudgetVideo
from mmdeploy.errors import UsageError
from mmdeploy.estimator.visual import image_tokens
from mmdeploy.lint.commands import NotJsonError
from mmdeploy.lint.findings import Found, Level, rule
from mmdeploy.lint.index import Deployment
from mmdeploy.lint.peers import opaque, subject
from mmdeploy.lint.pods import Engine

_LARGE_SIDE = 4096
"""Pixels of a side: above the limits of every family that has some."""


@rule("MMD507", Level.error, "vllm-flags.csv (SchedulerConfig); families.yaml")
def item_fits_batch(deployment: Deployment) -> Iterator[Found]:
    """With the splitting of media switched off, the largest item must fit into one batch."""
    for engine in deployment.engines:
        batch = _batch(engine)
        family = family_of(deployment, engine)
        if engine.kind != "vllm" or batch is None or family is None or opaque(engine):
            continue
        if not engine.command.on("--disable-chunked-mm-input"):
            continue
        largest = _largest_item(engine, family)
        if largest is None or largest[1] <= batch:
            continue
        yield Found(
            engine.pod.document, engine.command.path_of("--max-num-batched-tokens"), subject(engine),
            f"--disable-chunked-mm-input is on, and a {largest[0]} of {largest[1]} tokens does not fit "
            f"--max-num-batched-tokens of {batch}: the engine refuses to start",
            f"raise it above {largest[1]}, remove --disable-chunked-mm-input, or bound the pixels",
        )  # fmt: skip


def _batch(engine: Engine) -> int | None:
    text = engine.command.value("--max-num-batched-tokens") or ""
    number, unit = (text[:-1], text[-1]) if text[-1:] in ("k", "K") else (text, "")
    if not number.isdigit():
        return None
    return int(number) * {"": 1, "k": 1000, "K": 1024}[unit]


def family_of(deployment: Deployment, engine: Engine) -> Family | None:
    """The family of the model that an engine serves: as the catalog lists it, else by its name."""
    name = engine.model or ""
    listed = deployment.catalog.models.get(name)
    families = deployment.catalog.families
    if listed is not None:
        return families.get(listed.family)
    short = name.rsplit("/", 1)[-1].lower()
    return next((family for slug, family in families.items() if short.startswith(slug + "-")), None)


def _largest_item(engine: Engine, family: Family) -> tuple[str, int] | None:
    """``(modality, tokens)`` of the largest item that requests may hold; None where flags hide it."""
    try:
        kwargs, limits = engine.command.json("--mm-processor-kwargs"), engine.command.json("--limit-mm-per-prompt")
        family = family.with_processor_kwargs(kwargs) if kwargs else family
    except (NotJsonError, UsageError, ValueError, TypeError, KeyError):
        return None
    off = {name for name, value in (limits or {}).items() if value == 0 or value == {"count": 0}}
    sizes = []
    if "image" not in off:
        sizes.append((image_tokens(family, _LARGE_SIDE, _LARGE_SIDE), "image"))
    if "video" not in off and isinstance(family.video, BudgetVideo):
        video = family.video
        sizes.append((video.max_frames * (video.max_soft_tokens + video.frame_text_tokens), "video"))
    tokens, modality = max(sizes, default=(0, ""))
    return (modality, tokens) if tokens else None
