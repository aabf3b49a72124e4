"""Findings, and the rules that make them: one small function a code, over the index of the deployment."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from mmdeploy.documents import KeyPath
from mmdeploy.lint.secrets import shown
from mmdeploy.lint.source import Document, Position
from mmdeploy.secrecy import without_tokens

if TYPE_CHECKING:
    from mmdeploy.lint.index import Deployment

GROUPS = {
    "1": "pool and selectors",
    "2": "router configuration",
    "3": "engine flags",
    "4": "connectors and transfer",
    "5": "resources and probes",
    "6": "estimator",
    "7": "versions and images",
    "8": "monitoring",
    "9": "platform and files",
}
"""First digit of a code → what its findings are about; each group has a module under ``rules/``."""

_MODULES = (
    "pool", "pool_ports", "pool_references",
    "picker", "picker_parameters", "picker_stages", "picker_data", "picker_precise",
    "values", "values_refused", "values_gateway",
    "engine", "engine_environment", "engine_media", "engine_pairs", "engine_sglang",
    "transfer", "transfer_stages", "transfer_cache", "transfer_channels",
    "resources", "resources_probes", "resources_batches",
    "estimator", "versions", "versions_sidecar", "monitoring",
    "platform", "platform_gateway", "platform_kustomize", "platform_sets", "platform_objects", "platform_access",
)  # fmt: skip


class Level(enum.IntEnum):
    """How bad: an error will not work or silently does something else."""

    info = 1
    warning = 2
    error = 3


@dataclass(frozen=True)
class Found:
    """What a rule yields. ``path`` leads to the place in ``document``; ``level`` overrides the rule's own."""

    document: Document
    path: KeyPath
    subject: str
    """The object, container or file that is wrong, as people call it."""
    message: str
    """One sentence of cause, with the actual values."""
    fix: str
    """One line: what to do."""
    level: Level | None = None


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong."""

    code: str
    level: Level
    position: Position
    subject: str
    path: str
    message: str
    fix: str
    source: str
    line: str
    """Text of the line, for a caret under it; without secrets."""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What identifies it in a baseline: code, file, subject and message, but neither line nor place in a list."""
        return self.code, self.position.file, self.subject, self.message


Check = Callable[["Deployment"], Iterator[Found]]


@dataclass(frozen=True)
class Rule:
    """A code, how bad it is, where the fact comes from, and the function that looks for it."""

    code: str
    level: Level
    source: str
    check: Check


_RULES: dict[str, Rule] = {}


def rule(code: str, level: Level, source: str) -> Callable[[Check], Check]:
    """Register the decorated function under a code that nothing else has."""

    def register(check: Check) -> Check:
        if code in _RULES:
            raise ValueError(f"{code} is registered twice")
        _RULES[code] = Rule(code, level, source, check)
        return check

    return register


@cache
def rules() -> tuple[Rule, ...]:
    """Every rule, by code."""
    for module in _MODULES:
        import_module(f"mmdeploy.lint.rules.{module}")
    return tuple(_RULES[code] for code in sorted(_RULES))


def as_finding(found: Found, found_by: Rule) -> Finding:
    """A rule's find with everything a report needs."""
    position = found.document.position(found.path)
    source = found.document.written or found.document
    return Finding(
        code=found_by.code,
        level=found.level or found_by.level,
        position=position,
        subject=found.subject,
        path=".".join(map(str, found.path)),
        message=without_tokens(found.message),
        fix=without_tokens(found.fix),
        source=found_by.source,
        line=shown(source.line_of(position), found.document.value, found.path),
    )
