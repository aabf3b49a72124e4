"""Quotas and limit ranges of the namespace, by arithmetic: what the pods ask for against what is left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from mmdeploy.preflight.amounts import Amounts, add, amounts, greatest, said
from mmdeploy.preflight.check import Check
from mmdeploy.preflight.demand import Demand, is_device
from mmdeploy.preflight.facts import listed
from mmdeploy.preflight.pods import containers, limits, requests
from mmdeploy.preflight.rights import plural
from mmdeploy.preflight.subject import Subject

CATEGORY: Final = "quota"
_PLAIN: Final = ("cpu", "memory", "ephemeral-storage")
_MUST_SAY: Final = {"cpu": "requests.cpu", "memory": "requests.memory"}
"""A quota on ``cpu`` is one on requests; such a quota refuses containers that say nothing."""


def checks(subject: Subject) -> Iterator[Check]:
    """One check a quota, one a limit range; none where there are none."""
    if not subject.namespace_exists:
        return
    quotas, ranges = subject.seen.quotas, subject.seen.ranges
    if quotas.value is None or ranges.value is None:
        why = quotas.why if quotas.value is None else ranges.why
        yield Check(CATEGORY, "quotas and limit ranges leave room", "skipped", why)
        return
    for item in quotas.value:
        yield _quota(subject, item, ranges.value)
    for item in ranges.value:
        yield _range(subject, item)
    if not quotas.value and not ranges.value:
        yield Check(CATEGORY, "quotas and limit ranges leave room", "ok", "the namespace has none")


# -------------------------------------------------------------------------------------------------------------- quotas


def _quota(subject: Subject, item: Mapping[str, Any], ranges: Sequence[Mapping[str, Any]]) -> Check:
    name = f"quota {item['metadata']['name']} leaves room"
    counted = [demand for demand in subject.demands if _in_scope(item.get("spec") or {}, demand)]
    status = item.get("status") or {}
    hard = amounts(status.get("hard") or (item.get("spec") or {}).get("hard"))
    used = amounts(status.get("used"))
    silent = _silent(counted, hard, _defaulted(ranges))
    if silent:
        hint = "set it in the spec (the router's under router in values), or have a LimitRange give a default"
        return Check(CATEGORY, name, "error", f"it refuses pods of which {listed(silent)}", hint)
    need, running = needed(subject, counted), _running(subject, counted)
    short: list[str] = []
    fine: list[str] = []
    for key, limit in hard.items():
        if not need.get(key):
            continue
        left = limit - max(0, used.get(key, 0) - running.get(key, 0))
        text = f"{key}: needs {said(key, need[key])} of {said(key, left)} left (hard {said(key, limit)}, used "
        text += f"{said(key, used.get(key, 0))}{_of_ours(key, running)})"
        (short if need[key] > left else fine).append(text)
    if short:
        hint = "have the quota raised, lower replicas, or free what else uses it: pods over it are not created"
        return Check(CATEGORY, name, "error", "; ".join(short), hint)
    return Check(CATEGORY, name, "ok", "; ".join(fine) or "it counts nothing of this deployment")


def _of_ours(key: str, running: Amounts) -> str:
    return f", {said(key, running[key])} of it by this deployment" if running.get(key) else ""


def needed(subject: Subject, counted: Sequence[Demand]) -> Amounts:
    """What the deployment counts for, under the names of a quota: pods, and the bundle's objects."""
    result: Amounts = {}
    for demand in counted:
        add(result, charged(demand.spec, demand.asks), demand.count)
    if len(counted) == len(subject.demands):
        made: Amounts = {}
        for item in subject.intended.objects:
            reading = subject.seen.live.get((item["kind"], item["metadata"]["name"]))
            if reading is None or reading.value is None:  # what is there already is counted already
                group = str(item["apiVersion"]).rpartition("/")[0]
                word = plural(str(item["kind"]))
                add(made, {f"count/{word}.{group}" if group else f"count/{word}": 1000})
        add(result, made)
    return result


def charged(spec: Mapping[str, Any], asks: Mapping[str, int]) -> Amounts:
    """What one pod counts for, under the names that a quota may use (Kubernetes, resource quotas)."""
    result: Amounts = {"pods": 1000, "count/pods": 1000}
    for key, amount in requests(spec).items():
        result[f"requests.{key}"] = amount
        if key in _PLAIN:
            result[key] = amount
    for key, amount in limits(spec).items():
        if key in _PLAIN:
            result[f"limits.{key}"] = amount
    for key, amount in asks.items():
        if is_device(key):
            result[f"{key.split()[0]}.deviceclass.resource.k8s.io/devices"] = amount
    return result


def _running(subject: Subject, counted: Sequence[Demand]) -> Amounts:
    """What pods of this deployment have been charged already: they need no further room."""
    result: Amounts = {}
    for pod in subject.own_pods:
        if pod.spec is not None and any(_like(pod.spec, demand) for demand in counted):
            add(result, charged(pod.spec, pod.takes))
    return result


def _like(spec: Mapping[str, Any], demand: Demand) -> bool:
    """Whether a quota that counts the one counts the other."""
    wanted = demand.spec.get("priorityClassName")
    return wanted is None or bool(wanted == spec.get("priorityClassName"))


def _in_scope(spec: Mapping[str, Any], demand: Demand) -> bool:
    """Whether a quota counts such pods. All of them ask for something and none has a deadline."""
    scopes = spec.get("scopes") or ()
    selected = (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    if "Terminating" in scopes or "BestEffort" in scopes or "CrossNamespacePodAffinity" in scopes:
        return False
    return all(_selected(item, demand) for item in selected)


def _selected(item: Mapping[str, Any], demand: Demand) -> bool:
    if item.get("scopeName") != "PriorityClass":
        return item.get("scopeName") not in ("Terminating", "BestEffort", "CrossNamespacePodAffinity")
    found, values = demand.spec.get("priorityClassName"), item.get("values") or []
    match item.get("operator"):
        case "In":
            return found in values
        case "NotIn":
            return found not in values
        case "DoesNotExist":
            return found is None
    return found is not None


def _silent(counted: Sequence[Demand], hard: Amounts, defaulted: frozenset[str]) -> list[str]:
    """Containers that do not say what a quota counts: the quota refuses their pods."""
    found = []
    for key in hard:
        name = _MUST_SAY.get(key, key)
        part, _, resource = name.partition(".")
        if part not in ("requests", "limits") or resource not in _PLAIN or name in defaulted:
            continue
        for demand in counted:
            for container in containers(demand.spec):
                resources = container.get("resources") or {}
                if resource not in {**(resources.get("limits") or {}), **(resources.get(part) or {})}:
                    found.append(f"container {container['name']} ({demand.role}) sets no {name}")
    return list(dict.fromkeys(found))


def _defaulted(ranges: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """What limit ranges fill in. A default limit is a default request too."""
    found = set()
    for item in ranges:
        for limit in (item.get("spec") or {}).get("limits") or ():
            if limit.get("type") == "Container":
                found |= {f"limits.{key}" for key in limit.get("default") or {}}
                found |= {f"requests.{key}" for part in ("default", "defaultRequest") for key in limit.get(part) or {}}
    return frozenset(found)


# -------------------------------------------------------------------------------------------------------- limit ranges


def _range(subject: Subject, item: Mapping[str, Any]) -> Check:
    name = f"limit range {item['metadata']['name']} allows the pods"
    wrong: list[str] = []
    for limit in (item.get("spec") or {}).get("limits") or ():
        for demand in subject.demands:
            if limit.get("type") == "Pod":
                wrong += _bounds(f"{demand.role} pods", limit, requests(demand.spec), limits(demand.spec))
            elif limit.get("type") == "Container":
                for container in containers(demand.spec):
                    resources = container.get("resources") or {}
                    least = amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})
                    most = amounts(resources.get("limits"))
                    wrong += _bounds(f"container {container['name']} ({demand.role})", limit, least, most)
    if wrong:
        hint = "change the role's cpu and memory, or have the range widened"
        return Check(CATEGORY, name, "error", "; ".join(dict.fromkeys(wrong)), hint)
    return Check(CATEGORY, name, "ok")


def _bounds(who: str, limit: Mapping[str, Any], least: Amounts, most: Amounts) -> Iterator[str]:
    """What is over or under; a range refuses as well what says no limit where it has a greatest one."""
    defaults = amounts(limit.get("default"))
    for key, bound in amounts(limit.get("max")).items():
        found = greatest([most, least]).get(key, defaults.get(key))
        if found is not None and found > bound:
            yield f"{who}: {said(key, found)} {key} is over {said(key, bound)}"
        elif key not in most and key not in defaults and limit.get("type") == "Pod" and key in _PLAIN:
            yield f"{who}: no limit for {key}, which may be {said(key, bound)} at most"
    for key, bound in amounts(limit.get("min")).items():
        if key in least and least[key] < bound:
            yield f"{who}: {said(key, least[key])} {key} is under {said(key, bound)}"


__all__ = ["charged", "checks", "needed"]
