"""Machine-readable output: one document on stdout."""

from __future__ import annotations

import json
from typing import Any


def as_json(document: Any) -> str:
    """The document as JSON, two spaces deep, in its own order, with a line end."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
