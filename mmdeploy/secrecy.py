"""What is secret by its name or by its looks, and is therefore never shown.

``HF_TOKEN``, ``--api-key`` and ``password`` are names of secrets; a token shows itself wherever it stands. The mask is
the same for every value.
"""

from __future__ import annotations

import re
from typing import Final

MASK: Final = "<masked>"

_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SECRET: Final = frozenset({
    "token", "secret", "password", "passwd", "passphrase", "credential", "credentials", "authorization", "auth",
    "bearer", "apikey", "cookie", "dsn",
})  # fmt: skip
_KEYS: Final = frozenset({"api", "access", "private", "secret", "signing", "encryption", "account", "auth", "ssh"})
"""Words that make a secret of the ``key`` behind them."""

_TOKENS: Final = re.compile(
    r"""
    \bhf_[A-Za-z0-9]{8,}                                     # Hugging Face
    | \b(?:sk|ghp|gho|ghs|github_pat|glpat|xox[abp]|nvapi)[-_][A-Za-z0-9_-]{8,}
    | \bAKIA[0-9A-Z]{12,}                                    # AWS access keys
    | \beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?   # JSON web tokens
    | (?<=://)[^\s/:@'"]+:[^\s/@'"]+(?=@)                    # user:password@ in addresses
    | (?<=[Bb]earer\s)[A-Za-z0-9._~+/=-]{6,}
    | -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----.*?(?:-----END\ [A-Z ]*PRIVATE\ KEY-----|\Z)
    """,
    re.VERBOSE | re.DOTALL,
)
_VALUE: Final = r"""(?P<value>"[^"]*"|'[^']*'|[^\s"'{\[][^\s"']*)"""
_ASSIGNED: Final = (
    re.compile(rf"(?P<name>(?<![\w-])--?[A-Za-z][\w.-]*)(?P<sign>=|\s+){_VALUE}"),
    re.compile(rf"""(?P<name>[A-Za-z][\w.-]*)(?P<sign>["']?\s*[=:]\s*){_VALUE}"""),
)
"""Flags with their values, and names with theirs, in a script or a file of some other form."""


def secret_name(name: str) -> bool:
    """Whether a name says that its value is secret. ``max-num-batched-tokens``, ``secretName`` and ``tokenizer`` do
    not."""
    words = [word.lower() for word in _WORDS.findall(name.rpartition("/")[2])]
    if not words:
        return False
    if words[-1] in ("key", "keys", "id") and len(words) > 1:
        return words[-2] in _KEYS and words[-1] != "id"
    return words[-1] in _SECRET


def without_tokens(text: str) -> str:
    """A text, with a mask for what looks like a token."""
    return _TOKENS.sub(MASK, text)


def masked_line(line: str) -> str:
    """A line, with a mask for tokens and for values that are given to secret names in it."""
    line = without_tokens(line)
    for pattern in _ASSIGNED:
        line = pattern.sub(_assigned, line)
    return line


def _assigned(match: re.Match[str]) -> str:
    return f"{match['name']}{match['sign']}{MASK}" if secret_name(match["name"]) else match[0]


__all__ = ["MASK", "masked_line", "secret_name", "without_tokens"]
