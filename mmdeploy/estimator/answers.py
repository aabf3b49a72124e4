"""Answers as plain data, every number with its unit in its name: what ``-o json`` prints and tables are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mmdeploy.estimator.costs import Cost, error_percent, total
from mmdeploy.estimator.distribution import BANDS
from mmdeploy.estimator.grid import RATIOS, SIDES, Cell
from mmdeploy.estimator.items import Clip, Picture, Sound
from mmdeploy.estimator.question import Question

if TYPE_CHECKING:  # a single estimate needs neither
    from mmdeploy.estimator.suggestion import Suggestion
    from mmdeploy.estimator.traffic import Tally

SCHEMA_VERSION = 1
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def items_answer(question: Question, costs: Sequence[Cost], problems: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Items and their sum. ``problems`` are files that could not be read: ``file`` and ``problem``."""
    summed = total(list(costs))
    return {
        **_head("Estimate", question),
        "items": [_item(cost) for cost in costs],
        "total": {
            "router_tokens": summed.router,
            "model_tokens": summed.model,
            "error_percent": _rounded(summed.error_percent),
            "items_without_model_tokens": summed.uncounted,
        },
        "pairing": _pairing(question),
        "problems": list(problems),
    }


def grid_answer(question: Question, cells: Sequence[Cell]) -> dict[str, Any]:
    """The grid's cells, row by row."""
    return {
        **_head("EstimateGrid", question),
        "square_sides_pixels": list(SIDES),
        "aspect_ratios": [f"{wide}:{high}" for wide, high in RATIOS],
        "cells": [
            {
                "aspect_ratio": f"{cell.ratio[0]}:{cell.ratio[1]}",
                "square_side_pixels": cell.side,
                "width_pixels": cell.width,
                "height_pixels": cell.height,
                "router_tokens": cell.router,
                "model_tokens": cell.model,
                "error_percent": _rounded(cell.error_percent),
            }
            for cell in cells
        ],
        "pairing": _pairing(question),
    }


def traffic_answer(question: Question, tally: Tally, suggestion: Suggestion | None) -> dict[str, Any]:
    """What was found in recorded traffic."""
    errors = tally.errors
    return {
        **_head("EstimateTraffic", question),
        "lines": {
            "read": tally.lines,
            "requests": tally.requests,
            "rejected": tally.rejected,
            "unreadable": tally.unreadable,
            "problems": [{"line": number, "problem": words} for number, words in tally.problems],
        },
        "items": _traffic_items(tally),
        "total": {
            "router_tokens": errors.router_tokens,
            "model_tokens": errors.model_tokens,
            "error_percent": _rounded(errors.error_percent),
            "items": errors.items,
            "uncounted_items_router_tokens": tally.uncounted_router_tokens,
            "text_router_tokens": tally.text_router_tokens,
        },
        "errors": {
            "mean_absolute_tokens": _rounded(errors.mean_absolute_error_tokens),
            "quantiles_percent": {f"p{share * 100:g}": errors.quantile(share) for share in QUANTILES},
            "bands": [
                {"from_percent": low, "below_percent": None if high == float("inf") else high, "items": count}
                for (low, high), count in zip(BANDS, errors.bands(), strict=True)
            ],
        },
        "suggestion": _suggestion(suggestion) if suggestion else None,
    }


def _traffic_items(tally: Tally) -> dict[str, Any]:
    media, hidden = tally.media, sum(tally.hidden.values())
    return {
        "media": media,
        **{kind: count for kind, count in tally.items.items() if kind != "text"},
        "unseen_by_router": hidden,
        "unseen_by_router_percent": _rounded(hidden / media * 100 if media else None),
        "unseen_reasons": dict(sorted(tally.hidden.items(), key=lambda pair: (-pair[1], pair[0]))),
        "unpriced": dict(sorted(tally.unpriced.items())),
        "refused_by_model": tally.refused,
        "without_model_tokens": tally.uncounted,
    }


def _head(kind: str, question: Question) -> dict[str, Any]:
    family, producer = question.family, question.producer
    return {
        "schemaVersion": SCHEMA_VERSION,
        "kind": kind,
        "model": {
            "name": question.model,
            "family": family.slug,
            "title": family.title,
            "setting": family.setting,
            "counts_by": family.kind,
            "confidence": family.confidence,
        },
        "estimator": {
            "origin": producer.origin,
            "release": question.release,
            "precise": producer.precise,
            "estimate": producer.estimate,
            "remarks": list(producer.remarks),
        },
    }


def _item(cost: Cost) -> dict[str, Any]:
    count = cost.count
    router = None if cost.router is None else cost.router * count
    model = None if cost.model is None else cost.model * count
    return {
        "label": cost.label,
        "kind": cost.kind,
        "count": count,
        **_measures(cost),
        "router_tokens": router,
        "model_tokens": model,
        "model_text_tokens": cost.text * count,
        "error_percent": _rounded(error_percent(router, model)),
        "why": list(cost.why),
    }


def _measures(cost: Cost) -> dict[str, Any]:
    """What the item is, in pixels and seconds; None for what is not known."""
    match cost.item:
        case Picture() as picture:
            return {
                "width_pixels": picture.width or None,
                "height_pixels": picture.height or None,
                "seen_by_router": not picture.hidden,
            }
        case Clip() as clip:
            return {
                "width_pixels": clip.width or None,
                "height_pixels": clip.height or None,
                "frames_per_second": clip.fps or None,
                "duration_seconds": clip.duration or None,
            }
        case Sound() as sound:
            return {"duration_seconds": sound.seconds or None, "inline_bytes": sound.inline_bytes}
        case _:
            return {}


def _pairing(question: Question) -> dict[str, Any] | None:
    pairing, tolerance_percent = question.pairing, question.tolerance_percent
    if pairing is None:
        return None
    return {
        "within_tolerance": abs(pairing.worst.error_percent) <= tolerance_percent,
        "tolerance_percent": tolerance_percent,
        "worst_error_percent": _rounded(pairing.worst.error_percent),
        "worst_width_pixels": pairing.worst.width,
        "worst_height_pixels": pairing.worst.height,
        "typical_error_percent": _rounded(pairing.typical_error_percent),
        "fits": pairing.fits,
        "followable": pairing.followable,
        "reason": pairing.reason,
        "advice": pairing.advice,
    }


def _suggestion(suggestion: Suggestion) -> dict[str, Any]:
    return {
        "estimate": suggestion.estimate,
        "items": suggestion.items,
        "sampled": suggestion.sampled,
        "mean_absolute_error_before_tokens": _rounded(suggestion.before_tokens),
        "mean_absolute_error_after_tokens": _rounded(suggestion.after_tokens),
        "with_allow_mismatch": {
            "image": suggestion.freer,
            "mean_absolute_error_after_tokens": _rounded(suggestion.freer_tokens),
        }
        if suggestion.freer
        else None,
        "remarks": list(suggestion.remarks),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
