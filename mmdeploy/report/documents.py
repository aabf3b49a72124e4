"""Machine-readable output: one document on stdout."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any


def as_json(document: Any) -> str:
    """The document as JSON, two spaces deep, in its own order, with a line end."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def as_yaml(document: Any) -> str:
    """The document as YAML, in its own order."""
    import yaml

    class Plain(yaml.SafeDumper):
        """Writes a mapping that occurs twice in full both times."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    return yaml.dump(document, Dumper=Plain, sort_keys=False, allow_unicode=True, width=1 << 16)


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows under the union of their keys, in order of appearance; lists are joined with ``; ``."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow(
            ["; ".join(map(str, cell)) if isinstance(cell := row.get(key), list) else cell for key in columns]
        )
    return text.getvalue()
