"""Arguments of a container as words and flags, for comparing two command lines."""

from __future__ import annotations

import re
from collections.abc import Sequence

_FLAG = re.compile(r"^--?[A-Za-z]")


def is_script(arguments: Sequence[str]) -> bool:
    """Whether an argument is a program of its own, in which order is everything."""
    return any("\n" in word.strip() and not word.lstrip().startswith(("{", "[")) for word in arguments)


def flags_of(arguments: Sequence[str]) -> tuple[list[str], dict[str, list[str | None]]]:
    """Words before the first flag, and every flag with its values in order; None for a bare flag.

    ``--flag=value`` and ``--flag value`` are the same; several values of one flag are joined by a space. ``--name`` and
    ``--no-name`` in one command line decide together, so they stand together, each with its own spelling. What follows
    ``--`` stands under it as it is.
    """
    words: list[str] = []
    given: list[tuple[str, str | None]] = []
    index = 0
    while index < len(arguments):
        word = arguments[index]
        index += 1
        if word == "--":
            given.append((word, " ".join(arguments[index:])))
            break
        if not _FLAG.match(word):
            words.append(word)
            continue
        flag, equals, value = word.partition("=")
        values = [value] if equals else []
        while not equals and index < len(arguments) and arguments[index] != "--" and not _FLAG.match(arguments[index]):
            values.append(arguments[index])
            index += 1
        given.append((flag, " ".join(values) if values else None))
    return words, _by_flag(given)


def _by_flag(given: Sequence[tuple[str, str | None]]) -> dict[str, list[str | None]]:
    spellings: dict[str, set[str]] = {}
    for flag, _ in given:
        spellings.setdefault(_family(flag), set()).add(flag)
    found: dict[str, list[str | None]] = {}
    for flag, value in given:
        family = _family(flag)
        if len(spellings[family]) > 1:
            found.setdefault(family, []).append(flag if value is None else f"{flag}={value}")
        else:
            found.setdefault(flag, []).append(value)
    return found


def _family(flag: str) -> str:
    """``--name`` for both ``--name`` and ``--no-name``."""
    return "--" + flag.removeprefix("--no-") if flag.startswith("--no-") else flag


__all__ = ["flags_of", "is_script"]
