"""How a rule says no: with the place that the person said it at, what would work, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mmdeploy.documents import KeyPath
from mmdeploy.errors import UnsupportedError

if TYPE_CHECKING:
    from mmdeploy.render.resolve import Resolution


def refuse(
    resolution: Resolution, path: KeyPath, found: str, near: list[str] | None = None, next_step: str | None = None
) -> UnsupportedError:
    """The error of a rule that says no to what stands at ``path``, or below it; ``near`` lists what would work."""
    said = next((known for known in resolution.said_paths() if known[: len(path)] == path), None)
    if said is None and is_said(resolution.said, path):
        said = path
    return UnsupportedError(
        found,
        origin=resolution.origin_of(said) if said else None,
        nearest=near or [],
        next_step=next_step or "mmdeploy render --explain shows where each value comes from",
    )


def is_said(said: Mapping[str, Any], path: KeyPath) -> bool:
    """Whether a person said something at ``path``."""
    value: Any = said
    for step in path:
        if not isinstance(value, Mapping) or step not in value:
            return False
        value = value[step]
    return True
