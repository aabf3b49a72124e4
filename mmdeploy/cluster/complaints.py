"""What a helm that failed said, as an error in one sentence."""

from __future__ import annotations

import re
import signal
from typing import Final

from mmdeploy.errors import ClusterError, DeployError, ForbiddenError

TRY: Final = "helm version shows whether that is helm, and which"
"""What to do about a helm that behaves as none does."""
_MOST: Final = 1500
"""Characters of what helm says that an error repeats."""


def failure(verb: str, stderr: str, code: int = 1) -> ClusterError | DeployError:
    """What a helm that failed said, as one sentence, or how it ended where it said nothing."""
    said = _reason(stderr)
    if not said or code < 0:
        how = f"was ended by {_signal_name(-code)}" if code < 0 else f"ended with exit code {code} and said nothing"
        return DeployError(f"helm {verb} {how}{f': {said}' if said else ''}", next_step=TRY)
    if verb in ("uninstall", "rollback") and not _DENIED.search(said):
        left = _left(stderr)
        said = f"{said}: {left}" if left else said
    if _DENIED.search(said):
        return ForbiddenError(
            f"helm {verb}: {said}", next_step="mmdeploy check --print-rbac prints the rights that apply takes"
        )
    if re.search(r"cluster (is )?unreachable|connection refused|no such host|Unauthorized", said):
        return ClusterError(f"helm {verb}: {said}", next_step="mmdeploy check")
    if "invalid ownership metadata" in said:
        return DeployError(f"helm {verb}: {said}", next_step="--adopt takes the object over into the release")
    return DeployError(f"helm {verb}: {said}")


_DENIED: Final = re.compile(r"is forbidden|cannot (get|list|create|patch|update|delete) resource")


_REFUSAL: Final = re.compile(
    r'[\w./-]+ "[^"]+" is forbidden: User "[^"]*" cannot \w+ resource "[^"]*"( in API group "[^"]*")?'
    r'( in the namespace "[^"]*")?'
)


def _left(stderr: str) -> str:
    """Why helm could not take something away, from its log, where it stands as a list: the first right that lacks, or
    all. helm 4's ``error="…"``, helm 3's ``uninstall: Failed to delete release: […]``."""
    found = re.search(r'uninstall: Failed to delete release(?:"? error="|: )(.*?)"?$', stderr, re.MULTILINE)
    if found is None:
        return ""
    plain = found[1].replace('\\"', '"').strip("[]")
    refusal = _REFUSAL.search(plain)
    return (refusal[0] if refusal else plain)[:_MOST]


def _reason(stderr: str) -> str:
    """The last error and the lines that belong to it: helm spreads a chart's error over several."""
    lines = [line.strip() for line in stderr.splitlines()]
    starts = [index for index, line in enumerate(lines) if line.startswith("Error:")]
    if not starts:
        return next((line for line in reversed(lines) if line), "")[:_MOST]
    chosen = lines[starts[-1] :]
    # An empty line is followed by advice on helm's own options; with --debug helm 3 adds where it was in its source.
    end = next((index for index, line in enumerate(chosen) if not line or line.startswith("helm.go:")), len(chosen))
    return " ".join(chosen[:end]).removeprefix("Error:").strip()[:_MOST]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


__all__ = ["TRY", "failure"]
