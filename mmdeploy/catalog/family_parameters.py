"""The numbers that decide how many tokens a model family spends on an image, a video or a sound.

One frozen class for each way that models count. A class holds what ``blueprints/catalog/families.yaml`` and a
checkpoint's ``preprocessor_config.json`` may say; the arithmetic over it is `mmdeploy.estimator.visual`'s.
Sides, sizes and edges are pixels; ``*_tokens`` are placeholder tokens; ``rows`` run along the height.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["area", "fixed", "tiles"]
"""What a model's count follows: the picture's area, nothing (a fixed budget), or its aspect ratio (tiles)."""


@dataclass(frozen=True, slots=True)
class AreaRounded:
    """Each side rounded to whole cells of ``patch * merge`` pixels, the area held between two limits (Qwen-VL)."""

    patch: int
    merge: int
    min_pixels: int
    max_pixels: int


@dataclass(frozen=True, slots=True)
class FrameAreaRounded:
    """`AreaRounded` for a still picture counted as ``frames`` equal frames that share the limits (GLM-V)."""

    patch: int
    merge: int
    min_pixels: int
    max_pixels: int
    frames: int


@dataclass(frozen=True, slots=True)
class PaddedNative:
    """Native size padded up to whole cells, shrunk to at most ``max_patches`` patches, never enlarged (Kimi-VL)."""

    patch: int
    merge: int
    max_patches: int


@dataclass(frozen=True, slots=True)
class PaddedSides:
    """`PaddedNative` with a second limit: at most ``max_side_patches`` patches along each side (Kimi-K2.5)."""

    patch: int
    merge: int
    max_patches: int
    max_side_patches: int


@dataclass(frozen=True, slots=True)
class RowBreaks:
    """Longest edge limited, one break token at the end of each row of cells (Pixtral, Mistral Small)."""

    patch: int
    merge: int
    longest_edge: int


@dataclass(frozen=True, slots=True)
class GridBudget:
    """The largest grid of ``patch * pool`` cells in the picture's aspect ratio that a budget holds (Gemma 4)."""

    patch: int
    pool: int
    max_soft_tokens: int
    structural_tokens: int


@dataclass(frozen=True, slots=True)
class FixedGrid:
    """Every picture squeezed into one ``side`` x ``side`` view of ``patch`` pixels (LLaVA 1.5)."""

    side: int
    patch: int


@dataclass(frozen=True, slots=True)
class PanAndScan:
    """A fixed count a view; long pictures get extra views when the caller asks for pan-and-scan (Gemma 3)."""

    view_tokens: int
    pan_and_scan: bool
    min_crop_size: int
    max_crops: int
    min_ratio: float


@dataclass(frozen=True, slots=True)
class AspectTiles:
    """The grid of tiles nearest in aspect ratio, plus a thumbnail when it has several (InternVL)."""

    tile: int
    min_tiles: int
    max_tiles: int
    tile_tokens: int
    structural_tokens: int
    thumbnail: bool
    tiling: bool


@dataclass(frozen=True, slots=True)
class CanvasTiles:
    """The smallest canvas of tiles that holds the picture undistorted, plus a global tile (Llama 4)."""

    tile: int
    max_tiles: int
    tile_tokens: int
    structural_tokens: int
    largest_canvas: bool


@dataclass(frozen=True, slots=True)
class AnyResolution:
    """The best of listed resolutions, padding cut off, one newline token a row (LLaVA-NeXT, LLaVA-OneVision).

    ``pinpoints`` are (height, width). ``max_views`` limits the area, in views; 0 = no limit (LLaVA-NeXT).
    """

    side: int
    patch: int
    max_views: int
    pinpoints: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class PaddedTiles:
    """Tiles that cover the native size, padding cut off at patch level, plus a global view (Phi-4-multimodal)."""

    tile: int
    patch: int
    max_tiles: int
    global_tokens: int


@dataclass(frozen=True, slots=True)
class CandidateViews:
    """The best of listed resolutions in whole tiles, plus a global view (DeepSeek-VL2).

    ``candidates`` are (width, height). ``cropping`` is off in a request with more than two images.
    """

    tile: int
    patch: int
    downsample: int
    cropping: bool
    candidates: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class CropViews:
    """A global view, and crops by aspect ratio when either side exceeds one crop (DeepSeek-OCR).

    ``row_tokens`` is 1 where each row of a view ends in a newline token, else 0.
    """

    base: int
    crop: int
    patch: int
    downsample: int
    min_crops: int
    max_crops: int
    row_tokens: int


@dataclass(frozen=True, slots=True)
class OverlapCrops:
    """Overlapping crops chosen by the least enlargement, pooled, plus a global view (Molmo).

    ``row_tokens`` is 1 where each pooled row ends in a column token; ``view_tokens`` are the start and end tokens
    of the global view and of the crops; ``pool_each_crop`` pads every crop to the pooling size, not the canvas.
    """

    crop: int
    patch: int
    pool: int
    max_crops: int
    left_margin: int
    right_margin: int
    row_tokens: int
    view_tokens: int
    pool_each_crop: bool


@dataclass(frozen=True, slots=True)
class Slices:
    """An overview and up to ``max_slices`` slices of a fixed count each (MiniCPM-V 2.6, 4.5)."""

    scale: int
    max_slices: int
    slice_tokens: int
    structural_tokens: int


@dataclass(frozen=True, slots=True)
class FittedSlices:
    """`Slices` whose count follows the size that each slice is fitted to (MiniCPM-V 4.6)."""

    scale: int
    max_slices: int
    patch: int
    merge: int
    structural_tokens: int
    slicing: bool


ImageParameters = (
    AreaRounded
    | FrameAreaRounded
    | PaddedNative
    | PaddedSides
    | RowBreaks
    | GridBudget
    | FixedGrid
    | PanAndScan
    | AspectTiles
    | CanvasTiles
    | AnyResolution
    | PaddedTiles
    | CandidateViews
    | CropViews
    | OverlapCrops
    | Slices
    | FittedSlices
)


@dataclass(frozen=True, slots=True)
class SampledVideo:
    """Frames sampled at ``fps``, merged ``temporal_patch`` at a time, one pixel budget for all (Qwen3-VL)."""

    patch: int
    merge: int
    temporal_patch: int
    fps: float
    min_frames: int
    max_frames: int
    min_pixels: int
    max_pixels: int


@dataclass(frozen=True, slots=True)
class BudgetVideo:
    """At most ``max_frames`` frames, each counted as a picture with its own budget (Gemma 4)."""

    patch: int
    pool: int
    max_soft_tokens: int
    max_frames: int
    frame_text_tokens: int


VideoParameters = SampledVideo | BudgetVideo


@dataclass(frozen=True, slots=True)
class ConvolvedAudio:
    """Spectrogram frames of ``hop`` samples, three halving convolutions over ``window`` frames (Qwen3-Omni)."""

    sample_rate: int
    hop: int
    window: int


IMAGE_ALGORITHMS: dict[str, type[ImageParameters]] = {
    "area": AreaRounded,
    "frame-area": FrameAreaRounded,
    "padded": PaddedNative,
    "padded-sides": PaddedSides,
    "row-breaks": RowBreaks,
    "grid-budget": GridBudget,
    "fixed-grid": FixedGrid,
    "pan-and-scan": PanAndScan,
    "aspect-tiles": AspectTiles,
    "canvas-tiles": CanvasTiles,
    "any-resolution": AnyResolution,
    "padded-tiles": PaddedTiles,
    "candidate-views": CandidateViews,
    "crop-views": CropViews,
    "overlap-crops": OverlapCrops,
    "slices": Slices,
    "fitted-slices": FittedSlices,
}
"""Algorithm names as families.yaml spells them."""

VIDEO_ALGORITHMS: dict[str, type[VideoParameters]] = {"sampled": SampledVideo, "budget": BudgetVideo}

AUDIO_ALGORITHMS: dict[str, type[ConvolvedAudio]] = {"convolved": ConvolvedAudio}


def kind_of(parameters: ImageParameters) -> Kind:
    """What the count follows, in the three words that a router's estimator can be compared with."""
    match parameters:
        case AreaRounded() | FrameAreaRounded() | PaddedNative() | PaddedSides() | RowBreaks():
            return "area"
        case GridBudget() | FixedGrid():
            return "fixed"
        case PanAndScan(pan_and_scan=False) | CandidateViews(cropping=False):
            return "fixed"
        case _:
            return "tiles"


def cell_area(parameters: ImageParameters) -> int | None:
    """Square pixels that one token covers (the router's ``factor``) for a family that counts by area, else None."""
    match parameters:
        case AreaRounded() | FrameAreaRounded() | PaddedNative() | PaddedSides() | RowBreaks():
            side = parameters.patch * parameters.merge
            return side * side
        case _:
            return None
