"""libyaml's nodes as plain data: what PyYAML's safe loader makes of them, in about half of its time.

Most documents of a large stream are maps, lists and plain scalars, many of which repeat. Those are built here, and
tags and scalars are remembered; everything else (aliases, merge keys, other tags) is left to PyYAML.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import yaml

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's safe loader, or PyYAML's own where libyaml is missing."""

_TAG = "tag:yaml.org,2002:"
_TEXT, _MAP, _LIST = f"{_TAG}str", f"{_TAG}map", f"{_TAG}seq"
_REMEMBERED = 1 << 16
"""Scalars that are remembered at most; each is short."""
_SHORT = 64

_tags: dict[str, str] = {}
"""Tag of a plain scalar by its text: the same for every file."""
_scalars: dict[tuple[str, str], Any] = {}
"""Value of a scalar by tag and text."""


class _NotPlainError(Exception):
    """A node that PyYAML must build."""


class TolerantLoader(Loader):  # type: ignore[misc]  # the base class depends on whether libyaml is there
    """The safe loader, which also notes keys given twice and reads tags it does not know as plain data."""

    duplicates: list[tuple[str, Any]]
    """Key and mark of each key that a mapping of the last document has twice."""

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        """The tag of a node; called for every one of them."""
        if kind is not yaml.ScalarNode or not implicit[0]:
            return super().resolve(kind, value, implicit)
        tag = _tags.get(value)
        if tag is None:
            tag = super().resolve(kind, value, implicit)
            if len(value) <= _SHORT and len(_tags) < _REMEMBERED:
                _tags[value] = tag
        return tag

    def descend_resolver(self, current_node: Any, current_index: Any) -> None:
        """Nothing: no tag depends on a path."""

    def ascend_resolver(self) -> None:
        """Nothing, as above."""

    def build(self, node: yaml.Node) -> Any:
        """The value of a document's node."""
        self.duplicates = []
        seen: set[int] = set()
        try:
            return self._plain(node, seen)
        except _NotPlainError:
            self.duplicates = []
            return self.construct_document(node)

    def _plain(self, node: Any, seen: set[int]) -> Any:
        kind = node.__class__
        tag = node.tag
        if kind is yaml.ScalarNode:
            return node.value if tag == _TEXT else self._scalar(tag, node)
        if id(node) in seen or tag != (_LIST if kind is yaml.SequenceNode else _MAP):
            raise _NotPlainError  # an alias, or a tag that says more
        seen.add(id(node))
        plain = self._plain
        if kind is yaml.SequenceNode:
            return [
                item.value if item.__class__ is yaml.ScalarNode and item.tag == _TEXT else plain(item, seen)
                for item in node.value
            ]
        found: dict[Any, Any] = {}
        for key, item in node.value:
            if key.__class__ is not yaml.ScalarNode:
                raise _NotPlainError
            name = key.value if key.tag == _TEXT else self._scalar(key.tag, key)
            found[name] = item.value if item.__class__ is yaml.ScalarNode and item.tag == _TEXT else plain(item, seen)
        if len(found) != len(node.value):
            self._note_duplicates(node)
        return found

    def _scalar(self, tag: str, node: Any) -> Any:
        text = node.value
        if (tag, text) in _scalars:
            return _scalars[tag, text]
        build: Callable[[Any, Any], Any] | None = _SCALARS.get(tag)
        if build is None:
            raise _NotPlainError
        value = build(self, node)
        if len(text) <= _SHORT and len(_scalars) < _REMEMBERED:
            _scalars[tag, text] = value
        return value

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """What PyYAML makes of a mapping."""
        keys = [key.value for key, _ in node.value if key.__class__ is yaml.ScalarNode]
        if len(set(keys)) != len(keys):
            self._note_duplicates(node)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return mapping

    def _note_duplicates(self, node: yaml.MappingNode) -> None:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != f"{_TAG}merge":
                if key.value in seen:
                    self.duplicates.append((key.value, key.start_mark))
                seen.add(key.value)


_SCALARS: dict[str, Callable[[Any, Any], Any]] = {
    f"{_TAG}{name}": getattr(yaml.constructor.SafeConstructor, f"construct_yaml_{name}")
    for name in ("null", "bool", "int", "float")
}


def _unknown_tag(loader: Any, suffix: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return loader.construct_scalar(node)


TolerantLoader.add_multi_constructor("!", _unknown_tag)
TolerantLoader.add_multi_constructor("tag:", _unknown_tag)
