"""Whose doing a change is, by what was last applied and by who owns the field."""

from __future__ import annotations

from typing import Any

import pytest

from mmdeploy.apply.comparison.fieldowners import FieldOwners
from mmdeploy.apply.plan.drift import History, foreign

IMAGE = "spec.template.spec.containers[modelserver].image"


def workload(image: str = "a:1", replicas: int | None = 2, **more: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"template": {"spec": {"containers": [{"name": "modelserver", "image": image}]}}, **more}
    if replicas is not None:
        spec["replicas"] = replicas
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "decode"}, "spec": spec}


def fields(*names: str) -> dict[str, Any]:
    """A tree of fields as the API server writes it: of ``replicas`` and of the container's ``image``."""
    found: dict[str, Any] = {}
    if "replicas" in names:
        found["f:replicas"] = {}
    if "image" in names:
        item = {".": {}, "f:name": {}, "f:image": {}} if "name" in names else {"f:image": {}}
        found["f:template"] = {"f:spec": {"f:containers": {'k:{"name":"modelserver"}': item}}}
    return {"f:spec": found}


def owned(live: dict[str, Any], **managers: tuple[str, ...]) -> dict[str, Any]:
    """The live object with owners of its fields; ``mmdeploy`` applies, everybody else updates."""
    entries = [
        {
            "manager": name.replace("_", "-"),
            "operation": "Apply" if name == "mmdeploy" else "Update",
            "fieldsV1": fields(*names),
        }
        for name, names in managers.items()
    ]
    return {**live, "metadata": {**live["metadata"], "managedFields": entries, "uid": "1", "resourceVersion": "7"}}


OURS = {"mmdeploy": ("replicas", "image", "name")}
EDITED = {"mmdeploy": ("replicas", "name"), "kubectl_edit": ("image",)}
CASES = {
    # name: live image, owners, last applied image (None: unknown), wanted image, cause, manager
    "a new render of what is ours": ("a:1", OURS, "a:1", "a:2", "render", ""),
    "written down ahead by an apply that was interrupted": ("a:1", OURS, "a:2", "a:2", "render", ""),
    "edited": ("b:1", EDITED, "a:1", "a:1", "drift", "kubectl-edit"),
    "edited, and rendered anew": ("b:1", EDITED, "a:1", "a:2", "both", "kubectl-edit"),
    "edited, and the inventory is lost": ("b:1", EDITED, None, "a:1", "drift", "kubectl-edit"),
    "edited back to what was applied": ("a:1", EDITED, "a:1", "a:2", "render", ""),
}


@pytest.mark.parametrize(("live", "owners", "last", "wanted", "cause", "manager"), CASES.values(), ids=CASES)
def test_the_cause_of_a_changed_image(
    live: str, owners: dict[str, Any], last: str | None, wanted: str, cause: str, manager: str
) -> None:
    there = owned(workload(live), **owners)
    history = History(there, workload(wanted), workload(last) if last else None, FieldOwners.of(there))
    (change,) = history.changes(workload(wanted))
    assert (change.path, change.before, change.after) == (IMAGE, live, wanted)
    assert (change.cause, change.manager) == (cause, manager)


def test_a_field_that_somebody_took_away_is_drift() -> None:
    there = owned(workload(replicas=None), mmdeploy=("image", "name"))
    history = History(there, workload(), workload(), FieldOwners.of(there))
    (change,) = history.changes(workload())
    assert (change.path, change.before, change.after, change.cause) == ("spec.replicas", None, 2, "drift")


def test_what_the_server_writes_is_no_change() -> None:
    there = owned(workload(), **OURS)
    after = {**there, "metadata": {**there["metadata"], "resourceVersion": "8", "generation": 3}, "status": {"x": 1}}
    assert History(there, workload(), workload(), FieldOwners.of(there)).changes(after) == ()


def test_a_field_of_somebody_else_s_is_known_and_left_alone() -> None:
    there = owned(workload(replicas=5), mmdeploy=("image", "name"), autoscaler=("replicas",))
    (change,) = foreign(there, workload(replicas=None), FieldOwners.of(there))
    assert (change.path, change.after, change.cause, change.manager) == (
        "spec.replicas", 5, "other-manager", "autoscaler",
    )  # fmt: skip


def test_a_controller_s_status_and_defaults_are_not_worth_telling() -> None:
    there = owned(workload(minReadySeconds=0), **OURS)
    there["metadata"]["managedFields"] += [
        {"manager": "kube-controller-manager", "operation": "Update", "subresource": "status",
         "fieldsV1": {"f:spec": {"f:replicas": {}}}},
        {"manager": "old", "operation": "Update", "fieldsV1": {"f:spec": {"f:minReadySeconds": {}}}},
    ]  # fmt: skip
    assert foreign(there, workload(), FieldOwners.of(there)) == ()
