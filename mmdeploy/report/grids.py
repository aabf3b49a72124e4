"""A grid of errors, shaded: by background colour on a terminal that has colours, by a mark behind the number else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmdeploy.report.estimates import pairing_lines
from mmdeploy.report.terminal import coloured

_STEPS = ((5.0, "42;30", " "), (20.0, "43;30", "."), (50.0, "101;30", "x"), (float("inf"), "41;97", "#"))
"""Error in per cent up to which a shade holds, its colours, and its mark."""

_CELL = 6


def page(answer: Mapping[str, Any]) -> str:
    """Aspect ratios down, sizes across, and what the shades mean; 80 columns."""
    sides, ratios = answer["square_sides_pixels"], answer["aspect_ratios"]
    errors = {(cell["aspect_ratio"], cell["square_side_pixels"]): cell["error_percent"] for cell in answer["cells"]}
    label = max(map(len, ratios)) + 2
    lines = [
        f"Error of the router's price in per cent, {answer['model']['name']}.",
        "Across: side in pixels of a square of the same area. Down: width to height.",
        "",
        " " * label + "".join(f"{side:>{_CELL - 1}} " for side in sides),
    ]
    for ratio in ratios:
        lines.append(f"{ratio:<{label}}" + "".join(_cell(errors[ratio, side]) for side in sides))
    lines += ["", _legend(), ""]
    return "\n".join(line.rstrip() for line in lines) + "\n" + pairing_lines(answer["pairing"])


def _cell(error: float | None) -> str:
    if error is None:
        return f"{'-':>{_CELL - 1}} "
    rounded = ">9999" if error >= 9999.5 else f"{error:+.0f}" if round(error) else "0"
    colours, mark = next((colours, mark) for most, colours, mark in _STEPS if abs(error) <= most)
    if coloured():
        return f"\x1b[{colours}m{rounded:>{_CELL - 1}} \x1b[0m"
    return f"{rounded:>{_CELL - 1}}{mark}"


def _legend() -> str:
    names = ("up to 5 %", "up to 20 %", "up to 50 %", "more")
    if coloured():
        shades = (f"\x1b[{colours}m {name} \x1b[0m" for (_, colours, _), name in zip(_STEPS, names, strict=True))
        return " ".join(shades) + "   -: refused by the model"
    marks = (f"{mark} {name}" for (_, _, mark), name in zip(_STEPS[1:], names[1:], strict=True))
    return f"no mark: {names[0]}; " + ", ".join(marks) + "; -: refused by the model"
