"""The true number of placeholder tokens that a model spends on a picture.

Every function takes integer pixel sizes and returns whole tokens, 1 or more. Structural tokens that stand inside the
placeholder (row breaks, tile separators, begin and end of image) are counted; chat template tokens are not. The
order of the floating point operations follows the image processors: it decides cases that lie on a rounding edge,
and `tests/truth` compares it with the processors themselves.

Families that cut a picture into tiles are in `mmdeploy.estimator.tiles`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from mmdeploy.catalog.families import Family
from mmdeploy.catalog.family_parameters import (
    AreaRounded,
    FixedGrid,
    FrameAreaRounded,
    GridBudget,
    PaddedNative,
    PaddedSides,
    PanAndScan,
    RowBreaks,
)
from mmdeploy.errors import UsageError
from mmdeploy.estimator import tiles

ASPECT_LIMIT = 200
"""Qwen's and GLM's processors refuse a picture whose long side is more than 200 times the short one."""


def image_tokens(family: Family, width: int, height: int) -> int:
    """Placeholder tokens that ``family`` spends on one picture of ``width`` x ``height`` pixels.

    Raises `UsageError` for a side below 1, and for what the model's own processor refuses: an aspect ratio above
    200 in the families that round areas (Qwen-VL, GLM-V).
    """
    if width < 1 or height < 1:
        raise UsageError(f"a picture of {width}x{height} pixels has no content; both sides must be 1 or more")
    parameters = family.image
    return _COUNTERS[type(parameters)](parameters, width, height)


def image_counter(family: Family) -> Callable[[int, int], int]:
    """`image_tokens` of one family for many pictures, whose sides must be known to be 1 or more."""
    return partial(_COUNTERS[type(family.image)], family.image)


def _refuse_extreme(width: int, height: int) -> None:
    if width > ASPECT_LIMIT * height or height > ASPECT_LIMIT * width:
        aspect = max(width, height) / min(width, height)
        raise UsageError(
            f"the model refuses pictures whose long side is more than {ASPECT_LIMIT} times the short one; "
            f"{width}x{height} has an aspect ratio of {aspect:.0f}",
            next_step="crop the picture, or scale its long side down",
        )


def _area_rounded(p: AreaRounded, width: int, height: int) -> int:
    """Source: Qwen2VLImageProcessor's resize (transformers 5.24.0), which vLLM 0.32.0 calls too.

    Sides are rounded half to even: 720 / 32 = 22.5 makes 22 rows, so 1280x720 is 40 * 22 = 880 tokens.
    """
    _refuse_extreme(width, height)
    cell = p.patch * p.merge
    rows, columns = round(height / cell), round(width / cell)
    pixels = rows * columns * cell * cell
    if pixels > p.max_pixels:
        shrink = math.sqrt(height * width / p.max_pixels)
        rows = max(1, math.floor(height / shrink / cell))
        columns = max(1, math.floor(width / shrink / cell))
    elif pixels < p.min_pixels:
        enlarge = math.sqrt(p.min_pixels / (height * width))
        rows = math.ceil(height * enlarge / cell)
        columns = math.ceil(width * enlarge / cell)
    return rows * columns


def _frame_area_rounded(p: FrameAreaRounded, width: int, height: int) -> int:
    return frame_grid(p.patch * p.merge, p.min_pixels, p.max_pixels, p.frames, p.frames, width, height)


def frame_grid(cell: int, min_pixels: int, max_pixels: int, temporal: int, frames: int, width: int, height: int) -> int:
    """Tokens of one frame when ``frames`` frames of ``width`` x ``height`` share the pixel limits.

    Source: the video form of the resize in Glm4vImageProcessor, Glm46VImageProcessor and Qwen3VLVideoProcessor
    (transformers 5.24.0). A side shorter than a cell is first scaled up to it, cut to whole pixels; the frame count
    is rounded half to even in units of ``temporal`` for the comparison, but enters the scale unrounded.
    """
    if height < cell or width < cell:
        enlarge = max(cell / height, cell / width)
        height, width = int(height * enlarge), int(width * enlarge)
    _refuse_extreme(width, height)
    rows, columns = round(height / cell), round(width / cell)
    pixels = round(frames / temporal) * temporal * rows * columns * cell * cell
    if pixels > max_pixels:
        shrink = math.sqrt(frames * height * width / max_pixels)
        rows = max(1, math.floor(height / shrink / cell))
        columns = max(1, math.floor(width / shrink / cell))
    elif pixels < min_pixels:
        enlarge = math.sqrt(min_pixels / (frames * height * width))
        rows = math.ceil(height * enlarge / cell)
        columns = math.ceil(width * enlarge / cell)
    return rows * columns


def _padded_native(p: PaddedNative, width: int, height: int) -> int:
    """Source: KimiVLProcessingInfo.get_num_image_tokens (vLLM 0.32.0).

    Whole patches of the native size are compared with the limit; sides are cut to whole pixels after scaling.
    """
    patches = (width // p.patch) * (height // p.patch)
    if patches > p.max_patches:
        scale = math.sqrt(p.max_patches / patches)
        width, height = int(width * scale), int(height * scale)
    cell = p.patch * p.merge
    return max(1, -(-height // cell)) * max(1, -(-width // cell))


def _padded_sides(p: PaddedSides, width: int, height: int) -> int:
    """Source: Kimi_K25ImageProcessor's navit resize (transformers 5.24.0)."""
    patches = max(1.0, height // p.patch) * max(1.0, width // p.patch)
    side = p.max_side_patches * p.patch
    scale = min(1.0, math.sqrt(p.max_patches / patches), side / height, side / width)
    new_height = min(max(1, int(height * scale)), side)
    new_width = min(max(1, int(width * scale)), side)
    cell = p.patch * p.merge
    return -(-new_height // cell) * -(-new_width // cell)


def _row_breaks(p: RowBreaks, width: int, height: int) -> int:
    """Source: PixtralImageProcessor and PixtralProcessor (transformers 5.24.0).

    A row of cells is followed by one break token, the last row by the end token. A side that shrinks to nothing
    (12000x1) counts as one cell; the processor fails there.
    """
    ratio = max(height / p.longest_edge, width / p.longest_edge)
    if ratio > 1:
        height, width = math.floor(height / ratio), math.floor(width / ratio)
    cell = p.patch * p.merge
    rows, columns = max(1, -(-height // cell)), max(1, -(-width // cell))
    return (columns + 1) * rows


def grid_cells(patch: int, pool: int, budget: int, width: int, height: int) -> int:
    """Cells of the largest grid in the picture's aspect ratio within ``budget`` cells.

    Source: Gemma4ImageProcessor's aspect ratio preserving resize (transformers 5.24.0). When the short side would
    get no cell, it gets one and the long side as many as the aspect ratio says, up to the budget.
    """
    target = budget * pool**2 * patch**2
    scale = math.sqrt(target / (height * width))
    cell = pool * patch
    rows, columns = math.floor(scale * height / cell), math.floor(scale * width / cell)
    if rows == 0:
        return min(math.floor(width / height), budget)
    if columns == 0:
        return min(math.floor(height / width), budget)
    return rows * columns


def _grid_budget(p: GridBudget, width: int, height: int) -> int:
    """`grid_cells` plus the begin and end of image tokens."""
    return grid_cells(p.patch, p.pool, p.max_soft_tokens, width, height) + p.structural_tokens


def _fixed_grid(p: FixedGrid, width: int, height: int) -> int:
    """Source: a 336-pixel CLIP view in patches of 14 makes 24 * 24 = 576 tokens, whatever the picture."""
    per_side = p.side // p.patch
    return per_side * per_side


def _pan_and_scan(p: PanAndScan, width: int, height: int) -> int:
    """Source: Gemma3ImageProcessor.pan_and_scan and Gemma3Processor (transformers 5.24.0).

    The explanatory text that the processor writes between the views is not counted.
    """
    return p.view_tokens * (1 + (_pan_crops(p, width, height) if p.pan_and_scan else 0))


def _pan_crops(p: PanAndScan, width: int, height: int) -> int:
    long_side, short_side = max(width, height), min(width, height)
    if long_side / short_side < p.min_ratio:
        return 0
    crops = min(math.floor(long_side / p.min_crop_size), math.floor(long_side / short_side + 0.5))
    crops = min(p.max_crops, max(2, crops))
    if min(math.ceil(long_side / crops), short_side) < p.min_crop_size:
        return 0
    return crops


_COUNTERS: dict[type, Callable[[Any, int, int], int]] = {
    AreaRounded: _area_rounded,
    FrameAreaRounded: _frame_area_rounded,
    PaddedNative: _padded_native,
    PaddedSides: _padded_sides,
    RowBreaks: _row_breaks,
    GridBudget: _grid_budget,
    FixedGrid: _fixed_grid,
    PanAndScan: _pan_and_scan,
    **tiles.COUNTERS,
}
