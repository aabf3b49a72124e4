"""A bundle and a directory: what would change, and the change itself, all or nothing.

A bundle carries its own checksums (`mmdeploy.sum`), so that a file somebody edited by hand is told from one that is
merely older than the blueprints.
"""

from __future__ import annotations

import contextlib
import difflib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mmdeploy.errors import DifferencesError, UsageError
from mmdeploy.render.bundle import SUMS_FILE, Bundle, digest, sums_of

_TEMPORARY = ".mmdeploy-tmp"


@dataclass(frozen=True)
class Change:
    """One file that a write would touch."""

    path: str
    old: str | None
    """Its text now; None where it does not exist, or cannot be read as text."""
    new: str | None
    """Its text after; None where it would be removed."""
    edited: bool
    """Whether somebody other than mmdeploy wrote what is there now."""

    @property
    def verb(self) -> str:
        """``create``, ``update`` or ``remove``."""
        return "remove" if self.new is None else "create" if self.old is None and not self.edited else "update"

    def diff(self) -> str:
        """A unified diff from what is there to what would be."""
        old, new = (self.old or "").splitlines(keepends=True), (self.new or "").splitlines(keepends=True)
        before = f"a/{self.path}" if self.old is not None else "/dev/null"
        after = f"b/{self.path}" if self.new is not None else "/dev/null"
        return "".join(difflib.unified_diff(old, new, before, after))


def changes(bundle: Bundle, directory: Path) -> list[Change]:
    """What writing ``bundle`` into ``directory`` would change, by path; empty where the directory is current.

    Raises `UsageError` where the directory, or something in the way of a file, cannot be read.
    """
    sums = _read_sums(directory)
    wanted: dict[str, str] = {**bundle.files, SUMS_FILE: bundle.sums()}
    found = []
    for path, new in wanted.items():
        old = _read(directory / path)
        if old != new:
            found.append(Change(path, old, new, _edited(path, old, directory, sums)))
    for path in sorted(set(sums) - set(wanted)):
        old = _read(directory / path)
        if old is not None:
            found.append(Change(path, old, None, _edited(path, old, directory, sums)))
    return found


def _edited(path: str, old: str | None, directory: Path, sums: Mapping[str, str]) -> bool:
    if path == SUMS_FILE or (old is None and not (directory / path).exists()):
        return False
    return old is None or sums.get(path) != digest(old)


def write(bundle: Bundle, directory: Path, force: bool = False) -> list[Change]:
    """Make ``directory`` hold the bundle, and say what changed.

    Every file is written beside its place first and then renamed, so that a failure leaves the old bundle whole.
    Files that mmdeploy did not write are left alone, unless they stand where one of the bundle's must go: then
    `DifferencesError` lists them and nothing is written, except with ``force``. Raises `UsageError` where the
    directory cannot be written.
    """
    todo = changes(bundle, directory)
    edited = [change for change in todo if change.edited]
    if edited and not force:
        names = ", ".join(change.path for change in edited)
        error = DifferencesError(
            f"{directory} holds files that mmdeploy did not write as they are now: {names}",
            next_step="see the differences with --check, overwrite them with --force, or render into another directory",
        )
        error.more = [f"{change.path}: edited by hand, or not mmdeploy's" for change in edited]
        raise error
    try:
        _apply(todo, directory)
    except OSError as problem:
        raise UsageError(
            f"cannot write {problem.filename or directory}: {problem.strerror}",
            origin=str(directory),
            next_step="choose another directory with -d; nothing was changed",
        ) from None
    return todo


def _apply(todo: list[Change], directory: Path) -> None:
    staged: list[tuple[Path, Path]] = []
    try:
        for change in todo:
            target = directory / change.path
            if change.new is not None:
                target.parent.mkdir(parents=True, exist_ok=True)
                beside = target.with_name(target.name + _TEMPORARY)
                beside.write_text(change.new, encoding="utf-8", newline="\n")
                staged.append((beside, target))
        for beside, target in staged:
            os.replace(beside, target)
    finally:
        for beside, _ in staged:
            with contextlib.suppress(OSError):
                beside.unlink()
    for change in todo:
        if change.new is None:
            (directory / change.path).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                (directory / change.path).parent.rmdir()


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        return None
    except OSError as problem:
        if isinstance(problem, NotADirectoryError | IsADirectoryError):
            return None
        raise UsageError(f"cannot be read: {problem.strerror}", origin=str(path)) from None


def _read_sums(directory: Path) -> dict[str, str]:
    text = _read(directory / SUMS_FILE) or ""
    return dict(_parse_sums(text))


def _parse_sums(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        value, _, path = line.partition("  ")
        inside = path and not path.startswith("/") and ".." not in path.split("/")
        if inside and len(value) == 64:
            yield path, value


__all__ = ["Change", "changes", "sums_of", "write"]
