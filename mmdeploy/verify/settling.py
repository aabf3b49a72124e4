"""Whether counters have come to what was sent: for which it is worth to wait, and which pages may still move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mmdeploy.verify import counters
from mmdeploy.verify.evidence import Scrape, Sent
from mmdeploy.verify.window import ROUTED

if TYPE_CHECKING:
    from mmdeploy.verify.evidence import Evidence
    from mmdeploy.verify.facts import Facts
    from mmdeploy.verify.targets import Endpoint

Pages = Mapping[str, Scrape]
"""By endpoint."""


class Balance:
    """What roles and single pods have counted since a moment, against what was sent to them."""

    def __init__(self, facts: Facts, evidence: Evidence, before: str, sent: Sequence[Sent]) -> None:
        """``sent`` is what was sent since ``before``."""
        self._facts, self._sent = facts, sent
        self._roles = {endpoint.name: role for endpoint, role in facts.targets.pages()}
        self._before = {name: evidence.page(name, before) for name in self._roles}
        self._members: dict[str, list[str]] = {}
        for name, role in self._roles.items():
            self._members.setdefault(role, []).append(name)
        self._wanted = self._counted()

    def _counted(self) -> dict[str, int]:
        """Role, or pod that was asked directly → requests that it should count. An encode pod counts media items."""
        answered = [item for item in self._sent if item.answered and item.method == "POST"]
        routed = [item for item in answered if item.target in ROUTED]
        wanted = {**dict.fromkeys(self._facts.language_roles, len(routed)), "picker": len(routed)}
        if self._facts.encodes:
            wanted["encode"] = sum(map(_items, routed))
        for item in answered:
            pod = item.target.removesuffix(" engine")
            if item.target not in ROUTED and pod in self._roles:
                role = self._roles[pod]
                number = _items(item) if role == "encode" else 1
                self._members[pod] = [pod]
                for key in (role, pod):
                    wanted[key] = wanted.get(key, 0) + number
        return wanted

    def lacking(self, pages: Pages) -> set[str]:
        """Roles and pods whose counters are readable and have not come to what was sent."""
        found = {key: self._total(key, pages) for key, number in self._wanted.items() if number}
        return {key for key, total in found.items() if total is not None and total < self._wanted[key]}

    def unsettled(self, pages: Pages) -> list[tuple[Endpoint, str]]:
        """Pages that another reading may show to have moved.

        Where every role has counted just what was sent, and nobody has a request in hand, these are the pages that
        moved, and those of roles that should count nothing: that they did not is a claim of its own. With any more than
        that others are at work, whose requests may be counted on one page now and on another in a moment: all of them.
        """
        moved = {name for name in self._roles if self._moved(name, pages)}
        if self._sent and self._balanced(pages):
            moved |= {name for name, role in self._roles.items() if not self._wanted.get(role)}
        elif self._sent or moved:
            moved = set(self._roles)
        return [item for item in self._facts.targets.pages() if item[0].name in moved and pages[item[0].name].readable]

    def _balanced(self, pages: Pages) -> bool:
        roles = set(self._roles.values())
        return all(self._total(role, pages) == self._wanted.get(role, 0) for role in roles) and not self._busy(pages)

    def _busy(self, pages: Pages) -> bool:
        """Whether a pod has a request in hand, when none of ours is under way."""
        families = {role: self._facts.page(role).families for role in set(self._roles.values())}
        return any(
            counters.value(pages[name], families[role][key])
            for name, role in self._roles.items()
            for key in ("running", "waiting")
            if key in families[role]
        )

    def agree(self, old: Pages, new: Pages) -> bool:
        """Whether two readings agree in everything that moves with requests."""
        return all(self._same(role, old[name], new[name]) for name, role in self._roles.items())

    def _moved(self, name: str, pages: Pages) -> bool:
        before = self._before[name]
        return before is None or not self._same(self._roles[name], before, pages[name])

    def _same(self, role: str, one: Scrape, other: Scrape) -> bool:
        if one.samples is other.samples:
            return one.missing == other.missing
        steady = self._facts.page(role).steady

        def moving(page: Scrape) -> list[object]:
            return [sample for sample in page.samples if sample.name in steady]

        return one.missing == other.missing and moving(one) == moving(other)

    def _total(self, key: str, pages: Pages) -> int | None:
        """Requests that a role, or a pod, counted; None where one of its pages does not say, or where it has none."""
        total = 0
        for name in self._members.get(key, ()):
            kept = self._facts.page(self._roles[name])
            family = kept.families["requests"]
            moved = counters.change(self._before[name], pages[name], family, restarts=kept.restarts)
            if not moved.known and not (moved.absent and family.appears):
                return None
            total += moved.number
        return total if key in self._members else None


def _items(sent: Sent) -> int:
    """Media items of a request: a picture that it holds twice is one."""
    return len({medium.digest for medium in sent.media})
