"""Kustomizations that do more than list files: built by kustomize, whose complaints are put into one sentence."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from mmdeploy import documents
from mmdeploy.errors import UsageError

BUILD_SECONDS = 60
"""A kustomization with remote bases may hang."""


def built(directory: Path) -> list[Any]:
    """What kustomize makes of a kustomization that does more than list files.

    Raises `UsageError` where that cannot be built.
    """
    programs = [words for words in (("kubectl", "kustomize"), ("kustomize", "build")) if shutil.which(words[0])]
    if not programs:
        raise UsageError(
            "does more than list files, and neither kubectl nor kustomize is here to build it",
            origin=str(directory / "kustomization.yaml"),
            next_step="install kubectl",
        )
    try:
        done = subprocess.run(
            [*programs[0], str(directory)], capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"was not built within {BUILD_SECONDS} s", origin=str(directory / "kustomization.yaml"),
            next_step=f"kubectl kustomize {directory} shows what it waits for: a remote base, a pipe",
        ) from None  # fmt: skip
    if done.returncode:
        raise _not_built(directory, done.stderr)
    return documents.parse_all(done.stdout, str(directory))


_MISSING = re.compile(r"lstat (?P<path>[^:]+): no such file or directory$")
_PATH = re.compile(r"'(?P<path>[^']+)' must resolve to a file|in File: (?P<file>\S+)|from '(?P<from>[^'\n]+)'")
_FETCH = re.compile(r"Get \"(?P<url>[^\"]+)\": (?P<why>[^\n']+)")
_HEAD = re.compile(
    r"^(accumulating resources: )+(accumulation err=')?((accumulating|merging) resources from '[^']+': )?"
)
_TAIL = re.compile(r"': (must build at directory|couldn't make target).*$")


def _unlogged(said: str) -> str:
    """Without the log line that some builds of kubectl (Google's dispatcher) wrap their last word in."""
    found = re.match(r'E\d{4} \S+ +\d+ \S+\] "command failed" err=(?:"(?P<quoted>.*)"|< (?P<long>.*) >)$', said)
    if found is None:
        return said
    return found["long"] or found["quoted"].replace('\\"', '"').replace("\\\\", "\\")


def _not_built(directory: Path, complaint: str) -> UsageError:
    """One sentence of what kustomize says at length, about the file that is to be mended."""
    lines = [line for line in complaint.strip().splitlines() if not line.startswith(("# Warning", "Warning:"))]
    said = _unlogged(" ".join(" ".join(lines).split())).removeprefix("error: ")
    said = said.replace(str(directory.resolve()) + "/", "")
    origin, missing, fetched = directory / "kustomization.yaml", _MISSING.search(said), _FETCH.search(said)
    if fetched:
        return UsageError(f"{fetched['url']} cannot be fetched: {fetched['why']}", origin=str(origin),
                          next_step="use a copy on this machine")  # fmt: skip
    if missing:
        return UsageError(f"names {missing['path']}, which is not there", origin=str(origin),
                          next_step="put it back, or take it out of the list")  # fmt: skip
    named = next((found[group] for found in _PATH.finditer(said) for group in ("path", "file", "from") if found[group]
                  and (directory / found[group]).is_file()), "")  # fmt: skip
    short = (
        re.sub(r"`[^`]*`: ", "", _HEAD.sub("", _TAIL.sub("", said))).strip().rstrip("'") or "kustomize gives no reason"
    )
    return UsageError(
        f"cannot be built: {short}", origin=str(directory / named if named else origin),
        next_step=f"kubectl kustomize {directory} shows all that it says",
    )  # fmt: skip


__all__ = ["built"]
