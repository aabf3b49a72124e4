"""What is in the namespace already and is not this deployment's."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from mmdeploy.preflight.check import Check
from mmdeploy.preflight.demand import ROUTER, router_name
from mmdeploy.preflight.facts import listed
from mmdeploy.preflight.kinds import authenticated
from mmdeploy.preflight.machines import Occupant, made_by
from mmdeploy.preflight.subject import Subject

CATEGORY: Final = "collisions"
_RELEASE: Final = "meta.helm.sh/release-name"
_NOTED: Final = "inventory.json"
"""The key under which a deployment's ConfigMap lists what it has on the cluster."""
_FEW: Final = 4


def checks(subject: Subject) -> Iterator[Check]:
    """Names, owners, and labels that two deployments share."""
    if not subject.namespace_exists:
        return
    yield from _fixed(subject)
    yield _owned(subject)
    yield _selected(subject)
    yield from _pools(subject)


def release_of(item: Mapping[str, Any]) -> str:
    """The helm release that an object belongs to; empty for none."""
    annotations = item["metadata"].get("annotations") or {}
    return str(annotations.get(_RELEASE, ""))


def _fixed(subject: Subject) -> Iterator[Check]:
    """The chart gives some objects the same name in every release: helm refuses the second by ownership."""
    release = subject.intended.name
    for rule in subject.facts["router"]["fixed"]:
        standalone = subject.intended.mode == "standalone"
        if not (standalone if rule["when"] == "standalone" else authenticated(subject.intended)):
            continue
        title = f"{rule['kind']} {rule['name']} is free for the router's chart"
        seen = subject.seen.live.get((rule["kind"], rule["name"]))
        if rule["kind"] == "Secret":
            other = _other_metrics(subject)
        elif seen is None or seen.value is None:
            if seen is not None and seen.problem is not None and not seen.absent:
                yield Check(CATEGORY, title, "skipped", seen.why)
            else:
                yield Check(CATEGORY, title, "ok")
            continue
        else:
            owner = release_of(seen.value)
            other = "" if owner == release else (owner and f"helm release {owner}") or "nobody (no helm release)"
        if other:
            yield Check(
                CATEGORY, title, "error", f"it belongs to {other}, and the chart gives it this one name in every "
                "release", "put the deployments into two namespaces (--set namespace=…)",
            )  # fmt: skip
        else:
            yield Check(CATEGORY, title, "ok", f"it is release {release}'s own" if seen and seen.value else "")


def _other_metrics(subject: Subject) -> str:
    """Another router in the namespace whose chart makes the Secret too; the Secret itself is not read."""
    for item in subject.seen.workloads.value or ():
        owner = release_of(item)
        if owner and owner != subject.intended.name and _is_router(item, subject):
            return f"helm release {owner}"
    return ""


def _is_router(item: Mapping[str, Any], subject: Subject) -> bool:
    return bool(item["metadata"]["name"] == router_name(release_of(item), subject.facts))


def _owned(subject: Subject) -> Check:
    """Objects of the bundle's names that somebody else has made."""
    name = "objects that exist are this deployment's own"
    noted = inventories(subject.seen.inventories.value or ())
    foreign, own = [], 0
    for item in subject.intended.objects:
        seen = subject.seen.live.get((item["kind"], item["metadata"]["name"]))
        if seen is None or seen.value is None:
            continue
        names = noted.get((item["kind"], item["metadata"]["name"]), [])
        if subject.intended.name in names or (not names and _is_ours(seen.value)):
            own += 1
        else:
            owner = f"deployment {listed(names)}" if names else owner_of(seen.value)
            foreign.append(f"{item['kind']} {item['metadata']['name']} ({owner})")
    if not foreign:
        return Check(CATEGORY, name, "ok", f"{own} of them" if own else "none exists yet")
    more = f" and {len(foreign) - _FEW} more" if len(foreign) > _FEW else ""
    detail = f"not of this deployment: {', '.join(foreign[:_FEW])}{more}"
    result, hint = ("warning", "apply --adopt takes them over") if subject.options.adopt else (
        "error", "apply --adopt takes them over; or choose another name (--set namePrefix=…)")  # fmt: skip
    return Check(CATEGORY, name, result, detail, hint)  # type: ignore[arg-type]


def inventories(items: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], list[str]]:
    """Kind and name of what mmdeploy has noted, and the deployments whose it is. What cannot be read notes nothing."""
    found: dict[tuple[str, str], list[str]] = {}
    for item in items:
        try:
            noted = json.loads((item.get("data") or {})[_NOTED])
            for entry in noted["entries"]:
                found.setdefault((entry["kind"], entry["name"]), []).append(str(noted["name"]))
        except (KeyError, TypeError, ValueError):
            continue
    return found


def _is_ours(live: Mapping[str, Any]) -> bool:
    return "mmdeploy" in {entry.get("manager") for entry in live["metadata"].get("managedFields") or ()}


def owner_of(live: Mapping[str, Any], besides: Iterable[str] = ()) -> str:
    """Whose an object is, as far as it says: a helm release's, or those who manage its fields, ``besides`` some."""
    release = release_of(live)
    if release:
        return f"helm release {release}"
    managers = [str(entry.get("manager")) for entry in live["metadata"].get("managedFields") or ()
                if entry.get("subresource") != "status" and entry.get("manager") not in besides]  # fmt: skip
    return f"made by {listed(list(dict.fromkeys(managers)))}" if managers else "made by somebody"


# ------------------------------------------------------------------------------------------------------ shared labels


def _selected(subject: Subject) -> Check:
    """Pods that the router's pool would take although they are another deployment's."""
    servers = (subject.intended.values.get("router") or {}).get("modelServers") or {}
    selector = servers.get("matchLabels") or {}
    name = "the router's pool selects no foreign pods"
    if subject.seen.pods.value is None:
        return Check(CATEGORY, name, "skipped", f"pods: {subject.seen.pods.why}")
    before = _noted(subject)
    foreign = [pod for pod in subject.seen.pods.value if pod.namespace == subject.namespace
               and _matches(selector, pod.labels) and not subject.is_own(pod)
               and not any(made_by(pod, workload, subject.facts) for workload in before)]  # fmt: skip
    said = ",".join(f"{key}={value}" for key, value in selector.items())
    foreign_sets = _workloads(subject, selector) if not foreign else []
    if not foreign and not foreign_sets:
        return Check(CATEGORY, name, "ok", said)
    what = f"{len(foreign)} pods ({_named(foreign)})" if foreign else listed(foreign_sets)
    return Check(
        CATEGORY, name, "error", f"{said} also selects {what}: each router would send requests to the other's pods",
        "put the deployments into two namespaces (--set namespace=…)",
    )  # fmt: skip


def _noted(subject: Subject) -> list[tuple[str, str]]:
    """What this deployment has applied before: apply takes away what is no longer wanted."""
    noted = inventories(subject.seen.inventories.value or ())
    return [item for item, names in noted.items() if subject.intended.name in names]


def _workloads(subject: Subject, selector: Mapping[str, str]) -> list[str]:
    """Deployments without pods yet."""
    own = {demand.workload[1] for demand in subject.demands} | {name for _, name in _noted(subject)}
    return [
        f"Deployment {item['metadata']['name']}"
        for item in subject.seen.workloads.value or ()
        if item["metadata"]["name"] not in own
        and not item["metadata"].get("ownerReferences")
        and _matches(selector, (item["spec"]["template"].get("metadata") or {}).get("labels") or {})
    ]


def _named(pods: list[Occupant]) -> str:
    names = [pod.name for pod in pods]
    return ", ".join(names[:_FEW]) + (", …" if len(names) > _FEW else "")


def _matches(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return bool(selector) and all(labels.get(key) == value for key, value in selector.items())


def _pools(subject: Subject) -> Iterator[Check]:
    """Another pool that would take this deployment's pods."""
    for pool in subject.seen.pools.value or ():
        if pool["metadata"]["name"] == subject.intended.name:
            continue
        selector = ((pool.get("spec") or {}).get("selector") or {}).get("matchLabels") or {}
        taken = [demand.role for demand in subject.demands
                 if demand.role != ROUTER and _matches(selector, demand.labels)]  # fmt: skip
        if taken:
            said = ",".join(f"{key}={value}" for key, value in selector.items())
            yield Check(
                CATEGORY, f"InferencePool {pool['metadata']['name']} selects none of the pods", "error",
                f"its selector {said} takes the {listed(taken)} pods: its router would send them requests",
                "put the deployments into two namespaces (--set namespace=…)",
            )  # fmt: skip


__all__ = ["CATEGORY", "checks", "owner_of", "release_of"]
