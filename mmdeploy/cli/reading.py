"""A bundle for a cluster, and what to know of it before it is compared with one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mmdeploy.catalog import Catalog
    from mmdeploy.intended import Intended


def bundle(place: Path, catalog: Catalog) -> Intended:
    """The bundle at a place, with a warning where its spec says more than its files. Raises what reading it raises."""
    from mmdeploy import intended
    from mmdeploy.render.bundle import SPEC_FILE
    from mmdeploy.render.disk import spec_changed
    from mmdeploy.report import problems

    found = intended.read(place, catalog)
    if place.is_dir() and spec_changed(place):
        text = (
            f"{place / SPEC_FILE} was changed after the other files were rendered, and they are what counts: mmdeploy "
            f"render -f {place / SPEC_FILE} -d {place} renders them anew"
        )
        print(problems.warning(text), file=sys.stderr)
    return found


__all__ = ["bundle"]
