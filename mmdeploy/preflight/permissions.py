"""Whether the person may do what apply will do, by self-subject reviews."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mmdeploy.preflight.check import Check
from mmdeploy.preflight.facts import listed
from mmdeploy.preflight.reading import attempt
from mmdeploy.preflight.rights import Right, rights
from mmdeploy.preflight.subject import Subject

CATEGORY = "permissions"

_FEW = 3
"""Reasons that are worth naming; beyond that everything is missing."""

Missing = list[tuple[Right, list[str]]]


def checks(subject: Subject) -> Iterator[Check]:
    """One check for what apply does in the namespace, one for what it does cluster-wide, one for what checks read."""
    wanted = rights(subject.intended, subject.facts)
    if not subject.namespace_exists and "namespace" in subject.options.creates:
        yield _namespace(subject)
    missing = lacking(subject, wanted)
    inside = [item for item in wanted if not item.wide and item.need == "apply"]
    yield _judged(subject, f"may apply the bundle in namespace {subject.namespace}", inside, missing)
    wide = [item for item in wanted if item.wide and item.need == "apply"]
    if wide:
        yield _judged(subject, "may create the cluster-wide rights of the router's monitoring", wide, missing)
    looks = [item for item in wanted if item.need == "look"]
    unseen = [(item, verbs) for item, verbs in missing if item.need == "look"]
    if unseen:
        detail = f"no right to {_said(unseen)}: {listed(sorted({item.why for item, _ in unseen}))} cannot be checked"
        yield Check(CATEGORY, "may read what the checks look at", "warning", detail,
                    "apply works without it; an administrator may grant it", _granting(subject))  # fmt: skip
    else:
        yield Check(CATEGORY, "may read what the checks look at", "ok", f"{len(looks)} kinds of objects")


def _namespace(subject: Subject) -> Check:
    may = attempt(lambda: subject.session.review({"verb": "create", "group": "", "resource": "namespaces"}))
    name = f"may create namespace {subject.namespace}"
    if may.value:
        return Check(CATEGORY, name, "ok")
    why = may.why if may.problem else "no right to create namespaces"
    hint = "an administrator creates it and grants the rights in it"
    return Check(CATEGORY, name, "error", why, hint, _granting(subject))


def _judged(subject: Subject, name: str, wanted: list[Right], missing: Missing) -> Check:
    found = [(item, verbs) for item, verbs in missing if item in wanted]
    if not found:
        count = sum(len(item.verbs) for item in wanted)
        return Check(CATEGORY, name, "ok", f"{count} rights on {len(wanted)} kinds of objects")
    reasons = list(dict.fromkeys(item.why for item, _ in found))
    hint = "an administrator grants it"
    if len(reasons) <= _FEW:
        hint = f"it is for {'; '.join(reasons)}: {hint}"
    if any(item.wide for item in wanted):
        hint += ", or render without monitoring (--set monitoring=false)"
    return Check(CATEGORY, name, "error", f"no right to {_said(found)}", hint, _granting(subject))


def _said(missing: Missing) -> str:
    """Resources with the same missing verbs together."""
    grouped: dict[tuple[str, ...], list[str]] = {}
    for item, verbs in missing:
        named = f" {listed(item.names, 'or')}" if item.names else ""
        where = " of the whole cluster" if item.wide and item.resource == "pods" else ""
        grouped.setdefault(tuple(verbs), []).append(f"{item.title}{named}{where}".strip())
    return "; ".join(f"{listed(verbs)} {', '.join(resources)}" for verbs, resources in grouped.items())


def _granting(subject: Subject) -> tuple[str, ...]:
    user = subject.session.where.user or "SOMEBODY"
    granting = f"mmdeploy check {subject.bundle} --print-rbac --for {shlex.quote(user)} | kubectl apply -f -"
    create = f"kubectl create namespace {shlex.quote(subject.namespace)}"  # a Role is in its namespace
    if not subject.namespace_exists:
        return (create, granting)
    if subject.seen.namespace.value is None:  # it may not be looked at, and may be missing
        return (f"{create} --dry-run=client -o yaml | kubectl apply -f -", granting)
    return (granting,)


# ------------------------------------------------------------------------------------------------------ what is lacking


def lacking(subject: Subject, wanted: Iterable[Right]) -> Missing:
    """Rights that are missing, with their missing verbs.

    The rules that one review lists answer most; whatever they do not grant is asked one by one, because lists of rules
    may be incomplete (webhooks, cloud providers' own rights). Cluster-wide rights are always asked: among the rules of
    a namespace they cannot be told from those of the namespace.
    """
    rules = subject.seen.rules.value or {}
    open_questions: list[tuple[Right, str, dict[str, str]]] = []
    for right in wanted:
        for verb in right.verbs:
            if right.wide or not granted(rules, right, verb):
                open_questions += [(right, verb, attributes) for attributes in _attributes(subject, right, verb)]
    answers = subject.session.all([_asking(subject, right, asked) for right, _, asked in open_questions])
    found: dict[int, tuple[Right, list[str]]] = {}
    for (right, verb, _), allowed in zip(open_questions, answers, strict=True):
        if not allowed:
            verbs = found.setdefault(id(right), (right, []))[1]
            verbs += [verb] if verb not in verbs else []
    return list(found.values())


def _asking(subject: Subject, right: Right, asked: dict[str, str]) -> Any:
    if right.resource:
        return lambda: _allowed(subject, {"resourceAttributes": asked})
    return lambda: _allowed(subject, {"nonResourceAttributes": asked})


def _allowed(subject: Subject, spec: Mapping[str, Any]) -> bool:
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    answer = attempt(lambda: subject.session.request("POST", path, body=body))
    return bool(answer.value and answer.value["status"].get("allowed"))


def _attributes(subject: Subject, right: Right, verb: str) -> Iterator[dict[str, str]]:
    if not right.resource:
        for url in right.names:
            yield {"path": url, "verb": verb}
        return
    resource, _, part = right.resource.partition("/")
    said = {"verb": verb, "group": right.group, "resource": resource}
    said |= {"subresource": part} if part else {}
    said |= {} if right.wide else {"namespace": subject.namespace}
    for name in right.names or ("",):
        yield said | ({"name": name} if name else {})


def granted(rules: Mapping[str, Any], right: Right, verb: str) -> bool:
    """Whether listed rules grant a verb on every object of a resource in the namespace."""
    for rule in rules.get("resourceRules") or ():
        if rule.get("resourceNames"):
            continue
        if not _matches(rule.get("verbs"), verb) or not _matches(rule.get("apiGroups"), right.group):
            continue
        part = right.resource.partition("/")[2]
        if _matches(rule.get("resources"), right.resource) or (part and f"*/{part}" in (rule.get("resources") or ())):
            return True
    return False


def _matches(said: Iterable[str] | None, word: str) -> bool:
    return any(item in ("*", word) for item in said or ())


__all__ = ["checks", "granted", "lacking"]
