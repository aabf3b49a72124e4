"""What pods name that must be there before they are admitted or started: priority classes, volumes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from mmdeploy.preflight.check import Check
from mmdeploy.preflight.demand import Demand
from mmdeploy.preflight.facts import listed
from mmdeploy.preflight.reading import attempt
from mmdeploy.preflight.subject import Subject

PRIORITY = "priority"
VOLUMES = "volumes"
_SHARED: Final = frozenset({"ReadWriteMany", "ReadOnlyMany"})


def priorities(subject: Subject) -> Iterator[Check]:
    """One check a priority class; admission refuses pods that name one that does not exist."""
    for name, seen in subject.seen.priorities.items():
        roles = [demand.role for demand in subject.demands if demand.spec.get("priorityClassName") == name]
        title = f"PriorityClass {name} exists"
        if seen.value is not None:
            yield Check(PRIORITY, title, "ok", f"for {listed(roles)}")
        elif seen.absent:
            yield Check(
                PRIORITY, title, "error",
                f"{listed(roles)} pods name it: every one would be refused, and only an event would say so",
                f"create it, or name another (--set {roles[0]}.priorityClassName=…)",
                (f"kubectl create priorityclass {name} --value=1000",),
            )  # fmt: skip
        else:
            yield Check(PRIORITY, title, "warning", f"{seen.why}, so nobody knows whether it is there",
                        f"have somebody look: kubectl get priorityclass {name}")  # fmt: skip


def volumes(subject: Subject) -> Iterator[Check]:
    """One check a claim that pods mount."""
    for name, users in _claims(subject).items():
        title = f"PersistentVolumeClaim {name} exists"
        seen = subject.seen.live.get(("PersistentVolumeClaim", name))
        made = any(i["kind"] == "PersistentVolumeClaim" and i["metadata"]["name"] == name
                   for i in subject.intended.objects)  # fmt: skip
        if seen is None or made:
            continue
        if seen.problem is not None:
            yield Check(VOLUMES, title, "skipped", seen.why)
        elif seen.value is None:
            yield Check(VOLUMES, title, "error", f"{listed(sorted({user.role for user in users}))} pods mount it",
                        f"create it in {subject.namespace}, readable and writable by many nodes")  # fmt: skip
        else:
            yield _claim(subject, title, seen.value, users)


def _claim(subject: Subject, title: str, claim: Mapping[str, Any], users: Sequence[Demand]) -> Check:
    spec, phase = claim.get("spec") or {}, (claim.get("status") or {}).get("phase")
    modes: list[str] = spec.get("accessModes") or []
    if sum(user.count for user in users) > 1 and not _SHARED & set(modes):
        detail = f"its access modes are {listed(modes)}: pods on other nodes than the first would not start"
        return Check(VOLUMES, title, "error", detail, "use a claim that is ReadWriteMany")
    if phase == "Lost":
        return Check(VOLUMES, title, "error", "its volume is gone (Lost)", "create the claim anew")
    if phase == "Bound":
        return Check(VOLUMES, title, "ok", f"bound, {listed(modes)}")
    return _unbound(subject, title, str(spec.get("storageClassName") or ""))


def _unbound(subject: Subject, title: str, name: str) -> Check:
    """A claim without a volume: its class may be missing, or wait for the first pod."""
    seen = attempt(lambda: subject.session.get(f"/apis/storage.k8s.io/v1/storageclasses/{name}")) if name else None
    if seen is not None and seen.absent:
        return Check(VOLUMES, title, "error", f"it is not bound, and there is no storage class {name}",
                     "create the claim with a class of kubectl get storageclass")  # fmt: skip
    if seen is not None and seen.value and seen.value.get("volumeBindingMode") == "WaitForFirstConsumer":
        return Check(VOLUMES, title, "ok", f"class {name} binds it with the first pod")
    hint = f"kubectl describe pvc --namespace {subject.namespace} says why"
    return Check(VOLUMES, title, "warning", "it is not bound yet", hint)


def _claims(subject: Subject) -> dict[str, list[Demand]]:
    found: dict[str, list[Demand]] = {}
    for demand in subject.demands:
        for volume in demand.spec.get("volumes") or ():
            if "persistentVolumeClaim" in volume:
                found.setdefault(volume["persistentVolumeClaim"]["claimName"], []).append(demand)
    return found


__all__ = ["priorities", "volumes"]
