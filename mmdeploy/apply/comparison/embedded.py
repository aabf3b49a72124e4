"""Documents inside text values: the picker's configuration in a ConfigMap or in values, JSON behind a flag."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from mmdeploy import documents
from mmdeploy.errors import UsageError

_ARGUMENTS: Final = frozenset({"args", "command"})
_SUFFIXES: Final = (".yaml", ".yml", ".json")


def document(text: str, path: Sequence[str]) -> Any | None:
    """The mapping or list that a text holds (a list of documents where there are several); None where it is plain text.

    ``path`` is where the text stands: an argument is a document only as JSON, since a script may read as YAML by
    accident.
    """
    begun = text.lstrip()[:1]
    if begun in ("{", "["):
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if isinstance(found, dict | list):
            return found
    if _ARGUMENTS & set(path) or not ("\n" in text.strip() or path[-1:] and path[-1].endswith(_SUFFIXES)):
        return None
    try:
        several = documents.parse_all(text, "text")
    except (UsageError, RecursionError):
        return None
    if not several or not all(isinstance(item, dict | list) for item in several):
        return None
    return several[0] if len(several) == 1 else several


__all__ = ["document"]
