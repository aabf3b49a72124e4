"""YAML documents that remember where each value stood.

Spec files and blueprints are read through here, so that every later complaint can say ``file:line:column``.
Positions are found by composing the text a second time, and only when somebody asks: reading stays as fast as
libyaml.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from mmdeploy.errors import SpecError, UsageError

KeyPath = tuple[str | int, ...]
"""Where a value stands in a document: mapping keys and list positions, outermost first."""

SIZE_LIMIT = 1 << 20
"""Bytes; nothing that mmdeploy reads as a spec or a blueprint comes near it, so a larger file is a mistake."""

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _UniqueKeyLoader(_Loader):  # type: ignore[misc]  # the base class depends on whether libyaml is there
    """libyaml's safe loader, except that a key given twice is an error: YAML's last-one-wins hides mistakes."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key must be plain text", key_node.start_mark)
            if key_node.tag == "tag:yaml.org,2002:bool":
                message = f"key {key_node.value!r} reads as true or false; quote it"
                raise yaml.constructor.ConstructorError(None, None, message, key_node.start_mark)
            if key_node.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key_node.value!r} is given twice", key_node.start_mark
                )
            seen.add(key_node.value)
        result: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return result


@dataclass(frozen=True)
class Document:
    """One YAML document: its plain value, and its text to find positions in."""

    value: Any
    text: str
    name: str

    @cached_property
    def _positions(self) -> dict[KeyPath, tuple[int, int]]:
        root = yaml.compose(self.text, Loader=_Loader)
        positions: dict[KeyPath, tuple[int, int]] = {}
        if root is not None:
            _collect(root, (), positions)
        return positions

    def line(self, path: Iterable[str | int]) -> int:
        """Line (from 1) of the key or item at ``path``, or of its nearest ancestor that exists."""
        return self._find(path)[0]

    def origin(self, path: Iterable[str | int]) -> str:
        """``name:line:column`` (both from 1) of the key or item at ``path``, or of its nearest ancestor."""
        line, column = self._find(path)
        return f"{self.name}:{line}:{column}"

    def _find(self, path: Iterable[str | int]) -> tuple[int, int]:
        steps = tuple(path)
        while steps and steps not in self._positions:
            steps = steps[:-1]
        return self._positions.get(steps, (1, 1))


def _collect(node: yaml.Node, path: KeyPath, positions: dict[KeyPath, tuple[int, int]]) -> None:
    positions.setdefault(path, (node.start_mark.line + 1, node.start_mark.column + 1))
    if isinstance(node, yaml.MappingNode):
        for key_node, value_node in node.value:
            step = (*path, str(key_node.value))
            positions[step] = (key_node.start_mark.line + 1, key_node.start_mark.column + 1)
            _collect(value_node, step, positions)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _collect(item, (*path, index), positions)


def parse(text: str, name: str, error: type[UsageError] = SpecError) -> Document:
    """Parse one YAML document.

    Raises ``error`` (with ``name:line:column``) for text that is not YAML, holds a key twice, holds several
    documents, or nests too deeply.
    """
    return Document(_loaded(text, name, error, yaml.load), text, name)


def parse_all(text: str, name: str, error: type[UsageError] = SpecError) -> list[Any]:
    """The values of a stream of YAML documents, as ``helm template`` prints them; empty ones are left out.

    Raises ``error`` as `parse` does.
    """
    values = _loaded(text, name, error, lambda stream, Loader: list(yaml.load_all(stream, Loader)))  # noqa: N803
    return [value for value in values if value is not None]


def _loaded(text: str, name: str, error: type[UsageError], load: Callable[..., Any]) -> Any:
    try:
        return load(text, Loader=_UniqueKeyLoader)
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        at = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        raise error(_say(problem.problem or "not YAML"), origin=at) from None
    except yaml.reader.ReaderError as problem:
        before = text[: problem.position]
        at = f"{name}:{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"
        raise error("the file holds characters that YAML does not allow: is it text?", origin=at) from None
    except (RecursionError, ValueError) as problem:
        what = "nested too deeply" if isinstance(problem, RecursionError) else str(problem)
        raise error(f"the document cannot be read: {what}", origin=f"{name}:1:1") from None


def read(path: Path, error: type[UsageError] = SpecError, name: str | None = None) -> Document:
    """Read and parse the YAML file at ``path``; ``name`` is what errors call it (default: the path as given).

    Raises ``error`` for a file that is missing, unreadable, larger than `SIZE_LIMIT`, not UTF-8 or not YAML.
    """
    name = name or str(path)
    return parse(read_text(path, error, name), name, error)


def read_text(path: Path, error: type[UsageError] = SpecError, name: str | None = None) -> str:
    """The text of the file at ``path``. Raises ``error`` as `read` does, except for what the text says."""
    name = name or str(path)
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise error(f"cannot be read: {problem.strerror}", origin=name) from None
    return _decoded(data, name, error)


def read_stdin(error: type[UsageError] = SpecError) -> str:
    """The text of stdin, called ``<stdin>``. Raises ``error`` as `read_text` does."""
    return _decoded(sys.stdin.buffer.read(SIZE_LIMIT + 1), "<stdin>", error)


def _decoded(data: bytes, name: str, error: type[UsageError]) -> str:
    if len(data) > SIZE_LIMIT:
        raise error(f"is {len(data) / (1 << 20):.1f} MiB; a file of this kind is at most 1 MiB", origin=f"{name}:1:1")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        column = problem.start - data.rfind(b"\n", 0, problem.start)
        raise error("is not UTF-8 text", origin=f"{name}:{line}:{column}") from None


def _say(problem: str) -> str:
    """libyaml's words, with the one that puzzles people made plain."""
    if "cannot start any token" in problem:
        return f"{problem} (YAML indents with spaces, never tabs)"
    return problem
