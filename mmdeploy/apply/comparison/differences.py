"""What two objects differ in, by what it means rather than by how it is written.

Documents inside texts (an EndpointPickerConfig in a ConfigMap, JSON behind a flag) are compared as documents; lists as
Kubernetes merges them; arguments by flag; quantities by amount; long texts line by line. Order, spelling and comments
that mean nothing are no difference.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mmdeploy.apply.comparison import embedded
from mmdeploy.apply.comparison.arguments import flags_of, is_script
from mmdeploy.apply.comparison.merging import labelled
from mmdeploy.quantities import quantity

QUANTITIES: Final = frozenset({"limits", "requests", "capacity", "hard", "overhead"})
"""Mappings whose values are quantities."""
QUANTITY_FIELDS: Final = frozenset({"sizeLimit", "storage", "divisor"})
UNORDERED: Final = frozenset({
    "tolerations", "finalizers", "verbs", "resources", "apiGroups", "resourceNames", "accessModes", "subjects",
    "matchExpressions", "parentRefs",
})  # fmt: skip
"""Lists of which Kubernetes reads each item for itself."""
ORDERED: Final = frozenset({"initContainers", "roles"})
"""Lists with keys whose order counts all the same: what starts first; a set's roles, whose order makes a revision
(disaggregatedset-observed.md, "Status and change")."""
SUMMED: Final = ("-scorer", "-picker")
"""Ends of the types of plugins whose order in a profile does not count: scores are summed, and one plugin picks.
Filters run one after the other."""


class Label(str):
    """Names an item of a list in a path; everything else in a path is a key of a mapping."""

    __slots__ = ()


Path = tuple[str, ...]


@dataclass(frozen=True)
class Difference:
    """One thing that differs. ``before`` or ``after`` is None where there is nothing."""

    path: Path
    before: Any
    after: Any
    lines: tuple[str, ...] = ()
    """For a long text: the lines that differ, with ``-``, ``+`` or a space before each."""


def shown(path: Path) -> str:
    """A path as people write it: ``data[config.yaml].schedulingProfiles[decode].plugins[queue-scorer].weight``."""
    parts: list[str] = []
    for index, step in enumerate(path):
        if index and isinstance(path[index - 1], Label) and step == "value" and _in_env(path, index):
            continue
        if isinstance(step, Label) or "." in step or "/" in step:
            parts.append(f"[{step}]")
        else:
            parts.append(f".{step}" if parts else step)
    return "".join(parts)


def _in_env(path: Path, index: int) -> bool:
    return index >= 2 and path[index - 2] == "env"


def differences(before: Any, after: Any, path: Path = ()) -> list[Difference]:
    """Everything that differs, in the order of ``after``; empty when both mean the same."""
    return list(_differing(before, after, path))


def _differing(before: Any, after: Any, path: Path) -> Iterator[Difference]:
    if _identical(before, after):
        return
    if before is None or after is None:
        yield from _lone(before, after, path)
    elif isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in [*after, *(key for key in before if key not in after)]:
            yield from _differing(before.get(key), after.get(key), (*path, str(key)))
    elif isinstance(before, list) and isinstance(after, list):
        yield from _lists(before, after, path)
    elif isinstance(before, str) and isinstance(after, str):
        yield from _texts(before, after, path)
    elif not (_amounts(path) and _same_amount(before, after)):
        yield Difference(path, before, after)


def _identical(before: Any, after: Any) -> bool:
    """Whether two values are equal; true is not 1, as Python would have it."""
    if isinstance(before, bool) is not isinstance(after, bool):
        return False
    if isinstance(before, Mapping | list) and isinstance(after, Mapping | list):
        return before == after and json.dumps(before, sort_keys=True) == json.dumps(after, sort_keys=True)
    return bool(before == after)


def _lone(before: Any, after: Any, path: Path) -> Iterator[Difference]:
    """Something that only one side has. A long text is told by its lines."""
    before, after = as_told(before, path), as_told(after, path)
    text = after if before is None else before
    if isinstance(text, str) and "\n" in text:
        sign = "+" if before is None else "-"
        yield Difference(path, before, after, tuple(f"{sign}{line}" for line in text.splitlines()))
    else:
        yield Difference(path, before, after)


def as_told(value: Any, path: Path) -> Any:
    """A whole value as people are told it: of a variable without a reference, what it says."""
    if path[-2:-1] == ("env",) and isinstance(value, Mapping) and not value.keys() - {"name", "value"}:
        return value.get("value", "")
    return value


# ---------------------------------------------------------------------------------------------------------------- texts


def _texts(before: str, after: str, path: Path) -> Iterator[Difference]:
    if _amounts(path) and _same_amount(before, after):
        return
    old, new = embedded.document(before, path), embedded.document(after, path)
    if old is not None and new is not None:
        yield from _differing(old, new, path)
    elif "\n" in before.strip() or "\n" in after.strip():
        lines = tuple(_changed_lines(before, after))
        if lines:
            yield Difference(path, before, after, lines)
    else:
        yield Difference(path, before, after)


def _changed_lines(before: str, after: str) -> Iterator[str]:
    """Lines that differ, with one line around them; what stands at the end of a line is not seen, so no difference."""
    old, new = ([line.rstrip() for line in text.strip("\n").splitlines()] for text in (before, after))
    for line in difflib.unified_diff(old, new, lineterm="", n=1):
        if not line.startswith(("---", "+++", "@@")):
            yield line


def _amounts(path: Path) -> bool:
    return bool(path) and (path[-1] in QUANTITY_FIELDS or (len(path) > 1 and path[-2] in QUANTITIES))


def _same_amount(before: Any, after: Any) -> bool:
    try:
        return quantity(before) == quantity(after)
    except ValueError:
        return False


# ---------------------------------------------------------------------------------------------------------------- lists


def _lists(before: list[Any], after: list[Any], path: Path) -> Iterator[Difference]:
    name = path[-1] if path else ""
    if name in ("args", "command") and _words(before) and _words(after):
        yield from _arguments(before, after, path)
        return
    old, new = labelled(name, before), labelled(name, after)
    if old is not None and new is not None and (old or new):
        yield from _items(old, new, path)
        yield from _order(old, new, path)
    elif name in UNORDERED:
        yield from _members(before, after, path)
    elif all(isinstance(item, Mapping) for item in (*before, *after)):
        yield from _aligned(before, after, path)
    else:
        yield Difference(path, before, after)


def _words(items: Sequence[Any]) -> bool:
    return all(isinstance(item, str) for item in items)


def _items(old: Mapping[str, Any], new: Mapping[str, Any], path: Path) -> Iterator[Difference]:
    for label in [*new, *(label for label in old if label not in new)]:
        yield from _differing(old.get(label), new.get(label), (*path, Label(label)))


def _order(old: Mapping[str, Any], new: Mapping[str, Any], path: Path) -> Iterator[Difference]:
    """The order of items that both sides have, where it counts."""
    name = path[-1] if path else ""
    if name not in ORDERED and not (name == "plugins" and any("pluginRef" in item for item in new.values())):
        return
    counted = [label for label in old if label in new and not (name == "plugins" and label.endswith(SUMMED))]
    ordered = [label for label in new if label in counted]
    if counted != ordered:
        yield Difference((*path, Label("order")), counted, ordered)


def _members(before: list[Any], after: list[Any], path: Path) -> Iterator[Difference]:
    """Items that only one side has, in a list that is a set."""
    gone = [item for item in before if not any(_identical(item, other) for other in after)]
    come = [item for item in after if not any(_identical(item, other) for other in before)]
    if len(gone) == len(come) == 1 and isinstance(gone[0], Mapping):
        yield from _differing(gone[0], come[0], (*path, Label(str(after.index(come[0])))))
        return
    for item in gone:
        yield Difference((*path, Label(_brief(item))), item, None)
    for item in come:
        yield Difference((*path, Label(_brief(item))), None, item)


def _brief(item: Any) -> str:
    if isinstance(item, Mapping):
        return ",".join(f"{key}={value}" for key, value in sorted(item.items()) if isinstance(value, str | int))
    return str(item)


def _aligned(before: list[Any], after: list[Any], path: Path) -> Iterator[Difference]:
    """Items without names, lined up by what is equal; positions count from 0 on the side that has them."""
    old, new = ([json.dumps(item, sort_keys=True) for item in items] for items in (before, after))
    for word, first, last, start, end in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if word == "equal":
            continue
        shared = min(last - first, end - start)
        for at in range(shared):
            yield from _differing(before[first + at], after[start + at], (*path, Label(str(start + at))))
        for at in range(first + shared, last):
            yield Difference((*path, Label(str(at))), before[at], None)
        for at in range(start + shared, end):
            yield Difference((*path, Label(str(at))), None, after[at])


# ------------------------------------------------------------------------------------------------------------ arguments


def _arguments(before: list[str], after: list[str], path: Path) -> Iterator[Difference]:
    """Arguments flag by flag; scripts line by line."""
    if is_script(before) or is_script(after):
        yield from _script(before, after, path)
        return
    old_words, old = flags_of(before)
    new_words, new = flags_of(after)
    if old_words != new_words:
        yield Difference(path, " ".join(old_words) or None, " ".join(new_words) or None)
    for flag in [*new, *(flag for flag in old if flag not in new)]:
        yield from _differing(_flag(old.get(flag)), _flag(new.get(flag)), (*path, Label(flag)))


def _flag(values: Sequence[str | None] | None) -> Any:
    """What a flag says: nothing, true for a bare one, its value, or a list where it is given several times."""
    if values is None:
        return None
    said = [True if value is None else value for value in values]
    return said[0] if len(said) == 1 else said


def _script(before: list[str], after: list[str], path: Path) -> Iterator[Difference]:
    if len(before) != len(after):
        yield Difference(path, before, after)
        return
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        if old.rstrip() != new.rstrip():
            yield from _texts(old, new, (*path, Label(str(index))))


__all__ = ["Difference", "Label", "Path", "as_told", "differences", "shown"]
