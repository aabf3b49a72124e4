"""Words that a person may have meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence


def nearest(word: str, choices: Sequence[str], count: int = 3) -> list[str]:
    """The choices most like ``word``, best first; compares without regard to case or punctuation."""
    plain = {re.sub(r"[^a-z0-9]", "", c.lower()): c for c in reversed(choices)}
    found = difflib.get_close_matches(re.sub(r"[^a-z0-9]", "", word.lower()), list(plain), n=count, cutoff=0.5)
    return [plain[f] for f in found]


def counted(number: float, one: str, many: str = "") -> str:
    """A number with the noun that goes with it: ``1 pod``, ``2 pods``, ``3 entries``."""
    said = number if isinstance(number, int) else f"{number:g}"
    return f"{said} {one if number == 1 else many or f'{one}s'}"
