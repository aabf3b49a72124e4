"""Which pods the router sends requests to: its selector, held against the pods that are there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mmdeploy.apply.readiness.objects_seen import Object, Seen, notes, selects
from mmdeploy.apply.readiness.readiness import RoleState
from mmdeploy.apply.readiness.startup import Startup


@dataclass(frozen=True)
class PoolState:
    """The pods that the router sees."""

    name: str
    """The InferencePool's, or the endpoint picker's Deployment where there is no pool."""
    selector: Mapping[str, str] | None
    """None where it could not be read."""
    counted: Mapping[str, int]
    """Role → ready pods that the selector matches."""
    missing: tuple[str, ...] = ()
    """Roles that it should select and does not."""
    why_unknown: str = ""

    @property
    def text(self) -> str:
        """In a person's words."""
        if self.selector is None:
            return f"not checked: {self.why_unknown}"
        words = ",".join(f"{key}={value}" for key, value in self.selector.items())
        if self.missing:
            return f"selects none of the {' and '.join(self.missing)} pods: its selector is {words}"
        total = sum(self.counted.values())
        each = ", ".join(f"{count} {role}" for role, count in self.counted.items() if count)
        return f"selects {total} ready pod{'s' * (total != 1)}" + (f": {each}" if each else "")


def judge(
    seen: Seen, release: str, router: Object | None, roles: Sequence[RoleState], startup: Startup,
    expected: Iterable[str] | None = None, fallback: Mapping[str, str] | None = None,
) -> PoolState:  # fmt: skip
    """Hold the pool's selector (or the endpoint picker's own) against the ready pods of each role.

    ``expected``: the roles that must be selected; None for at least one. ``fallback``: the selector of the values that
    the router was installed with, where no object shows it.
    """
    name, selector = _selector(seen, release, router, startup)
    if selector is None and not fallback:
        return PoolState(name, None, {}, why_unknown=seen.unreadable.get("InferencePool", "no selector is to be seen"))
    chosen = selector if selector is not None else fallback or {}
    counted = {
        state.role: sum(1 for pod in state.pods if pod.ready and selects(chosen, pod.pod)) for state in roles
    }  # fmt: skip
    there = [state.role for state in roles if state.ready]
    wanted = list(expected) if expected is not None else [] if any(counted.values()) else there
    missing = tuple(role for role in wanted if role in there and counted.get(role) == 0)
    return PoolState(name, chosen, counted, missing)


def _selector(seen: Seen, release: str, router: Object | None, startup: Startup) -> tuple[str, dict[str, str] | None]:
    key = startup["releaseAnnotation"]
    for pool in seen.of("InferencePool"):
        if notes(pool).get(key) == release or pool["metadata"]["name"] == release:
            return str(pool["metadata"]["name"]), dict(pool["spec"]["selector"].get("matchLabels") or {})
    if router is None:
        return release, None
    flag = startup["selectorFlag"]
    for container in router["spec"]["template"]["spec"]["containers"]:
        words = [str(word) for word in container.get("args") or ()]
        for word, following in zip(words, [*words[1:], ""], strict=True):
            text = word.removeprefix(f"{flag}=") if word.startswith(f"{flag}=") else following if word == flag else ""
            if text:
                pairs = (pair.partition("=") for pair in text.split(","))
                return str(router["metadata"]["name"]), {left.strip(): right.strip() for left, _, right in pairs}
    return str(router["metadata"]["name"]), None
