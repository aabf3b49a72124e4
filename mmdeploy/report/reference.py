"""The reference page of the spec file: every field, what it takes, and its other two names. Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_INTRODUCTION = """\
<!-- Written by `make guides` from the schema (mmdeploy/spec.py). Change the descriptions there, not here. -->
# Reference of the spec file

A spec file says what you want; every field is optional. `mmdeploy render -f FILE` reads it, `-f -` reads standard
input. What you leave out is decided by the blueprints, and `mmdeploy render --explain` says by which file and line.
A bundle's own `mmdeploy.yaml` is a spec file with every field decided.

A field can be set in four places. The first one in this list that says something wins:

1. an option, or `--set FIELD=VALUE` for any field (`--set encode.replicas=4`); `--set` wins over the other options
2. its `MMDEPLOY_` variable
3. with `--from-env` only: the llm-d guide's own variables ({guide_variables})
4. the spec file

`--set` and variables read numbers, lists and mappings as YAML: `--set 'encode.extraArgs=["--max-model-len=8192"]'`.
A dot inside a key is written `\\.`: `--set 'encode.labels.example\\.com/team=vision'`.
A field that has no effect on the deployment that you ask for is refused, not ignored.

For completion in an editor, run `mmdeploy schema > mmdeploy.schema.json` and put this line on top of your spec file:

```yaml
# yaml-language-server: $schema=mmdeploy.schema.json
```
"""
_COLUMNS = {"field": "field", "takes": "takes", "variable": "variable", "option": "option", "means": "description"}


def page(sections: Sequence[Mapping[str, Any]], guide_variables: Sequence[str]) -> str:
    """The whole page; a section has ``title``, ``means`` and ``rows`` whose keys are those of the columns."""
    named = ", ".join(f"`{name}`" for name in guide_variables)
    blocks = [_INTRODUCTION.replace("{guide_variables}", named), *(_section(section) for section in sections)]
    return "\n".join(blocks)


def _section(section: Mapping[str, Any]) -> str:
    heading = f"## {section['title']}\n\n{section['means']}\n"
    lines = [list(_COLUMNS.values()), ["---"] * len(_COLUMNS)]
    lines += [[_cell(row[key]) for key in _COLUMNS] for row in section["rows"]]
    return heading + "\n" + "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|")
