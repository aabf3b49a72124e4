"""What one item costs on both sides, and why the two differ, in plain words."""

from __future__ import annotations

from dataclasses import dataclass

from mmdeploy.catalog.families import Family
from mmdeploy.errors import UsageError
from mmdeploy.estimator.audio import audio_tokens
from mmdeploy.estimator.differences import image_difference, unseen_difference, video_difference
from mmdeploy.estimator.items import Asked, Clip, Item, Picture, Sound, Text
from mmdeploy.estimator.router import Estimator, VideoMetadata
from mmdeploy.estimator.video import video_tokens
from mmdeploy.estimator.visual import image_tokens

TYPICAL_URL_BYTES = 100
"""Bytes of a URL that is not known: what routers before v0.10.0 count of a video."""

KINDS: dict[type, str] = {Picture: "image", Clip: "video", Sound: "audio", Text: "text"}


@dataclass(frozen=True, slots=True)
class Cost:
    """One item, priced by the router and counted by the model; tokens are those of a single one."""

    label: str
    item: Item
    count: int
    router: int | None
    """None when nobody can say: precise routing of an item whose true count is not known."""
    model: int | None
    """None when the model refuses the item or its size is not known; ``why`` says which."""
    why: tuple[str, ...]
    text: int = 0
    """Tokens of time stamps around a video's frames, which stand in the prompt outside both figures."""

    @property
    def kind(self) -> str:
        """``image``, ``video``, ``audio`` or ``text``."""
        return KINDS[type(self.item)]

    @property
    def error_percent(self) -> float | None:
        """(router - model) / model in per cent; None when either is not known or the model takes nothing."""
        return error_percent(self.router, self.model)


def error_percent(router: int | None, model: int | None) -> float | None:
    """How far ``router`` is from ``model``, in per cent of ``model``; None when that has no meaning."""
    return (router - model) / model * 100 if router is not None and model else None


def cost(asked: Asked, family: Family, estimator: Estimator | None) -> Cost:
    """Price and count ``asked``. ``estimator`` None stands for precise routing, which counts real tokens."""
    item = asked.item
    model, text, why = _model(item, family)
    if estimator is None:
        return Cost(asked.label, item, asked.count, model, model, why, text)
    router, reasons = _router(item, model, family, estimator)
    return Cost(asked.label, item, asked.count, router, model, (*reasons, *why), text)


def _model(item: Item, family: Family) -> tuple[int | None, int, tuple[str, ...]]:
    """Tokens, text tokens around them, and why there are none."""
    try:
        match item:
            case Picture(width=0):
                return None, 0, ("its size is not known",)
            case Picture():
                return image_tokens(family, item.width, item.height), 0, ()
            case Clip() if item.unread:
                return None, 0, (item.unread,)
            case Clip():
                counted = video_tokens(family, item.width, item.height, item.fps, item.duration)
                return counted.visual, counted.text, ()
            case Sound() if item.unread or not item.seconds:
                return None, 0, (item.unread or "its length is not known",)
            case Sound():
                return audio_tokens(family, item.seconds), 0, ()
            case Text():
                return item.tokens, 0, ()
    except UsageError as refusal:
        return None, 0, (refusal.found,)


def _router(item: Item, model: int | None, family: Family, estimator: Estimator) -> tuple[int, tuple[str, ...]]:
    match item:
        case Picture() if item.hidden:
            price = estimator.image_unseen()
            return price, unseen_difference(item, price, model, estimator)
        case Picture():
            price = estimator.image(item.width, item.height)
            return price, image_difference(item, price, model, family, estimator)
        case Clip():
            price = estimator.video_with(item.said, url_bytes=item.url_bytes or TYPICAL_URL_BYTES)
            return price, _video_reasons(item, price, model, family, estimator)
        case Sound():
            price = estimator.audio_inline(item.inline_bytes) if item.inline_bytes else estimator.audio_url()
            return price, _sound_reasons(item, price, model)
        case Text():
            return item.tokens, ()


def _video_reasons(item: Clip, price: int, model: int | None, family: Family, estimator: Estimator) -> tuple[str, ...]:
    if not estimator.video_supported:
        counted = f"a URL of {item.url_bytes or TYPICAL_URL_BYTES} bytes"
        return (f"routers before v0.10.0 count the bytes of a video's URL: here {counted}",)
    reasons = []
    if item.said == VideoMetadata():
        size = f"{estimator.video_width}x{estimator.video_height}"
        fixed = estimator.frame_mode == "static"
        shape = f"{estimator.video_duration:g} s" + ("" if fixed else f" of {size}")
        reasons.append(f"no headers: priced as the default, {shape}")
        if item.width and item.duration:
            reasons.append(f"{estimator.video_with(item.truth):,} with the x-llm-d-video-* headers")
    return (*reasons, *video_difference(item, price, model, family, estimator))


def _sound_reasons(item: Sound, price: int, model: int | None) -> tuple[str, ...]:
    if price == model:
        return ()
    if not item.inline_bytes:
        return ("the router does not look at an audio URL: every one costs 1",)
    return (f"the router prices inline sound by its base64: {item.inline_bytes:,} bytes at 4 a token",)


@dataclass(frozen=True, slots=True)
class Total:
    """The sum of several costs; what is not known on either side is left out of both figures of the comparison."""

    router: int | None
    """Of every item whose price is known."""
    model: int | None
    """Of every item whose true count is known; None when it is known of none."""
    error_percent: float | None
    """Over the items that both sides are known of."""
    uncounted: int
    """Items without a true count."""


def total(costs: list[Cost]) -> Total:
    """Add up, counting each cost as often as its item occurs."""
    both = [each for each in costs if each.router is not None and each.model is not None]
    router = sum((each.router or 0) * each.count for each in both)
    model = sum((each.model or 0) * each.count for each in both)
    priced = [each.router * each.count for each in costs if each.router is not None]
    counted = [each.model * each.count for each in costs if each.model is not None]
    return Total(
        router=sum(priced) if priced or not costs else None,
        model=sum(counted) if counted or not costs else None,
        error_percent=error_percent(router, model) if both else None,
        uncounted=sum(each.count for each in costs if each.model is None),
    )
