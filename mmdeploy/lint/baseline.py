"""Findings that were there before: an old repository adopts lint by listing them, and sees only new ones."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mmdeploy.errors import UsageError
from mmdeploy.lint.findings import Finding

Key = tuple[str, str, str, str]
_FIELDS = ("code", "file", "subject", "message")


class Baseline:
    """Known findings by code, file, subject and message: lines may move. Files: from the directory down."""

    def __init__(self, directory: Path, known: Iterable[Key] = ()) -> None:
        self._directory = directory.absolute()
        self._known = frozenset(known)
        self._seen: set[Key] = set()

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, tuple) or len(key) != len(_FIELDS):
            return False
        mine = self._relative(key)
        if mine in self._known:
            self._seen.add(mine)
        return mine in self._known

    @property
    def gone(self) -> int:
        """Entries that nothing was found for."""
        return len(self._known - self._seen)

    def _relative(self, key: Key) -> Key:
        code, file, subject, path = key
        if not file.startswith("<"):
            file = Path(os.path.relpath(file, self._directory)).as_posix()
        return code, file, subject if subject != key[1] else file, path

    def text(self, findings: Iterable[Finding]) -> str:
        """The content of a baseline file that lists ``findings``."""
        keys = sorted({self._relative(finding.key) for finding in findings})
        entries = [dict(zip(_FIELDS, key, strict=True)) for key in keys]
        return json.dumps({"schemaVersion": 1, "kind": "Baseline", "findings": entries}, indent=1) + "\n"


def read(path: Path) -> Baseline:
    """The baseline in a file. Raises `UsageError` for one that is missing or no baseline."""
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise UsageError(
            f"the baseline cannot be read: {problem.strerror}", origin=str(path),
            next_step=f"mmdeploy lint PATH --baseline {path} --write-baseline",
        ) from None  # fmt: skip
    except ValueError as problem:
        raise UsageError(f"the baseline is not JSON: {problem}", origin=str(path)) from None
    entries = document.get("findings") if isinstance(document, dict) else None
    if not isinstance(entries, list) or document.get("schemaVersion") != 1:
        raise UsageError("is no baseline of mmdeploy lint", origin=str(path))
    keys = []
    for entry in entries:
        if not isinstance(entry, dict) or not all(isinstance(entry.get(name), str) for name in _FIELDS):
            raise UsageError(f"an entry of the baseline lacks {', '.join(_FIELDS)}: {entry!r}", origin=str(path))
        keys.append((entry["code"], entry["file"], entry["subject"], entry["message"]))
    return Baseline(path.parent, keys)


def write(path: Path, findings: Iterable[Finding]) -> None:
    """Write a baseline, in one step."""
    text = Baseline(path.parent).text(findings)
    target = path.resolve()  # through a link, not over it
    if target.exists() and not target.is_file():
        raise UsageError("is no file that a baseline could replace", origin=str(path), next_step="--baseline FILE")
    new = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        new.write_text(text, encoding="utf-8")
        new.replace(target)
    except OSError as problem:
        new.unlink(missing_ok=True)
        raise UsageError(f"the baseline cannot be written: {problem.strerror}", origin=str(path)) from None
