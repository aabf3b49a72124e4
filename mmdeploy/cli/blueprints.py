"""Where the blueprints are: inside an installed package, beside it in a checkout, or where the person says."""

from __future__ import annotations

from pathlib import Path

from mmdeploy.catalog import Catalog
from mmdeploy.errors import BlueprintError


def load(directory: Path | None = None) -> Catalog:
    """The catalog under ``directory``, or mmdeploy's own. Raises `BlueprintError` where there is none."""
    if directory is not None:
        return Catalog(directory, label=str(directory))
    package = Path(__file__).resolve().parent.parent
    for candidate in (package / "blueprints", package.parent / "blueprints"):
        if (candidate / "catalog").is_dir():
            return Catalog(candidate)
    raise BlueprintError("mmdeploy's own blueprints are missing", next_step="reinstall mmdeploy")
