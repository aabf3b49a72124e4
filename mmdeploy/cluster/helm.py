"""The helm program: the router is one of its releases.

Values go in by stdin and never touch a disk. What helm says on stderr is kept for the error, see
`mmdeploy.cluster.complaints`. A helm that only answers a question may be ended any time; one that changes the release
is let finish, or asked to end.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from mmdeploy import documents
from mmdeploy.cluster.access import Access
from mmdeploy.cluster.complaints import TRY, failure
from mmdeploy.cluster.parallel import begin
from mmdeploy.cluster.processes import mark
from mmdeploy.errors import ClusterError, DeployError, MmdeployError, TimedOutError, UsageError

OLDEST: Final = (3, 12)
"""The oldest helm that the llm-d guides allow (llm-d-guides.md §14)."""
READ_SECONDS: Final = 60
WRITE_SECONDS: Final = 300
"""helm's own default for ``--timeout``."""
END_SECONDS: Final = 10
"""A helm that is asked to end has so long to do it."""
STOP_SECONDS: Final = 2
"""And so long where somebody does not want to wait any more."""
_HEED_SECONDS: Final = 0.1
UNDER_WAY: Final = frozenset({"pending-install", "pending-upgrade", "pending-rollback", "uninstalling"})
"""What a release is while a helm works on it; the next helm refuses one that an interrupted helm left so."""


_VERSION: Final = ("version", "--template", "{{.Version}}")
_WHERE_FROM: Final = "install helm 3.12 or newer, or 4"


@dataclass(frozen=True)
class Chart:
    """Where a chart comes from: an OCI reference with a version, or a path (directory or ``.tgz``)."""

    reference: str
    version: str | None = None
    """None for a chart from a path, which is the version it is."""

    def words(self) -> list[str]:
        """As helm takes it."""
        return [self.reference, *(["--version", self.version] if self.version else [])]

    def __str__(self) -> str:
        return f"{self.reference} {self.version}" if self.version else self.reference


@dataclass(frozen=True)
class Release:
    """A Helm release as it stands."""

    name: str
    revision: int
    status: str
    """``deployed``, ``failed``, ``pending-upgrade`` and so on."""
    chart: str
    """Name and version, as ``helm list`` prints them."""
    updated: str = ""

    @property
    def locked(self) -> bool:
        """Whether a helm is at work on it, or was interrupted there."""
        return self.status in UNDER_WAY


class Helm:
    """The helm program, pointed at one cluster and namespace."""

    def __init__(self, access: Access, namespace: str, program: str = "helm") -> None:
        self._access = access
        self._namespace = namespace
        self._program = program

    @property
    def found(self) -> bool:
        """Whether the program is there."""
        return shutil.which(self._program, path=self._access.environment().get("PATH")) is not None

    def version(self) -> tuple[int, int, int]:
        """The program's version. Raises `UsageError` where it is missing or too old."""
        said = self._offline(_VERSION, None, READ_SECONDS)
        match = re.search(r"v(\d+)\.(\d+)\.(\d+)", said)
        if match is None:
            raise UsageError(f"helm version answers {said.strip()[:80]!r}", next_step=_WHERE_FROM)
        version = (int(match[1]), int(match[2]), int(match[3]))
        if version[:2] < OLDEST:
            raise UsageError(f"helm {'.'.join(map(str, version))} is too old", next_step=_WHERE_FROM)
        return version

    def release(self, name: str) -> Release | None:
        """A release as it stands, pending ones included; None where there is none."""
        # helm 4 lists every status unless told otherwise, helm 3 only with --all; both know these.
        words = ["list", "--filter", f"^{re.escape(name)}$", "--deployed", "--failed", "--pending", "--superseded",
                 "--uninstalling", "--output", "json"]  # fmt: skip
        for item in self._read(words) or ():
            return Release(item["name"], int(item["revision"]), item["status"], item["chart"], item.get("updated", ""))
        return None

    def values(self, name: str) -> dict[str, Any]:
        """The values that the release was given."""
        return self._read(["get", "values", name, "--output", "json"]) or {}

    def _read(self, words: Sequence[str]) -> Any:
        said = self._run(words, seconds=READ_SECONDS)
        try:
            return json.loads(said or "null")
        except ValueError:
            raise ClusterError(f"helm {words[0]} answers no JSON: {said.strip()[:80]!r}", next_step=TRY) from None

    def manifest(self, name: str) -> list[dict[str, Any]]:
        """The objects of the release as it was installed."""
        return documents.parse_all(self.manifest_text(name), f"helm get manifest {name}")

    def manifest_text(self, name: str) -> str:
        """The objects of the release as it was installed, as helm has them."""
        return self._run(["get", "manifest", name], seconds=READ_SECONDS)

    def template(self, name: str, chart: Chart, values: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The objects that a chart makes of values, without a cluster. Raises `DeployError` with the chart's reason."""
        said = self._offline(_template(name, chart), json.dumps(values), WRITE_SECONDS)
        try:
            found = documents.parse_all(said, f"helm template {chart}")
        except UsageError as problem:
            raise _no_objects(chart, problem.found, problem.origin) from None
        odd = next((item for item in found if not _is_object(item)), None)
        if odd is not None:
            raise _no_objects(chart, f"{str(odd)[:80]!r} is no object of Kubernetes")
        return found

    def begin(self, name: str, chart: Chart, values: Mapping[str, Any]) -> None:
        """Start what `version` and `template` will be asked for, while something else is done. For one command's life:
        the answers are kept."""
        for words, stdin, seconds in (
            (_VERSION, None, READ_SECONDS), (_template(name, chart), json.dumps(values), WRITE_SECONDS)
        ):  # fmt: skip
            _begun[self._question(words, stdin)] = begin(partial(self._run, words, stdin=stdin, seconds=seconds))

    def _offline(self, words: Sequence[str], stdin: str | None, seconds: float) -> str:
        """What helm says without a cluster, maybe begun before."""
        begun = _begun.get(self._question(words, stdin))
        return begun.result() if begun else self._run(words, stdin=stdin, seconds=seconds)

    def _question(self, words: Sequence[str], stdin: str | None) -> tuple[str, ...]:
        return (self._program, self._namespace, *self._access.words(), *words, stdin or "")

    def upgrade(
        self, name: str, chart: Chart, values: Mapping[str, Any], *, take_over: bool = False, force: bool = False,
        dry_run: bool = False, tried: bool = False, seconds: float = WRITE_SECONDS,
    ) -> None:  # fmt: skip
        """Install or upgrade the release; returns when its objects are written, not when pods are ready.

        ``take_over`` is for objects of nobody's release, ``force`` for fields that others manage: helm 3 takes those
        over unasked. ``tried``: the server was asked about each object, so that helm need not check them against the
        server's schemas, which takes it half its time. Raises `DeployError` with the reason in one sentence,
        `ForbiddenError` where a right is missing.
        """
        words = ["upgrade", "--install", name, *chart.words(), "--values", "-", "--history-max", "10"]
        words += ["--take-ownership"] if take_over else []
        words += ["--server-side=true", "--force-conflicts"] if force and self.version() >= (4,) else []
        words += ["--dry-run=server"] if dry_run else []
        words += ["--disable-openapi-validation"] if tried else []
        self._run(words, stdin=json.dumps(values), seconds=seconds, changes=name)

    def uninstall(self, name: str, seconds: float = WRITE_SECONDS) -> None:
        """Take the release away; one that is gone already is no error. Its pods end afterwards."""
        # Without --debug helm says that it failed, and not why.
        self._run(["uninstall", name, "--ignore-not-found", "--debug"], seconds=seconds, changes=name)

    def unlock(self, release: Release, seconds: float = WRITE_SECONDS) -> None:
        """Free a release that an interrupted helm left locked: back to what was deployed, or away if nothing was or
        that was under way."""
        if release.revision > 1 and release.status != "uninstalling":
            self._run(["rollback", release.name], seconds=seconds, changes=release.name)
        else:
            self.uninstall(release.name, seconds)

    def _run(self, words: Sequence[str], *, seconds: float, stdin: str | None = None, changes: str = "") -> str:
        """``changes``: the release that it changes. Without, it only answers a question: it may be ended any time."""
        place = ["--namespace", self._namespace, *self._access.words()]
        environment = self._access.environment() | (mark(work(self._namespace, changes)) if changes else {})
        try:
            process = subprocess.Popen(
                [self._program, *words, *place], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                encoding="utf-8", errors="replace", env=environment,
                # Out of reach of the terminal's Ctrl-C: helm is not stopped halfway, it finishes and mmdeploy stops.
                start_new_session=True,
            )  # fmt: skip
        except FileNotFoundError:
            raise UsageError("helm is not here, and the router is a Helm release", next_step=_WHERE_FROM) from None
        except OSError as problem:
            raise UsageError(
                f"the helm of PATH cannot be run: {problem.strerror}", origin=shutil.which(self._program),
                next_step=f"type -a helm shows which one that is; {_WHERE_FROM}",
            ) from None  # fmt: skip
        if changes:
            said, complained = _finished(process, words[0], stdin, seconds)
        else:
            said, complained = _answered(process, words[0], stdin, seconds)
        if process.returncode:
            raise failure(words[0], complained, process.returncode)
        return said


def work(namespace: str, release: str) -> str:
    """How the work on a release is called where it is to be found again."""
    return f"{namespace}/{release}"


_begun: dict[tuple[str, ...], Future[str]] = {}
"""Answers that `Helm.begin` asked for, by question."""


def _template(name: str, chart: Chart) -> list[str]:
    return ["template", name, *chart.words(), "--values", "-", "--api-versions", "monitoring.coreos.com/v1"]


def _finished(process: subprocess.Popen[str], verb: str, stdin: str | None, seconds: float) -> tuple[str, str]:
    """What a helm said that changes something. It is asked to end, not killed, where time or patience runs out: then
    it unlocks the release. When this returns, or raises, it has ended."""
    try:
        return process.communicate(stdin, timeout=max(seconds, 0.1))
    except subprocess.TimeoutExpired:
        _end(process, END_SECONDS)
        raise _late(verb, seconds) from None
    except BaseException:
        _end(process, STOP_SECONDS)
        raise


def _late(verb: str, seconds: float) -> TimedOutError:
    return TimedOutError(
        f"helm {verb} did not finish within {seconds:.0f} s",
        next_step="run the command again: what helm has done is kept",
    )


def _end(process: subprocess.Popen[str], seconds: float) -> None:
    _signal(process, signal.SIGTERM)
    try:
        process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        _signal(process, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=seconds)
    except BaseException:
        _signal(process, signal.SIGKILL)
        raise


def _signal(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """To helm and what it started: a script of that name starts the real one."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, number)


# -------------------------------------------------------------------------------------------------------- questions

_asked: dict[subprocess.Popen[str], list[MmdeployError]] = {}
"""Helms that only answer a question, and why one was ended."""


def _answered(process: subprocess.Popen[str], verb: str, stdin: str | None, seconds: float) -> tuple[str, str]:
    """What a helm said that changes nothing."""
    why = _asked[process] = []
    try:
        answer = process.communicate(stdin, timeout=seconds)
    except BaseException as problem:
        _signal(process, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=STOP_SECONDS)
        if isinstance(problem, subprocess.TimeoutExpired):
            raise _late(verb, seconds) from None
        raise
    finally:
        del _asked[process]
    if why:
        raise why[0]
    return answer


def _end_questions(why: MmdeployError | None = None) -> None:
    for process, reasons in list(_asked.items()):
        reasons += [why] if why else []
        _signal(process, signal.SIGKILL)


atexit.register(_end_questions)


@contextlib.contextmanager
def heeding(check: Callable[[], None]) -> Iterator[None]:
    """Inside, a helm that only answers a question is ended once ``check`` raises `MmdeployError`: whoever waits for
    the answer gets that."""
    left = threading.Event()

    def watch() -> None:
        why: MmdeployError | None = None
        while not left.wait(_HEED_SECONDS):
            try:
                check()
            except MmdeployError as problem:
                why = why or problem
            if why:
                _end_questions(why)

    threading.Thread(target=watch, name="helm-questions", daemon=True).start()
    try:
        yield
    finally:
        left.set()


# ------------------------------------------------------------------------------------------------------------ errors


def _is_object(item: Any) -> bool:
    named = isinstance(item, dict) and isinstance(item.get("kind"), str) and isinstance(item.get("apiVersion"), str)
    return named and isinstance(item.get("metadata"), dict) and isinstance(item["metadata"].get("name"), str)


def _no_objects(chart: Chart, why: str, origin: str | None = None) -> DeployError:
    return DeployError(
        f"helm template {chart} does not print objects of Kubernetes: {why}", origin=origin,
        next_step=f"helm template x {' '.join(chart.words())} shows what it prints; {TRY}",
    )  # fmt: skip


__all__ = ["OLDEST", "Chart", "Helm", "Release", "heeding", "work"]
