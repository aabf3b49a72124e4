"""One run of lint from arguments to plain data, which every form of the report is made of."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from mmdeploy.catalog import Catalog
from mmdeploy.errors import UsageError
from mmdeploy.lint import baseline as baselines
from mmdeploy.lint import reading
from mmdeploy.lint.findings import Finding, Level
from mmdeploy.lint.index import Deployment, index
from mmdeploy.lint.live import add, namespaces
from mmdeploy.lint.run import Result, run, select
from mmdeploy.lint.settings import Settings
from mmdeploy.lint.shares import shares
from mmdeploy.lint.shares import told as told_shares
from mmdeploy.lint.source import Document, compose
from mmdeploy.words import counted

SCHEMA_VERSION = 1


Live = Callable[[Sequence[str]], tuple[Sequence[Mapping[str, Any]], Sequence[str]]]
"""Objects of a cluster, and notes about them; takes the namespaces that the files are for."""


def judge(
    catalog: Catalog, arguments: Sequence[str], settings: Settings, *, write_baseline: bool, live: Live | None = None
) -> dict[str, Any]:
    """Read, judge, and tell: the document that ``-o json`` prints.

    ``live`` adds the objects of a cluster, as if the files were applied to it. With ``write_baseline`` the findings
    become the baseline, and none are left. Raises `UsageError` for arguments and settings that are wrong.
    """
    chosen = select(settings.select, settings.ignore)
    if write_baseline and settings.baseline is None:
        raise UsageError(
            "nothing says where the baseline is to be", origin="--write-baseline", next_step="add --baseline FILE"
        )
    known = baselines.read(settings.baseline) if settings.baseline and not write_baseline else None
    with _uncollected():
        read = reading.read(arguments)
        if live is not None:
            objects, notes = live(namespaces(read))
            add(read, objects)
            read.notes += notes
        deployment = index(catalog, read, settings.as_release)
        parts = shares(deployment)
        result = run(deployment, chosen, known if known is not None else frozenset(), parts=parts.values())
    notes = [*read.notes, *told_shares(parts), *_notes(deployment, settings)]
    notes += [f"could not be judged because of a bug in mmdeploy, please report it: {rule}" for rule in result.broken]
    if known is not None and known.gone:
        gone = (
            f"{counted(known.gone, 'entry', 'entries')} of {settings.baseline} {'was' if known.gone == 1 else 'were'}"
        )
        notes.append(f"{gone} not found again; --write-baseline renews the list")
    if write_baseline and settings.baseline is not None:
        baselines.write(settings.baseline, result.findings)
        notes.append(f"{settings.baseline}: {counted(len(result.findings), 'finding')} listed")
        result = Result(ignored=result.ignored, known=len(result.findings))
    document = told(deployment, result, settings.fail_on or "error", notes)
    return {**document, "broken": bool(result.broken)}


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without garbage collection: everything that is read is kept to the end, and looking through it takes longer than
    reading it."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _notes(deployment: Deployment, settings: Settings) -> list[str]:
    found = [f"settings from {settings.origin}"] if settings.origin else []
    if not deployment.engines and not deployment.router.values and not deployment.router.configs:
        found.append("neither model servers nor a router configuration are among the files: is anything missing?")
    return found


def told(deployment: Deployment, result: Result, fail_on: str, notes: Sequence[str] = ()) -> dict[str, Any]:
    """A result as plain data."""
    release = deployment.release
    engines = sorted({f"{engine.kind} {engine.version}" for engine in deployment.engines if engine.version})
    return {
        "schemaVersion": SCHEMA_VERSION,
        "kind": "Findings",
        "release": {
            "router": release.router,
            "sidecar": release.sidecar,
            "engines": engines,
            "reasons": list(release.reasons),
            "assumed": not release.known,
        },
        "findings": [_plain(finding) for finding in result.findings],
        "counts": {level.name: sum(finding.level is level for finding in result.findings) for level in reversed(Level)},
        "ignored": result.ignored,
        "known": result.known,
        "notes": list(notes),
        "failOn": fail_on,
        "failed": any(fails(finding, fail_on) for finding in result.findings),
    }


def _plain(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "level": finding.level.name,
        "file": finding.position.file,
        "line": finding.position.line,
        "column": finding.position.column,
        "subject": finding.subject,
        "path": finding.path,
        "message": finding.message,
        "fix": finding.fix,
        "source": finding.source,
        "text": finding.line,
    }


def fails(finding: Finding, fail_on: str) -> bool:
    """Whether a finding is at or above the threshold."""
    return fail_on != "never" and finding.level >= Level[fail_on]


def errors_of_bundle(
    catalog: Catalog, files: Mapping[str, str], values: Mapping[str, Any], ignored: Sequence[str] = ()
) -> list[Finding]:
    """Errors in files that were just rendered. ``values`` is what the files hold, so that nothing is read again."""
    read = reading.Read()
    for name, value in values.items():
        text = files[name]
        node = partial(compose, text, 0, text.count("\n") + 1)
        read.documents.append(Document(name, 0, value, node, text))
    result = run(index(catalog, read), select((), ignored))
    return [finding for finding in result.findings if finding.level is Level.error]
