"""What was read of a cluster, or why it could not be read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from mmdeploy.errors import ClusterError, ForbiddenError, MmdeployError, NotFoundError

T = TypeVar("T")


@dataclass(frozen=True)
class Reading(Generic[T]):
    """A value, or the problem that stood in its way. ``value`` is None too where nothing was asked."""

    value: T | None = None
    problem: MmdeployError | None = None

    @property
    def forbidden(self) -> bool:
        """Whether a right is missing."""
        return isinstance(self.problem, ForbiddenError)

    @property
    def absent(self) -> bool:
        """Whether there is no such thing, as far as the server says."""
        return isinstance(self.problem, NotFoundError)

    @property
    def why(self) -> str:
        """Why there is no value, for a person; a missing right in a few words instead of the server's long ones."""
        if self.problem is None:
            return "it was not asked"
        return "you have no right to look" if self.forbidden else self.problem.found


def attempt(call: Callable[[], T]) -> Reading[T]:
    """What a call gives. Raises `ClusterError` only where no further call can work: no connection, no valid login."""
    try:
        return Reading(call())
    except ClusterError as problem:
        if problem.origin == "kubeconfig":
            raise
        return Reading(problem=problem)
    except MmdeployError as problem:
        return Reading(problem=problem)


__all__ = ["Reading", "attempt"]
