"""Why the router's price differs from what the model takes, in words that need no knowledge of either side."""

from __future__ import annotations

from mmdeploy.catalog.families import Family
from mmdeploy.catalog.family_parameters import (
    AreaRounded,
    BudgetVideo,
    FixedGrid,
    FrameAreaRounded,
    GridBudget,
    ImageParameters,
    PaddedNative,
    PaddedSides,
    PanAndScan,
    RowBreaks,
    SampledVideo,
    cell_area,
)
from mmdeploy.estimator.items import Clip, Picture
from mmdeploy.estimator.router import Estimator, VideoMetadata


def unseen_difference(item: Picture, price: int, model: int | None, estimator: Estimator) -> tuple[str, ...]:
    """Of a picture whose size the router cannot read."""
    if estimator.image_mode == "static":
        return (f"every picture is priced {price:,}",) if price != model else ()
    default = f"priced at the default {estimator.image_width}x{estimator.image_height}"
    if item.hidden == "URL":
        return (f"URL: {default}",)
    return (f"the router cannot read {item.hidden}: {default}",)


def image_difference(
    item: Picture, price: int, model: int | None, family: Family, estimator: Estimator
) -> tuple[str, ...]:
    """Of a picture whose size the router reads; empty when price and count agree."""
    if model is None or price == model:
        return ()
    cell = cell_area(family.image)
    if estimator.image_mode == "static":
        if cell is not None:
            return (f"every picture is priced {price:,}; the model counts by area",)
        return (_own_way(family),)
    if cell is None:
        if family.kind == "fixed":
            return ("priced by area; the model takes about the same for every picture",)
        return (f"priced by area; {_own_way(family)}",)
    limit = _limit(family.image, item.width, item.height, model)
    if limit:
        return (limit,)
    if cell != estimator.image_factor:
        return (f"priced at {estimator.image_factor} pixels a token; the model's token covers {cell}",)
    return (_rounding(family.image),)


def _limit(p: ImageParameters, width: int, height: int, model: int) -> str:
    """Whether the picture is outside the sizes that the model takes as they are."""
    pixels = width * height
    match p:
        case AreaRounded(patch=patch, merge=merge, min_pixels=least, max_pixels=most):
            cell = (patch * merge) ** 2
            return _outside(pixels, least, most, cell)
        case FrameAreaRounded(patch=patch, merge=merge, min_pixels=least, max_pixels=most, frames=frames):
            cell = (patch * merge) ** 2
            return _outside(pixels, least // frames, most // frames, cell)
        case PaddedNative(patch=patch, merge=merge, max_patches=most):
            over = (width // patch) * (height // patch) > most
            return (
                f"above the model's limit of {most // merge**2:,} tokens, which padding passes a little" if over else ""
            )
        case PaddedSides(patch=patch, merge=merge, max_patches=most, max_side_patches=side):
            if max(width, height) > side * patch:
                return f"above the model's longest side of {side * patch:,} pixels: it is scaled down"
            over = (width // patch) * (height // patch) > most
            return (
                f"above the model's limit of {most // merge**2:,} tokens, which padding passes a little" if over else ""
            )
        case RowBreaks(longest_edge=edge):
            return (
                f"above the model's longest side of {edge:,} pixels: it is scaled down"
                if max(width, height) > edge
                else ""
            )
        case _:
            return ""


def _outside(pixels: int, least: int, most: int, cell: int) -> str:
    if pixels < least:
        return f"below the model's {-(-least // cell):,}-token floor"
    if pixels > most:
        return f"above the model's {most // cell:,}-token cap"
    return ""


def _rounding(p: ImageParameters) -> str:
    """How a model that counts by area departs from the exact area."""
    match p:
        case AreaRounded(patch=patch, merge=merge) | FrameAreaRounded(patch=patch, merge=merge):
            return f"the model rounds each side to whole cells of {patch * merge} pixels"
        case RowBreaks(patch=patch, merge=merge):
            return f"the model pads to cells of {patch * merge} pixels and adds a token a row"
        case PaddedNative(patch=patch, merge=merge) | PaddedSides(patch=patch, merge=merge):
            return f"the model pads each side up to whole cells of {patch * merge} pixels"
        case _:
            return "the model rounds"


def _own_way(family: Family) -> str:
    """How a model that does not count by area counts."""
    match family.image:
        case GridBudget(max_soft_tokens=budget):
            return f"the model takes the largest grid within its budget of {budget:,}"
        case FixedGrid() | PanAndScan(pan_and_scan=False):
            return "the model takes the same for every picture"
        case _:
            return "the model cuts pictures into tiles by aspect ratio"


def video_difference(
    item: Clip, price: int, model: int | None, family: Family, estimator: Estimator
) -> tuple[str, ...]:
    """Of a video, besides that its headers are missing."""
    if model is None or price == model:
        return ()
    if estimator.max_video_tokens and price == estimator.max_video_tokens:
        return (f"cut to maxVideoTokens, {price:,}",)
    if item.said == VideoMetadata():
        return ()
    match family.video:
        case BudgetVideo(max_soft_tokens=budget, max_frames=most):
            return (f"the model takes up to {most} frames of at most {budget} tokens",)
        case SampledVideo() as p:
            cell = p.patch * p.merge
            if estimator.frame_mode == "dynamic" and estimator.frame_factor == cell * cell:
                return (f"the model rounds each side of a frame to whole cells of {cell} pixels",)
            return (f"the model's token covers {cell * cell} pixels of a frame",)
        case _:
            return ()
