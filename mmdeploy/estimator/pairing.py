"""Does this estimator fit this model? The one judge that `render`, `lint` and `estimate` ask.

The router knows two ways to price a picture: by its area, or at a fixed number. Models count by area, within a fixed
budget, or by tiles that follow the aspect ratio. An estimator of the wrong kind may be right for one size by
accident; so a pairing is judged over the sizes that people really send.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from mmdeploy.catalog.families import Family
from mmdeploy.catalog.family_parameters import GridBudget, Kind, cell_area
from mmdeploy.estimator.router import Estimator
from mmdeploy.estimator.visual import image_tokens

HD = (1280, 720)
"""The size that llm-d's guides reason with, and the shipped ``defaultResolution``."""

COMMON_SIZES: tuple[tuple[int, int], ...] = (
    (512, 512),  # thumbnails and the smaller generated pictures
    (640, 480),  # VGA: webcams, older data sets
    (800, 600),  # SVGA: pictures in web pages
    (1024, 768),  # XGA: slides, tablets
    (768, 1024),  # ... held upright
    (1024, 1024),  # generated pictures
    HD,  # HD: video stills
    (1920, 1080),  # full HD: screenshots, video stills
    (1080, 1920),  # ... of a phone held upright
    (1170, 2532),  # a screenshot of a current phone
    (1700, 2200),  # a US letter page scanned at 200 dpi
    (2048, 1536),  # 3 megapixels: pictures as messengers send them
    (4032, 3024),  # 12 megapixels: a phone's photo as taken
)
"""Width and height of what people send. Icons (below any model's floor) and panoramas are left out on purpose."""

TOLERANCE_PERCENT = 20.0
"""Error over `COMMON_SIZES` that load balancing and prefix matching bear; also what makes a model followable."""

KindGiven = Literal["area", "fixed"]

_KINDS_IN_WORDS = {"area": "by area (width x height / factor)", "fixed": "at a fixed number a picture"}


@dataclass(frozen=True)
class SizeError:
    """Price and truth of one size. ``error_percent`` is (price - true) / true."""

    width: int
    height: int
    price: int
    true: int
    error_percent: float

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self.width, self.height


@dataclass(frozen=True)
class Pairing:
    """How an estimator and a model go together."""

    fits: bool
    reason: str
    """One sentence for a person."""
    kind_needed: Kind
    kind_given: KindGiven
    price_720p: int
    true_720p: int
    error_720p_percent: float
    worst: SizeError
    """The common size with the largest error either way."""
    typical_error_percent: float
    """Median of the absolute errors over the common sizes."""
    errors: tuple[SizeError, ...]
    """One for each of `COMMON_SIZES`, in order."""
    suggestion: Mapping[str, Any]
    """The ``estimate:`` block that fits best."""
    followable: bool
    """False when no setting of the router stays within `TOLERANCE_PERCENT` over the common sizes."""
    advice: str
    """What to do beyond the suggestion; empty when nothing is."""


def natural_estimate(family: Family, *, video_supported: bool) -> dict[str, Any]:
    """The ``estimate:`` block that fits ``family`` best; a fresh copy, so that it may be changed.

    ``video_supported`` is False for router releases before v0.10.0, which refuse a ``video:`` section.
    """
    block: dict[str, Any] = deepcopy(dict(family.estimate)) if family.estimate else {"image": _computed(family)}
    if not video_supported:
        block.pop("video", None)
    return block


def _computed(family: Family) -> dict[str, Any]:
    """The image section for parameters that the catalog has no ready block for."""
    factor = cell_area(family.image)
    if factor is not None:
        resolution = {"width": HD[0], "height": HD[1]}
        return {"mode": "dynamic", "defaultResolution": resolution, "dynamic": {"factor": factor}}
    fixed = family.image.max_soft_tokens if isinstance(family.image, GridBudget) else image_tokens(family, *HD)
    return {"mode": "static", "static": {"staticToken": fixed}}


def judge(
    block: Mapping[str, Any] | None,
    family: Family,
    *,
    video_supported: bool = True,
    tolerance_percent: float = TOLERANCE_PERCENT,
) -> Pairing:
    """Compare the router's image prices under ``block`` with what ``family`` takes.

    A model that the router can follow is fitted when no common size is off by more than ``tolerance_percent``. For
    one that it cannot follow, the block is compared with the best block instead: it fits when its errors are not
    larger, beyond the tolerance, than those that nobody can avoid.

    Raises `UsageError` for a block that the router would refuse.
    """
    estimator = Estimator.from_block(block, video_supported=video_supported)
    suggestion = natural_estimate(family, video_supported=video_supported)
    best = Estimator.from_block(suggestion, video_supported=video_supported)
    errors, unavoidable = _errors(estimator, family), _errors(best, family)
    worst = max(errors, key=lambda error: abs(error.error_percent))
    followable = family.kind != "tiles" and _largest(unavoidable) <= TOLERANCE_PERCENT
    fits = _largest(errors) <= tolerance_percent if followable else _as_good(errors, unavoidable, tolerance_percent)
    hd = errors[COMMON_SIZES.index(HD)]
    given: KindGiven = "fixed" if estimator.image_mode == "static" else "area"
    return Pairing(
        fits=fits,
        reason=_reason(family, given, hd, worst, fits=fits, followable=followable),
        kind_needed=family.kind,
        kind_given=given,
        price_720p=hd.price,
        true_720p=hd.true,
        error_720p_percent=hd.error_percent,
        worst=worst,
        typical_error_percent=_typical(errors),
        errors=errors,
        suggestion=suggestion,
        followable=followable,
        advice=_advice(family, unavoidable, followable=followable),
    )


def accepted_prices(
    family: Family, *, video_supported: bool = True, tolerance_percent: float = TOLERANCE_PERCENT
) -> list[tuple[int, int, int]]:
    """The prices that `judge` lets pass: area of each common size, and the lowest and highest price there."""
    best = Estimator.from_block(
        natural_estimate(family, video_supported=video_supported), video_supported=video_supported
    )
    unavoidable = _errors(best, family)
    followable = family.kind != "tiles" and _largest(unavoidable) <= TOLERANCE_PERCENT
    accepted = []
    for error in unavoidable:
        allowed = tolerance_percent if followable else abs(error.error_percent) + tolerance_percent
        reach = error.true * allowed / 100
        low, high = math.floor(error.true - reach), math.ceil(error.true + reach)
        while low < 1 or abs((low - error.true) / error.true * 100) > allowed:  # as `judge` rounds
            low += 1
        while abs((high - error.true) / error.true * 100) > allowed:
            high -= 1
        accepted.append((error.width * error.height, low, high))
    return accepted


def _errors(estimator: Estimator, family: Family) -> tuple[SizeError, ...]:
    found = []
    for width, height in COMMON_SIZES:
        price, true = estimator.image(width, height), image_tokens(family, width, height)
        found.append(SizeError(width, height, price, true, (price - true) / true * 100))
    return tuple(found)


def _largest(errors: tuple[SizeError, ...]) -> float:
    return max(abs(error.error_percent) for error in errors)


def _typical(errors: tuple[SizeError, ...]) -> float:
    return float(median(abs(error.error_percent) for error in errors))


def _as_good(errors: tuple[SizeError, ...], best: tuple[SizeError, ...], tolerance_percent: float) -> bool:
    """No common size is further off than the best block's price for it, beyond the tolerance."""
    return all(
        abs(mine.error_percent) <= abs(its.error_percent) + tolerance_percent
        for mine, its in zip(errors, best, strict=True)
    )


def _reason(family: Family, given: KindGiven, hd: SizeError, worst: SizeError, *, fits: bool, followable: bool) -> str:
    """Say what is wrong in words that need no knowledge of either side."""
    shown = hd if abs(hd.error_percent) > TOLERANCE_PERCENT or fits else worst
    figures = (
        f"a {shown.width}x{shown.height} picture is priced {shown.price}, {family.title} takes {shown.true}: "
        f"{_percent(shown.error_percent)}"
    )
    if fits and not followable:
        return f"{figures}; no setting follows this model over all sizes, and this one is as good as the best"
    if fits or given == family.kind or family.kind == "tiles":
        return figures
    if family.kind == "fixed":
        return (
            f"{figures}. {family.title} gives every picture about the same number of tokens, whatever its size, but "
            f"this estimator prices {_KINDS_IN_WORDS['area']}: the price grows with the picture, the cost does not"
        )
    return (
        f"{figures}. {family.title} spends tokens in proportion to the picture's area, but this estimator prices "
        f"{_KINDS_IN_WORDS['fixed']}, so large pictures look too cheap and small ones too dear"
    )


def _advice(family: Family, unavoidable: tuple[SizeError, ...], *, followable: bool) -> str:
    if followable:
        return ""
    far = max(unavoidable, key=lambda error: abs(error.error_percent))
    why = (
        "cuts pictures into tiles by aspect ratio, which no price by area or at a fixed number can follow"
        if family.kind == "tiles"
        else "limits the tokens of a picture, and the router's price knows no limit"
    )
    return (
        f"{family.title} {why}: at {far.width}x{far.height} the best setting is {_percent(far.error_percent)} off. "
        "For exact prices use precise routing, which lets the model server count the tokens"
    )


def _percent(error: float) -> str:
    return f"{error:+.0f} %"
