"""Every object tried on the server: the whole chain of validation and admission, and nothing is kept."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from mmdeploy.errors import ConflictError, ForbiddenError, MmdeployError, NotFoundError, RejectedError
from mmdeploy.preflight import takeovers
from mmdeploy.preflight.check import Check, Result
from mmdeploy.preflight.demand import pod_templates
from mmdeploy.preflight.facts import listed
from mmdeploy.preflight.reading import Reading, attempt
from mmdeploy.preflight.subject import Subject

if TYPE_CHECKING:
    from mmdeploy.intended import Object

CATEGORY: Final = "dry-run"
_RIGHT: Final = re.compile(r"cannot (create|patch|update) resource")
"""A right that is missing; quotas and admission say "forbidden" too."""
_TRIAL: Final = "mmdeploy-check"
"""Name of a Deployment that is only ever tried."""
_SCHEMA: Final = re.compile(r"failed to create typed patch object \([^)]*\): (?:errors:\s*)?(?P<why>.+)", re.DOTALL)
"""What server-side apply says of a field that the schema lacks, or has with another type."""
_INVALID: Final = re.compile(rf'^.*"{_TRIAL}" is invalid: ')


def checks(subject: Subject) -> Iterator[Check]:
    """One check for the bundle's objects when all pass, else one for each that does not; then the router's."""
    force = subject.options.adopt or subject.options.force_conflicts
    objects = subject.intended.objects
    yield from _judged(subject, "object", objects, _tried(subject, objects, force))
    yield from _pods(subject)
    chart = subject.options.chart
    if chart is None:
        yield Check(CATEGORY, "the server accepts the router's objects", "skipped",
                    "the chart was not fetched; --router-chart PATH tries its objects too")  # fmt: skip
        return
    rendered = attempt(lambda: _chart(subject))
    if rendered.value is None:
        hint = "look at router/values.yaml"
        if "://" in chart.reference:
            hint += "; where its registry cannot be reached: --router-chart PATH takes the chart from here"
        yield Check(CATEGORY, f"chart {chart} makes objects of the values", "error", rendered.why, hint)
    else:
        tried = _tried(subject, rendered.value, True)  # their fields are helm's
        foreign = list(takeovers.foreign(subject, tried))
        yield from foreign
        others = [(item, answer) for item, answer in tried if not takeovers.concerns(item, foreign)]
        yield from _judged(subject, "object of the router", rendered.value, others)


def _pods(subject: Subject) -> Iterator[Check]:
    """The pods of sets: the schema of a set lets through what the server refuses of a pod (a label's value, a port's
    name), and then only an event tells (disaggregatedset-observed.md). A Deployment of the same pods is measured now.
    """
    templates = list(pod_templates(subject.intended.workloads))
    trials = [_trying_pods(subject, template) for _, template in templates]
    answers: list[Reading[Any]] = subject.session.all(trials)
    for (owner, _), answer in zip(templates, answers, strict=True):
        if isinstance(answer.problem, RejectedError) and _INVALID.search(answer.problem.found):
            detail = _INVALID.sub("", answer.problem.found)
            hint = "correct the pod template, or the settings that it was rendered from"
            yield Check(CATEGORY, f"the server accepts the pods of {owner}", "error", detail, hint)


def _trying_pods(subject: Subject, template: Mapping[str, Any]) -> Callable[[], Reading[Any]]:
    metadata = template.get("metadata") or {}
    marked = {**metadata, "labels": {**(metadata.get("labels") or {}), _TRIAL: "pods"}}
    item = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": _TRIAL, "namespace": subject.trial_namespace},
        "spec": {"selector": {"matchLabels": {_TRIAL: "pods"}}, "template": {**template, "metadata": marked}},
    }
    return lambda: attempt(lambda: subject.session.create(item, dry_run=True))


def _chart(subject: Subject) -> list[Any]:
    from mmdeploy.cluster.helm import Helm

    assert subject.options.chart is not None
    helm = Helm(subject.session.access, subject.namespace)
    found = helm.template(subject.intended.name, subject.options.chart, subject.intended.values)
    return [item for item in found if item and item["kind"] not in ("ClusterRole", "ClusterRoleBinding")]


def _tried(subject: Subject, objects: Sequence[Object], force: bool) -> list[tuple[Object, Reading[Any]]]:
    """The objects whose kind is served, and what the server says of each."""
    served = [item for item in objects if _is_served(subject, item)]
    answers: list[Reading[Any]] = subject.session.all([_trying(subject, item, force) for item in served])
    return list(zip(served, answers, strict=True))


def _judged(
    subject: Subject, what: str, objects: Sequence[Object], served: Sequence[tuple[Object, Reading[Any]]]
) -> Iterator[Check]:
    asked = [
        (item, answer.problem) for item, answer in served if not _comes_with_its_role(item, answer.problem, objects)
    ]
    bad = [(item, problem) for item, problem in asked if problem]
    unserved = len(objects) - sum(_is_served(subject, item) for item in objects)
    left = f"; {unserved} not, whose kind it does not serve" * bool(unserved)
    left += f"; {len(served) - len(asked)} not, whose Role is not there yet" * (len(asked) < len(served))
    if not subject.namespace_exists:
        yield from _elsewhere(subject, what, bad, f"{len(asked)} tried", left)
        return
    barred = [item for item, problem in bad if isinstance(problem, ForbiddenError) and _RIGHT.search(problem.found)]
    if barred:
        names = listed([f"{item['kind']} {item['metadata']['name']}" for item in barred])
        yield Check(CATEGORY, f"the server accepts {names}", "skipped", "you have no right to write it")
    for item, problem in bad:
        if item not in barred:
            yield _refused(subject, item, problem)
    name = f"the server accepts every {what}"
    if not bad:
        yield Check(CATEGORY, name, "ok" if asked else "skipped", f"{len(asked)} tried, strictly{left}")


def _elsewhere(
    subject: Subject, what: str, bad: Sequence[tuple[Object, MmdeployError]], tried: str, left: str
) -> Iterator[Check]:
    """Tried in another namespace: what the objects themselves are refused for counts, and nothing else does."""
    wrong = [(item, problem) for item, problem in bad if isinstance(problem, RejectedError)]
    for item, problem in wrong:
        yield _refused(subject, item, problem)
    if wrong:
        return
    name, where = f"the server accepts every {what}", f"namespace {subject.trial_namespace}"
    if bad:
        yield Check(CATEGORY, name, "skipped", f"{where} does not allow trying them, and {subject.namespace} is not "
                    "there yet")  # fmt: skip
    else:
        detail = f"{tried} in {where}, as {subject.namespace} is not there yet to say what it allows{left}"
        yield Check(CATEGORY, name, "ok", detail)


def _comes_with_its_role(item: Object, problem: MmdeployError | None, objects: Sequence[Object]) -> bool:
    """Whether a binding was refused only for want of its Role, which will be made before it.

    The server looks the Role up to see that nobody gives away more than they have; administrators are not asked.
    """
    if item["kind"] != "RoleBinding" or not isinstance(problem, NotFoundError):
        return False
    return any(other["kind"] == "Role" and other["metadata"]["name"] == item["roleRef"]["name"] for other in objects)


def _is_served(subject: Subject, item: Object) -> bool:
    return bool(attempt(lambda: subject.session.resource(item["apiVersion"], item["kind"])).value)


def _trying(subject: Subject, item: Object, force: bool) -> Callable[[], Reading[Any]]:
    placed = {**item, "metadata": {**item["metadata"], "namespace": subject.trial_namespace}}
    return lambda: attempt(lambda: subject.session.apply(placed, dry_run=True, force=force))


def _refused(subject: Subject, item: Object, problem: MmdeployError) -> Check:
    name = f"the server accepts {item['kind']} {item['metadata']['name']}"
    if isinstance(problem, ConflictError) and problem.managers:
        detail = f"fields of it belong to {listed(problem.managers)}: {problem.found}"
        hint = "apply --force-conflicts takes them over; the other manager may take them back"
        return Check(CATEGORY, name, "error", detail, hint)
    hint = problem.next_step or "correct the object, or the settings that it was rendered from"
    if "groupIdentity" in problem.found:
        hint = "a newer LeaderWorkerSet knows the field; or render with --set groupIdentity=none"
    if "immutable" in problem.found:
        result: Result = "warning" if subject.options.recreate else "error"
        return Check(CATEGORY, name, result, problem.found, "apply --recreate deletes the object and makes it anew")
    misfit = _SCHEMA.search(problem.found)
    if misfit:
        detail = f"it does not fit the schema of its kind: {' '.join(misfit['why'].split())}"
        return Check(CATEGORY, name, "error", detail, "correct that field, or the settings that it was rendered from")
    return Check(CATEGORY, name, "error", problem.found, hint)


__all__ = ["checks"]
