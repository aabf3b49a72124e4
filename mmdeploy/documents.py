"""YAML documents that remember where each value stood.

Spec files and blueprints are read through here, so that every later complaint can say ``file:line:column``.
Positions are found by composing the text a second time, and only when somebody asks: reading stays as fast as
libyaml.
"""

from __future__ import annotations

import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import yaml

from mmdeploy.errors import SpecError, UsageError

KeyPath = tuple[str | int, ...]
"""Where a value stands in a document: mapping keys and list positions, outermost first."""

SIZE_LIMIT = 1 << 20
"""Bytes; nothing that mmdeploy reads as a spec or a blueprint comes near it, so a larger file is a mistake."""

EXPANDED_LIMIT = 4 << 20
"""Characters, about: what a document may come to when each alias is written out. A few hundred bytes of aliases of
aliases can stand for more than any memory holds."""

DEPTH_LIMIT = 64
"""Collections inside each other; Kubernetes' deepest fields are at about 15, and Python's own stack ends near 1,000."""

_DIGITS_LIMIT = 100
_YAML_HINT = "correct the YAML there: it indents with spaces, never tabs, and text that holds ': ' or ' #' needs quotes"
_SIZE_HINT = "check that it is the file you mean; mmdeploy schema lists what a spec file holds"
_TAG = "tag:yaml.org,2002:"

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _PlainLoader(_Loader):  # type: ignore[misc]  # the base class depends on whether libyaml is there
    """libyaml's safe loader, kept to what JSON has too, and refusing what people cannot have meant.

    A key given twice is an error: YAML's last-one-wins hides mistakes. What looks like a date stays text, as for
    Kubernetes' own reader.
    """

    yaml_implicit_resolvers: ClassVar[Any] = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != f"{_TAG}timestamp"]
        for first, resolvers in _Loader.yaml_implicit_resolvers.items()
    }

    def get_node(self) -> yaml.Node | None:
        node: yaml.Node | None = super().get_node()
        return _measured(node)

    def get_single_node(self) -> yaml.Node | None:
        node: yaml.Node | None = super().get_single_node()
        return _measured(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if key_node.tag == f"{_TAG}merge":
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                raise _wrong(key_node, "a key must be plain text")
            if key_node.tag == f"{_TAG}bool":
                raise _wrong(key_node, f"key {key_node.value!r} reads as true or false; quote it")
            if key_node.value in seen:
                raise _wrong(key_node, f"key {_short(key_node.value)!r} is given twice")
            seen.add(key_node.value)
        result: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return result

    def construct_plain(self, node: yaml.ScalarNode) -> int | float | bool:
        kind = node.tag.removeprefix(_TAG)
        if kind != "bool" and len(node.value) > _DIGITS_LIMIT:
            raise _wrong(node, f"a number of {len(node.value):,} digits; nothing here takes one so large")
        try:
            value: int | float | bool = getattr(self, f"construct_yaml_{kind}")(node)
        except (ValueError, LookupError):
            raise _wrong(node, f"{_short(node.value)!r} cannot be read as {kind}; quote it where it is text") from None
        return value

    def construct_foreign(self, node: yaml.Node) -> None:
        raise _wrong(node, f"could not determine a value for the tag {_short(node.tag)!r}; only plain values are read")


for _name in ("int", "float", "bool"):
    _PlainLoader.add_constructor(_TAG + _name, _PlainLoader.construct_plain)
for _name in ("timestamp", "binary", "set", "omap", "pairs"):
    _PlainLoader.add_constructor(_TAG + _name, _PlainLoader.construct_foreign)


def _wrong(node: yaml.Node, problem: str) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def _measured(root: yaml.Node | None) -> yaml.Node | None:
    """``root`` as it is, after a look at its size and depth with every alias written out, each node seen once."""
    measures: dict[int, tuple[int, int]] = {}
    opened: set[int] = set()

    def measure(node: yaml.Node, depth: int) -> tuple[int, int]:
        if id(node) in opened:
            raise _wrong(node, "an alias stands inside the value that it repeats")
        if id(node) not in measures:
            opened.add(id(node))
            size, height = 4, 1
            if isinstance(node, yaml.ScalarNode):
                size += len(node.value)
            elif depth == DEPTH_LIMIT:
                raise _wrong(node, f"nested too deeply: more than {DEPTH_LIMIT} collections inside each other")
            for part in _parts(node):
                part_size, part_height = measure(part, depth + 1)
                size, height = size + part_size, max(height, part_height + 1)
            if size > EXPANDED_LIMIT:
                limit = EXPANDED_LIMIT >> 20
                raise _wrong(node, f"the aliases multiply: written out, this value passes {limit} MiB")
            opened.discard(id(node))
            measures[id(node)] = size, height
        size, height = measures[id(node)]
        if depth + height > DEPTH_LIMIT + 1:
            raise _wrong(node, f"nested too deeply: more than {DEPTH_LIMIT} collections inside each other")
        return size, height

    if root is not None:
        measure(root, 0)
    return root


def _parts(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        for pair in node.value:
            yield from pair
    elif isinstance(node, yaml.SequenceNode):
        yield from node.value


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
    # What an alias repeats is walked again, so that paths through it are found; reading has bounded how much that is.
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


def origin_in(text: str, name: str, number: int, path: Iterable[str | int]) -> str:
    """``name:line:column`` in a stream of YAML documents, as `Document.origin`; ``number`` counts the documents of
    `parse_all` from 0."""
    nodes = [node for node in yaml.compose_all(text, Loader=_Loader) if node and node.tag != f"{_TAG}null"]
    positions: dict[KeyPath, tuple[int, int]] = {}
    _collect(nodes[number], (), positions)
    steps = tuple(path)
    while steps and steps not in positions:
        steps = steps[:-1]
    line, column = positions.get(steps, (1, 1))
    return f"{name}:{line}:{column}"


def _loaded(text: str, name: str, error: type[UsageError], load: Callable[..., Any]) -> Any:
    try:
        return load(text, Loader=_PlainLoader)
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        at = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        found = _say(problem.problem or "not YAML")
        hint = _SIZE_HINT if "aliases multiply" in found or "nest" in found else _YAML_HINT
        raise error(found, origin=at, next_step=hint) from None
    except yaml.reader.ReaderError as problem:
        before = text[: problem.position]
        at = f"{name}:{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"
        found = "the file holds characters that YAML does not allow: is it text?"
        raise error(found, origin=at, next_step=_SIZE_HINT) from None
    except RecursionError:
        # Only without libyaml, which has a limit of its own and says where it was passed.
        raise error("nested too deeply", origin=f"{name}:1:1", next_step=_SIZE_HINT) from None


def read(
    path: Path, error: type[UsageError] = SpecError, name: str | None = None, said_at: str | None = None
) -> Document:
    """Read and parse the YAML file at ``path``; ``name`` is what errors call it (default: the path as given).

    ``said_at`` is where a person named the file, when that was not on the command line: a file that cannot be read is
    a mistake there. Raises ``error`` for a file that is missing, unreadable, larger than `SIZE_LIMIT`, not UTF-8 or
    not YAML.
    """
    name = name or str(path)
    return parse(read_text(path, error, name, said_at), name, error)


def read_text(
    path: Path, error: type[UsageError] = SpecError, name: str | None = None, said_at: str | None = None
) -> str:
    """The text of the file at ``path``. Raises ``error`` as `read` does, except for what the text says."""
    name = name or str(path)
    try:
        status = path.stat()
        if stat.S_ISREG(status.st_mode) and status.st_size > SIZE_LIMIT:
            raise _too_large(f"is {status.st_size / (1 << 20):.1f} MiB", name, error)
        with path.open("rb") as file:
            data = file.read(SIZE_LIMIT + 1)  # a device may have no end
        if len(data) > SIZE_LIMIT:
            raise _too_large("is more than 1 MiB", name, error)
    except (OSError, ValueError) as problem:
        # ValueError: a name that no file can have, with a NUL in it.
        reason = (problem.strerror if isinstance(problem, OSError) else None) or str(problem)
        found, origin = (f"{_short(name)!r} cannot be read", said_at) if said_at else ("cannot be read", name)
        raise error(f"{found}: {reason}", origin=origin, next_step="check the file's name and permissions") from None
    return _decoded(data, name, error)


def read_stdin(error: type[UsageError] = SpecError) -> str:
    """The text of stdin, called ``<stdin>``. Raises ``error`` as `read_text` does."""
    data = getattr(sys.stdin, "buffer", sys.stdin).read(SIZE_LIMIT + 1)
    return _decoded(data if isinstance(data, bytes) else data.encode(), "<stdin>", error)


def _decoded(data: bytes, name: str, error: type[UsageError]) -> str:
    if len(data) > SIZE_LIMIT:
        raise _too_large("is larger", name, error)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        column = problem.start - data.rfind(b"\n", 0, problem.start)
        hint = "save it as UTF-8"
        raise error("is not UTF-8 text", origin=f"{name}:{line}:{column}", next_step=hint) from None


def _too_large(found: str, name: str, error: type[UsageError]) -> UsageError:
    return error(f"{found}; a file of this kind is at most 1 MiB", origin=f"{name}:1:1", next_step=_SIZE_HINT)


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."


def _say(problem: str) -> str:
    """libyaml's words, with the one that puzzles people made plain."""
    if "cannot start any token" in problem:
        return f"{problem} (YAML indents with spaces, never tabs)"
    return problem if len(problem) <= 300 else f"{problem[:297]}..."
