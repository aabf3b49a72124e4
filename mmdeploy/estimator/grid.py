"""Where an estimator may be trusted: its error over sizes and aspect ratios."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mmdeploy.catalog.families import Family
from mmdeploy.errors import UsageError
from mmdeploy.estimator.costs import error_percent
from mmdeploy.estimator.router import Estimator
from mmdeploy.estimator.visual import image_tokens

SIDES = (64, 128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)
"""Sides in pixels of the square with the same area; a phone's photo has the area of 3,492."""

RATIOS: tuple[tuple[int, int], ...] = ((1, 8), (1, 3), (9, 16), (3, 4), (1, 1), (4, 3), (16, 9), (3, 1), (8, 1))
"""Aspect ratios, width to height: from a long receipt held upright to a panorama."""


@dataclass(frozen=True)
class Cell:
    """One size of the grid."""

    side: int
    ratio: tuple[int, int]
    width: int
    height: int
    router: int
    model: int | None
    """None when the model refuses such a picture."""

    @property
    def error_percent(self) -> float | None:
        """(router - model) / model in per cent."""
        return error_percent(self.router, self.model)


def grid(family: Family, estimator: Estimator) -> list[Cell]:
    """Every cell, row by row: `RATIOS` down, `SIDES` across. The router is taken to see each size."""
    return [_cell(family, estimator, side, ratio) for ratio in RATIOS for side in SIDES]


def _cell(family: Family, estimator: Estimator, side: int, ratio: tuple[int, int]) -> Cell:
    stretch = math.sqrt(ratio[0] / ratio[1])
    width, height = max(1, round(side * stretch)), max(1, round(side / stretch))
    try:
        model = image_tokens(family, width, height)
    except UsageError:
        model = None
    return Cell(side, ratio, width, height, estimator.image(width, height), model)
