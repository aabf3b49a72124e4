"""Argument lists, merged by flag.

A layer writes an argument as text (``--port=8200``, ``--enforce-eager``, a positional) or as a list that becomes
several tokens (``[--mm-processor-cache-gb, 20]``). A mapping in such a list is a JSON value: a later layer's mapping
for the same flag is merged into it, key by key, and a literal ``null`` removes a key.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

_FLAG = re.compile(r"^--?[A-Za-z]")


def flag_of(argument: Any) -> str | None:
    """The flag that an argument sets, without a negation: ``--no-x`` and ``--x`` are one. ``None``: a positional."""
    first = argument[0] if isinstance(argument, list) and argument else argument
    if not isinstance(first, str) or not _FLAG.match(first):
        return None
    # A flag and its value in one item is a mistake (the engine takes the whole for a name), but it names the flag.
    name = re.split(r"[=\s]", first, maxsplit=1)[0].replace("_", "-")
    return "--" + name.removeprefix("--no-") if name.startswith("--no-") else name


def group(tokens: Sequence[Any]) -> list[Any]:
    """Plain tokens, as a person types them, as arguments: a flag takes the tokens after it up to the next flag."""
    arguments: list[Any] = []
    for token in tokens:
        if isinstance(token, list) or flag_of(token) is not None or not arguments:
            arguments.append(token)
        elif isinstance(arguments[-1], list):
            arguments[-1].append(token)
        else:
            arguments[-1] = [arguments[-1], token]
    return arguments


def tokens_of(arguments: Sequence[Any]) -> list[str]:
    """Arguments as the container's argv."""
    return [_token(part) for argument in arguments for part in (argument if isinstance(argument, list) else [argument])]


def _token(part: Any) -> str:
    if isinstance(part, (Mapping, list)):
        return json.dumps(part, separators=(", ", ": "))
    return str(part)


def in_shell(prefix: str, command: Sequence[str], arguments: Sequence[Any]) -> dict[str, list[str]]:
    """The command as one line for a login shell, after ``prefix`` (an environment script that must be sourced)."""
    line = f"{prefix} {shlex.join([*command, *tokens_of(arguments)])}"
    return {"command": ["bash", "-lc"], "args": [line]}
