"""Where each value came from, for ``render --explain``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mmdeploy.documents import KeyPath
from mmdeploy.render.deployment import Explained
from mmdeploy.render.expressions import plain
from mmdeploy.render.merge import Provenance
from mmdeploy.render.values import Values


def explain_values(prefix: str, values: Values, resolved: Mapping[str, Any]) -> Iterator[Explained]:
    """Fields of the spec, or of a role of it, as they were resolved."""
    for path, value in _flat(resolved):
        yield Explained(".".join((*prefix.split(), *map(str, path))), value, values.place_at(path))


def explain_tree(prefix: str, provenance: Provenance, part: str) -> Iterator[Explained]:
    """What layers put into a pod or the router's configuration."""
    for path, place in provenance.places.items():
        if path and path[0] == part:
            value = plain(provenance.said.get(path), {})
            yield Explained(".".join((prefix, *map(str, path))), value, str(place))


def _flat(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _flat(item, (*path, key))
    else:
        yield path, value
