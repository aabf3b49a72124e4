"""Pod security admission, and OpenShift's security context constraints where they exist."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from mmdeploy.preflight.check import Check
from mmdeploy.preflight.demand import ROUTER, Demand
from mmdeploy.preflight.facts import listed
from mmdeploy.preflight.pods import containers
from mmdeploy.preflight.reading import attempt
from mmdeploy.preflight.subject import Subject

CATEGORY: Final = "pod-security"
_ENFORCE: Final = "pod-security.kubernetes.io/enforce"
_HOST: Final = ("hostNetwork", "hostPID", "hostIPC")


def checks(subject: Subject) -> Iterator[Check]:
    """The level that the namespace enforces, then what OpenShift makes of the pods."""
    labels = ((subject.seen.namespace.value or {}).get("metadata") or {}).get("labels") or {}
    level = labels.get(_ENFORCE, "privileged")
    if level != "privileged":
        yield from (_admitted(subject, demand, level) for demand in subject.demands if demand.role != ROUTER)
    if subject.facts["security"]["openshift"] in (subject.seen.groups.value or {}):
        folders = subject.facts.catalog.document("catalog", "lint-platform.yaml").value["writable"]["folders"]
        for demand in subject.demands:
            if demand.role != ROUTER:
                yield _constrained(demand, folders)


def _admitted(subject: Subject, demand: Demand, level: str) -> Check:
    """Asked of the server with a pod that is not kept; by the standard's own rules where one may not ask."""
    name = f"{demand.role} pods meet the namespace's pod security level {level}"
    hint = f"patch the pods' securityContext in modelserver/, or have the namespace's label {_ENFORCE} lowered"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "mmdeploy-check", "namespace": subject.namespace, "labels": dict(demand.labels)},
        "spec": {**demand.spec, "serviceAccountName": "default"},
    }
    answer = attempt(lambda: subject.session.create(pod, dry_run=True))
    said = answer.problem.found if answer.problem else ""
    if "violates PodSecurity" in said:
        return Check(CATEGORY, name, "error", said.partition("violates PodSecurity")[2].lstrip(' "'), hint)
    if answer.problem is None:
        return Check(CATEGORY, name, "ok", "tried with a pod")
    wrong = list(violations(demand.spec, level))
    if wrong:
        return Check(CATEGORY, name, "error", listed(wrong), hint)
    return Check(CATEGORY, name, "ok", "by the commonest of its rules; trying a pod takes the right to create pods")


def violations(spec: Mapping[str, Any], level: str) -> Iterator[str]:
    """What a level forbids, by the rules that model servers meet (Kubernetes, pod security standards)."""
    context = spec.get("securityContext") or {}
    yield from (f"{key} is set" for key in _HOST if spec.get(key))
    paths = [volume["name"] for volume in spec.get("volumes") or () if "hostPath" in volume]
    yield from (f"volume {name} is a hostPath" for name in paths)
    for container in containers(spec):
        own = container.get("securityContext") or {}
        if own.get("privileged"):
            yield f"container {container['name']} is privileged"
        if level != "restricted":
            continue
        lacking = []
        if own.get("allowPrivilegeEscalation") is not False:
            lacking.append("allowPrivilegeEscalation: false")
        if "ALL" not in ((own.get("capabilities") or {}).get("drop") or ()):
            lacking.append('capabilities.drop: ["ALL"]')
        if not own.get("runAsNonRoot", context.get("runAsNonRoot")):
            lacking.append("runAsNonRoot: true")
        if not (own.get("seccompProfile") or context.get("seccompProfile")):
            lacking.append("seccompProfile")
        if lacking:
            yield f"container {container['name']} lacks {listed(lacking)}"


def _constrained(demand: Demand, folders: list[str]) -> Check:
    """OpenShift runs containers as a user of its own choosing, who may write to nothing that is not mounted."""
    name = f"{demand.role} pods can write where the engine writes (OpenShift)"
    context = demand.spec.get("securityContext") or {}
    bad = []
    for container in demand.spec.get("containers") or ():
        user = (container.get("securityContext") or {}).get("runAsUser", context.get("runAsUser"))
        mounted = {mount["mountPath"].rstrip("/") for mount in container.get("volumeMounts") or ()}
        missing = [folder for folder in folders if folder not in mounted]
        if user != 0 and missing and _serves(container):
            bad.append(f"container {container['name']} has no volume at {listed(missing)}")
    if bad:
        detail = f"{listed(bad)}: an arbitrary user cannot create it, and the engine ends at its start"
        return Check(CATEGORY, name, "error", detail, "mount an emptyDir there")
    return Check(CATEGORY, name, "ok")


def _serves(container: Mapping[str, Any]) -> bool:
    """Whether it is an engine: sidecars write nowhere."""
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    return any("vllm" in str(word) for word in words)


__all__ = ["checks", "violations"]
