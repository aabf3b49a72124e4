"""Values that are worked out when they are read, and that remember who read them.

A layer may write a value as an expression over other values (``accelerators: "{{ role.tensorParallelSize }}"``), so
nothing can be worked out in file order. And a value that nobody reads has no effect: a person who sets such a value
is told so instead of being ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from mmdeploy.documents import KeyPath
from mmdeploy.errors import BlueprintError
from mmdeploy.render.expressions import NOTHING, Noted, Place, evaluate_tree
from mmdeploy.render.merge import Provenance


@cache
def branches_of(fields: frozenset[KeyPath]) -> frozenset[KeyPath]:
    """Paths that other fields stand below."""
    return frozenset(field[:length] for field in fields for length in range(1, len(field)))


class Values(Mapping[str, Any]):
    """A tree of values, evaluated on access against a context that may hold the tree itself.

    ``known`` names keys that exist although nobody set them: they read as ``None``. Any other missing key raises
    KeyError, so that a misspelt name in an expression is an error.
    """

    def __init__(
        self,
        raw: Mapping[str, Any],
        provenance: Provenance,
        context: Mapping[str, Any],
        known: frozenset[KeyPath] = frozenset(),
        path: KeyPath = (),
        read: set[KeyPath] | None = None,
    ) -> None:
        self._raw = raw
        self._provenance = provenance
        self._context = context
        self._known = known
        self._path = path
        self._read: set[KeyPath] = set() if read is None else read
        self._done: dict[str, Any] = {}
        self._underway: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        path = (*self._path, key)
        self._read.add(path)
        if key not in self._done:
            self._done[key] = self._work_out(key, path)
        return self._done[key]

    def _work_out(self, key: str, path: KeyPath) -> Any:
        raw = self._raw.get(key)
        if self._is_branch(path) and (raw is None or isinstance(raw, Mapping)):
            return Values(raw or {}, self._provenance, self._context, self._known, path, self._read)
        if key not in self._raw:
            if path in self._known:
                return None
            raise KeyError(key)
        if key in self._underway:
            raise BlueprintError(f"{'.'.join(map(str, path))} is worked out from itself", origin=self.place_of(key))
        self._underway.add(key)
        try:
            value = self._evaluate(raw, path)
        finally:
            self._underway.discard(key)
        return None if value is NOTHING else value

    def _evaluate(self, raw: Any, path: KeyPath) -> Any:
        """Expressions in blueprints are worked out; what a person wrote is taken as it is."""
        exact = self._provenance.places.get(path)
        if isinstance(exact, str):
            return raw
        if exact is None and isinstance(raw, Mapping) and "$note" not in raw:
            items = ((key, self._evaluate(value, (*path, key))) for key, value in raw.items())
            return {key: value for key, value in items if value is not NOTHING}
        place = exact or self._place(path)
        return raw if isinstance(place, str) else evaluate_tree(raw, self._context, place)

    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)

    def put(self, key: str, value: Any) -> None:
        """Set a value that is worked out elsewhere (the labels of a role, its pod)."""
        self._done[key] = value
        self._raw = {**self._raw, key: value}

    def touch(self, key: str) -> None:
        """Count a value as read that had its effect elsewhere."""
        self._read.add((*self._path, key))

    def plain(self, key: str) -> Any:
        """The value without a remark that may hang on it."""
        value = self[key]
        return value.value if isinstance(value, Noted) else value

    def was_read(self, path: KeyPath) -> bool:
        """Whether the value at ``path`` (from the root of the tree), or a value that holds it whole, was ever read."""
        return any(path[: len(read)] == read and not self._is_branch(read) for read in self._read)

    def _is_branch(self, path: KeyPath) -> bool:
        return path in branches_of(self._known)

    def place_of(self, key: str) -> str:
        """Where the value was decided: ``layers/…:line``, or what a person's input calls itself."""
        return self.place_at((key,))

    def place_at(self, path: KeyPath) -> str:
        """`place_of` for a value further in; the nearest ancestor counts where nothing is known of it alone."""
        steps = (*self._path, *path)
        while len(steps) > 1 and not any(known[: len(steps)] == steps for known in self._provenance.places):
            steps = steps[:-1]
        return str(self._place(steps))

    def _place(self, path: KeyPath) -> Any:
        places = self._provenance.places
        if path in places:
            return places[path]
        inner = next((place for known, place in places.items() if known[: len(path)] == path), None)
        return _parent(inner, path) if isinstance(inner, Place) else inner or "mmdeploy"


def _parent(place: Place, path: KeyPath) -> Place:
    """The place of a whole value, from the place of something inside it."""
    steps = place.path
    while steps and steps[-1] != path[-1]:
        steps = steps[:-1]
    return Place(place.document, steps or place.path)
