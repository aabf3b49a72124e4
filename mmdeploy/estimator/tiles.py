"""True token counts of the families that cut a picture into tiles, views, crops or slices.

Their count follows the aspect ratio more than the area, so no setting of the router's estimator can follow it.
The same rules as in `mmdeploy.estimator.visual` hold for units and for the order of operations.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from mmdeploy.catalog.family_parameters import (
    AnyResolution,
    AspectTiles,
    CandidateViews,
    CanvasTiles,
    CropViews,
    FittedSlices,
    OverlapCrops,
    PaddedTiles,
    Slices,
)

_REMEMBERED_SIZES = 1 << 14
"""Sizes kept for the families that try every grid: traffic repeats its sizes, and memory stays a few MiB."""

Grid = tuple[int, int]
"""How many tiles along each side, in the order that the function's docstring says."""


@lru_cache(maxsize=64)
def _grids_by_ratio(fewest: int, most: int) -> tuple[list[float], list[list[Grid]]]:
    """Aspect ratios (columns / rows) in order, and for each the grids that have it, smallest first."""
    by_ratio: dict[float, list[Grid]] = {}
    for columns in range(1, most + 1):
        for rows in range(1, most // columns + 1):
            if columns * rows >= fewest:
                by_ratio.setdefault(columns / rows, []).append((columns, rows))
    ratios = sorted(by_ratio)
    return ratios, [sorted(by_ratio[ratio], key=math.prod) for ratio in ratios]


def _nearest_grid(fewest: int, most: int, tile: int, width: int, height: int) -> Grid:
    """Columns and rows of the grid of ``fewest`` to ``most`` tiles whose aspect ratio is nearest to the picture's.

    Among equally near grids the smallest wins, unless the picture's area is more than half that of a larger one:
    then the largest such grid does. Source: the closest-aspect-ratio rule shared by InternVL, GOT-OCR2, Phi-4-MM
    and DeepSeek-OCR (transformers 5.24.0, vLLM 0.32.0).
    """
    ratios, grids = _grids_by_ratio(fewest, most)
    aspect = width / height
    at = bisect_left(ratios, aspect)
    if at == 0:
        nearest = grids[0]
    elif at == len(ratios):
        nearest = grids[-1]
    else:
        below, above = abs(aspect - ratios[at - 1]), abs(aspect - ratios[at])
        if below < above:
            nearest = grids[at - 1]
        elif above < below:
            nearest = grids[at]
        else:
            nearest = sorted(grids[at - 1] + grids[at], key=math.prod)
    best = nearest[0]
    area = width * height
    for grid in nearest[1:]:
        if area > 0.5 * tile * tile * grid[0] * grid[1]:
            best = grid
    return best


def _aspect_tiles(p: AspectTiles, width: int, height: int) -> int:
    """Source: GotOcr2ImageProcessor (transformers 5.24.0); InternVLImageProcessor (vLLM 0.32.0) agrees."""
    tiles = 1
    if p.tiling and p.max_tiles > 1:
        columns, rows = _nearest_grid(p.min_tiles, p.max_tiles, p.tile, width, height)
        tiles = columns * rows
        if p.thumbnail and tiles > 1:
            tiles += 1
    return tiles * p.tile_tokens + p.structural_tokens


@lru_cache(maxsize=_REMEMBERED_SIZES)
def _canvas_tiles(p: CanvasTiles, width: int, height: int) -> int:
    """Source: Llama4ImageProcessor.get_best_fit and Llama4Processor (transformers 5.24.0).

    The canvas is the one that needs the least enlargement, or if none is large enough the least shrinking; among
    equals the smallest. A column separator follows every tile but the last of its row, a row separator every row,
    so several tiles cost one separator each; the global tile is always there.
    """
    best_scale, best_tiles = 0.0, 1
    for columns in range(1, p.max_tiles + 1):
        for rows in range(1, p.max_tiles // columns + 1):
            scale = min(columns * p.tile / width, rows * p.tile / height)
            if scale == best_scale:
                best_tiles = min(best_tiles, columns * rows)
            elif _better_canvas(scale, best_scale, p.largest_canvas):
                best_scale, best_tiles = scale, columns * rows
    tiled = best_tiles * (p.tile_tokens + 1) if best_tiles > 1 else 0
    return tiled + p.tile_tokens + p.structural_tokens


def _better_canvas(scale: float, best: float, largest: bool) -> bool:
    if best < 1 or largest:
        return scale > best
    return 1 <= scale < best


@lru_cache(maxsize=_REMEMBERED_SIZES)
def _any_resolution(p: AnyResolution, width: int, height: int) -> int:
    """Source: LlavaNextProcessor and LlavaOnevisionProcessor (transformers 5.24.0)."""
    per_side = p.side // p.patch
    best_height, best_width = _best_resolution(p.pinpoints, height, width)
    rows, columns = per_side * (best_height // p.side), per_side * (best_width // p.side)
    if width / height > columns / rows:
        kept = int(round(height * (columns / width), 7))
        rows -= (rows - kept) // 2 * 2
    else:
        kept = int(round(width * (rows / height), 7))
        columns -= (columns - kept) // 2 * 2
    if p.max_views:
        ratio = math.sqrt(rows * columns / (p.max_views * per_side**2))
        if ratio > 1.1:
            rows, columns = int(rows // ratio), int(columns // ratio)
    return rows * columns + rows + per_side * per_side


def _best_resolution(candidates: tuple[tuple[int, int], ...], first: int, second: int) -> tuple[int, int]:
    """The candidate that keeps most of a ``first`` x ``second`` picture, and then wastes least; earliest wins.

    Source: ``select_best_resolution`` (transformers 5.24.0, vLLM 0.32.0). Sides are in the candidates' order.
    """
    best, most_kept, least_waste = candidates[0], -1, 0
    for candidate in candidates:
        scale = min(candidate[1] / second, candidate[0] / first)
        kept = min(int(second * scale) * int(first * scale), first * second)
        waste = candidate[0] * candidate[1] - kept
        if kept > most_kept or (kept == most_kept and waste < least_waste):
            best, most_kept, least_waste = candidate, kept, waste
    return best


def _padded_tiles(p: PaddedTiles, width: int, height: int) -> int:
    """Source: Phi4MultimodalImageProcessor (transformers 5.24.0).

    Patches are merged two by two; each row of what is left ends in a separator. The processor refuses a picture
    whose short side would shrink below 10 pixels; here the same arithmetic is carried on.
    """
    columns, rows = math.ceil(width / p.tile), math.ceil(height / p.tile)
    if columns * rows > p.max_tiles:
        columns, rows = _nearest_grid(1, p.max_tiles, p.tile, width, height)
    canvas_width, canvas_height = p.tile * columns, p.tile * rows
    by_width, by_height = canvas_width / width, canvas_height / height
    if by_width < by_height:
        padding_width, padding_height = 0, canvas_height - int(height * by_width)
    else:
        padding_width, padding_height = canvas_width - int(width * by_height), 0
    per_tile = p.tile // p.patch
    kept_columns = per_tile * columns - padding_width // p.patch
    kept_rows = per_tile * rows - padding_height // p.patch
    merged_columns, merged_rows = -(-kept_columns // 2), -(-kept_rows // 2)
    return p.global_tokens + merged_columns * merged_rows + (merged_rows if merged_columns else 0)


@lru_cache(maxsize=_REMEMBERED_SIZES)
def _candidate_views(p: CandidateViews, width: int, height: int) -> int:
    """Source: DeepseekVL2ProcessingInfo.get_num_image_tokens (vLLM 0.32.0).

    A newline token ends each row of the global view and of the tiled view, a separator stands between the two.
    """
    best_width, best_height = _best_resolution(p.candidates, width, height) if p.cropping else (p.tile, p.tile)
    side = -(-(p.tile // p.patch) // p.downsample)
    tiled_rows, tiled_columns = side * (best_height // p.tile), side * (best_width // p.tile)
    return side * (side + 1) + tiled_rows * (tiled_columns + 1) + 1


def _crop_views(p: CropViews, width: int, height: int) -> int:
    """Source: get_num_image_tokens of DeepseekOCRProcessingInfo and DeepseekOCR2ProcessingInfo (vLLM 0.32.0)."""
    side = -(-(p.base // p.patch) // p.downsample)
    tokens = side * (side + p.row_tokens) + 1
    if width > p.crop or height > p.crop:
        columns, rows = _nearest_grid(p.min_crops, p.max_crops, p.crop, width, height)
        if columns * rows > 1:
            crop_side = -(-(p.crop // p.patch) // p.downsample)
            tokens += crop_side * rows * (crop_side * columns + p.row_tokens)
    return tokens


@lru_cache(maxsize=_REMEMBERED_SIZES)
def _overlap_crops(p: OverlapCrops, width: int, height: int) -> int:
    """Source: MolmoProcessingInfo.get_num_image_tokens (vLLM 0.32.0); Molmo2ImageProcessor (transformers 5.24.0)."""
    crop_patches = p.crop // p.patch
    margins = p.left_margin + p.right_margin
    window = (crop_patches - margins) * p.patch
    rows, columns = _least_enlarged(height - margins * p.patch, width - margins * p.patch, window, p.max_crops)
    pooled_rows, pooled_columns = _pooled(p, rows, crop_patches), _pooled(p, columns, crop_patches)
    side = -(-crop_patches // p.pool)
    views = side * (side + p.row_tokens) + pooled_rows * (pooled_columns + p.row_tokens)
    return views + 2 * p.view_tokens


def _pooled(p: OverlapCrops, crops: int, crop_patches: int) -> int:
    """Pooled patches along one side of ``crops`` crops that share margins."""
    window = crop_patches - p.left_margin - p.right_margin
    if crops == 1 or not p.pool_each_crop:
        return -(-(crops * window + p.left_margin + p.right_margin) // p.pool)
    inner = -(-window // p.pool)
    return -(-(window + p.left_margin) // p.pool) + (crops - 2) * inner + -(-(window + p.right_margin) // p.pool)


@lru_cache(maxsize=64)
def _tilings(most: int) -> list[Grid]:
    """Every (rows, columns) of at most ``most`` windows, fewest first, then fewest rows."""
    tilings = [(rows, columns) for rows in range(1, most + 1) for columns in range(1, most // rows + 1)]
    return sorted(tilings, key=lambda tiling: (tiling[0] * tiling[1], tiling[0]))


def _least_enlarged(height: int, width: int, window: int, most: int) -> Grid:
    """Rows and columns of windows that hold the picture with least enlargement; else with least shrinking.

    The sides come without the margins, so they may be nothing or negative: the processors divide by them all the
    same, and a negative side never fits.
    """
    tilings = _tilings(most)
    scales = [
        min(rows * window / height if height else math.inf, columns * window / width if width else math.inf)
        for rows, columns in tilings
    ]
    fitting = [scale for scale in scales if scale >= 1]
    return tilings[scales.index(min(fitting) if fitting else max(scales))]


@lru_cache(maxsize=_REMEMBERED_SIZES)
def _slice_grid(scale: int, most: int, width: int, height: int) -> Grid | None:
    """Columns and rows of slices, or None when the picture stays whole.

    Source: ``get_sliced_grid`` as published with MiniCPM-V 2.6 and as in MiniCPMV4_6ImageProcessor (transformers
    5.24.0). Among equally near grids the one with more rows wins.
    """
    wanted = min(math.ceil(width * height / (scale * scale)), most)
    if wanted <= 1:
        return None
    log_ratio = math.log(width / height)
    best, least_error = (1, 1), math.inf
    for slices in (wanted - 1, wanted, wanted + 1):
        if slices == 1 or slices > most:
            continue
        for columns in range(1, slices + 1):
            if slices % columns:
                continue
            error = abs(log_ratio - math.log(columns / (slices // columns)))
            if error < least_error:
                best, least_error = (columns, slices // columns), error
    return best


def _slices(p: Slices, width: int, height: int) -> int:
    """Overview and slices of a fixed count, start and end tokens each, a newline between the rows of slices.

    Source: get_num_image_tokens and the slice placeholder of MiniCPM-V in vLLM 0.32.0. The image id is not counted.
    """
    grid = _slice_grid(p.scale, p.max_slices, width, height)
    each = p.slice_tokens + p.structural_tokens
    if grid is None:
        return each
    columns, rows = grid
    return (1 + columns * rows) * each + rows - 1


def _fitted_slices(p: FittedSlices, width: int, height: int) -> int:
    """Source: MiniCPMV4_6ImageProcessor and MiniCPMV4_6Processor (transformers 5.24.0), downsampling included.

    The newline text that the processor writes between the rows of slices is not counted.
    """
    grid = _slice_grid(p.scale, p.max_slices, width, height) if p.slicing else None
    tokens = _fitted(p, width, height, enlarge=grid is None) + p.structural_tokens
    if grid is not None:
        columns, rows = grid
        slice_width, slice_height = _to_multiple(width, columns) / columns, _to_multiple(height, rows) / rows
        tokens += columns * rows * (_fitted(p, slice_width, slice_height, enlarge=True) + p.structural_tokens)
    return tokens


def _fitted(p: FittedSlices, width: float, height: float, *, enlarge: bool) -> int:
    """Tokens of one view: scaled to an area of ``scale`` squared, then rounded to whole cells."""
    if enlarge or height * width > p.scale * p.scale:
        aspect = width / height
        height = int(p.scale / math.sqrt(aspect))
        width = int(height * aspect)
    cell = p.patch * p.merge
    return (_to_multiple(width, cell) // cell) * (_to_multiple(height, cell) // cell)


def _to_multiple(length: float, divisor: int) -> int:
    return max(round(length / divisor) * divisor, divisor)


COUNTERS: dict[type, Callable[[Any, int, int], int]] = {
    AspectTiles: _aspect_tiles,
    CanvasTiles: _canvas_tiles,
    AnyResolution: _any_resolution,
    PaddedTiles: _padded_tiles,
    CandidateViews: _candidate_views,
    CropViews: _crop_views,
    OverlapCrops: _overlap_crops,
    Slices: _slices,
    FittedSlices: _fitted_slices,
}
"""The counting function of each class of parameters."""
