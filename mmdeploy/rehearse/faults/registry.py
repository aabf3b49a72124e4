"""Faults by name: what a person would have done to get one, which bundles it fits, and what it changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mmdeploy.catalog import Catalog
from mmdeploy.errors import UnsupportedError, UsageError
from mmdeploy.rehearse.settings import Settings
from mmdeploy.words import nearest

Change = Callable[[Settings, Catalog], None]

FAULTS: dict[str, Fault] = {}
"""Every fault, in the order in which people meet them."""


@dataclass(frozen=True)
class Fault:
    """One thing that can be wrong."""

    name: str
    done: str
    """What was done, in one sentence."""
    roles: tuple[str, ...]
    """Roles that the deployment must have."""
    server: str
    """Which it must run; empty: either."""
    change: Change
    circumstance: bool = False
    """Something that happens around a deployment that is as it should be."""
    loaded: bool = False
    """Only requests of others at the same time bring it out: `mmdeploy verify` in an idle deployment cannot see it."""

    @property
    def fits(self) -> str:
        """Bundles that it fits, in words."""
        words = [*self.roles, *([self.server] if self.server else [])]
        return f"bundles with {' and '.join(words)}" if words else "every bundle"

    def strike(self, settings: Settings, catalog: Catalog) -> None:
        """Put it in. Raises `UnsupportedError` where it does not fit."""
        absent = [role for role in self.roles if not settings.of(role)]
        if absent or (self.server and self.server != settings.server):
            fitting = [
                fault.name
                for fault in FAULTS.values()
                if all(map(settings.of, fault.roles)) and fault.server in ("", settings.server)
            ]
            raise UnsupportedError(
                f"the fault {self.name} fits {self.fits}, and this is {settings.topology} on {settings.server}",
                origin="--fault",
                nearest=nearest(self.name, fitting) or fitting[:3],
            )
        self.change(settings, catalog)


def fault(
    name: str,
    done: str,
    *,
    roles: tuple[str, ...] = (),
    server: str = "",
    circumstance: bool = False,
    loaded: bool = False,
) -> Callable[[Change], Change]:
    """Make a function a fault."""

    def put(change: Change) -> Change:
        FAULTS[name] = Fault(name, done, roles, server, change, circumstance, loaded)
        return change

    return put


def find(name: str) -> Fault:
    """A fault by its name. Raises `UsageError` for one that there is not."""
    if name not in FAULTS:
        raise UsageError(
            f"there is no fault {name!r}",
            origin="--fault",
            nearest=nearest(name, list(FAULTS)),
            next_step="mmdeploy rehearse --list-faults",
        )
    return FAULTS[name]
