"""A Helm chart on this machine: whether what somebody named is one, before anything is done with it."""

from __future__ import annotations

import tarfile
import zlib
from pathlib import Path
from typing import Final

from mmdeploy.errors import UsageError

_FILE: Final = "Chart.yaml"
"""What makes a directory, or the one directory in an archive, a chart (Helm)."""


def local(said: str, option: str, fetch: str) -> Path:
    """The chart at a path: a directory, or an archive of one, as ``helm pull`` and ``helm package`` write it.

    ``fetch`` is the command that brings one. Raises `UsageError` for anything that helm could not take.
    """
    path = Path(said)
    origin = f"{option} {said}"
    if path.is_dir():
        _directory(path, origin, fetch)
    elif path.exists():
        _archive(path, origin, fetch)
    else:
        like = said.removeprefix("oci:").lstrip("/")
        host = like.partition("/")[0]
        mirror = [f"oci://{like}"] if "." in host.strip(".") and "/" in like and not like.endswith(".tgz") else []
        raise UsageError("there is no such chart", origin=origin, nearest=mirror, next_step=fetch)
    return path.absolute()


def _directory(path: Path, origin: str, fetch: str) -> None:
    if (path / _FILE).is_file():
        return
    inside = [*(file.parent for file in sorted(path.glob(f"*/{_FILE}"))), *sorted(path.glob("*.tgz"))]
    raise UsageError(
        f"is no chart: the directory has no {_FILE}", origin=origin, nearest=[str(each) for each in inside[:3]],
        next_step=fetch,
    )  # fmt: skip


def _archive(path: Path, origin: str, fetch: str) -> None:
    try:
        with tarfile.open(path, "r:gz") as archive:
            charts = [name for name in archive.getnames() if name.count("/") == 1 and name.endswith(f"/{_FILE}")]
    except PermissionError:
        raise UsageError("may not be read", origin=origin, next_step=f"chmod u+r {path}") from None
    except (tarfile.TarError, EOFError, OSError, zlib.error):
        beside = [str(path.parent)] if path.name == _FILE else []
        raise UsageError(
            "is no chart: neither a directory nor a gzipped archive", origin=origin, nearest=beside, next_step=fetch
        ) from None
    if not charts:
        raise UsageError(f"is no chart: the archive has no {_FILE}", origin=origin, next_step=fetch)


__all__ = ["local"]
