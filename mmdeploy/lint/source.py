"""YAML and JSON documents as their authors wrote them, with the place of every value.

Unlike `mmdeploy.documents` nothing here is refused: a key given twice or a text that is not YAML becomes a `Defect`
and the rest is read on. Positions come from libyaml's nodes, which are made a second time for the documents that
somebody asks about: keeping the nodes of all documents costs more than all the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import Any

import yaml

from mmdeploy.documents import KeyPath
from mmdeploy.lint.loader import Loader, TolerantLoader

_A_SECRET = re.compile(r"""\bkind["']?\s*:\s*["']?Secret\b""")
_SEPARATOR = re.compile(r"^---(?:\s.*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Position:
    """A place in a file; line and column count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class InText(int):
    """The last step of a path, to an item of a list that is a text of several lines: also which of them is meant."""

    line: int
    """Lines of the text before it."""
    column: int
    """Characters of the line before the place; 0 where only the line is known."""

    def __new__(cls, step: int, line: int, column: int) -> InText:
        """Equal to the plain step, whose place is that of the whole text."""
        made = super().__new__(cls, step)
        made.line, made.column = line, column
        return made


@dataclass(frozen=True)
class Defect:
    """Something about the text itself: ``kind`` is ``unparsable``, ``duplicate-key`` or ``unbuildable``.

    ``text`` is empty where a line of it must not be shown: it may be a Secret's.
    """

    kind: str
    message: str
    position: Position
    text: str = ""
    line_offset: int = 0
    column_offset: int = 0

    @property
    def place(self) -> Document:
        """A document that consists of the place alone."""
        return Document(
            self.position.file, 0, None, None, self.text, self.line_offset, self.column_offset, fixed=self.position
        )


@dataclass(eq=False)
class Document:
    """One document of a file, or a document inside a text value of another one (``parent``)."""

    file: str
    index: int
    value: Any
    composed: yaml.Node | Callable[[], yaml.Node | None] | None
    """Its node, or what makes it."""
    text: str
    """The text that it stands in, which may hold other documents too; empty where `late` makes it."""
    line_offset: int = 0
    """Lines of the file before ``text``."""
    column_offset: int = 0
    """Columns that an embedded text is indented by."""
    parent: tuple[Document, KeyPath] | None = None
    written: Document | None = None
    """For an object that kustomize built: the document it was built from."""
    files: Mapping[str, Document] = field(default_factory=dict)
    """For a ConfigMap that kustomize made of files: the first document of each file, by key."""
    fixed: Position | None = None
    """Where a defect of the text is, which no path leads to."""
    late: Callable[[], str] | None = None
    """Makes the text for those who ask for it, where that takes time and few do."""

    @property
    def whole_text(self) -> str:
        """The text, made by now."""
        return self.late() if self.late else self.text

    def mentions(self, word: str) -> bool:
        """Whether a word may stand in the text; True does not promise it."""
        return word in (str(self.value) if self.late else self.text)

    @cached_property
    def node(self) -> yaml.Node | None:
        """The document as libyaml's nodes; its marks count lines and columns of ``text``."""
        return self.composed() if callable(self.composed) else self.composed

    def below(self, path: KeyPath, value: Any) -> Document:
        """``value``, which stands at ``path``, as a document of its own."""
        if self.written is not None:
            at = same_path(self.value, self.written.value, path)
            if len(at) == len(path):
                inner = self.written.below(at, value)
                inner.parent = (self, path)
                return inner
        return Document(
            self.file, self.index, value, lambda: node_at(self.node, path), self.text, self.line_offset,
            self.column_offset, (self, path), late=self.late,
        )  # fmt: skip

    def position(self, path: KeyPath = ()) -> Position:
        """Where the key or item at ``path`` stands, or its nearest ancestor that exists."""
        if self.fixed is not None:
            return self.fixed
        if self.written is not None:
            return self.written.position(same_path(self.value, self.written.value, path))
        if path and isinstance(path[-1], InText) and (inside := self._inside(path, path[-1])) is not None:
            return inside
        mark = _mark(self.node, path) if self.node is not None else None
        if mark is None:
            return Position(self.file, self.line_offset + 1, self.column_offset + 1)
        return Position(self.file, self.line_offset + mark.line + 1, self.column_offset + mark.column + 1)

    def _inside(self, path: KeyPath, step: InText) -> Position | None:
        """A place inside a literal block, which keeps the lines of its text as they are."""
        node = node_at(self.node, path)
        if node is None or getattr(node, "style", None) != "|":
            return None
        line, indent = self._text_starts(path)
        at = Position(self.file, line + step.line + 1, 1)
        text = self.line_of(at)
        column = indent + step.column if step.column else len(text) - len(text.lstrip())
        return Position(self.file, at.line, self.column_offset + column + 1)

    def line_of(self, position: Position) -> str:
        """The text of the line at ``position``."""
        lines = _lines(self.whole_text)
        at = position.line - self.line_offset - 1
        return " " * self.column_offset + lines[at].rstrip("\r\n") if 0 <= at < len(lines) else ""

    def embedded(self, path: KeyPath, defects: list[Defect]) -> Document | None:
        """The first YAML document inside the text value at ``path``; None where it holds none."""
        value = dig(self.value, path)
        if not isinstance(value, str):
            return None
        inner = self._written_text(path, value, defects)
        if inner is not None:
            inner.parent = (self, path)
            return inner
        line, column = self._text_starts(path)
        found = list(read_text(value, self.file, defects, line_offset=line, column_offset=column))
        if not found:
            return None
        found[0].parent = (self, path)
        return found[0]

    def _written_text(self, path: KeyPath, value: str, defects: list[Defect]) -> Document | None:
        """The document of a text where a person wrote it, for an object that kustomize built."""
        if len(path) == 2 and (file := self.files.get(str(path[1]))) is not None:
            return replace(file)
        if self.written is not None:
            at = same_path(self.value, self.written.value, path)
            if dig(self.written.value, at) == value:
                return self.written.embedded(at, defects)
        return None

    def _text_starts(self, path: KeyPath) -> tuple[int, int]:
        """Line offset and indentation of a block scalar's content; for other scalars the line of the value."""
        node = node_at(self.node, path)
        if node is None:
            return self.line_offset, 0
        if getattr(node, "style", None) not in ("|", ">"):
            return self.line_offset + node.start_mark.line, node.start_mark.column
        lines = _lines(self.whole_text)
        first = node.start_mark.line + 1
        content = next((line for line in lines[first:] if line.strip()), "")
        return self.line_offset + first, len(content) - len(content.lstrip(" "))


@lru_cache(maxsize=256)
def _lines(text: str) -> list[str]:
    """Lines with their ends; every text is cut once, however many findings it has."""
    return text.splitlines(keepends=True)


def compose(text: str, first: int, end: int) -> yaml.Node | None:
    """The node of the document on lines ``first`` to ``end`` of a text."""
    padding = "\n" * first  # so that marks count from the start of the text
    try:
        node: yaml.Node | None = yaml.compose(padding + "".join(_lines(text)[first:end]), Loader=Loader)
    except yaml.YAMLError:  # a document that needs a directive from before it
        return None
    return node


def same_path(value: Any, other: Any, path: KeyPath) -> KeyPath:
    """``path`` in a document that holds the same things in another order: list items are found by name or equality."""
    found: list[str | int] = []
    for step in path:
        item = dig(value, (step,))
        if isinstance(step, int) and isinstance(other, list):
            at = next((index for index, candidate in enumerate(other) if _alike(candidate, item)), None)
            if at is None:
                break
            step = InText(at, step.line, step.column) if isinstance(step, InText) else at
        found.append(step)
        value, other = item, dig(other, (step,))
    return tuple(found)


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in ("name", "mountPath", "containerPort", "type", "pluginRef"):
            if key in one or key in other:
                return bool(one.get(key) == other.get(key))
    return bool(one == other)


def dig(value: Any, path: KeyPath) -> Any:
    """The value at ``path``, or None where the path does not lead anywhere."""
    for step in path:
        if value.__class__ is dict or isinstance(value, Mapping):  # nearly always a dict, which is quicker to see
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return None
    return value


def node_at(node: yaml.Node | None, path: KeyPath) -> yaml.Node | None:
    """The node at ``path``, or None."""
    for step in path:
        below = _child(node, step)
        if below is None:
            return None
        node = below[1]
    return node


def _mark(node: yaml.Node, path: KeyPath) -> Any:
    mark = node.start_mark
    current: yaml.Node | None = node
    for step in path:
        below = _child(current, step)
        if below is None:
            break
        mark, current = below[0].start_mark, below[1]
    return mark


def _child(node: yaml.Node | None, step: str | int) -> tuple[yaml.Node, yaml.Node] | None:
    """The node that names a step (a key, or the item itself) and the node below it. The last of equal keys counts."""
    if isinstance(node, yaml.MappingNode):
        for key, value in reversed(node.value):
            if key.value == str(step):
                return key, value
    elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and 0 <= step < len(node.value):
        return node.value[step], node.value[step]
    return None


@dataclass
class _Chunk:
    text: str
    line: int
    documents: list[Document] = field(default_factory=list)


def read_text(
    text: str, file: str, defects: list[Defect], *, line_offset: int = 0, column_offset: int = 0
) -> Iterator[Document]:
    """Every document of a text. What cannot be parsed becomes a `Defect`, and reading goes on at the next ``---``."""
    chunk = _Chunk(text, line_offset)
    problem = _read_chunk(chunk, file, defects, 0, column_offset)
    if problem is None:
        yield from chunk.documents
        return
    pieces = _split(text)
    if len(pieces) == 1:
        defects.append(problem)
        return
    index = 0
    for piece, line in pieces:
        part = _Chunk(piece, line_offset + line)
        trouble = _read_chunk(part, file, defects, index, column_offset)
        if trouble is not None:
            defects.append(trouble)
        index += len(part.documents) or 1
        yield from part.documents


def _split(text: str) -> list[tuple[str, int]]:
    cuts = [0, *(match.start() for match in _SEPARATOR.finditer(text)), len(text)]
    pieces = ((text[start:end], text.count("\n", 0, start)) for start, end in zip(cuts, cuts[1:], strict=False))
    return [(piece, line) for piece, line in pieces if piece.strip()]


def _read_chunk(chunk: _Chunk, file: str, defects: list[Defect], index: int, column_offset: int) -> Defect | None:
    found: list[Document] = []
    try:
        loader = TolerantLoader(chunk.text)
        while loader.check_node():
            node = loader.get_node()
            value = loader.build(node)
            first, end = node.start_mark.line, node.end_mark.line + (node.end_mark.column > 0)
            again = partial(compose, chunk.text, first, end)
            document = Document(file, index + len(found), value, again, chunk.text, chunk.line, column_offset)
            found.append(document)
            for key, mark in loader.duplicates:
                at = Position(file, chunk.line + mark.line + 1, column_offset + mark.column + 1)
                message = f"the key {key!r} is given twice; the last one wins"
                text = "" if dig(value, ("kind",)) == "Secret" else chunk.text
                defects.append(Defect("duplicate-key", message, at, text, chunk.line, column_offset))
    except (yaml.YAMLError, ValueError, RecursionError, TypeError) as problem:
        at = _problem_position(problem, chunk, file, column_offset)
        text = "" if _A_SECRET.search(chunk.text) else chunk.text
        return Defect("unparsable", _words(problem), at, text, chunk.line, column_offset)
    chunk.documents = [document for document in found if document.value is not None]
    return None


def _words(problem: Exception) -> str:
    if isinstance(problem, RecursionError):
        return "nested too deeply"
    if isinstance(problem, yaml.MarkedYAMLError):
        return str(problem.problem or problem.context or "not YAML")
    if isinstance(problem, yaml.reader.ReaderError):
        return "holds characters that YAML does not allow"
    return str(problem)


def _problem_position(problem: Exception, chunk: _Chunk, file: str, column_offset: int) -> Position:
    mark = getattr(problem, "problem_mark", None) or getattr(problem, "context_mark", None)
    if mark is not None:
        lines = _lines(chunk.text)
        line, column = mark.line, mark.column
        while line > 0 and (line >= len(lines) or not lines[line].strip()):
            line -= 1  # nothing stands at the end of a text: point at what was not closed
            column = len(lines[line].rstrip()) if line < len(lines) else 0
        return Position(file, chunk.line + line + 1, column_offset + column + 1)
    at = getattr(problem, "position", 0)
    line = chunk.text.count("\n", 0, at) if isinstance(at, int) else 0
    return Position(file, chunk.line + line + 1, column_offset + 1)
