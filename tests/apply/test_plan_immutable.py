"""Fields that cannot be changed, by the server's refusal and by what is known of the kinds."""

from __future__ import annotations

from typing import Any

import pytest

from mmdeploy.apply.comparison import immutable

# As kube-apiserver 1.35.4 answers.
REFUSALS = {
    "a Deployment's selector": (
        'Deployment.apps "decode" is invalid: spec.selector: Invalid value: {"matchLabels":{"llm-d.ai/guide":"b"}}: '
        "field is immutable",
        ("spec.selector",),
    ),
    "a StatefulSet": (
        'StatefulSet.apps "s" is invalid: spec: Forbidden: updates to statefulset spec for fields other than '
        "'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', "
        "'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        ("spec",),
    ),
    "a RoleBinding": (
        'RoleBinding.rbac.authorization.k8s.io "b" is invalid: roleRef: Invalid value: '
        '{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"y"}: cannot change roleRef',
        ("roleRef",),
    ),
    "two fields of a Service": (
        'Service "s" is invalid: [spec.clusterIPs[0]: Invalid value: ["10.96.0.9"]: may not change once set, '
        'spec.clusterIPs: Invalid value: ["10.96.0.9"]: may not change once set]',
        ("spec.clusterIPs[0]", "spec.clusterIPs"),
    ),
}


@pytest.mark.parametrize(("message", "fields"), REFUSALS.values(), ids=REFUSALS)
def test_the_server_s_refusal_names_the_fields(message: str, fields: tuple[str, ...]) -> None:
    assert immutable.refused(message) == fields


def test_another_refusal_is_no_reason_to_make_anything_anew() -> None:
    said = 'Deployment.apps "d" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0'
    assert immutable.refused(said) is None


def test_values_in_the_refusal_are_not_repeated() -> None:
    said = 'X "x" is invalid: spec.token: Invalid value: "s3cr3t": field is immutable'
    assert immutable.sentence(immutable.refused(said) or ()) == "spec.token cannot be changed once the object is there"


def deployment(guide: str, replicas: int = 1) -> dict[str, Any]:
    return {"kind": "Deployment", "spec": {"replicas": replicas, "selector": {"matchLabels": {"guide": guide}}}}


def test_without_the_server_the_kind_says_which_fields() -> None:
    """llm-d-guides.md §18: the guide label moved between releases, and a Deployment's selector is immutable."""
    assert immutable.changed(deployment("a"), deployment("b")) == ("spec.selector",)
    assert immutable.changed(deployment("a"), deployment("a", 2)) == ()


def test_a_label_less_in_a_selector_is_a_change_too() -> None:
    live = {"kind": "Deployment", "spec": {"selector": {"matchLabels": {"guide": "a", "role": "decode"}}}}
    assert immutable.changed(live, deployment("a")) == ("spec.selector",)
