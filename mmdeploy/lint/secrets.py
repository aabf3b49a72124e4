"""What is not shown of a line that a finding points to: tokens, and the values of what is called a secret."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from mmdeploy.documents import KeyPath
from mmdeploy.lint.source import dig

MASK: Final = "<masked>"
_TOKENS: Final = re.compile(
    r"""
    \bhf_[A-Za-z0-9]{8,}                                            # Hugging Face
    | \b(?:sk|ghp|gho|ghs|github_pat|glpat|xox[abp]|nvapi)[-_][A-Za-z0-9_-]{8,}
    | \bAKIA[0-9A-Z]{12,}                                           # AWS access keys
    | \beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?   # JSON web tokens
    | (?<=://)[^\s/:@'"]+:[^\s/@'"]+(?=@)                           # user:password@ in addresses
    """,
    re.VERBOSE,
)
_SECRET: Final = re.compile(
    r"(?:^|[-_.]|(?<=[a-z])(?=[A-Z]))(?i:token|secret|password|passwd|credentials?|(?:api|access|private)[-_]?key)$"
)
"""Names whose values are secret: ``HF_TOKEN``, ``--api-key``; not ``max-num-batched-tokens`` or ``secretName``."""
_A_VALUE: Final = r"""(?P<value>"[^"]*"|'[^']*'|[^\s,"'{}\[\]]+)"""
_ASSIGNED: Final = (
    re.compile(rf"(?P<name>--[A-Za-z][\w-]*)(?P<sign>\s+){_A_VALUE}"),
    re.compile(rf"""(?P<name>[A-Za-z][\w.-]*)(?P<sign>["']?\s*[=:]\s*){_A_VALUE}"""),
)
"""Flags and what follows them, and names with their values."""
_VALUE_OF_ENTRY: Final = re.compile(rf"""(?P<sign>["']?\bvalue["']?\s*:\s*){_A_VALUE}""")
_ENTRY: Final = re.compile(r"^(?P<key>\s*[^\s:]+:\s+|\s*-\s+|\s*)\S.*$")
_IN_FLOW: Final = re.compile(r"""(?P<key>["']?\s*:\s*)(?:"[^"]*"|'[^']*'|[^\s,"'{}\[\]][^,{}\[\]]*)""")
"""What is masked of a line that is secret altogether: its value, or every value of a mapping in braces."""


def shown(line: str, value: Any = None, path: KeyPath = ()) -> str:
    """A line that ``path`` of an object leads to, with a mask for everything secret in it."""
    in_secret = (
        isinstance(value, Mapping) and value.get("kind") == "Secret" and path[:1] in (("data",), ("stringData",))
    )
    if in_secret or _follows_secret_flag(value, path):
        return (_IN_FLOW if "{" in line else _ENTRY).sub(rf"\g<key>{MASK}", line)
    if _SECRET.search(_entry_name(value, path)):
        line = _VALUE_OF_ENTRY.sub(rf"\g<sign>{MASK}", line)
    line = without_tokens(line)
    for pattern in _ASSIGNED:
        line = pattern.sub(_hidden, line)
    return line


def without_tokens(text: str) -> str:
    """A sentence, with a mask for what looks like a token."""
    return _TOKENS.sub(MASK, text)


def _hidden(found: re.Match[str]) -> str:
    return f"{found['name']}{found['sign']}{MASK}" if _SECRET.search(found["name"]) else found[0]


def _follows_secret_flag(value: Any, path: KeyPath) -> bool:
    """Whether the path leads to the argument behind a flag such as ``--api-key``."""
    at = path[-1] if path else 0
    before = dig(value, (*path[:-1], at - 1)) if isinstance(at, int) and at else None
    return isinstance(before, str) and before.startswith("-") and _SECRET.search(before) is not None


def _entry_name(value: Any, path: KeyPath) -> str:
    """Name of the list entry that the path leads into: of a variable, for instance."""
    at = next((index for index in range(len(path), 0, -1) if isinstance(path[index - 1], int)), 0)
    name = dig(value, (*path[:at], "name")) if at else None
    return name if isinstance(name, str) else ""


__all__ = ["MASK", "shown", "without_tokens"]
