"""What does not fit the spec, in a person's words.

pydantic names its own types and the branches of its unions; a person wants to know which field, what it holds, and what
it can hold.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from mmdeploy.documents import KeyPath
from mmdeploy.errors import SpecError
from mmdeploy.kinds import PATTERN_NAMES
from mmdeploy.words import nearest

_SHOWN = 60
"""Characters of a value that a message repeats."""

_IN_WORDS = {
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float", "int_parsing_size"), "a whole number"),
    **dict.fromkeys(("float_parsing", "float_type"), "a number"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "true or false"),
    "list_type": "a list",
    "string_type": "text",
    "string_too_short": "at least {min_length} character long",
    "string_too_long": "at most {max_length} characters long",
    "greater_than_equal": "{ge} or more",
    "greater_than": "more than {gt}",
    "less_than_equal": "{le} or less",
}
"""pydantic's error types in a person's words; the braces take the limits from the error's context."""


def error(
    problem: ValidationError,
    values: Mapping[str, Any],
    fields: Sequence[KeyPath],
    origin_of: Callable[[KeyPath], str],
) -> SpecError:
    """Everything that is wrong with ``values`` as one error, each with its origin."""
    problems = []
    seen: set[KeyPath] = set()
    for detail in problem.errors(include_url=False):
        path = _path(detail["loc"], values)
        if path not in seen:
            seen.add(path)
            problems.append((origin_of(path), *_explain(path, detail, fields)))
    origin, found, near = problems[0]
    misfit = SpecError(found, origin=origin, nearest=near, next_step="mmdeploy schema lists every field")
    misfit.more = [f"{at}: {text}" + (f" (nearest: {', '.join(n)})" if n else "") for at, text, n in problems[1:]]
    return misfit


def null_in(value: Any) -> KeyPath | None:
    """Where the first null in a mapping stands, however deep; None where there is none."""
    items: Iterable[tuple[str | int, Any]]
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        if item is None:
            return (key,)
        if below := null_in(item):
            return (key, *below)
    return None


def kind_of(value: Any) -> str:
    """A value as something that stands where something else should."""
    names: dict[type, str] = {
        list: "a list",
        dict: "a mapping",
        str: f"the text {_shown(value)}",
        type(None): "nothing",
    }
    return names.get(type(value), _shown(value))


def _path(loc: tuple[int | str, ...], values: Any) -> KeyPath:
    """pydantic's location without the steps that name a branch of a union or a part of a key."""
    path: list[int | str] = []
    here = values
    for step in loc:
        there = step in here if isinstance(here, Mapping) else isinstance(here, list) and isinstance(step, int)
        if there:
            path.append(step if isinstance(here, list) else str(step))
            here = here[step]
    return tuple(path)


def _explain(path: KeyPath, detail: Any, fields: Sequence[KeyPath]) -> tuple[str, Sequence[str]]:
    where = _short(".".join(map(str, path))) or "the spec"
    kind, value = detail["type"], detail.get("input")
    shown = _shown(value)
    if detail["loc"][-1:] == ("[key]",):
        return _explain_key(where, kind), ()
    if kind == "extra_forbidden":
        siblings = [p[len(path) - 1] for p in fields if p[: len(path) - 1] == path[:-1]]
        return f"unknown field {where!r}", nearest(str(path[-1]), [str(s) for s in dict.fromkeys(siblings)])
    if kind == "literal_error":
        choices = re.findall(r"'([^']*)'", detail["ctx"]["expected"]) or [detail["ctx"]["expected"]]
        return f"{where} is {shown}; it can be {', '.join(choices)}", nearest(_short(str(value)), choices)
    if kind == "string_pattern_mismatch":
        # The Services of the router are named after the spec's own name.
        more = ", a letter first" if path == ("name",) else ""
        return f"{where} is {shown}, which is not a valid {PATTERN_NAMES.get(str(path[-1]), 'value')}{more}", ()
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return f"{where} must be a mapping, not {kind_of(value)}", ()
    if kind in _IN_WORDS:
        return f"{where} is {shown}; it must be {_IN_WORDS[kind].format(**detail.get('ctx', {}))}", ()
    message = detail["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    return (f"{where}: {message}" if isinstance(value, dict | list) else f"{where} is {shown}: {message}"), ()


def _explain_key(where: str, kind: str) -> str:
    if kind == "string_pattern_mismatch":
        return f"{where}: an environment variable's name holds letters, digits, '_', '-' and '.', and no digit first"
    return f"{where}: a key must be text; put it in quotes"


def _shown(value: Any) -> str:
    """A value as a message repeats it: collections by kind alone, and never more of a text than a person reads."""
    collections: dict[type, str] = {dict: "a mapping", list: "a list"}
    return collections.get(type(value)) or _short(repr(value))


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
