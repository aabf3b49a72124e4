"""Jinja expressions in blueprints: values, never control flow.

A text that is one expression (``"{{ role.replicas }}"``) becomes the expression's own type; a text that contains
expressions becomes text. An expression whose value is ``None`` stands for *nothing said*: the key or item that holds
it disappears. A literal ``null`` in a layer is something else: it removes what an earlier layer set.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final

from mmdeploy.documents import Document, KeyPath
from mmdeploy.errors import BlueprintError, MmdeployError
from mmdeploy.quantities import quantity
from mmdeploy.words import nearest

_WHOLE = re.compile(r"^\{\{(?P<expression>(?:(?!\}\}).)*)\}\}$", re.DOTALL)


class _Nothing:
    def __repr__(self) -> str:
        return "NOTHING"


NOTHING: Final = _Nothing()
"""What an expression that yields ``None`` leaves behind."""


@dataclass(frozen=True)
class Noted:
    """A value with a remark that belongs beside it in the rendered file (``$value`` and ``$note`` in a layer)."""

    value: Any
    note: str


def whole_bytes(text: str | int | None) -> int | None:
    """A quantity as whole bytes; ``None`` stays ``None``."""
    return None if text is None else int(quantity(text))


def least(*quantities: str) -> str:
    """The smallest of several quantities, as it was written."""
    return min(quantities, key=quantity)


def newer(image: str, version: str) -> bool:
    """Whether the image's tag is ``version`` or newer (major and minor number); a tag that is no version is not."""
    found, wanted = image_version(image), image_version(f":{version}.0")
    return found is not None and wanted is not None and found >= wanted


def image_version(image: str) -> tuple[int, int] | None:
    """Major and minor version in an image's tag; None for a tag that is no version."""
    match = re.search(r":v?([0-9]+)\.([0-9]+)\.", image)
    return (int(match[1]), int(match[2])) if match else None


def selector(labels: Mapping[str, str]) -> str:
    """Labels as a selector in one line: ``a=b,c=d``."""
    return ",".join(f"{key}={value}" for key, value in labels.items())


def env_list(variables: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """``{NAME: value}`` or ``{NAME: {valueFrom: …}}`` as Kubernetes' list of variables."""
    return [
        {"name": name, **(value if isinstance(value, Mapping) else {"value": value})}
        for name, value in (variables or {}).items()
    ]


def numbered(template: str, count: int) -> list[str]:
    """``template`` with ``{}`` replaced by 0 … count-1."""
    return [template.replace("{}", str(number)) for number in range(count)]


def join(prefix: str, name: str) -> str:
    """``prefix-name``, or the name alone where there is no prefix."""
    return f"{prefix}-{name}" if prefix else name


@cache
def _environment() -> Any:
    from jinja2 import Environment, StrictUndefined

    # A compiled expression keeps its own type in any environment; only texts with expressions in them become text.
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True)
    environment.globals.clear()
    environment.globals.update(
        bytes=whole_bytes, least=least, newer=newer, selector=selector, env_list=env_list, numbered=numbered, join=join
    )
    return environment


@lru_cache(maxsize=4096)
def _compiled(text: str) -> Any:
    whole = _WHOLE.match(text)
    if whole:
        return _environment().compile_expression(whole["expression"].strip(), undefined_to_none=False)
    return _environment().from_string(text).render


def evaluate(text: str, context: Mapping[str, Any]) -> Any:
    """The value of a text that may hold expressions. Raises jinja2's errors for a bad expression or unknown name."""
    if "{{" not in text:
        return text
    value = _compiled(text)(context)
    if type(value).__name__ == "StrictUndefined":
        str(value)  # raises, with the name in it
    return value


@dataclass(frozen=True)
class Place:
    """Where in a blueprint file a piece of data stands, for error messages."""

    document: Document
    path: KeyPath

    def at(self, *steps: str | int) -> Place:
        """The place below this one."""
        return Place(self.document, (*self.path, *steps))

    def __str__(self) -> str:
        return f"{self.document.name}:{self.document.line(self.path)}"


def evaluate_tree(value: Any, context: Mapping[str, Any], place: Place) -> Any:
    """Evaluate every expression in a tree of plain data; see the module's docstring for ``None``.

    Raises `BlueprintError` with file and line for an expression that does not parse or names nothing.
    """
    if isinstance(value, str):
        return _evaluate_at(value, context, place)
    if isinstance(value, Mapping):
        if "$note" in value:
            inner = evaluate_tree(value["$value"], context, place)
            return inner if inner is NOTHING else Noted(inner, value["$note"])
        pairs = (
            (_evaluate_at(key, context, place.at(key)), evaluate_tree(item, context, place.at(key)))
            for key, item in value.items()
        )
        return {key: item for key, item in pairs if item is not NOTHING}
    if isinstance(value, Sequence):
        items = (evaluate_tree(item, context, place.at(index)) for index, item in enumerate(value))
        return [item for item in items if item is not NOTHING]
    return value


def _evaluate_at(text: str, context: Mapping[str, Any], place: Place) -> Any:
    if "{%" in text:
        raise BlueprintError(
            f"{text!r} holds control flow", origin=str(place), next_step="a layer holds values and expressions, {{ … }}"
        )
    if "{{" not in text:
        return text
    try:
        value = evaluate(text, context)
    except MmdeployError:
        raise
    except Exception as problem:  # jinja2 raises whatever the expression raises
        what, near = _missing(str(problem), context)
        raise BlueprintError(
            f"the expression {text!r} cannot be evaluated: {what}",
            origin=str(place),
            nearest=near,
            next_step="names an expression may use are listed in guides/contributing.md",
        ) from None
    return NOTHING if value is None else value


def _missing(problem: str, context: Mapping[str, Any]) -> tuple[str, list[str]]:
    """jinja2's words for a name that is not there in plain ones, with the names most like it."""
    match = re.search(r"(?:has no attribute '(?P<inner>\w+)'|^'(?P<outer>\w+)' is undefined)", problem)
    if match is None:
        return problem, []
    name = match["inner"] or match["outer"]
    names = {str(key) for key in context}
    if match["inner"]:
        names = {str(key) for value in context.values() if isinstance(value, Mapping) for key in value}
    return f"nothing is called {name!r}", nearest(name, sorted(names))


def plain(value: Any, notes: dict[KeyPath, str], path: KeyPath = ()) -> Any:
    """The tree without `Noted` wrappers; their remarks are collected by path into ``notes``."""
    if isinstance(value, Noted):
        notes[path] = value.note
        return plain(value.value, notes, path)
    if isinstance(value, Mapping):
        return {key: plain(item, notes, (*path, key)) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [plain(item, notes, (*path, index)) for index, item in enumerate(value)]
    return value
