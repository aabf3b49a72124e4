"""What ``mmdeploy render`` has made, judged by the rules of ``mmdeploy lint`` before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from mmdeploy.errors import FindingsError

if TYPE_CHECKING:
    from mmdeploy.catalog import Catalog
    from mmdeploy.render.bundle import Bundle


def examiner(catalog: Catalog) -> Callable[[Bundle], None]:
    """A function that raises `FindingsError` for a bundle with errors; codes that the settings ignore do not count."""
    from mmdeploy.lint import settings
    from mmdeploy.lint.judgement import errors_of_bundle
    from mmdeploy.render.bundle import contents

    ignored = settings.load(Path()).ignore

    def examine(bundle: Bundle) -> None:
        found = errors_of_bundle(catalog, bundle.files, contents(bundle), ignored)
        if found:
            what = f"{len(found)} error{'s' * (len(found) != 1)}"
            problem = FindingsError(
                f"the rendered files have {what}, so they are not written",
                next_step=f"change the spec, or run mmdeploy explain {found[0].code} for why and how to pass over it",
            )
            problem.more += [f"{item.code} {item.position} {item.subject}: {item.message}" for item in found]
            raise problem

    return examine
