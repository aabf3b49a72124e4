"""The true number of tokens that a model spends on a video: sampled frames, and the text between them."""

from __future__ import annotations

from dataclasses import dataclass

from mmdeploy.catalog.families import Family
from mmdeploy.catalog.family_parameters import BudgetVideo, SampledVideo
from mmdeploy.errors import UsageError
from mmdeploy.estimator.visual import frame_grid, grid_cells

_MOST_FRAMES = 1 << 40
"""More than any clip has; headers can claim anything."""

_STAMP_MARKS = 7
"""Tokens of Qwen3-VL's time stamp besides its whole seconds: ``<`` ``.`` one decimal `` seconds`` ``>``, and the
begin and end of vision tokens."""


@dataclass(frozen=True)
class VideoTokens:
    """What one video costs the model."""

    visual: int
    """Placeholder tokens of all frames; the figure that the router's price is compared with."""
    frames: int
    """Frames sampled from the clip."""
    groups: int
    """Groups of frames that get placeholders of their own."""
    group_tokens: int
    """Placeholder tokens of one group."""
    text: int
    """Tokens of time stamps and begin and end marks around the groups, outside ``visual``. Exact for Qwen3-VL (its
    vocabulary has one token a digit); for Gemma 4 the engine's own planning figure, about 8 a frame."""

    @property
    def total(self) -> int:
        """Everything that the video adds to the prompt."""
        return self.visual + self.text


def video_tokens(family: Family, width: int, height: int, fps: float, duration_s: float) -> VideoTokens:
    """Tokens of a clip of ``duration_s`` seconds at ``fps`` frames a second, each ``width`` x ``height`` pixels.

    The clip is taken to have ``fps * duration_s`` frames, rounded, at least one. Models as served by vLLM 0.24 or
    later, without ``--media-io-kwargs`` and without video pruning.

    Raises `UsageError` for a family whose video arithmetic is not known, for sizes and times that are not above 0,
    and for an aspect ratio that the model refuses.
    """
    if fps * duration_s > _MOST_FRAMES:
        raise UsageError(f"a video of {fps * duration_s:.3g} frames cannot be")
    if min(width, height) < 1 or fps <= 0 or duration_s <= 0:
        raise UsageError(
            f"a video of {width}x{height} pixels at {fps:g} frames a second for {duration_s:g} s has no content"
        )
    total_frames = max(1, round(fps * duration_s))
    match family.video:
        case SampledVideo() as parameters:
            return _sampled(parameters, width, height, fps, total_frames)
        case BudgetVideo() as parameters:
            return _budget(parameters, width, height, total_frames)
        case None:
            raise UsageError(
                f"how {family.title} counts videos is not known",
                next_step="count the images only, or use precise routing, which asks the model server",
            )


def _sampled(p: SampledVideo, width: int, height: int, fps: float, total_frames: int) -> VideoTokens:
    """Source: Qwen3VLVideoProcessor (transformers 5.24.0), whose sampling vLLM repeats from 0.24 on.

    ``total / fps * 2`` frames, cut to a whole number, within the limits and the clip; the last frame is repeated to
    fill a group. All sampled frames share the pixel limits. A clip of one frame counts as a full group; the
    processor by itself refuses it.
    """
    frames = min(max(int(total_frames / fps * p.fps), p.min_frames), p.max_frames, total_frames)
    groups = -(-frames // p.temporal_patch)
    counted = max(frames, p.temporal_patch)
    cell = p.patch * p.merge
    per_group = frame_grid(cell, p.min_pixels, p.max_pixels, p.temporal_patch, counted, width, height)
    text = sum(_STAMP_MARKS + len(str(int(stamp))) for stamp in _rounded_stamps(p, frames, groups, fps, total_frames))
    return VideoTokens(groups * per_group, frames, groups, per_group, text)


def _rounded_stamps(p: SampledVideo, frames: int, groups: int, fps: float, total_frames: int) -> list[float]:
    """Seconds that each group's time stamp shows: the mean of its first and last frame, to one decimal."""
    step = (total_frames - 1) / (frames - 1) if frames > 1 else 0.0
    at = [round(index * step) / fps for index in range(frames)]
    at += [at[-1]] * (groups * p.temporal_patch - frames)
    return [
        float(f"{(at[first] + at[first + p.temporal_patch - 1]) / 2:.1f}")
        for first in range(0, len(at), p.temporal_patch)
    ]


def _budget(p: BudgetVideo, width: int, height: int, total_frames: int) -> VideoTokens:
    """Source: Gemma4VideoProcessor (transformers 5.24.0) and Gemma 4 in vLLM 0.32.0.

    Frames are counted like pictures, with the video's own budget; a clip with fewer frames than the limit keeps all.
    """
    frames = min(p.max_frames, total_frames)
    per_frame = grid_cells(p.patch, p.pool, p.max_soft_tokens, width, height)
    return VideoTokens(frames * per_frame, frames, frames, per_frame, frames * p.frame_text_tokens)
