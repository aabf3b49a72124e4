"""What a person chose for one apply, beside the deployment itself; and what all stages work with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mmdeploy.apply import crds, router
from mmdeploy.apply.events import Event
from mmdeploy.apply.interrupts import Stop
from mmdeploy.apply.secret import TokenSource
from mmdeploy.apply.stages import Deadlines, Selection
from mmdeploy.cluster.helm import Chart, Helm

if TYPE_CHECKING:
    from mmdeploy.catalog import Catalog
    from mmdeploy.cluster.session import Session
    from mmdeploy.intended import Intended

Verify = Callable[[], Iterable[Event]]


@dataclass(frozen=True)
class Choices:
    """What a person chose."""

    chart: str | None = None
    """Another chart for the router: a path or a reference."""
    token: TokenSource | None = None
    definitions: str | None = None
    """Where CRDs are to be installed from: a path or an address."""
    selection: Selection = field(default_factory=Selection)
    wait: bool = True
    verify: Verify | None = None
    force: bool = False
    """``--force-conflicts``."""
    adopt: bool = False
    recreate: bool = False
    autoscaled: bool = False
    """Nodes are added on demand: too few of them is no error."""
    dry_run: bool = False
    """Ask the server about everything and change nothing."""
    resume: str = ""
    """The command that goes on after an interrupt."""
    watch: str = ""
    """The command that goes on looking when time ran out."""
    remove: str = ""
    """The command that takes everything away."""
    next: tuple[str, ...] = ()
    """Commands to try when it is done."""


@dataclass(frozen=True)
class Setting:
    """What all stages of one apply work with."""

    session: Session
    intended: Intended
    catalog: Catalog
    choices: Choices
    stop: Stop
    deadlines: Deadlines
    helm: Helm
    chart: Chart
    token: str | None = field(repr=False)
    definitions: Sequence[crds.Definition]

    @classmethod
    def of(
        cls, session: Session, intended: Intended, catalog: Catalog, choices: Choices, stop: Stop, deadlines: Deadlines
    ) -> Setting:
        """Reads what the choices name: the token, the definitions. Raises `UsageError` for what is not there."""
        return cls(
            session, intended, catalog, choices, stop, deadlines, Helm(session.access, intended.namespace),
            router.chart_of(intended, catalog, choices.chart), choices.token.read() if choices.token else None,
            crds.read(choices.definitions) if choices.definitions else (),
        )  # fmt: skip

    @property
    def name(self) -> str:
        """The deployment's."""
        return self.intended.name

    @property
    def namespace(self) -> str:
        """The deployment's."""
        return self.intended.namespace


__all__ = ["Choices", "Setting", "Verify"]
