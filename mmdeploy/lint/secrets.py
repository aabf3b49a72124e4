"""What is not shown of a line that a finding points to: tokens, and the values of what is called a secret."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from mmdeploy.documents import KeyPath
from mmdeploy.lint.source import dig
from mmdeploy.secrecy import MASK, masked_line, secret_name

_A_VALUE: Final = r"""(?P<value>"[^"]*"|'[^']*'|[^\s,"'{}\[\]]+)"""
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
    if secret_name(_entry_name(value, path)):
        line = _VALUE_OF_ENTRY.sub(rf"\g<sign>{MASK}", line)
    return masked_line(line)


def _follows_secret_flag(value: Any, path: KeyPath) -> bool:
    """Whether the path leads to the argument behind a flag such as ``--api-key``."""
    at = path[-1] if path else 0
    before = dig(value, (*path[:-1], at - 1)) if isinstance(at, int) and at else None
    return isinstance(before, str) and before.startswith("-") and secret_name(before)


def _entry_name(value: Any, path: KeyPath) -> str:
    """Name of the list entry that the path leads into: of a variable, for instance."""
    at = next((index for index in range(len(path), 0, -1) if isinstance(path[index - 1], int)), 0)
    name = dig(value, (*path[:at], "name")) if at else None
    return name if isinstance(name, str) else ""


__all__ = ["shown"]
