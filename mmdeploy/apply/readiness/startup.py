"""What words of kubelets, controllers, the scheduler and engines mean: ``blueprints/catalog/startup.yaml``, read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mmdeploy.errors import BlueprintError

if TYPE_CHECKING:
    from mmdeploy.catalog import Catalog

_KEYS = frozenset({"match", "reason", "phase", "verdict", "say", "hint", "read", "source"})
_VERDICTS = ("", "fails", "waits")


@dataclass(frozen=True)
class Meaning:
    """What a message comes to."""

    said: str
    """In a person's words."""
    fails: bool = False
    """Whether waiting is in vain."""
    phase: str = ""
    hint: str = ""


@dataclass(frozen=True)
class _Rule:
    match: re.Pattern[str]
    reason: re.Pattern[str]
    phase: str
    verdict: str
    say: str
    hint: str
    read: str

    def meaning(self, message: str, found: re.Match[str]) -> Meaning:
        said = self.say or message
        for number, group in enumerate(found.groups(), 1):
            said = said.replace(f"{{{number}}}", (group or "").strip())
        return Meaning(said, self.verdict == "fails", self.phase, self.hint)


class Startup:
    """The rules, compiled once. Raises `BlueprintError` with file and line for one that cannot be read."""

    def __init__(self, catalog: Catalog) -> None:
        self._document = catalog.document("catalog", "startup.yaml")
        self._value: Mapping[str, Any] = self._document.value
        self._compiled: dict[str, tuple[_Rule, ...]] = {}

    def __getitem__(self, name: str) -> Any:
        """A plain fact of the file: ``modelsPath``, ``setName`` and so on."""
        return self._value[name]

    def rules(self, section: str) -> tuple[_Rule, ...]:
        """The rules of a list, in order."""
        if section not in self._compiled:
            entries = self._value[section]
            self._compiled[section] = tuple(self._rule(entry, (section, n)) for n, entry in enumerate(entries))
        return self._compiled[section]

    @cached_property
    def containers(self) -> Mapping[str, _Rule]:
        """Reason of a container's ``state.waiting`` → its rule."""
        return {name: self._rule(entry, ("containers", name)) for name, entry in self._value["containers"].items()}

    @cached_property
    def endings(self) -> Mapping[str, _Rule]:
        """Reason of a container's ``state.terminated`` → its rule."""
        return {name: self._rule(entry, ("endings", name)) for name, entry in self._value["endings"].items()}

    def meaning(self, section: str, message: str, reason: str = "") -> Meaning | None:
        """What a message means by the first rule of ``section`` that matches it; None where none does.

        A rule that says ``read`` lets another list speak first.
        """
        for rule in self.rules(section):
            found = rule.match.search(message)
            if found and rule.reason.fullmatch(reason):
                deeper = self.meaning(rule.read, message) if rule.read else None
                return deeper or rule.meaning(message, found)
        return None

    def newest(self, section: str, lines: Sequence[str]) -> tuple[Meaning, str] | None:
        """What the newest line that means anything says, and that line."""
        for line in reversed(lines):
            meaning = self.meaning(section, line)
            if meaning:
                return meaning, line
        return None

    def scheduling(self, message: str) -> str:
        """The scheduler's message, in short: the reasons of the most nodes first.

        ``0/15 nodes are available: 14 Insufficient nvidia.com/gpu, 1 node(s) had untolerated taint …`` becomes
        ``of 15 nodes 14 without enough free nvidia.com/gpu, 1 tainted``.
        """
        head = re.match(r"0/(\d+) nodes are available: (.*?)(?:\. (?:preemption|no new claims)\b.*)?$", message, re.S)
        if head is None:
            return _first_sentence(message)
        counted = re.findall(r"(\d+) (.+?)(?:, (?=\d+ )|$)", head[2].rstrip("."))
        if not counted:
            return _first_sentence(head[2])
        parts = [self._shortened(int(number), reason) for number, reason in sorted(counted, key=_most_first)]
        return f"of {head[1]} nodes {', '.join(parts)}"

    def _shortened(self, number: int, reason: str) -> str:
        meaning = self.meaning("scheduler", reason)
        return (meaning.said if meaning else f"{{n}}: {reason}").replace("{n}", str(number))

    def _rule(self, entry: Mapping[str, Any], path: tuple[str | int, ...]) -> _Rule:
        origin = self._document.origin(path)
        unknown: Iterable[str] = entry.keys() - _KEYS
        for key in sorted(unknown):
            raise BlueprintError(f"unknown key {key!r}", origin=origin, nearest=sorted(_KEYS))
        if not entry.get("source"):
            raise BlueprintError("lacks source", origin=origin)
        if entry.get("verdict", "") not in _VERDICTS:
            raise BlueprintError(f"verdict {entry['verdict']!r}", origin=origin, nearest=_VERDICTS[1:])
        try:
            match, reason = (re.compile(str(entry.get(key, "")), re.IGNORECASE) for key in ("match", "reason"))
        except re.error as problem:
            raise BlueprintError(f"no regular expression: {problem}", origin=origin) from None
        if "reason" not in entry:
            reason = re.compile(".*", re.DOTALL)
        words = (str(entry.get(key, "")) for key in ("phase", "verdict", "say", "hint", "read"))
        return _Rule(match, reason, *words)


def _most_first(counted: tuple[str, str]) -> tuple[int, str]:
    return -int(counted[0]), counted[1]


def _first_sentence(text: str) -> str:
    return text.strip().split(". ")[0].rstrip(".")
