"""The registry of codes as people read it: ``blueprints/findings`` beside the rules that look for them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from mmdeploy.documents import read
from mmdeploy.errors import BlueprintError, UsageError
from mmdeploy.lint.findings import GROUPS, Rule, rules
from mmdeploy.words import nearest

_TEXTS = ("title", "why", "bad", "good")
_KEYS = (*_TEXTS, "corpus", "retired", "file")


@dataclass(frozen=True)
class Code:
    """One code: what its finding means."""

    code: str
    title: str
    why: str
    bad: str
    good: str
    file: str
    """What the bad and the good example are a piece of, where they are no YAML."""
    corpus: tuple[str, ...]
    """Rows of the corpus of real mistakes that it finds."""
    retired: str
    """Why the code is not used any more; empty for one that is."""
    rule: Rule | None
    """None for a retired code."""

    @property
    def group(self) -> str:
        """What the codes of its hundred are about."""
        return GROUPS.get(self.code[3], "")

    @property
    def level(self) -> str:
        """How bad it is, in most cases."""
        return self.rule.level.name if self.rule else "retired"

    @property
    def source(self) -> str:
        """Where the fact comes from."""
        return self.rule.source if self.rule else ""

    def as_data(self) -> dict[str, Any]:
        """Everything as plain data, for reports."""
        names = ("code", "title", "level", "group", "why", "bad", "good", "source", "retired")
        return {**{name: getattr(self, name) for name in names}, "corpus": list(self.corpus)}


@cache
def codes(blueprints: Path) -> Mapping[str, Code]:
    """Every code, in order. A rule that nobody has described yet is described by its function."""
    by_code = {item.code: item for item in rules()}
    entries = {code: entry for _, code, entry in _entries(blueprints) if isinstance(entry, dict)}
    known = {*by_code, *(code for code, entry in entries.items() if entry.get("retired"))}
    return {code: _code(code, entries.get(code, {}), by_code.get(code)) for code in sorted(known)}


def problems(blueprints: Path) -> list[str]:
    """Where rules and descriptions do not agree: a rule without an entry, an entry without a rule, a retired code that
    a rule has taken again, an entry that lacks something."""
    by_code = {item.code: item for item in rules()}
    found, seen = [], set()
    for name, code, entry in _entries(blueprints):
        problem = f"{code} is described twice" if code in seen else _problem(code, entry, by_code.get(code))
        seen.add(code)
        if problem:
            found.append(f"{name}: {problem}")
        elif name != f"{code[3]}xx.yaml":
            found.append(f"{name}: {code} belongs in {code[3]}xx.yaml")
    return found + [f"{code[3]}xx.yaml: {code} is not described" for code in sorted(by_code.keys() - seen)]


def _entries(blueprints: Path) -> Iterator[tuple[str, str, Any]]:
    for path in sorted((blueprints / "findings").glob("*.yaml")):
        value = read(path, BlueprintError, name=f"blueprints/findings/{path.name}").value
        for code, entry in value.items() if isinstance(value, dict) else ():
            yield path.name, str(code), entry


def _problem(code: str, entry: Any, rule: Rule | None) -> str | None:
    if re.fullmatch(r"MMD[1-9]\d\d", code) is None:
        return f"{code} is no code"
    if not isinstance(entry, dict) or entry.keys() - set(_KEYS):
        return f"{code} must be a mapping of {', '.join(_KEYS)}"
    retired = entry.get("retired")
    if retired and rule is not None:
        return f"{code} is retired; a rule must not use it again"
    if not retired and rule is None:
        return f"{code} has no rule; keep its entry with `retired: true`"
    missing = [name for name in _TEXTS if not isinstance(entry.get(name), str) or not entry[name].strip()]
    return f"{code} lacks {', '.join(missing)}" if missing and not retired else None


def _code(code: str, entry: Mapping[str, Any], rule: Rule | None) -> Code:
    retired = entry.get("retired") if rule is None else None
    texts = {name: str(entry.get(name) or "").strip("\n") for name in _TEXTS}
    if rule is not None and not texts["title"]:
        texts["title"] = (rule.check.__doc__ or code).splitlines()[0]
    return Code(
        code=code,
        **texts,
        file=str(entry.get("file") or ""),
        corpus=tuple(map(str, entry.get("corpus") or ())),
        rule=rule,
        retired=retired if isinstance(retired, str) else "it is not looked for any more" if retired else "",
    )


def find(blueprints: Path, word: str) -> Code:
    """The code that a person asks for: ``MMD412``, ``mmd412`` or ``412``. Raises `UsageError` with the nearest."""
    known = codes(blueprints)
    wanted = word.strip().upper()
    wanted = wanted if wanted.startswith("MMD") else f"MMD{wanted}"
    if wanted not in known:
        near = _near(known, wanted)
        raise UsageError(
            f"there is no code {word!r}", nearest=[f"{code} ({known[code].title})" for code in near],
            next_step="mmdeploy explain lists every code",
        )  # fmt: skip
    return known[wanted]


def find_group(blueprints: Path, word: str) -> list[Code]:
    """The codes of a group, as ``--select`` takes it (``MMD4``, ``4``, ``4xx``, ``MMD41``) or by a word of its title
    (``estimator``); none where the word is no group's."""
    known = codes(blueprints)
    plain = word.strip().lower()
    digits = re.fullmatch(r"(?:mmd)?([1-9]\d?)x{0,2}", plain)
    if digits is not None:
        return [item for code, item in known.items() if code[3:].startswith(digits[1])]
    return [item for item in known.values() if plain in item.group.split() and plain != "and"]


def _near(known: Mapping[str, Code], wanted: str) -> list[str]:
    """Codes with the nearest numbers, or whose titles are nearest to words."""
    if wanted[3:].isdigit():
        number = int(wanted[3:])
        return sorted(known, key=lambda code: abs(int(code[3:]) - number))[:3]
    by_title = {item.title.lower(): code for code, item in known.items()}
    return [by_title[title] for title in nearest(wanted[3:].lower(), list(by_title))]
