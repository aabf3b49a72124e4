"""The status of a deployment on one screen."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from mmdeploy.report import durations
from mmdeploy.report.findings import clean
from mmdeploy.report.terminal import style, width

Document = Mapping[str, Any]
_LABEL: Final = 12
_GAP: Final = "  "


def text(document: Document, columns: int | None = None) -> str:
    """The whole screen; ``columns`` of the terminal, where that is known."""
    return "".join(f"{line}\n" for line in _Screen(document, columns or width()).lines())


def line(document: Document) -> str:
    """All of it on one line, for a log: what changes is what is worth a line."""
    parts = [f"{role['role']} {role['ready']}/{role['desired']}" for role in _roles(document)]
    starting = [_words(row) for role in _roles(document) for row in _grouped(role["starting"])]
    word = "ready" if document["ready"] else "not ready"
    front = document["gateway"]
    starting += [front["detail"]] if front and not front["ready"] else []
    return clean(f"{document['name']}: {word}; {', '.join(parts)}" + "".join(f"; {each}" for each in starting))


class _Screen:
    """Draws one document."""

    def __init__(self, document: Document, columns: int) -> None:
        self._document = document
        self._columns = columns

    def lines(self) -> Iterator[str]:
        document = self._document
        word = style("ready", "green") if document["ready"] else style("not ready", "yellow")
        yield f"{style(clean(document['name']), 'bold')}  {word}"
        yield from self._field("namespace", f"{document['namespace']} (context {document['context']})")
        yield from self._field("release", _release(document["release"]))
        yield from self._field("last apply", _applied(document["lastApply"]))
        yield ""
        yield from self._table()
        yield ""
        if document["gateway"]:
            yield from self._field(
                "gateway", document["gateway"]["detail"], "" if document["gateway"]["ready"] else "yellow"
            )
        yield from self._field("pool", document["pool"]["detail"])
        model = document["model"]
        yield from self._field("model", ": ".join(filter(None, (model["name"], model["detail"]))))
        yield from self._drift(document["drift"])
        yield from self._starting()
        for note in document["notes"]:
            yield from self._field("note", note)

    def _field(self, label: str, said: str, colour: str = "") -> Iterator[str]:
        inside = max(30, self._columns - _LABEL - len(_GAP))
        wrapped = textwrap.wrap(clean(said), inside, break_long_words=False, break_on_hyphens=False) or [""]
        for number, part in enumerate(wrapped):
            shown = style(part, colour) if colour else part
            yield f"{_GAP}{(label if not number else ''):<{_LABEL}}{shown}".rstrip()

    def _table(self) -> Iterator[str]:
        roles = _roles(self._document)
        rows = [(role["role"], f"{role['ready']}/{role['desired']}", role) for role in roles]
        first = max((len(name) for name, _, _ in rows), default=4)
        second = max((len(count) for _, count, _ in rows), default=5)
        first, second = max(first, 4), max(second, 5)
        yield style(f"{_GAP}{'ROLE':<{first}}  {'READY':<{second}}  IMAGES", "bold")
        for name, count, role in rows:
            images = role["images"] or ["-"]
            colour = "green" if role["done"] else "yellow"
            cell = style(f"{count:<{second}}", colour)
            yield f"{_GAP}{name:<{first}}  {cell}  {clean(images[0])}"
            yield from (f"{_GAP}{'':<{first}}  {'':<{second}}  {clean(image)}" for image in images[1:])

    def _drift(self, drift: Sequence[Mapping[str, Any]] | None) -> Iterator[str]:
        if drift is None:
            never = self._document["lastApply"] is None
            why = "mmdeploy has not applied it" if never else "the last apply did not finish"
            yield from self._field("drift", f"not known: {why}")
        elif not drift:
            yield from self._field("drift", "none")
        for number, item in enumerate(drift or ()):
            name = f"{item['kind']}/{item['name']}"
            said = f"{name} is gone" if item["gone"] else f"{name}: {'; '.join(map(_change, item['changes']))}"
            yield from self._field("" if number else "drift", said, "yellow")

    def _starting(self) -> Iterator[str]:
        for role in _roles(self._document):
            for row in _grouped(role["starting"]):
                failed = row[0]["fails"]
                yield from self._field(role["role"], _words(row), "red" if failed else "yellow")
                for said in row[0]["log"] if failed else ():
                    yield f"{_GAP}{'':<{_LABEL}}| {clean(said)}"
                if failed and row[0]["hint"]:
                    yield from self._field("", f"next: {row[0]['hint']}")


def _roles(document: Document) -> list[Mapping[str, Any]]:
    return [*document["roles"], *([document["router"]] if document["router"] else [])]


def _grouped(starting: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Things that do the same, together."""
    found: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for item in starting:
        found.setdefault((item["kind"], item["phase"], item["detail"]), []).append(item)
    return list(found.values())


def _words(things: Sequence[Mapping[str, Any]]) -> str:
    """``3 pods loading for 1m02s: weights 45%``."""
    first = things[0]
    if first["kind"] != "Pod":
        what = f"{first['kind']} {first['name']}"
        return first["detail"] if what in first["detail"] else f"{what}: {first['phase']}: {first['detail']}"
    seconds = [item["seconds"] for item in things if item["seconds"] is not None]
    since = f" for {durations.text(max(seconds))}" if seconds else ""
    what = f"pod {first['name']}" if len(things) == 1 else f"{len(things)} pods"
    return f"{what} {first['phase']}{since}" + (f": {first['detail']}" if first["detail"] else "")


def _release(release: Mapping[str, Any]) -> str:
    return f"{release['name']} ({release['by']})" if release["name"] else f"unknown: {release['by']}"


def _applied(last: Mapping[str, Any] | None) -> str:
    if last is None:
        return "not by mmdeploy"
    by = f" by {last['by']}" if last["by"] else ""
    version = f" with mmdeploy {last['version']}" if last["version"] else ""
    return f"{last['at'] or 'begun'}{by}{version}"


def _change(change: Mapping[str, Any]) -> str:
    by = f" (by {change['manager']})" if change["manager"] else ""
    return f"{change['path']} is {_value(change['live'])}, applied {_value(change['applied'])}{by}"


def _value(value: Any) -> str:
    if value is None:
        return "absent"
    said = str(value)
    return said if len(said) <= 40 else f"{said[:39]}…"
