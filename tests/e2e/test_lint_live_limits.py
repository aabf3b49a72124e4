"""``mmdeploy lint --live`` where the cluster shows little or nothing: missing rights, namespaces that are not there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_diff import committed
from tests.e2e.test_lint_live import lint, put
from tests.rig import users
from tests.rig.api import Api, wait
from tests.rig.controlplane import ControlPlane
from tests.rig.deploying import render

READ = ["get", "list"]
KINDS = (  # what the bundle below consists of, and a kind that the cluster serves and the bundle has not
    ("", "configmaps"), ("", "services"), ("", "serviceaccounts"), ("apps", "deployments"),
    ("inference.networking.k8s.io", "inferencepools"), ("disaggregatedset.x-k8s.io", "disaggregatedsets"),
    ("gateway.networking.k8s.io", "httproutes"),
)  # fmt: skip

pytestmark = pytest.mark.usefixtures("custom_resources")


def rights(*kinds: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"apiGroups": [group], "resources": [kind], "verbs": READ} for group, kind in kinds]


def test_what_may_not_be_read_is_said_and_makes_no_finding(
    plane: ControlPlane, admin: Api, namespace: str, tmp_path: Path
) -> None:
    """Each kind in turn is kept from the person: half a deployment is judged without a word about the other half."""
    put(plane, committed("main/e-pd/gpu/vllm/base", namespace, tmp_path / "bundle"), namespace, "--server-side")
    for hidden in KINDS:
        users.grant(admin, namespace, users.NOBODY, rights(*(kind for kind in KINDS if kind != hidden)))
        ran = lint(plane, "-n", namespace, "-o", "json", user=users.NOBODY)
        (note,) = (note for note in json.loads(ran.out)["notes"] if "may not be read" in note)
        singular = hidden[1].removesuffix("s").lower()
        assert singular in note.lower(), (hidden, note)
        assert (ran.code, json.loads(ran.out)["findings"]) == (0, []), (hidden, ran.out)


def test_kinds_that_the_cluster_does_not_serve_are_no_matter(
    plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """The rig has neither Istio's nor GKE's nor KEDA's kinds."""
    put(plane, render(plane, tmp_path / "bundle", namespace, "-t", "aggregation"), namespace, "--server-side")
    ran = lint(plane, "-n", namespace)
    assert (ran.code, ran.err) == (0, "")
    assert "may not be read" not in ran.out


def test_nothing_that_may_be_read_is_an_error(plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    alone = lint(plane, "-n", namespace, user=users.NOBODY)
    assert (alone.code, alone.out) == (5, "")
    assert f"nothing in namespace {namespace} may be read" in alone.err
    bundle = render(plane, tmp_path / "bundle", namespace, "-t", "aggregation")
    beside = lint(plane, bundle, user=users.NOBODY)
    assert (beside.code, beside.out) == (5, ""), "files do not hide that the cluster was not looked at"


def test_an_absent_namespace_and_an_empty_one(plane: ControlPlane, namespace: str) -> None:
    absent = lint(plane, "-n", "no-such-namespace")
    assert (absent.code, absent.out) == (5, "")
    assert "there is no namespace no-such-namespace" in absent.err
    empty = lint(plane, "-n", namespace)
    assert (empty.code, empty.out) == (5, "")
    assert f"namespace {namespace} holds nothing to judge" in empty.err


def test_files_are_judged_before_anything_is_applied(plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    for place in (namespace, "not-yet-made"):
        bundle = render(plane, tmp_path / place, place, "-t", "aggregation")
        ran = lint(plane, bundle)
        assert (ran.code, "nothing found" in ran.out) == (0, True), ran.out
        assert "the files are judged alone" in ran.out
        values = bundle / "router" / "values.yaml"
        values.write_text(values.read_text(encoding="utf-8").replace("llm-d.ai/guide: ", "llm-d.ai/guide: other-"))
        assert "MMD101" in lint(plane, bundle).out


def test_a_namespace_that_is_being_removed(plane: ControlPlane, admin: Api) -> None:
    """A finalizer keeps it from going while it is looked at."""
    name, where = "lint-going", "/api/v1/namespaces/lint-going"
    metadata = {"name": "held", "namespace": name, "finalizers": ["example.com/keep"]}
    admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    admin.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "b"}})
    admin.delete(where)
    wait("the ConfigMap is going", lambda: admin.get(f"{where}/configmaps/held")["metadata"].get("deletionTimestamp"))
    ran = lint(plane, "-n", name)
    plane.kubectl("patch", "configmap/held", "-n", name, "--type=merge", "-p", '{"metadata": {"finalizers": []}}')
    assert (ran.code, ran.out) == (5, "")
    assert f"namespace {name} is being removed" in ran.err
