"""What happens during apply and delete, for people: one line an event, from the events as plain data.

What waits is not here: `mmdeploy.report.progress` shows it, as a table or as lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from mmdeploy.report.differences import folded
from mmdeploy.report.findings import clean
from mmdeploy.report.terminal import style

Data = Mapping[str, Any]

_STAGE: Final = 14
_VERB: Final = 12
_COLOURS: Final = {"created": "green", "updated": "yellow", "unchanged": "dim", "gone": "dim"}
_WOULD: Final = "would-be-"
_TO_DO: Final = {"created": "to create", "updated": "to update", "recreated": "to recreate", "adopted": "to take over",
                 "removed": "to remove", "restarted": "to restart"}  # fmt: skip
"""What a dry run says of what would be done, no wider than the column."""
_RESULTS: Final = {"ok": ("ok", "green"), "warning": ("warning", "yellow"), "error": ("error", "red"),
                   "skipped": ("skipped", "dim")}  # fmt: skip
_PLAN_SIGNS: Final = {"remove": ("-", "red"), "gone": ("=", "dim"), "left": ("!", "yellow"), "apply": ("+", "green")}


class Lines:
    """Turns events into lines. Remembers the stage, so that its name stands only on its first line."""

    def __init__(self, *, verbose: bool = False) -> None:
        self._verbose = verbose
        self._labelled = ""
        self._listing = False
        """Whether the last line was part of a plan."""
        self._tried = False
        """Whether this only tries what it would do."""
        self._checks = dict.fromkeys(_RESULTS, 0)

    def of(self, event: Data) -> Iterator[str]:
        """The lines of one event; none for what says nothing to a person."""
        say: Callable[[Data], Iterator[str]] | None = getattr(self, "_" + event["event"].replace("-", "_"), None)
        if say is not None:
            yield from say(event)

    def _line(self, stage: str, said: str) -> str:
        label = "" if stage == self._labelled else stage
        self._labelled = stage
        return folded(said, style(f"{label:<{_STAGE}}", "bold"), " " * (_STAGE + _VERB)).rstrip()

    def _target(self, event: Data) -> Iterator[str]:
        yield from target(event)

    def _planned(self, event: Data) -> Iterator[str]:
        sign = _PLAN_SIGNS.get(event["verb"])
        if sign is None:  # apply's plan is shown whole, as diff shows it
            return
        self._listing = True
        why = f"  {event['needs']}" if event["needs"] else ""
        said = f"{style(sign[0], sign[1])} {event['kind']}/{event['name']}  {style(event['verb'], sign[1])}"
        yield self._line(event["stage"], clean_line(said + why))

    def _checked(self, event: Data) -> Iterator[str]:
        self._checks[event["result"]] += 1
        word, colour = _RESULTS[event["result"]]
        if event["result"] in ("ok", "skipped") and not self._verbose:
            return
        detail = f": {event['detail']}" if event["detail"] else ""
        yield self._line("preflight", f"{style(f'{word:<{_VERB}}', colour)}{clean(event['name'] + detail)}")
        if event["hint"]:
            yield self._line("preflight", " " * _VERB + clean(event["hint"]))

    def _stage_started(self, event: Data) -> Iterator[str]:
        if self._listing:
            self._listing = False
            self._labelled = ""
            yield ""

    def _stage_done(self, event: Data) -> Iterator[str]:
        if event["stage"] == "preflight":
            counts = ", ".join(f"{count} {word}" for word, count in self._checks.items() if count)
            if counts:
                yield self._line("preflight", f"{counts} ({event['seconds']:.1f} s)")
        elif event["stage"] in ("wait", "verify", "crds") and self._labelled != event["stage"]:
            yield self._line(event["stage"], f"done ({event['seconds']:.1f} s)")

    def _stage_skipped(self, event: Data) -> Iterator[str]:
        if event["reason"].startswith("--"):
            yield self._line(event["stage"], style(f"skipped ({event['reason']})", "dim"))

    def _applied(self, event: Data) -> Iterator[str]:
        word = str(event["verb"])
        self._tried = self._tried or word.startswith(_WOULD)
        word = _TO_DO.get(word.removeprefix(_WOULD), word) if word.startswith(_WOULD) else word
        verb = style(f"{word:<{_VERB}}", _COLOURS.get(event["verb"], "yellow"))
        kind = "Helm release" if event["kind"] == "HelmRelease" else event["kind"]
        yield self._line(event["stage"], f"{verb}{clean(kind)}/{clean(event['name'])}")

    def _ready(self, event: Data) -> Iterator[str]:
        yield self._line("ready", f"{clean(event['role'] or event['name']):<{_VERB}}{clean(event['detail'])}".rstrip())

    def _verified(self, event: Data) -> Iterator[str]:
        colour = {"proved": "green", "contradicted": "red"}.get(event["verdict"], "yellow")
        word = style(f"{event['verdict']:<15}", colour)
        yield self._line("verify", f"{word} {event['claim']}: {clean(event['summary'])}")

    def _failed(self, event: Data) -> Iterator[str]:
        if event["stage"] != "wait" or not event["name"]:
            return  # the error says it, right after
        word = style(f"{'failed':<{_VERB}}", "red")
        yield self._line("wait", f"{word}{clean(event['name'])}: {clean(event['reason'])}")
        for line in event["log"]:
            yield " " * _STAGE + "  " + style("| ", "dim") + clean(line)
        if event["hint"]:
            yield folded(clean(event["hint"]), " " * (_STAGE + _VERB), " " * (_STAGE + _VERB))

    def _warning(self, event: Data) -> Iterator[str]:
        yield self._line("", style("warning: ", "yellow") + clean(event["text"]))

    def _interrupted(self, event: Data) -> Iterator[str]:
        yield ""
        yield style(f"interrupted in stage {event['stage']}", "bold")
        yield f"  done:          {', '.join(event['done']) or 'nothing'}"
        for index, thing in enumerate(event["starting"]):
            yield f"  {'' if index else 'still starts:':<15}{clean(thing)}"
        if event["resume"]:
            yield f"  to go on:      {event['resume']}"
        if event["remove"] and event["remove"] != event["resume"]:
            yield f"  to take away:  {event['remove']}"

    def _finished(self, event: Data) -> Iterator[str]:
        yield ""
        would = "would change" if self._tried else "changed"
        changed = f"{event['changed']} {would}, {event['unchanged']} unchanged"
        yield style("done", "green") + f"  {changed} ({event['seconds']:.1f} s)"
        for index, command in enumerate(event["next"]):
            yield f"{'' if index else 'next':<6}{command}"


def clean_line(said: str) -> str:
    """A line that holds our own colours, without anything else that a terminal would obey."""
    return "".join(character for character in said if character.isprintable() or character == "\x1b")


def target(event: Data) -> Iterator[str]:
    """Where everything goes, before anything else is said."""
    yield f"{event['command']} {style(clean(event['name']), 'bold')}"
    for label, key in (("context", "context"), ("server", "server"), ("namespace", "namespace")):
        yield f"  {label:<11}{clean(event[key])}"
    yield ""


def document(events: Sequence[Data], name: str, namespace: str, result: str) -> dict[str, Any]:
    """All of it as one document: ``result`` is done, failed, timed-out, interrupted, refused (by the person
    who was asked) or dry-run."""
    return {
        "schemaVersion": 1,
        "kind": "Applied",
        "name": name,
        "namespace": namespace,
        "result": result,
        "events": list(events),
    }


__all__ = ["Lines", "document", "target"]
