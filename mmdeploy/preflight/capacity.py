"""Room on nodes for the pods: now, and in all. Numbers, not adjectives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from mmdeploy.preflight.amounts import said
from mmdeploy.preflight.check import Check, Result
from mmdeploy.preflight.demand import Demand, is_device
from mmdeploy.preflight.devices import drivers
from mmdeploy.preflight.facts import listed
from mmdeploy.preflight.machines import Machine, barred, equip, occupy
from mmdeploy.preflight.placement import Free, fits, place, room
from mmdeploy.preflight.subject import Subject

CATEGORY: Final = "machines"
_UNJUDGED = ("podAffinity", "podAntiAffinity")


def checks(subject: Subject) -> Iterator[Check]:
    """One check a role for nodes that suit it at all, one for room for everything at once."""
    seen = subject.seen
    if seen.nodes.value is None:
        yield Check(CATEGORY, "there is room for the pods", "skipped", f"nodes: {seen.nodes.why}",
                    "an administrator may let you list nodes, or runs mmdeploy check")  # fmt: skip
        return
    machines = seen.nodes.value
    yield from _equipped(subject, machines)
    judged = _Judged(subject, machines, _countable(subject))
    suited = [judged.suits(demand) for demand in judged.demands]
    yield from suited
    if all(check.result == "ok" for check in suited):
        yield judged.room()


def _equipped(subject: Subject, machines: Sequence[Machine]) -> Iterator[Check]:
    """What others' pods and claims take; says what could not be read."""
    occupy(machines, (pod for pod in subject.seen.pods.value or () if not subject.is_own(pod)))
    known, found = drivers(subject)
    yield from found
    if subject.seen.slices.problem is not None:
        yield Check(CATEGORY, "devices can be counted", "skipped", subject.seen.slices.why)
    if subject.seen.slices.value is not None:
        own = frozenset(pod.name for pod in subject.own_pods)
        equip(machines, subject.seen.slices.value, known, subject.seen.claims.value or (), own)


def _countable(subject: Subject) -> list[Demand]:
    """The pods; without the devices that they ask for where nobody may count those."""
    if subject.seen.slices.problem is None:
        return subject.demands
    return [
        replace(item, asks={key: amount for key, amount in item.asks.items() if not is_device(key)})
        for item in subject.demands
    ]


class _Judged:
    """Nodes and pods set against each other."""

    def __init__(self, subject: Subject, machines: Sequence[Machine], demands: Sequence[Demand]) -> None:
        self.subject = subject
        self.machines = machines
        self.demands = demands
        self._by_name = {item.name: item for item in machines}
        self._barred: dict[tuple[int, str], str] = {}

    def barred(self, demand: Demand, name: str) -> str:
        """Why labels or taints keep a pod from a node; worked out once."""
        key = (id(demand), name)
        if key not in self._barred:
            self._barred[key] = barred(demand, self._by_name[name], self.subject.facts)
        return self._barred[key]

    def allowed(self, demand: Demand, name: str) -> bool:
        """Whether labels and taints let a pod go to a node."""
        return not self.barred(demand, name)

    # ----------------------------------------------------------------------------------------------- one kind of pod

    def suits(self, demand: Demand) -> Check:
        """Whether any node could ever run a pod of this kind, whatever runs there now."""
        name = f"nodes suit {demand.role} pods"
        whole: Free = {item.name: item.whole() for item in self.machines}
        good = [item for item in self.machines if self.allowed(demand, item.name)
                and fits(demand.asks, whole[item.name])]  # fmt: skip
        asks = _asks(demand)
        if good:
            return Check(CATEGORY, name, "ok", f"{_count(len(good), 'node')} of {len(self.machines)} with {asks}")
        reasons = Counter(self._reason(demand, item, whole[item.name]) for item in self.machines)
        told = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common(6))
        detail = f"a pod needs {asks}; of {_count(len(self.machines), 'node')}: {told}"
        hint = f"{self._advice(demand, reasons)}{self._grown()}"
        return Check(CATEGORY, name, self._hopeless(), detail, hint)

    def _reason(self, demand: Demand, machine: Machine, whole: dict[str, int]) -> str:
        lacking = [key for key in demand.accelerators if not machine.has.get(key)]
        if lacking:
            return f"without {listed(lacking)}"
        small = [key for key, amount in demand.accelerators.items() if machine.has[key] < amount]
        if small:
            return f"with less {listed(small)} than a pod asks for"
        why = self.barred(demand, machine.name)
        if why:
            return why
        small = [key for key, amount in demand.asks.items() if whole.get(key, 0) < amount]
        return f"with less {listed(small)}"

    def _advice(self, demand: Demand, reasons: Counter[str]) -> str:
        if any(reason.startswith("with less") and reason.endswith("asks for") for reason in reasons):
            return f"a pod's accelerators are on one node: lower {demand.role}.tensorParallelSize, or add larger nodes"
        if any(reason.startswith("tainted") for reason in reasons):
            return f"add a toleration (--set '{demand.role}.tolerations=[…]'), or take the taint from nodes"
        if any(reason.startswith("not labelled") for reason in reasons):
            return f"label the nodes, or change {demand.role}.nodeSelector"
        offered = sorted({key for item in self.machines for key in item.has if key in demand.accelerators})
        lacking = [key for key in demand.accelerators if key not in offered]
        if "rdma/ib" in lacking:
            return "install the RDMA device plugin, or render for a provider without InfiniBand (-p base)"
        if lacking:
            return f"no node offers {listed(lacking)}: install its device plugin or driver, or add such nodes"
        return "add larger nodes, or let the pods ask for less"

    # ------------------------------------------------------------------------------------------------- all pods at once

    def room(self) -> Check:
        """Whether all pods fit at once: now, or at least once others are gone."""
        demands = self.demands
        name = "there is room for all pods"
        usable = [item for item in self.machines if item.usable]
        whole: Free = {item.name: item.whole() for item in self.machines}
        if not self.subject.seen.everywhere:
            return self._in_all(name, demands, whole, "skipped", f"what is free now: {self.subject.seen.pods.why}")
        free: Free = {item.name: item.free() for item in usable}
        placed = place(demands, free, self.allowed)
        detail = f"{self.arithmetic(free)}{self._unusable(usable)}"
        if all(placed.get(id(demand), 0) >= demand.count for demand in demands):
            return self._unjudged(Check(CATEGORY, name, "ok", detail))
        waiting = [f"{demand.count - placed.get(id(demand), 0)} of {demand.count} {demand.role}" for demand in demands
                   if placed.get(id(demand), 0) < demand.count]  # fmt: skip
        return self._in_all(name, demands, whole, "warning", f"{detail}. {listed(waiting)} would wait for room")

    def _in_all(self, name: str, demands: Sequence[Demand], whole: Free, otherwise: Result, detail: str) -> Check:
        """What is free now does not do, or is not known: is it hopeless?"""
        for demand in demands:
            most = room(demand, whole, self.allowed)
            if most < demand.count:
                told = (
                    f"{self.arithmetic(whole, 'in all')}, with nothing else on them: {demand.role} needs {demand.count}"
                )
                return Check(CATEGORY, name, self._hopeless(), told, f"add nodes, or lower the replicas{self._grown()}")
        placed = place(demands, whole, self.allowed)
        if all(placed.get(id(demand), 0) >= demand.count for demand in demands):
            hint = "apply starts what fits, and the rest waits" if otherwise == "warning" else ""
            told = f"{detail}; in all: {self.arithmetic(whole)}" if otherwise == "skipped" else detail
            return Check(CATEGORY, name, otherwise, told, hint)
        return Check(
            CATEGORY, name, "warning", f"{detail}. Even on empty nodes no arrangement of all pods was found (not every "
            "one was tried)", "add nodes, or lower the replicas",
        )  # fmt: skip

    def _hopeless(self) -> Result:
        """Too little in all is hopeless only where nobody adds nodes."""
        groups = self.subject.seen.groups.value or {}
        grows = self.subject.options.autoscaled or any(
            group in groups for group in self.subject.facts["machines"]["autoscalers"]
        )
        return "warning" if grows else "error"

    def _grown(self) -> str:
        """The option for a cluster that grows; empty where that is known already."""
        return "; --autoscaled where nodes are added on demand" if self._hopeless() == "error" else ""

    def _unusable(self, usable: Sequence[Machine]) -> str:
        out = [item for item in self.machines if not item.usable]
        if not out:
            return ""
        cordoned = sum(item.cordoned for item in out)
        words = [f"{cordoned} cordoned"] if cordoned else []
        words += [f"{len(out) - cordoned} not ready"] if len(out) > cordoned else []
        return f" (not counted: {listed(words)})"

    def _unjudged(self, check: Check) -> Check:
        """Rules about other pods are the scheduler's alone: room that they forbid must not be promised."""
        found = sorted({f"{demand.role}'s {rule}" for demand in self.demands for rule in _rules(demand)})
        if not found:
            return check
        detail = f"{check.detail}; by resources alone, {listed(found)} may forbid some of it"
        return Check(check.category, check.name, "warning", detail, "look at the pods' events after apply")

    # ------------------------------------------------------------------------------------------------------ in words

    def arithmetic(self, free: Free, when: str = "free") -> str:
        """``needs 10 pods × 2 nvidia.com/gpu (encode 2, decode 8); 6 nodes have ≥ 2 free, room for 9``, for each kind
        of accelerator; what limits the room is named where it is not the accelerator."""
        return "; and ".join(self._sentence(group, free, when) for group in _groups(self.demands))

    def _sentence(self, group: Sequence[Demand], free: Free, when: str) -> str:
        asks = max(group, key=lambda demand: max(demand.accelerators.values(), default=0))
        roles = f" ({', '.join(f'{item.role} {item.count}' for item in group)})" if len(group) > 1 else ""
        head = f"needs {_count(sum(item.count for item in group), 'pod')} × {_asks(group[0], short=True)}{roles}"
        if not group[0].accelerators:
            return f"{head}; room for {self._rooms(group, free)}"
        only = asks.accelerators
        holding = [name for name, amounts in free.items() if self.allowed(asks, name) and fits(only, amounts)]
        least = listed([said(key, amount) for key, amount in only.items()])
        by_devices = sum(fits(only, free[name]) for name in holding)
        rooms = self._rooms(group, free)
        tail = f"; {_count(len(holding), 'node has', 'nodes have')} ≥ {least} {when}, room for {by_devices}"
        return head + tail + (f", but by cores and memory for {rooms}" if rooms < by_devices else "")

    def _rooms(self, group: Sequence[Demand], free: Free) -> int:
        return min(room(item, free, self.allowed) for item in group)


def _rules(demand: Demand) -> list[str]:
    affinity = demand.spec.get("affinity") or {}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    found = [rule for rule in _UNJUDGED if (affinity.get(rule) or {}).get(required)]
    spread = demand.spec.get("topologySpreadConstraints") or ()
    found += (
        ["topologySpreadConstraints"] if any(i.get("whenUnsatisfiable") != "ScheduleAnyway" for i in spread) else []
    )
    ports = [port for box in demand.spec.get("containers") or () for port in box.get("ports") or ()]
    return found + (["host ports"] if any(port.get("hostPort") for port in ports) else [])


def _groups(demands: Sequence[Demand]) -> list[list[Demand]]:
    """Pods that want the same accelerators in the same number, together."""
    groups: dict[tuple[tuple[str, int], ...], list[Demand]] = {}
    for demand in demands:
        groups.setdefault(tuple(sorted(demand.accelerators.items())), []).append(demand)
    return [group for key, group in groups.items() if key or len(groups) == 1]


def _asks(demand: Demand, *, short: bool = False) -> str:
    """What one pod asks for: devices first."""
    parts = [f"{said(key, amount)} {key}" for key, amount in demand.accelerators.items()]
    if not short or not parts:
        parts += [f"{said(key, demand.asks[key])} {word}" for key, word in (("cpu", "cores"), ("memory", "memory"))
                  if demand.asks.get(key)]  # fmt: skip
    return listed(parts) or "nothing"


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


__all__ = ["checks"]
