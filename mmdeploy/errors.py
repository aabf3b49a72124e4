"""What can go wrong, and the exit code each thing earns.

The tree (exit code in brackets)::

    MmdeployError                      [1]  anything a person should read instead of a traceback
    ├── UsageError                     [2]  an option, argument or environment variable is wrong
    │   ├── SpecError                  [2]  the spec file or a value in it is invalid (knows file:line:column)
    │   ├── UnsupportedError           [2]  valid words, but this combination cannot work (knows the nearest that do)
    │   ├── UnknownModelError          [2]  the catalog does not know the model or family
    │   ├── EstimatorMismatchError     [2]  the router's estimator does not fit the served model
    │   └── BlueprintError             [2]  a blueprint file is wrong (knows file:line)
    ├── FindingsError                  [3]  findings at or above the threshold
    ├── DifferencesError               [4]  files, or objects of a cluster, are not what they should be
    ├── ClusterError                   [5]  the cluster cannot be reached, or says no
    │   ├── ForbiddenError             [5]  the person lacks a right
    │   ├── NotFoundError              [5]  an object, or a kind of object, does not exist
    │   ├── ConflictError              [5]  somebody else manages a field, or the object changed meanwhile
    │   └── RejectedError              [5]  the API server, or a webhook, refuses an object
    ├── DeployError                    [1]  something that was applied fails for good
    ├── ContradictedError              [6]  a deployment does not do what it was deployed to do
    ├── TimedOutError                  [124] time ran out
    └── StoppedError                   [130]  the person pressed Ctrl-C

Each carries ``found`` (what was wrong, one sentence), an optional ``origin`` (``file:line:column``, an option, a
variable), ``nearest`` (valid choices, best first) and ``next_step`` (a command or an edit). ``str(error)`` is the
``found`` sentence alone; `mmdeploy.report` lays out the rest.
"""

from __future__ import annotations

from collections.abc import Sequence


class MmdeployError(Exception):
    """Base of everything mmdeploy raises on purpose; exit code 1."""

    exit_code = 1

    def __init__(
        self,
        found: str,
        *,
        origin: str | None = None,
        nearest: Sequence[str] = (),
        next_step: str | None = None,
    ) -> None:
        super().__init__(found)
        self.found = found
        self.origin = origin
        self.nearest = tuple(nearest)
        self.next_step = next_step
        self.more: list[str] = []
        """Further problems of the same kind, one sentence each, when several were found at once."""


class UsageError(MmdeployError):
    """An option, argument or environment variable is wrong; exit code 2."""

    exit_code = 2


class SpecError(UsageError):
    """The spec file, or a value that ends up in the spec, is invalid."""


class UnsupportedError(UsageError):
    """Each value is known, but together they cannot work."""


class UnknownModelError(UsageError):
    """The catalog knows neither the served model nor the family."""


class EstimatorMismatchError(UsageError):
    """The router's estimator prices this model's media wrongly."""


class BlueprintError(UsageError):
    """A file under ``blueprints/`` (or ``--blueprints DIR``) is wrong."""


class FindingsError(MmdeployError):
    """Findings at or above the threshold exist; exit code 3."""

    exit_code = 3


class DifferencesError(MmdeployError):
    """Files on disk are not what they should be; exit code 4."""

    exit_code = 4


class ClusterError(MmdeployError):
    """The cluster cannot be reached, or says no; exit code 5."""

    exit_code = 5


class ForbiddenError(ClusterError):
    """The person lacks a right."""


class NotFoundError(ClusterError):
    """An object, or a kind of object, does not exist."""


class ConflictError(ClusterError):
    """Somebody else manages a field, or the object changed between reading and writing."""

    managers: tuple[str, ...] = ()
    """Field managers that hold what was to be changed."""


class RejectedError(ClusterError):
    """The API server, or a webhook, refuses an object."""


class DeployError(MmdeployError):
    """Something that was applied fails for good: a pod that cannot start, a chart that helm cannot install."""


class ContradictedError(MmdeployError):
    """A deployment does not do what it was deployed to do; exit code 6."""

    exit_code = 6


class TimedOutError(MmdeployError):
    """Time ran out; exit code 124, as ``timeout(1)`` has it."""

    exit_code = 124


class StoppedError(MmdeployError):
    """The person pressed Ctrl-C; exit code 130."""

    exit_code = 130
