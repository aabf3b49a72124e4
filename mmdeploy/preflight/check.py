"""One check, and what a person said about all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from mmdeploy.catalog import Catalog
    from mmdeploy.cluster.helm import Chart

Result = Literal["ok", "warning", "error", "skipped"]

CREATES: Final = frozenset({"namespace", "secret", "crds"})
"""What apply may create first, so that its absence is no error; words of `Options.creates`."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at, and what to do about it."""

    category: str
    name: str
    """What is as it should be where the result is ok: ``the namespace exists``."""
    result: Result
    detail: str = ""
    """What was seen, one sentence with numbers; why, where something was skipped."""
    hint: str = ""
    """What to do about it."""
    admin: tuple[str, ...] = ()
    """Commands that an administrator must run, in order."""

    def as_data(self) -> Mapping[str, Any]:
        """For ``-o json``, without what is empty."""
        said: dict[str, Any] = {"description": self.name, "result": self.result}
        said |= {key: value for key in ("detail", "hint") if (value := getattr(self, key))}
        return said | ({"admin": list(self.admin)} if self.admin else {})


@dataclass(frozen=True)
class Options:
    """What shall be checked, and what apply will do first."""

    catalog: Catalog
    creates: frozenset[str] = frozenset()
    """Of `CREATES`: what apply will create, so that it may be missing. ``secret`` only where a token is given."""
    chart: Chart | None = None
    """The router's chart; given, its objects are rendered and tried as well."""
    token: str | None = None
    """A Hugging Face token to try on the model's files; never printed."""
    autoscaled: bool = False
    """Nodes are added on demand: too little room in all is no error."""
    adopt: bool = False
    """Objects of nobody, or of somebody else, are taken over: they are no collision."""
    force_conflicts: bool = False
    """Fields of other managers are taken over: they are something to know, no error."""
    recreate: bool = False
    """Objects whose change the server refuses are deleted and made anew."""
    kubectl: bool = True
    """Whether to look for kubectl: the bundle's README needs it, apply does not."""
    hub: bool = True
    """Whether to ask the model hub for the model's files."""


__all__ = ["CREATES", "Check", "Options", "Result"]
