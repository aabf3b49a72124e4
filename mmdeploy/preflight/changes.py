"""What a change of something that runs already would run into."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from mmdeploy.preflight.check import Check
from mmdeploy.preflight.demand import Demand, router_name
from mmdeploy.preflight.facts import version_of
from mmdeploy.preflight.machines import barred
from mmdeploy.preflight.placement import room
from mmdeploy.preflight.subject import Subject

CATEGORY: Final = "changes"
_QUARTER: Final = "25%"
"""Kubernetes' own maxSurge and maxUnavailable."""


def checks(subject: Subject) -> Iterator[Check]:
    """Rollouts without room, and a configuration that nobody would read again."""
    yield from _surges(subject)
    yield from _configuration(subject)


# ------------------------------------------------------------------------------------------------------------ rollouts


def _surges(subject: Subject) -> Iterator[Check]:
    """New pods that a rollout starts before it ends old ones, where no accelerator is free for them."""
    live = {item["metadata"]["name"]: item for item in subject.seen.workloads.value or ()}
    for item in subject.intended.workloads:
        before = live.get(item["metadata"]["name"])
        if item["kind"] != "Deployment" or before is None or not _rolls(before, item):
            continue
        demand = next(each for each in subject.demands if each.workload == ("Deployment", item["metadata"]["name"]))
        surge, unavailable = steps(item["spec"], int(item["spec"].get("replicas", 1)))
        if surge == 0 or not demand.accelerators or not subject.seen.everywhere or subject.seen.nodes.value is None:
            continue
        fewer = int(before["spec"].get("replicas", 1)) - int(item["spec"].get("replicas", 1))
        yield _surge(subject, demand, surge, unavailable, fewer)


def _surge(subject: Subject, demand: Demand, surge: int, unavailable: int, fewer: int) -> Check:
    """``fewer``: how many pods less there shall be; they are ended first, whatever the new ones do."""
    name = f"the rollout of {demand.workload[1]} has room for a pod more"
    free = {}
    for machine in subject.seen.nodes.value or ():
        if machine.usable:
            left = machine.free()
            for pod in subject.own_pods:  # they stay until new ones are ready
                if pod.node == machine.name:
                    for key, amount in pod.takes.items():
                        left[key] = left.get(key, 0) - amount
            free[machine.name] = left
    by_name = {item.name: item for item in subject.seen.nodes.value or ()}
    more = room(demand, free, lambda which, where: not barred(which, by_name[where], subject.facts))
    if more >= 1:
        return Check(CATEGORY, name, "ok", f"room for {more}")
    if fewer > 0 and _frees(subject, demand):
        return Check(CATEGORY, name, "ok", f"there shall be {fewer} less, and their places become free first")
    if unavailable == 0:
        detail = f"it starts {surge} more before it ends an old one, and there is room for none: it may never end"
    else:
        detail = f"it starts {surge} more, for which there is no room, and ends {unavailable} old ones meanwhile"
    hint = "set maxSurge: 0 and maxUnavailable: 1, or strategy Recreate, in the Deployment"
    return Check(CATEGORY, name, "warning", detail, hint)


def _frees(subject: Subject, demand: Demand) -> bool:
    """Whether the place of a pod that runs does for a new one."""
    asks = demand.accelerators.items()
    return any(all(pod.takes.get(key, 0) >= amount for key, amount in asks) for pod in subject.own_pods)


def _rolls(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether the pod template changes in what the bundle says; what the server filled in does not count."""
    return not _within(after["spec"]["template"], before["spec"]["template"])


def _within(wanted: Any, found: Any) -> bool:
    """Whether everything that is wanted is there already."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(_within(value, found.get(key)) for key, value in wanted.items())
    if isinstance(wanted, list):
        return (
            isinstance(found, list)
            and len(found) == len(wanted)
            and all(_within(one, other) for one, other in zip(wanted, found, strict=True))
        )
    return wanted in (None, {}, []) or str(wanted) == str(found)


def steps(spec: Mapping[str, Any], replicas: int) -> tuple[int, int]:
    """How many pods a rollout may have more, and how many less; surge rounds up, unavailable down (Kubernetes)."""
    strategy = spec.get("strategy") or {}
    if strategy.get("type") == "Recreate":
        return 0, replicas
    rolling = strategy.get("rollingUpdate") or {}
    return (
        _share(rolling.get("maxSurge", _QUARTER), replicas, math.ceil),
        _share(rolling.get("maxUnavailable", _QUARTER), replicas, math.floor),
    )


def _share(said: Any, replicas: int, rounding: Any) -> int:
    text = str(said)
    if text.endswith("%") and text[:-1].isdigit():
        return int(rounding(int(text[:-1]) * replicas / 100))
    return int(text) if text.isdigit() else 0


# ------------------------------------------------------------------------------------------------ plugin configuration


def _configuration(subject: Subject) -> Iterator[Check]:
    """Charts without a checksum of the configuration leave the picker's pod as it is when only that changes."""
    release, name = subject.seen.release.value, router_name(subject.intended.name, subject.facts)
    seen = subject.seen.live.get(("ConfigMap", name))
    if release is None or seen is None or seen.value is None or not _lacks_checksum(subject):
        return
    picker = (subject.intended.values.get("router") or {}).get("epp") or {}
    wanted = picker.get("pluginsCustomConfig") or {}
    data = seen.value.get("data") or {}
    changed = [file for file, text in wanted.items() if str(text).strip() != str(data.get(file, "")).strip()]
    if not changed:
        return
    title = "a change of the plugin configuration reaches the endpoint picker"
    if _without_configuration(release.values) != _without_configuration(subject.intended.values):
        return  # something else changes as well, and restarts the pod
    yield Check(
        CATEGORY, title, "warning", f"only {changed[0]} changes, and chart {subject.intended.chart_version} leaves the "
        "pod as it is: the picker would keep the old configuration, and the rollout report success",
        f"mmdeploy apply restarts it; after helm alone: kubectl rollout restart deployment/{name} --namespace "
        f"{subject.namespace}",
    )  # fmt: skip


def _lacks_checksum(subject: Subject) -> bool:
    found = version_of(subject.intended.chart_version)
    # One number alone, such as v0, is a tag that moves on with the newest chart.
    return len(found) > 1 and found <= version_of(subject.facts["router"]["noChecksumUpTo"])


def _without_configuration(values: Mapping[str, Any]) -> dict[str, Any]:
    router = dict(values.get("router") or {})
    epp = {key: value for key, value in (router.get("epp") or {}).items() if key != "pluginsCustomConfig"}
    return {**values, "router": {**router, "epp": epp}}


__all__ = ["checks", "steps"]
