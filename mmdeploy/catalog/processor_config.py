"""Processor files and ``--mm-processor-kwargs``: many spellings of the same few numbers.

A value may stand at the top level or in one of the sections that `_SECTIONS` lists; where two spellings of one
number are given, the one listed first in `_SPELLINGS` wins, as in the processors (``min_pixels`` over
``size.shortest_edge``). Keys that do not change a token count are passed over.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from mmdeploy.catalog.family_parameters import (
    AnyResolution,
    AspectTiles,
    CandidateViews,
    CanvasTiles,
    FittedSlices,
    GridBudget,
    ImageParameters,
    OverlapCrops,
    SampledVideo,
    VideoParameters,
)
from mmdeploy.errors import UsageError

SOFT_TOKEN_BUDGETS = (70, 140, 280, 560, 1120)
"""The budgets that Gemma 4's processors take; any other is refused (transformers 5.24.0, vLLM 0.32.0)."""

_SECTIONS = ("media_proc_cfg", "image_processor", "images_kwargs")
"""Where image settings may be nested; a later section overrules an earlier one and the top level."""

_SPELLINGS: dict[str, tuple[str, ...]] = {
    "patch": ("patch_size", "patch_size.height", "image_patch_size"),
    "merge": ("merge_size", "spatial_merge_size", "merge_kernel_size", "merge_kernel_size.0"),
    "min_pixels": ("min_pixels", "size.min_pixels", "size.shortest_edge"),
    "max_pixels": ("max_pixels", "size.max_pixels", "size.longest_edge"),
    "frames": ("temporal_patch_size",),
    "max_patches": ("max_patches", "in_patch_limit", "in_token_limit"),
    "max_side_patches": ("size.max_height", "patch_limit_on_one_side"),
    "longest_edge": ("size.longest_edge", "size.height", "image_size"),
    "pool": ("pooling_kernel_size", "pooling_size", "pooling_size.0"),
    "max_soft_tokens": ("max_soft_tokens", "image_seq_length"),
    "side": ("crop_size.height", "crop_size", "size.height", "size.shortest_edge"),
    "pan_and_scan": ("do_pan_and_scan",),
    "min_crop_size": ("pan_and_scan_min_crop_size",),
    "min_ratio": ("pan_and_scan_min_ratio_to_activate",),
    "tile": ("image_size", "size.height", "size"),
    "thumbnail": ("use_thumbnail",),
    "tiling": ("crop_to_patches", "dynamic_image_size"),
    "min_tiles": ("min_patches", "min_dynamic_patch"),
    "max_tiles": ("max_patches", "max_dynamic_patch", "dynamic_hd"),
    "largest_canvas": ("resize_to_max_canvas",),
    "pinpoints": ("image_grid_pinpoints",),
    "max_views": ("vision_aspect_ratio",),
    "candidates": ("candidate_resolutions",),
    "downsample": ("downsample_ratio",),
    "crop": ("size.height", "base_image_input_size", "base_image_input_size.0"),
    "left_margin": ("overlap_margins.0",),
    "right_margin": ("overlap_margins.1",),
    "scale": ("scale_resolution",),
    "max_slices": ("max_slice_nums",),
    "slice_tokens": ("image_feature_size", "query_num"),
    "slicing": ("slice_mode",),
}
"""Field of the parameters: where a processor file may have it. ``a.b`` is key b of a; ``a.0`` the first item."""

_EXCEPTIONS: dict[tuple[str, str], tuple[str, ...]] = {
    ("PanAndScan", "max_crops"): ("pan_and_scan_max_num_crops",),
    ("OverlapCrops", "max_crops"): ("max_crops",),
}
"""Fields that two kinds of model spell differently."""

_FIXED: dict[type, frozenset[str]] = {
    GridBudget: frozenset({"structural_tokens"}),
    CanvasTiles: frozenset({"tile_tokens", "structural_tokens"}),
    CandidateViews: frozenset({"tile", "cropping"}),
}


def processor_type(config: Mapping[str, Any]) -> str | None:
    """The image processor class that a file names, without the ``Fast`` and ``Pil`` of its implementations."""
    named = config.get("image_processor_type") or _lookup(config, "image_processor.image_processor_type")
    return re.sub(r"(Fast|Pil)$", "", named) if isinstance(named, str) and named else None


def apply(parameters: ImageParameters, config: Mapping[str, Any]) -> ImageParameters:
    """``parameters`` with every number that ``config`` gives.

    Raises `UsageError` for a value of the wrong type or size, and for a budget that the model does not have.
    """
    flat = _sections(config)
    changes = _changes(parameters, flat)
    if isinstance(parameters, FittedSlices) and "downsample_mode" in flat:
        changes["merge"] = _downsample(flat["downsample_mode"])
    changed = replace(parameters, **changes)
    if isinstance(changed, CandidateViews) and "candidates" in changes:
        changed = replace(changed, tile=changed.candidates[0][0])
    _check(changed)
    return changed


def apply_video(parameters: VideoParameters, config: Mapping[str, Any], *, flat: bool) -> VideoParameters:
    """Video parameters with what ``video_processor`` (a file) or ``videos_kwargs`` (the engine) gives.

    With ``flat``, pixel limits at the top level count as well: the engine routes its flat kwargs to images and
    videos alike (vLLM 0.32.0), while a file's top level is the image processor's. Frame budgets like Gemma 4's are
    constants of the engine.
    """
    if not isinstance(parameters, SampledVideo):
        return parameters
    layers = [_with_limits(config)] if flat else []
    given: dict[str, Any] = {
        key: layer[key] for layer in layers for key in ("min_pixels", "max_pixels") if key in layer
    }
    for section in ("video_processor", "videos_kwargs"):
        nested = config.get(section)
        if isinstance(nested, Mapping):
            given.update(_with_limits(nested))
    changes = {
        name: _number(name, given[name], kind) for name, kind in _VIDEO_FIELDS.items() if given.get(name) is not None
    }
    return replace(parameters, **changes)


_VIDEO_FIELDS: dict[str, type] = {
    "fps": float,
    "min_frames": int,
    "max_frames": int,
    "min_pixels": int,
    "max_pixels": int,
}


def _sections(config: Mapping[str, Any]) -> dict[str, Any]:
    """Top level and nested sections in one; each later one overrules key by key, inside ``size`` too."""
    flat = _with_limits(config)
    for section in _SECTIONS:
        nested = config.get(section)
        if isinstance(nested, Mapping):
            outer = flat.get("size")
            flat.update(_with_limits(nested))
            if isinstance(outer, Mapping) and isinstance(flat["size"], Mapping):
                flat["size"] = {**outer, **flat["size"]}
    return flat


def _with_limits(layer: Mapping[str, Any]) -> dict[str, Any]:
    """``layer`` with its pixel limits under one spelling each, so that layers can overrule one another's.

    Within a layer ``min_pixels`` wins over ``size.min_pixels`` and that over ``size.shortest_edge``.
    """
    limits = {}
    for limit in ("min_pixels", "max_pixels"):
        values = (_lookup(layer, spelling) for spelling in _SPELLINGS[limit])
        limits[limit] = next((value for value in values if value is not None), None)
    return {**layer, **{limit: value for limit, value in limits.items() if value is not None}}


def _changes(parameters: ImageParameters, flat: Mapping[str, Any]) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    name = type(parameters).__name__
    fixed = _FIXED.get(type(parameters), frozenset())
    for field in fields(parameters):
        if field.name in fixed:
            continue
        for spelling in _EXCEPTIONS.get((name, field.name), _SPELLINGS.get(field.name, ())):
            value = _lookup(flat, spelling)
            if value is None or (isinstance(value, Mapping | list) and field.name not in _LISTS):
                continue  # this spelling is for the other shape of the value
            changes[field.name] = _read(field.name, spelling, value, type(getattr(parameters, field.name)))
            break
    return changes


def _lookup(config: Mapping[str, Any], spelling: str) -> Any:
    value: Any = config
    for step in spelling.split("."):
        if isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(value, list | tuple) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


def _read(field: str, spelling: str, value: Any, kind: type) -> Any:
    if field in _LISTS:
        return _LISTS[field](spelling, value)
    if field == "max_views":
        match = re.fullmatch(r"anyres_max_(\d+)", str(value))
        return int(match[1]) if match else 0
    if kind is bool:
        if not isinstance(value, bool):
            raise UsageError(f"`{spelling}` must be true or false, not {value!r}")
        return value
    return _number(spelling, value, kind)


def _number(spelling: str, value: Any, kind: type) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"`{spelling}` must be a number, not {value!r}")
    if value < 0 or (value == 0 and not spelling.startswith("overlap_margins")):
        raise UsageError(f"`{spelling}` must be more than 0, not {value!r}")
    if kind is int and value != int(value):
        raise UsageError(f"`{spelling}` must be a whole number, not {value!r}")
    return kind(value)


def _pairs(spelling: str, value: Any) -> tuple[tuple[int, int], ...]:
    try:
        pairs = tuple((int(first), int(second)) for first, second in value)
    except (TypeError, ValueError):
        raise UsageError(f"`{spelling}` must be a list of pairs of sides, not {value!r}") from None
    if not pairs or min(min(pair) for pair in pairs) < 1:
        raise UsageError(f"`{spelling}` must list at least one pair of sides above 0")
    return pairs


_LISTS: dict[str, Callable[[str, Any], Any]] = {"pinpoints": _pairs, "candidates": _pairs}


def _downsample(mode: Any) -> int:
    """Patches that one token merges along a side: MiniCPM-V 4.6 has two modes."""
    sides = {"4x": 2, "16x": 4}
    if mode not in sides:
        raise UsageError(f"`downsample_mode` must be 4x or 16x, not {mode!r}")
    return sides[mode]


def _check(parameters: ImageParameters) -> None:
    """Refuse what the processors refuse, before it becomes a wrong count."""
    if isinstance(parameters, GridBudget):
        _check_budget(parameters.max_soft_tokens)
    if isinstance(parameters, AspectTiles) and parameters.min_tiles > parameters.max_tiles:
        raise UsageError(f"at least {parameters.min_tiles} tiles and at most {parameters.max_tiles} cannot both hold")
    edge = min(getattr(parameters, name, sys.maxsize) for name in ("side", "tile", "crop"))
    if edge < getattr(parameters, "patch", 0):
        raise UsageError(f"a view of {edge} pixels holds no patch")
    if isinstance(parameters, AnyResolution) and min(min(sides) for sides in parameters.pinpoints) < parameters.side:
        raise UsageError(f"`image_grid_pinpoints` lists a resolution smaller than the view of {parameters.side} pixels")
    if isinstance(parameters, OverlapCrops):
        margins = parameters.left_margin + parameters.right_margin
        if parameters.crop // parameters.patch <= margins:
            raise UsageError(
                f"overlap margins of {margins} patches leave nothing of a crop of {parameters.crop} pixels"
            )


def _check_budget(budget: int) -> None:
    if budget not in SOFT_TOKEN_BUDGETS:
        allowed = tuple(str(known) for known in SOFT_TOKEN_BUDGETS)
        raise UsageError(
            f"`max_soft_tokens` must be one of {', '.join(allowed)}: the model has no budget of {budget}",
            nearest=allowed,
        )
