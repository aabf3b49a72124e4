"""Custom resources: whether the API server serves the kinds that the bundle and the router's chart are made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mmdeploy.preflight.check import Check
from mmdeploy.preflight.facts import listed
from mmdeploy.preflight.kinds import required
from mmdeploy.preflight.reading import attempt
from mmdeploy.preflight.subject import Subject

CATEGORY = "custom-resources"


def checks(subject: Subject) -> Iterator[Check]:
    """One check a kind that is not Kubernetes' own, then those of DisaggregatedSets."""
    for api_version, kind in required(subject.intended, subject.facts):
        group = api_version.rpartition("/")[0]
        if "." in group and (not group.endswith(".k8s.io") or group in subject.facts["origins"]):
            yield _served(subject, api_version, kind)
    yield from _sets(subject)


def _served(subject: Subject, api_version: str, kind: str) -> Check:
    group, _, version = api_version.rpartition("/")
    name = f"{kind} is served as {api_version}"
    served = subject.seen.served[api_version, kind]
    if served.value:
        return Check(CATEGORY, name, "ok")
    if served.problem is not None:
        return Check(CATEGORY, name, "skipped", served.why)
    title, commands = subject.facts.bringing(group, subject.intended.spec.get("versions") or {})
    versions = (subject.seen.groups.value or {}).get(group, [])
    if not versions:
        detail = f"the cluster does not know {group}"
    elif version in versions:
        detail = f"the cluster serves {api_version} without it"
    else:
        detail = f"the cluster serves {group} {listed(versions)} only"
    if "crds" in subject.options.creates and commands:
        return Check(CATEGORY, name, "ok", "will be installed by apply")
    return Check(CATEGORY, name, "error", detail, f"{title} brings it; an administrator installs it", commands)


def _sets(subject: Subject) -> Iterator[Check]:
    sets = [item for item in subject.intended.workloads if item["kind"] == "DisaggregatedSet"]
    served = subject.seen.served.get(subject.facts.kind("set"))
    if not sets or served is None or not served.value:
        return
    yield from _field(subject)
    yield _webhook(subject, sets[0])


def _field(subject: Subject) -> Iterator[Check]:
    """Whether the set's schema has the newest field: an older LWS refuses it, or drops it where nobody validates."""
    rules, schema = subject.facts["sets"], subject.seen.schema
    name = f"DisaggregatedSet knows {rules['field']}"
    if schema.value is None and schema.problem is None:
        return
    if schema.value is None:
        yield Check(CATEGORY, name, "skipped", schema.why, "the dry run below tells")
    elif rules["field"] in schema.value:
        yield Check(CATEGORY, name, "ok")
    else:
        title, commands = subject.facts.bringing("disaggregatedset.x-k8s.io", subject.intended.spec["versions"])
        hint = f"{title} brings it; or render with --set groupIdentity=none"
        yield Check(CATEGORY, name, "error", "the installed LeaderWorkerSet is too old for it", hint, commands)


def _webhook(subject: Subject, item: Mapping[str, Any]) -> Check:
    """Whether somebody checks sets beyond their schema: asked with a set that only the webhook refuses.

    The chart installs the webhook together with the controller of DisaggregatedSets; where it is off, a set is
    stored, and nothing ever comes of it (disaggregatedset-observed.md).
    """
    rules = subject.facts["sets"]
    name = "LeaderWorkerSet looks after DisaggregatedSets"
    answer = attempt(lambda: subject.session.create(_refused(item, subject.trial_namespace), dry_run=True))
    said = answer.problem.found if answer.problem else ""
    if answer.problem is None:
        return Check(
            CATEGORY, name, "warning",
            f"no webhook checks sets: {rules['switch']} seems to be off, and a set would be stored and never started",
            f"an administrator looks at helm release {rules['release']} in {rules['namespace']}",
            subject.facts.bringing("disaggregatedset.x-k8s.io", subject.intended.spec["versions"])[1],
        )  # fmt: skip
    if "failed calling webhook" in said:
        hint = f"kubectl get pods --namespace {rules['namespace']} shows whether its manager runs"
        return Check(CATEGORY, name, "error", f"its webhook does not answer: {said}", hint)
    if answer.forbidden and "denied the request" not in said:
        return Check(CATEGORY, name, "skipped", "you have no right to create a DisaggregatedSet, even as a dry run")
    if "denied the request" in said:
        return Check(CATEGORY, name, "ok", "its webhook answers")
    return Check(CATEGORY, name, "skipped", said)


def _refused(item: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    """The set with a rollout that can neither add nor take away: valid by schema, refused by the webhook. Fields that
    an older schema lacks are left out."""
    first, *rest = item["spec"]["roles"]
    spec = {key: value for key, value in first["spec"].items() if key != "groupIdentity"}
    still = {"type": "RollingUpdate", "rollingUpdateConfiguration": {"maxSurge": 0, "maxUnavailable": 0}}
    others = [{**role, "spec": {k: v for k, v in role["spec"].items() if k != "groupIdentity"}} for role in rest]
    return {
        "apiVersion": item["apiVersion"],
        "kind": item["kind"],
        "metadata": {"name": "mmdeploy-check", "namespace": namespace},
        "spec": {**item["spec"], "roles": [{**first, "spec": {**spec, "rolloutStrategy": still}}, *others]},
    }


__all__ = ["checks"]
