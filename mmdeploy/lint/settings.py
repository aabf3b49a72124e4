"""Defaults of ``mmdeploy lint`` from the repository: ``lint:`` in ``.mmdeploy.yaml``, or ``[tool.mmdeploy.lint]``.

The nearest file above the working directory that says something counts, alone; options of the command win over it.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from mmdeploy.errors import UsageError

YAML_FILE = ".mmdeploy.yaml"
TOML_FILE = "pyproject.toml"
TOML_SECTION = "tool.mmdeploy.lint"
_OURS = re.compile(r"tool\s*\.\s*[\"']?mmdeploy|^\s*\[\s*tool\s*\]", re.MULTILINE)
"""What a file that says something for mmdeploy holds: most do not, and need not be read further."""
FORMS = ("text", "json", "sarif", "junit", "github", "short")
THRESHOLDS = ("error", "warning", "info", "never")

_CHOICES: Mapping[str, tuple[str, ...]] = {"output": FORMS, "fail-on": THRESHOLDS}


@dataclass(frozen=True)
class Settings:
    """What a file may say; None where it says nothing. Keys are the options' names."""

    as_release: str | None = None
    output: str | None = None
    fail_on: str | None = None
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    baseline: Path | None = None
    """Relative paths start at the file that names them."""
    origin: str | None = None
    """The file that said it."""


KEYS = tuple(item.name.replace("_", "-") for item in fields(Settings) if item.name != "origin")


def load(directory: Path) -> Settings:
    """Settings for runs in ``directory``. Raises `UsageError` with the file for a key or value that is not known."""
    try:
        here = directory.absolute()
    except OSError:
        return Settings()  # the working directory is gone
    for place in (here, *here.parents):
        for name, read in ((YAML_FILE, _from_yaml), (TOML_FILE, _from_toml)):
            path = place / name
            if path.is_file() and (section := read(path)) is not None:
                return _checked(section, place, os.path.relpath(path, here))
    return Settings()


def _from_yaml(path: Path) -> Any:
    from mmdeploy.documents import read

    value = read(path, UsageError).value
    if not isinstance(value, dict | None):
        raise UsageError("must hold a mapping", origin=f"{path}:1:1", next_step="lint: {fail-on: warning}")
    for key in value or {}:
        if key != "lint":
            raise UsageError(f"unknown key {key!r}", origin=str(path), nearest=["lint"])
    return (value or {}).get("lint")


def _from_toml(path: Path) -> Any:
    import tomllib

    text = path.read_bytes().decode("utf-8", errors="replace")
    if not _OURS.search(text):
        return None
    try:
        value: Any = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise UsageError(f"is not TOML: {problem}", origin=str(path)) from None
    for key in TOML_SECTION.split(".")[:-1]:
        value = value.get(key) if isinstance(value, dict) else None
    if value is not None and not isinstance(value, dict):
        raise UsageError("tool.mmdeploy must be a table", origin=str(path), next_step=f"write [{TOML_SECTION}]")
    return (value or {}).get("lint")


def _checked(section: Any, place: Path, origin: str) -> Settings:
    if not isinstance(section, dict):
        raise UsageError("the lint settings must be a mapping", origin=origin, next_step=f"known: {', '.join(KEYS)}")
    found: dict[str, Any] = {"origin": origin}
    for key, value in section.items():
        if key not in KEYS:
            near = difflib.get_close_matches(str(key).replace("_", "-").lower(), KEYS, n=2)
            raise UsageError(f"unknown key {key!r} in the lint settings", origin=origin, nearest=near or KEYS)
        found[key.replace("-", "_")] = _value(key, value, place, origin)
    return Settings(**found)


def _value(key: str, value: Any, place: Path, origin: str) -> Any:
    if key in ("select", "ignore"):
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            raise UsageError(f"{key} must be a list of codes or groups, not {value!r}", origin=origin)
        return tuple(items)
    if not isinstance(value, str):
        raise UsageError(f"{key} must be text, not {value!r}", origin=origin)
    choices = _CHOICES.get(key)
    if choices is not None and value not in choices:
        near = difflib.get_close_matches(value, choices, n=2)
        raise UsageError(f"{key} cannot be {value!r}", origin=origin, nearest=near or choices)
    return place / value if key == "baseline" else value
