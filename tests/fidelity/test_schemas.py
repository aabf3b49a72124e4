"""Custom resources against the schemas of their own definitions, as strictly as an API server with strict validation:
a field that the schema does not know is an error. CEL rules in the schemas are not evaluated.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.fidelity import facts
from tests.fidelity.renders import CASES, Case, names, parse

# crds/README.md: main of LWS, and the pull request on top of it that brings groupIdentity, which the guide's own
# manifests use (disaggregatedset-observed.md, Which LWS).
SETS = "disaggregatedsets.yaml"
SETS_WITH_IDENTITY = "disaggregatedsets-groupidentity.yaml"


def strict(schema: Any) -> Any:
    """A structural schema as JSON Schema that refuses unknown fields.

    Kubernetes' own keywords become what they mean: ``int-or-string`` either type, ``preserve-unknown-fields`` an open
    object; an embedded resource has its usual three fields.
    """
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    out = {key: value for key, value in schema.items() if not key.startswith("x-kubernetes-") and key != "format"}
    for key in ("properties", "patternProperties"):
        if key in out:
            out[key] = {name: strict(item) for name, item in out[key].items()}
    for key in ("items", "additionalProperties", "not", "allOf", "anyOf", "oneOf"):
        if key in out:
            out[key] = strict(out[key])
    if schema.get("x-kubernetes-int-or-string"):
        out.pop("anyOf", None)
        out["type"] = ["integer", "string"]
    if schema.get("nullable"):
        out["type"] = [out["type"], "null"]
    closed = "properties" in out and "additionalProperties" not in out
    if closed and not schema.get("x-kubernetes-preserve-unknown-fields"):
        out["additionalProperties"] = False
    return out


@cache
def definition(file: str) -> Mapping[str, Any]:
    """The definition in ``crds/<file>``."""
    return parse(facts.path("crds", file).read_text(encoding="utf-8"))


@cache
def schema(file: str, version: str) -> Mapping[str, Any]:
    """The strict schema of one served version, with the fields that every object has."""
    (found,) = [item for item in definition(file)["spec"]["versions"] if item["name"] == version and item["served"]]
    out = strict(found["schema"]["openAPIV3Schema"])
    # The API server checks metadata itself; the schema says only that it is an object.
    out["properties"]["metadata"] = {
        "type": "object",
        "required": ["name"],
        "additionalProperties": False,
        "properties": {
            "name": {"type": "string"},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    }
    return out


@cache
def validator(file: str, version: str, *path: str) -> Draft202012Validator:
    """A validator of a definition, or of the part of its schema under ``path``."""
    part: Any = schema(file, version)
    for step in path:
        part = part["items"] if step == "[]" else part["properties"][step]
    return Draft202012Validator(part)


def problems(check: Draft202012Validator, content: Any) -> list[str]:
    """What a validator says, by place."""
    return [f"{'/'.join(map(str, error.absolute_path))}: {error.message}" for error in check.iter_errors(content)]


def against(file: str, item: Mapping[str, Any]) -> list[str]:
    """An object against the definition in a file, its group and kind included."""
    spec = definition(file)["spec"]
    group, _, version = item["apiVersion"].partition("/")
    assert (group, item["kind"]) == (spec["group"], spec["names"]["kind"])
    return problems(validator(file, version), item)


def _pods(case: Case) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for role in case.roles.values():
        yield role.name, {"metadata": {"labels": dict(role.labels)}, "spec": role.pod}


def identity(case: Case) -> str | None:
    """groupIdentity of a case's set, None where it is no set; told without a render, for collecting tests."""
    said = case.said
    if said["topology"] == "aggregation" or said["server"] != "vllm":
        return None
    # llm-d-guides.md §11.2, §18: sets are main's form, with Hash; an option on v0.9, whose LWS has no such field.
    form = said.get("workload", "DisaggregatedSet" if said["release"] == "main" else "Deployment")
    default = "Hash" if said["release"] == "main" else "none"
    return said.get("groupIdentity", default) if form == "DisaggregatedSet" else None


SETTING = [case for case in CASES if identity(case)]
MONITORED = [case for case in CASES if case.said.get("monitoring")]
GATED = [case for case in CASES if case.said.get("gateway")]


@pytest.mark.parametrize("case", SETTING, ids=names)
def test_a_set_is_one_that_its_own_lws_takes(case: Case) -> None:
    (item,) = case.of_kind("DisaggregatedSet")
    if identity(case) == "none":
        assert against(SETS, item) == []
    # The newer definition takes both.
    assert against(SETS_WITH_IDENTITY, item) == []


@pytest.mark.parametrize("case", [case for case in SETTING if identity(case) != "none"], ids=names)
def test_an_older_lws_refuses_the_group_identity_and_nothing_else(case: Case) -> None:
    # disaggregatedset-observed.md, Which LWS: "field not declared in schema".
    (item,) = case.of_kind("DisaggregatedSet")
    said = against(SETS, item)
    assert len(said) == len(item["spec"]["roles"])
    assert all("'groupIdentity' was unexpected" in line for line in said)


@pytest.mark.parametrize("case", SETTING, ids=names)
def test_a_set_keeps_the_rules_that_its_webhook_adds(case: Case) -> None:
    # disaggregatedset-observed.md, Shape: two to ten roles, all with replicas or none, a rolling update that can move,
    # size at least one; llm-d-guides.md §11.1: type RollingUpdate, partition unset.
    (item,) = case.of_kind("DisaggregatedSet")
    roles = item["spec"]["roles"]
    assert 2 <= len(roles) <= 10
    assert len({role["name"] for role in roles}) == len(roles)
    assert all(role["spec"]["replicas"] >= 1 for role in roles)
    for role in roles:
        strategy = role["spec"]["rolloutStrategy"]
        assert strategy["type"] == "RollingUpdate"
        rolling = strategy["rollingUpdateConfiguration"]
        assert "partition" not in rolling
        assert (rolling["maxSurge"], rolling["maxUnavailable"]) != (0, 0)
        assert role["spec"]["leaderWorkerTemplate"]["size"] >= 1


@pytest.mark.parametrize("case", MONITORED, ids=names)
def test_pod_monitors_are_what_the_operator_takes(case: Case) -> None:
    monitors = case.of_kind("PodMonitor")
    assert monitors
    assert [line for item in monitors for line in against("podmonitors.yaml", item)] == []


@pytest.mark.parametrize("case", GATED, ids=names)
def test_gateways_are_what_the_gateway_api_takes(case: Case) -> None:
    (item,) = case.of_kind("Gateway")
    assert against("gateways.yaml", item) == []


@pytest.mark.parametrize("case", CASES, ids=names)
def test_pods_are_what_kubernetes_takes(case: Case) -> None:
    # The definition of LeaderWorkerSet embeds Kubernetes' whole PodTemplateSpec: it serves for every form.
    path = ("spec", "leaderWorkerTemplate", "workerTemplate")
    check = validator("leaderworkersets.yaml", "v1", *path)
    assert [f"{role} {line}" for role, pod in _pods(case) for line in problems(check, pod)] == []


# ------------------------------------------------------------------------------------------- the strictness itself


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "slice"), 1),  # unknown
        (("spec", "roles", 0, "spec", "replica"), 1),  # unknown
        (("spec", "roles", 0, "spec", "groupIdentity"), "Random"),  # not in the enum
        (("spec", "slices"), "1"),  # a wrong type
        (("spec", "roles", 0, "spec", "leaderWorkerTemplate", "workerTemplate", "spec", "containers", 0, "arg"), []),
        (("metadata", "lables"), {}),
    ],
)
def test_a_wrong_field_is_found(path: tuple[str | int, ...], value: Any) -> None:
    (item,) = SETTING[0].of_kind("DisaggregatedSet")
    wrong: Any = copy.deepcopy(item)
    place = wrong
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert against(SETS_WITH_IDENTITY, wrong) != []


def test_a_set_of_one_role_is_refused() -> None:
    (item,) = SETTING[0].of_kind("DisaggregatedSet")
    alone = {**item, "spec": {**item["spec"], "roles": item["spec"]["roles"][:1]}}
    assert against(SETS_WITH_IDENTITY, alone) != []
