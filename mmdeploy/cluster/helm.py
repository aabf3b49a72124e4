"""The helm program: the router is one of its releases.

Values go in by stdin and never touch a disk. What helm says on stderr is kept for the error, in one sentence.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from mmdeploy import documents
from mmdeploy.cluster.access import Access
from mmdeploy.cluster.parallel import begin
from mmdeploy.errors import ClusterError, DeployError, ForbiddenError, TimedOutError, UsageError

OLDEST: Final = (3, 12)
"""The oldest helm that the llm-d guides allow (llm-d-guides.md §14)."""
READ_SECONDS: Final = 60
WRITE_SECONDS: Final = 300
"""helm's own default for ``--timeout``."""
END_SECONDS: Final = 10
"""A helm that is asked to end has so long to do it."""
UNDER_WAY: Final = frozenset({"pending-install", "pending-upgrade", "pending-rollback", "uninstalling"})
"""What a release is while a helm works on it; the next helm refuses one that an interrupted helm left so."""


_VERSION: Final = ("version", "--template", "{{.Version}}")


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
            raise UsageError(
                f"helm version answers {said.strip()[:80]!r}", next_step="install helm 3.12 or newer, or 4"
            )
        version = (int(match[1]), int(match[2]), int(match[3]))
        if version[:2] < OLDEST:
            raise UsageError(
                f"helm {'.'.join(map(str, version))} is too old", next_step="install helm 3.12 or newer, or 4"
            )
        return version

    def release(self, name: str) -> Release | None:
        """A release as it stands, pending ones included; None where there is none."""
        # helm 4 lists every status unless told otherwise, helm 3 only with --all; both know these.
        words = ["list", "--filter", f"^{re.escape(name)}$", "--deployed", "--failed", "--pending", "--superseded",
                 "--uninstalling", "--output", "json"]  # fmt: skip
        found = json.loads(self._run(words, seconds=READ_SECONDS) or "[]")
        for item in found:
            return Release(item["name"], int(item["revision"]), item["status"], item["chart"], item.get("updated", ""))
        return None

    def values(self, name: str) -> dict[str, Any]:
        """The values that the release was given."""
        said = self._run(["get", "values", name, "--output", "json"], seconds=READ_SECONDS)
        return json.loads(said) or {}

    def manifest(self, name: str) -> list[dict[str, Any]]:
        """The objects of the release as it was installed."""
        return documents.parse_all(self.manifest_text(name), f"helm get manifest {name}")

    def manifest_text(self, name: str) -> str:
        """The objects of the release as it was installed, as helm has them."""
        return self._run(["get", "manifest", name], seconds=READ_SECONDS)

    def template(self, name: str, chart: Chart, values: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The objects that a chart makes of values, without a cluster. Raises `DeployError` with the chart's reason."""
        said = self._offline(_template(name, chart), json.dumps(values), WRITE_SECONDS)
        return documents.parse_all(said, f"helm template {chart}")

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
        self._run(words, stdin=json.dumps(values), seconds=seconds)

    def uninstall(self, name: str) -> None:
        """Take the release away; one that is gone already is no error. Its pods end afterwards."""
        self._run(["uninstall", name, "--ignore-not-found"], seconds=WRITE_SECONDS)

    def unlock(self, release: Release) -> None:
        """Free a release that an interrupted helm left locked: back to what was deployed, or away if nothing was or
        that was under way."""
        if release.revision > 1 and release.status != "uninstalling":
            self._run(["rollback", release.name], seconds=WRITE_SECONDS)
        else:
            self.uninstall(release.name)

    def _run(self, words: Sequence[str], *, seconds: float, stdin: str | None = None) -> str:
        place = ["--namespace", self._namespace, *self._access.words()]
        try:
            process = subprocess.Popen(
                [self._program, *words, *place], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                text=True, env=self._access.environment(),
                # Out of reach of the terminal's Ctrl-C: helm is not stopped halfway, it finishes and mmdeploy stops.
                start_new_session=True,
            )  # fmt: skip
        except FileNotFoundError:
            raise UsageError(
                "helm is not here, and the router is a Helm release", next_step="install helm 3.12 or newer, or 4"
            ) from None
        said, complained = _finished(process, words[0], stdin, seconds)
        if process.returncode:
            raise failure(words[0], complained)
        return said


_begun: dict[tuple[str, ...], Future[str]] = {}
"""Answers that `Helm.begin` asked for, by question."""


def _template(name: str, chart: Chart) -> list[str]:
    return ["template", name, *chart.words(), "--values", "-", "--api-versions", "monitoring.coreos.com/v1"]


def _finished(process: subprocess.Popen[str], verb: str, stdin: str | None, seconds: float) -> tuple[str, str]:
    """What helm said. It is asked to end, not killed, where time or patience runs out: then it unlocks the release."""
    try:
        return process.communicate(stdin, timeout=max(seconds, 0.1))
    except subprocess.TimeoutExpired:
        process.terminate()
        try:
            process.communicate(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        raise TimedOutError(
            f"helm {verb} did not finish within {seconds:.0f} s",
            next_step="run the command again: what helm has done is kept",
        ) from None
    except BaseException:
        process.terminate()
        raise


def failure(verb: str, stderr: str) -> ClusterError | DeployError:
    """What a helm that failed said, as one sentence."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    said = next((line for line in reversed(lines) if line.startswith("Error:")), lines[-1] if lines else "no message")
    said = said.removeprefix("Error: ")
    if re.search(r"is forbidden|cannot (get|list|create|patch|update|delete) resource", said):
        return ForbiddenError(
            f"helm {verb}: {said}", next_step="mmdeploy check --print-rbac prints the rights that apply takes"
        )
    if re.search(r"cluster (is )?unreachable|connection refused|no such host|Unauthorized", said):
        return ClusterError(f"helm {verb}: {said}", next_step="mmdeploy check")
    if "invalid ownership metadata" in said:
        return DeployError(f"helm {verb}: {said}", next_step="--adopt takes the object over into the release")
    return DeployError(f"helm {verb}: {said}")


__all__ = ["OLDEST", "Chart", "Helm", "Release", "failure"]
