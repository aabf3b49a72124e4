"""What a check is given: what is wanted, what was seen, what is known."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from mmdeploy.preflight.check import Options
from mmdeploy.preflight.demand import Demand, demands
from mmdeploy.preflight.facts import Facts
from mmdeploy.preflight.machines import Occupant, ours

if TYPE_CHECKING:
    from mmdeploy.cluster.session import Session
    from mmdeploy.intended import Intended
    from mmdeploy.preflight.observed import Observed


@dataclass(frozen=True)
class Subject:
    """One deployment on one cluster. ``session`` is for questions that follow from earlier answers."""

    session: Session
    intended: Intended
    facts: Facts
    options: Options
    seen: Observed

    @cached_property
    def demands(self) -> list[Demand]:
        """The deployment's pods."""
        return demands(self.intended, self.facts)

    @property
    def namespace(self) -> str:
        """Where everything goes."""
        return self.intended.namespace

    @property
    def namespace_exists(self) -> bool:
        """Whether it does, as far as one may know: a person who may not read namespaces may well use one."""
        return not self.seen.namespace.absent

    @property
    def trial_namespace(self) -> str:
        """Where dry runs are made: as long as the namespace is not there, the kubeconfig's own will do for whatever
        does not depend on it."""
        return self.namespace if self.namespace_exists else self.session.where.namespace

    @cached_property
    def own_pods(self) -> list[Occupant]:
        """Pods of this very deployment that run already."""
        return [pod for pod in self.seen.pods.value or () if self.is_own(pod)]

    def is_own(self, pod: Occupant) -> bool:
        """Whether a pod is of this very deployment."""
        return ours(pod, self.demands, self.namespace, self.facts)

    @property
    def bundle(self) -> str:
        """The bundle as a word of a command line."""
        return shlex.quote(self.intended.origin)


__all__ = ["Subject"]
