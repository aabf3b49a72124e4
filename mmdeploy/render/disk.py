"""A bundle and a directory: what would change, and the change itself, all or nothing.

A bundle carries its own checksums (`mmdeploy.sum`), so that a file somebody edited by hand is told from one that is
merely older than the blueprints.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import posixpath
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mmdeploy.errors import DifferencesError, UsageError
from mmdeploy.render.bundle import SPEC_FILE, SUMS_FILE, Bundle, digest, sums_of

_TEMPORARY = ".mmdeploy-tmp-"
_NAME_LIMIT = 255
"""Bytes of a file's name, on every file system in use."""


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


def changes(bundle: Bundle, directory: Path, spec_file: Path | None = None) -> list[Change]:
    """What writing ``bundle`` into ``directory`` would change, by path; empty where the directory is current.

    ``spec_file`` is the file that the person rendered from: where it is the bundle's own `mmdeploy.yaml`, what they
    changed there is what they asked for, and not an edit to protect. Raises `UsageError` where the directory, or
    something in the way of a file, cannot be read, and where a link leads a file out of the directory.
    """
    sums = _read_sums(directory)
    if (
        spec_file is not None
        and spec_file.exists()
        and os.path.realpath(spec_file) == os.path.realpath(directory / SPEC_FILE)
    ):
        sums[SPEC_FILE] = digest(_read(spec_file) or "")
    wanted: dict[str, str] = {**bundle.files, SUMS_FILE: bundle.sums()}
    found = []
    for path, new in wanted.items():
        _check_inside(directory, path)
        old = _read(directory / path)
        if old != new:
            found.append(Change(path, old, new, _edited(path, old, directory, sums)))
    for path in sorted(set(sums) - set(wanted)):
        old = _read(directory / path)
        if old is not None:
            found.append(Change(path, old, None, _edited(path, old, directory, sums)))
    return found


def _check_inside(directory: Path, path: str) -> None:
    parent = os.path.realpath((directory / path).parent)
    root = os.path.realpath(directory)
    if os.path.commonpath([root, parent]) != root:
        raise UsageError(
            f"{path} leads out of the directory, to {parent}",
            origin=str(directory / path),
            next_step="remove the symbolic link, or render into another directory with -d",
        )


def _edited(path: str, old: str | None, directory: Path, sums: Mapping[str, str]) -> bool:
    if path == SUMS_FILE or (old is None and not os.path.lexists(directory / path)):
        return False
    return old is None or sums.get(path) != digest(old)


def write(bundle: Bundle, directory: Path, force: bool = False, spec_file: Path | None = None) -> list[Change]:
    """Make ``directory`` hold the bundle, and say what changed.

    Every file is written to a temporary place first and then renamed, and whatever fails or interrupts that, the old
    files are put back. Files that mmdeploy did not write are left alone, unless they stand where one of the bundle's
    must go: then `DifferencesError` lists them and nothing is written, except with ``force``. Raises `UsageError` where
    the directory cannot be written.
    """
    todo = changes(bundle, directory, spec_file)
    _check_ways(todo, directory)
    edited = [change for change in todo if change.edited]
    if edited and not force:
        names = ", ".join(change.path for change in edited)
        error = DifferencesError(
            f"{directory} holds files that mmdeploy did not write as they are now: {names}",
            next_step="see the differences with --check, overwrite them with --force, or render into another directory",
        )
        error.more = [f"{change.path}: edited by hand, or not mmdeploy's" for change in edited]
        raise error
    if todo:
        with _uninterrupted():
            Replacement(directory, todo).run()
    return todo


def _check_ways(todo: Sequence[Change], directory: Path) -> None:
    """Refuse what --force cannot take away: directories where files must go, and the other way round."""
    for change in todo:
        target = directory / change.path
        if change.new is not None and os.path.isdir(target) and not os.path.islink(target):
            raise _in_the_way(target, "a directory is in the way of a file", directory)
        for parent in target.parents:
            if os.path.lexists(parent):
                if not os.path.isdir(parent):
                    raise _in_the_way(parent, "is no directory, but files must go into it", directory)
                break


def _in_the_way(path: Path, found: str, directory: Path) -> UsageError:
    return UsageError(
        found,
        origin=str(path),
        next_step=f"move {path} away, or render into another directory than {directory} with -d",
    )


class Replacement:
    """The old files of a directory replaced by new ones, or put back.

    Until everything is in its place, each old file is kept under a second name. Putting back looks only at what was
    there before, not at how far the replacement came, so it is right after every step.
    """

    def __init__(self, directory: Path, todo: Sequence[Change]) -> None:
        self.directory, self.todo = directory, todo
        self.kept: dict[Path, Path] = {}
        self.created: list[Path] = []
        targets = [directory / change.path for change in todo if change.new is not None]
        parents = {parent for target in targets for parent in target.parents if not os.path.exists(parent)}
        self.missing = sorted(parents, key=lambda path: len(path.parts))
        self.doing = directory

    def run(self) -> None:
        """Do it. Raises `UsageError`, with everything as it was, where the file system does not let us."""
        temporary: Path | None = None
        try:
            for parent in self.missing:
                self.doing = parent
                parent.mkdir(exist_ok=True)
            self.doing = self.directory
            temporary = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=self.directory))
            staged = self._stage(temporary)
            self._keep(temporary)
            self._exchange(staged)
        except BaseException as problem:
            lost = self._put_back()
            if temporary and not lost:
                shutil.rmtree(temporary, ignore_errors=True)
            for parent in reversed(self.missing):
                with contextlib.suppress(OSError):
                    parent.rmdir()
            if isinstance(problem, OSError):
                raise self._refusal(problem, lost) from None
            raise
        shutil.rmtree(temporary, ignore_errors=True)
        self._tidy()

    def _stage(self, temporary: Path) -> list[tuple[Path, Path]]:
        staged = []
        for index, change in enumerate(self.todo):
            if change.new is not None:
                self.doing = self.directory / change.path
                beside = temporary / f"new-{index}"
                beside.write_text(change.new, encoding="utf-8", newline="\n")
                staged.append((beside, self.doing))
        return staged

    def _keep(self, temporary: Path) -> None:
        for index, change in enumerate(self.todo):
            self.doing = self.directory / change.path
            if not os.path.lexists(self.doing):
                self.created.append(self.doing)
                continue
            second = temporary / f"old-{index}"
            try:
                os.link(self.doing, second, follow_symlinks=False)
            except OSError:  # a file system without hard links
                shutil.copy2(self.doing, second, follow_symlinks=False)
            self.kept[self.doing] = second

    def _exchange(self, staged: Sequence[tuple[Path, Path]]) -> None:
        for beside, self.doing in staged:
            os.replace(beside, self.doing)
        for change in self.todo:
            if change.new is None:
                self.doing = self.directory / change.path
                self.doing.unlink(missing_ok=True)

    def _put_back(self) -> list[Path]:
        """Make everything as it was; the second names of old files that could not be put back."""
        lost = []
        for target, second in self.kept.items():
            try:
                os.replace(second, target)
            except OSError:
                lost.append(second)
        for target in self.created:
            with contextlib.suppress(OSError):
                os.unlink(target)
        return lost

    def _refusal(self, problem: OSError, lost: Sequence[Path]) -> UsageError:
        error = UsageError(
            f"cannot write {self.doing}: {problem.strerror or problem}",
            origin=str(self.directory),
            next_step="choose another directory with -d; nothing was changed",
        )
        if lost:
            error.next_step = f"the old files could not all be put back; they are kept in {lost[0].parent}"
        return error

    def _tidy(self) -> None:
        """Remove the directories that hold nothing any more."""
        for change in self.todo:
            parent = (self.directory / change.path).parent
            while change.new is None and parent != self.directory:
                try:
                    parent.rmdir()
                except OSError:
                    break
                parent = parent.parent


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits until the directory is whole again; it takes milliseconds."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)
        if pressed:
            signal.raise_signal(signal.SIGINT)


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, UnicodeDecodeError):
        return None
    except OSError as problem:
        raise UsageError(
            f"cannot be read: {problem.strerror}",
            origin=str(path),
            next_step="check its permissions, or choose another directory with -d",
        ) from None


def spec_changed(directory: Path) -> bool:
    """Whether a bundle's spec is another than its files were rendered from, as far as its checksums say."""
    said, now = _read_sums(directory).get(SPEC_FILE), _read(directory / SPEC_FILE)
    return said is not None and now is not None and said != digest(now)


def _read_sums(directory: Path) -> dict[str, str]:
    text = _read(directory / SUMS_FILE) or ""
    return {path: value for path, value in _parse_sums(text) if _is_ours(directory, path)}


def _is_ours(directory: Path, path: str) -> bool:
    """Whether a path of the list can be one that mmdeploy wrote: plain, inside, and not over a link.

    The list is a file like any other, and what it names may be removed.
    """
    plain = "\0" not in path and not path.startswith("/") and posixpath.normpath(path) == path
    if not plain or ".." in path.split("/") or max(map(len, path.split("/"))) > _NAME_LIMIT:
        return False
    real = os.path.realpath(directory)
    return os.path.realpath((directory / path).parent) == os.path.join(real, *path.split("/")[:-1])


def _parse_sums(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        value, _, path = line.partition("  ")
        if path and len(value) == 64:
            yield path, value


__all__ = ["Change", "changes", "spec_changed", "sums_of", "write"]
