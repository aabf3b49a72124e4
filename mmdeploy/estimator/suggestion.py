"""The ``estimate:`` block that is least wrong on recorded traffic.

The objective is the mean absolute error: the tokens that a price is off by, on average over the items whose true
count is known. Pictures that the router can read are priced by a factor or at a fixed number; those that it cannot
read get one price, which ``defaultResolution`` sets. Factor and prices are found exactly (`mmdeploy.estimator.fitting`)
among those that `mmdeploy.estimator.pairing.judge` accepts for the model, so that ``render`` takes the block; what
would be better still is reported beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmdeploy.catalog.families import Family
from mmdeploy.catalog.family_parameters import cell_area
from mmdeploy.estimator.fitting import best_factor, closest, factor_error, off_by, weighted_median
from mmdeploy.estimator.pairing import HD, accepted_prices, judge, natural_estimate
from mmdeploy.estimator.router import DEFAULT_FACTOR, Estimator
from mmdeploy.estimator.sample import Samples
from mmdeploy.estimator.videofit import fit_video, video_error

ANY_PRICE = 1 << 40
"""More than any picture costs: no limit."""


@dataclass(frozen=True)
class Suggestion:
    """A block, and how wrong it is compared with the one that was asked about."""

    estimate: Mapping[str, Any]
    items: int
    """Pictures and videos that it was worked out from."""
    sampled: bool
    """Whether those are a sample of the traffic."""
    before_tokens: float | None
    """Mean absolute error under the estimator asked about; None under precise routing, and without items."""
    after_tokens: float | None
    freer: Mapping[str, Any] | None = None
    """An image section with a smaller error, which ``render`` refuses without ``--allow-mismatch``."""
    freer_tokens: float | None = None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Fit:
    """One way to price pictures, and the sum of its errors."""

    error: int
    image: dict[str, Any]


@dataclass(frozen=True)
class _Pictures:
    """Pictures whose true count is known, by whether the router reads their size."""

    seen: dict[tuple[int, int], int]
    unseen: dict[int, int]
    """True tokens → weight."""

    @property
    def counts(self) -> list[tuple[int, int]]:
        """True tokens and weight of all of them."""
        return [*((true, weight) for (_, true), weight in self.seen.items()), *self.unseen.items()]


def suggest(samples: Samples, family: Family, before: Estimator | None, *, video_supported: bool) -> Suggestion:
    """Work out the block for ``family`` from ``samples``; ``before`` is what it is compared with."""
    block = natural_estimate(family, video_supported=video_supported)
    pictures, videos = _split(samples), samples.videos.weights()
    remarks = []
    best = free = _Fit(0, block["image"])
    if pictures.counts:
        best = free = _fit(pictures, samples, family, (1, ANY_PRICE), (1, ANY_PRICE))
        if not judge({"image": free.image}, family, video_supported=video_supported).fits:
            limits = accepted_prices(family, video_supported=video_supported)
            best = _fit(pictures, samples, family, *_within(limits))
        block["image"] = best.image
        if not pictures.unseen and best.image["mode"] == "dynamic":
            remarks.append("no picture of a known size was hidden from the router: defaultResolution is the guide's")
    else:
        remarks.append("no picture's true count is known: the image section is the catalog's")
    error = best.error
    if "video" in block and videos:
        block["video"] = fit_video(block["video"], videos)
        error += video_error(block["video"], videos)
    items = sum(weight for _, weight in pictures.counts) + sum(videos.values())
    return Suggestion(
        estimate=block,
        items=items,
        sampled=samples.pictures.sampled or samples.videos.sampled,
        before_tokens=_before(before, pictures, videos) / items if before and items else None,
        after_tokens=error / items if items else None,
        freer=free.image if free.error < best.error else None,
        freer_tokens=(error - best.error + free.error) / items if free.error < best.error else None,
        remarks=tuple(remarks),
    )


def _split(samples: Samples) -> _Pictures:
    seen: dict[tuple[int, int], int] = {}
    unseen: dict[int, int] = {}
    for (area, true), weight in samples.pictures.weights().items():
        if area:
            seen[area, true] = weight
        else:
            unseen[true] = weight
    return _Pictures(seen, unseen)


def _within(limits: list[tuple[int, int, int]]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Ranges of fixed prices and of factors that stay within ``limits`` (area, lowest and highest price)."""
    fixed = max(low for _, low, _ in limits), min(high for _, _, high in limits)
    factors = (
        max(area // (high + 1) + 1 for area, _, high in limits),
        min(area // low if low > 1 else ANY_PRICE for area, low, _ in limits),
    )
    return fixed, factors


def _fit(
    pictures: _Pictures, samples: Samples, family: Family, fixed: tuple[int, int], factors: tuple[int, int]
) -> _Fit:
    """The better of the best fixed price and the best factor within their ranges, of which one at least holds any."""
    fits = []
    if fixed[0] <= fixed[1]:
        price = closest(pictures.counts, *fixed)
        static = {"mode": "static", "static": {"staticToken": price}}
        fits.append(_Fit(off_by(price, pictures.counts), static))
    if factors[0] <= factors[1]:
        fits.append(_dynamic(pictures, samples, family, factors))
    natural = natural_estimate(family, video_supported=False)["image"]["mode"]
    return min(fits, key=lambda fit: (fit.error, fit.image["mode"] != natural))


def _dynamic(pictures: _Pictures, samples: Samples, family: Family, factors: tuple[int, int]) -> _Fit:
    low, high = factors
    natural = cell_area(family.image) or DEFAULT_FACTOR
    factor, error = min(max(natural, low), high), 0
    if pictures.seen:
        largest = max(area for area, _ in pictures.seen)
        factor, error = best_factor(pictures.seen, low, max(low, min(high, largest + 1)), natural)
    resolution = HD
    if pictures.unseen:
        price = weighted_median(pictures.unseen.items())
        error += off_by(price, pictures.unseen.items())
        resolution = resolution_for(price, factor, samples.sizes.get(price, HD))
    width, height = resolution
    default = {"width": width, "height": height}
    return _Fit(error, {"mode": "dynamic", "defaultResolution": default, "dynamic": {"factor": factor}})


def resolution_for(price: int, factor: int, like: tuple[int, int]) -> tuple[int, int]:
    """A size with ``width * height // factor == price``, shaped like ``like``."""
    width = max(1, round(like[0] * math.sqrt(price * factor / (like[0] * like[1]))))
    while True:
        height = -(-price * factor // width)
        if width * height < (price + 1) * factor:  # holds at the latest when width is down to factor
            return width, height
        width -= 1


def _before(before: Estimator, pictures: _Pictures, videos: Mapping[Any, int]) -> int:
    if before.image_mode == "static":
        error = off_by(before.image_static, pictures.counts)
    else:
        seen = ((area, true, weight) for (area, true), weight in pictures.seen.items())
        error = factor_error(seen, before.image_factor) + off_by(before.image_unseen(), pictures.unseen.items())
    return error + video_error(before, videos)
