"""YAML text: libyaml writes it, remarks are set in afterwards.

Remarks travel through libyaml as entries under reserved keys, each on a line of its own, and are turned into comments
in the text: the library does all quoting.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from mmdeploy.documents import KeyPath

_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_MARK = "mmdeploy-note-"
_MARK_LINE = re.compile(rf"^(?P<indent> *){_MARK}(?P<number>[0-9]+): ''$", re.MULTILINE)
# Kubernetes' YAML reader takes these for booleans and numbers where PyYAML leaves them bare: ``y``, ``1e3``, ``0o17``.
_MISREAD = re.compile(r"[yYnN]|[-+]?\.?[0-9][0-9a-fA-FxXoO_.+-]*")


class _BlockDumper(_Dumper):  # type: ignore[misc]  # the base class depends on whether libyaml is there
    """Text of several lines as a literal block; texts that other YAML readers would misread in quotes."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: Any, text: str) -> Any:
    style = "|" if "\n" in text else "'" if _MISREAD.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_BlockDumper.add_representer(str, _text)


def dump(tree: Any, notes: Mapping[KeyPath, str] | None = None, heading: str = "") -> str:
    """``tree`` as YAML text in its own order; a remark stands above its key, the heading on top.

    A path in ``notes`` that is not in the tree is passed over: what it spoke of is gone.
    """
    texts = list((notes or {}).items())
    marked = _with_marks(tree, (), {path: number for number, (path, _) in enumerate(texts)}) if texts else tree
    body = yaml.dump(marked, Dumper=_BlockDumper, sort_keys=False, width=1_000_000, allow_unicode=True)
    if texts:
        body = _MARK_LINE.sub(lambda match: _comment(texts[int(match["number"])][1], match["indent"]), body)
    return (_comment(heading) + "\n" if heading else "") + body


def _with_marks(value: Any, path: KeyPath, marks: Mapping[KeyPath, int]) -> Any:
    if isinstance(value, Mapping):
        marked: dict[str, Any] = {}
        for position, (key, item) in enumerate(value.items()):
            here = (*path, key)
            mark = {f"{_MARK}{marks[here]}": ""} if here in marks else {}
            # The first key of a list item shares its line with the dash, so its remark comes after it.
            before = not (position == 0 and path and isinstance(path[-1], int))
            marked.update(mark if before else {})
            marked[key] = _with_marks(item, here, marks)
            marked.update({} if before else mark)
        return marked
    if isinstance(value, (list, tuple)):
        return [_with_marks(item, (*path, index), marks) for index, item in enumerate(value)]
    return value


def _comment(text: str, indent: str = "") -> str:
    return "\n".join(f"{indent}# {line}".rstrip() for line in text.splitlines())
