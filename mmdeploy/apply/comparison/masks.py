"""Secrets in differences: whether a value changed is told, the value never.

Masked are the contents of Secrets, and what `mmdeploy.secrecy` says is secret by its name or by its looks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from mmdeploy.apply.comparison.arguments import flags_of
from mmdeploy.apply.comparison.differences import Difference, Label, Path
from mmdeploy.secrecy import MASK, masked_line, secret_name

_NAMES: Final = re.compile(r"""^.[\s-]*["']?name["']?\s*:\s*["']?([\w.-]+)""")
_OPEN_FLAG: Final = re.compile(r"(--?[A-Za-z][\w.-]*)[=\s]*\\?\s*$")
"""A flag at the end of a line, whose value stands on the next."""
_NAMED_ABOVE: Final = re.compile(r"""^(.[\s-]*["']?value["']?\s*:\s*).""")
_REFERENCES: Final = frozenset(
    {"valueFrom", "secretKeyRef", "configMapKeyRef", "secretRef", "configMapRef", "fieldRef"}
)
"""Names of a Secret and of its keys stand below these, no secrets."""
_REFERRING: Final = frozenset({
    "name", "key", "namespace", "secretName", "optional", "items", "path", "mode", "defaultMode", "enabled",
})  # fmt: skip
"""Keys of mappings that refer to a Secret, as a volume of one does."""


def masked(difference: Difference, kind: str) -> Difference:
    """A difference between two objects of a kind, without anything secret."""
    path = difference.path
    secret = (kind == "Secret" and path[:1] in (("data",), ("stringData",))) or _names_secret(path)
    if secret:
        return Difference(path, _hidden(difference.before), _hidden(difference.after))
    if difference.lines:
        before, after = _length(difference.before), _length(difference.after)
        return Difference(path, before, after, tuple(_lines(difference.lines)))
    return Difference(path, _clean(difference.before, path), _clean(difference.after, path))


def _length(value: Any) -> str | None:
    """What is told of a text whose lines are shown."""
    return f"{len(value.splitlines())} lines" if isinstance(value, str) else None


def _hidden(value: Any) -> Any:
    """A secret value. The keys of a mapping, and what only refers to a Secret, are none; nor are switches."""
    if isinstance(value, Mapping):
        return {key: _clean(item, (str(key),)) if key in _REFERRING else _hidden(item) for key, item in value.items()}
    if value is None or isinstance(value, bool) or value in ("true", "false"):
        return value
    return MASK


def _names_secret(path: Path) -> bool:
    """Whether the value at a path is secret by its name: the nearest key, flag or variable that names it."""
    if _REFERENCES & set(path):
        return False
    steps = [step for step in path if not (step == "value" or (isinstance(step, Label) and step.isdigit()))]
    return bool(steps) and secret_name(steps[-1])


def _clean(value: Any, path: Path) -> Any:
    """A value without what is secret in it; everything else as it is."""
    if isinstance(value, Mapping):
        return {key: _member(item, value, (*path, str(key))) for key, item in value.items()}
    if isinstance(value, list):
        if path and path[-1] in ("args", "command"):
            return _arguments(value, path)
        return [_clean(item, path) for item in value]
    return text(value) if isinstance(value, str) else value


def _member(item: Any, owner: Mapping[str, Any], path: Path) -> Any:
    name = owner.get("name") if path[-1] == "value" else path[-1]
    if _REFERENCES & set(path) or not (isinstance(name, str) and secret_name(name)):
        return _clean(item, path)
    return _hidden(item)


def _arguments(words: list[Any], path: Path) -> list[Any]:
    """Arguments with the values of secret flags hidden, spelled as they are."""
    result: list[Any] = []
    hide = False
    for word in words:
        if not isinstance(word, str):
            result.append(_clean(word, path))
            continue
        flag, equals, value = word.partition("=")
        is_flag = bool(flags_of([word])[1])
        if hide and not is_flag:
            result.append(MASK)
            continue
        hide = is_flag and not equals and secret_name(flag)
        result.append(f"{flag}={_hidden(value)}" if is_flag and equals and secret_name(flag) else text(word))
    return result


def text(value: str) -> str:
    """A text with tokens, and values that are given to secret names in it, hidden."""
    if "\n" in value:
        return "\n".join(line[1:] for line in _lines(tuple(f" {line}" for line in value.split("\n"))))
    return masked_line(value)


def _lines(lines: tuple[str, ...]) -> list[str]:
    """Lines of a text with a sign before each, as `text` has them.

    What is secret may stand on another line than its name: the value of a variable, of a flag before a line's end, and
    a private key, which stretches over several.
    """
    found: list[str] = []
    key, named, opened = False, "", ""
    for line in lines:
        begins, ends = "-----BEGIN" in line and "PRIVATE KEY" in line, "-----END" in line and "PRIVATE KEY" in line
        below = _NAMED_ABOVE.match(line)
        if key or begins or (opened and (line[:1] != " " or opened == " ")):
            found.append(line[:1] + MASK)
        elif below and secret_name(named):
            found.append(below[1] + MASK)
        else:
            found.append(line[:1] + text(line[1:]))
        key = (key or begins) and not ends
        names, flag = _NAMES.match(line), _OPEN_FLAG.search(line)
        named = names[1] if names else named
        if flag and secret_name(flag[1]):
            opened = " "
        else:  # an old line, and the new one in its place, both continue it
            opened = line[:1] if opened and line[:1] == "-" else ""
    return found


__all__ = ["masked", "text"]
