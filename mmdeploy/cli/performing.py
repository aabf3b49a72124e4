"""What ``apply`` and ``delete`` have in common: showing a stream of events, asking, and stopping."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mmdeploy.errors import MmdeployError, StoppedError, TimedOutError, UsageError

if TYPE_CHECKING:
    from mmdeploy.apply.events import Event
    from mmdeploy.apply.interrupts import Stop
    from mmdeploy.cluster.access import Access
    from mmdeploy.cluster.session import Session


class Form(StrEnum):
    """Forms of ``-o``."""

    text = "text"
    json = "json"
    jsonl = "jsonl"


Kubeconfig = Annotated[Path | None, typer.Option("--kubeconfig", help="Another kubeconfig.", metavar="FILE")]
Context = Annotated[str | None, typer.Option("--context", help="Another context of the kubeconfig.", metavar="NAME")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Output = Annotated[
    Form, typer.Option("--output", "-o", help="What stdout gets: jsonl is a line an event, as it happens.")
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also what is well, and each request on stderr.")]
Timeout = Annotated[
    str | None, typer.Option("--timeout", help="Stop after so long in all: 90s, 10m, 1h30m.", metavar="DURATION")
]
Blueprints = Annotated[
    Path | None, typer.Option("--blueprints", help="Other blueprints.", metavar="DIR", envvar="MMDEPLOY_BLUEPRINTS")
]


def connected(access: Access, verbose: bool, stop: Stop) -> Session:
    """A session whose retries end when somebody asks to stop."""
    from mmdeploy.cluster.session import Session

    return Session.connect(access, traced if verbose else None, stop.sleep)


def traced(line: str) -> None:
    """A request as a line on stderr, in one write: several threads do it."""
    sys.stderr.write(f"{line}\n")


def must_be_answerable(yes: bool) -> None:
    """Raise `UsageError` where somebody would have to be asked and nobody is there."""
    if not yes and not sys.stdin.isatty():
        raise UsageError("there is no terminal to ask on", origin="stdin", next_step="-y goes on without asking")


def agreed(question: str) -> bool:
    """Ask on stderr; only a yes is a yes."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def command(*words: str | None) -> str:
    """A command line that a shell takes back; None and empty words are left out."""
    return shlex.join(["mmdeploy", *(word for word in words if word)])


@contextlib.contextmanager
def beginning(form: Form) -> Iterator[None]:
    """Before there is anything to show: a Ctrl-C says that nothing was changed, and ends with 130; an error is the only
    event."""
    try:
        yield
    except MmdeployError as problem:
        _only(form, problem)
        raise
    except KeyboardInterrupt:
        _untouched()
        if form is Form.jsonl:
            print(json.dumps({"schemaVersion": 1, **_interrupted("")}), flush=True)
        raise typer.Exit(StoppedError.exit_code) from None


def _only(form: Form, problem: MmdeployError) -> None:
    from mmdeploy.report import applied, documents

    if form is Form.jsonl:
        print(json.dumps({"schemaVersion": 1, **_failed(problem)}), flush=True)
    elif form is Form.json:
        print(documents.as_json(applied.document([_failed(problem)], "", "", "failed")), end="", flush=True)


def _failed(problem: MmdeployError) -> dict[str, Any]:
    from mmdeploy.apply.events import Failed, as_data

    return dict(as_data(Failed("", problem.origin or "", problem.found, hint=problem.next_step or "")))


def _untouched() -> None:
    print("interrupted: nothing was changed", file=sys.stderr, flush=True)


def _interrupted(again: str) -> dict[str, Any]:
    from mmdeploy.apply.events import Interrupted, as_data

    return dict(as_data(Interrupted("preflight", (), (), again, "")))


class Show:
    """Shows events in one of the forms, and keeps them for the document."""

    def __init__(self, form: Form, *, verbose: bool, name: str, namespace: str) -> None:
        from mmdeploy.report.applied import Lines

        self.form = form
        self._lines = Lines(verbose=verbose)
        self._events: list[dict[str, Any]] = []
        self._name, self._namespace = name, namespace
        self._result = "done"
        self._last = ""

    def one(self, data: dict[str, Any]) -> None:
        """An event for machines; the first says which schema they all have."""
        first, self._last = not self._last, data["event"]
        if self.form is Form.jsonl:
            print(json.dumps({"schemaVersion": 1, **data} if first else data), flush=True)
        else:
            self._events.append(data)

    @contextlib.contextmanager
    def _shown(self) -> Iterator[Callable[[dict[str, Any]], None]]:
        if self.form is not Form.text:
            yield self.one
            return
        from mmdeploy.report import progress

        with progress.reader(self._lines.of) as reader:
            yield reader.show

    def text(self, text: Callable[[], str]) -> None:
        """Something for people only."""
        if self.form is Form.text:
            print(text(), end="", flush=True)

    def all(self, events: Iterator[Event], stop: Stop) -> None:
        """Show them as they come; Ctrl-C asks ``stop``. Raises what the stream raises."""
        from mmdeploy.apply.events import as_data
        from mmdeploy.apply.interrupts import heeded

        with heeded(stop, _stopping), contextlib.closing(events), self._shown() as show:  # type: ignore[type-var]
            for event in events:
                show(dict(as_data(event)))

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """Whatever the end is: the last event says it, and with ``-o json`` the document is printed."""
        from mmdeploy.report import applied, documents

        self._result = "failed"  # until it is known better: an error that nobody expects leaves it so
        try:
            yield
            self._result = "done" if self._result == "failed" else self._result
        except MmdeployError as problem:
            self._result = _RESULTS.get(type(problem), "failed")
            if isinstance(problem, StoppedError):
                raise typer.Exit(problem.exit_code) from None  # the last event said everything
            self._told(problem)
            raise
        finally:
            if self.form is Form.json:
                document = applied.document(self._events, self._name, self._namespace, self._result)
                print(documents.as_json(document), end="")

    def _told(self, problem: MmdeployError) -> None:
        """An error that came before there was a stream to end with it."""
        if self.form is not Form.text and self._last not in ("failed", "interrupted"):
            self.one(_failed(problem))

    @contextlib.contextmanager
    def untouched(self, again: str) -> Iterator[None]:
        """While nothing on the cluster changes: a Ctrl-C that no stream heeds says so, and ends with 130."""
        try:
            yield
        except KeyboardInterrupt:
            _untouched()
            if self.form is not Form.text:
                self.one(_interrupted(again))
            self._result = "interrupted"
            raise typer.Exit(StoppedError.exit_code) from None

    def result(self, word: str) -> None:
        """How it ended, where that is not ``done``."""
        self._result = word


_RESULTS: dict[type[MmdeployError], str] = {
    StoppedError: "interrupted",
    TimedOutError: "timed-out",
}


def _stopping() -> None:
    print("stopping after what is under way; Ctrl-C again ends at once", file=sys.stderr, flush=True)


def options(said: Mapping[str, str | Path | Sequence[str] | bool | None]) -> list[str]:
    """Options again, as a command line has them: True for a flag, a list for one that was given several times; None,
    False and what is empty was not given."""
    found: list[str] = []
    for name, value in said.items():
        if value is True:
            found.append(name)
        elif value:
            each = [str(value)] if isinstance(value, str | Path) else list(value)
            found += [word for one in each for word in (name, one)]
    return found


__all__ = [
    "Blueprints", "Context", "Form", "Kubeconfig", "Output", "Show", "Timeout", "Verbose", "Yes", "agreed", "beginning",
    "command", "connected", "must_be_answerable", "options",
]  # fmt: skip
