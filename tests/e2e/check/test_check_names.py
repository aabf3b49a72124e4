"""Names and pods that the API server stores and controllers cannot use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.e2e.check.checking import Checker
from tests.rig.api import Api, wait

FITS = "names leave room"


def longer(kind: str, length: int) -> Any:
    """A change that gives an object a name of so many characters."""

    def change(item: dict[str, Any]) -> None:
        if item["kind"] == kind:
            item["metadata"]["name"] = "s" * length

    return change


def test_a_set_and_its_role(checker: Checker) -> None:
    # disaggregatedset-observed.md: 47 for both; encode and decode have 6. There is no webhook here to refuse it.
    good, bad = longer("DisaggregatedSet", 41), longer("DisaggregatedSet", 42)
    assert checker(good, topology="e-pd")[FITS].result == "ok"
    found = checker(bad, topology="e-pd")
    assert FITS not in found
    said = found[f"DisaggregatedSet {'s' * 42}, role encode, has a name"]
    assert said.result == "error"
    assert "64 characters of 63" in said.detail
    assert said.hint.startswith("shorten it by 1")
    assert found["the server accepts every object"].result == "ok"  # nobody else says so


def test_a_set_whose_name_no_service_can_have(checker: Checker) -> None:
    def dotted(item: dict[str, Any]) -> None:
        if item["kind"] == "DisaggregatedSet":
            item["metadata"]["name"] = "mm.epd"

    found = checker(dotted, topology="e-pd")
    assert found["mm.epd has a name that a Service can have"].result == "error"
    assert "that a Service can have" not in checker(topology="e-pd")


def test_a_stateful_set_s_pods(checker: Checker, admin: Api, namespace: str) -> None:
    def stateful(length: int) -> Any:
        def change(item: dict[str, Any]) -> None:
            if item["kind"] == "Deployment":
                item["kind"] = "StatefulSet"
                item["metadata"]["name"] = "s" * length
                item["spec"] = {key: item["spec"][key] for key in ("selector", "template")} | {"replicas": 1}

        return change

    assert checker(stateful(52))[FITS].result == "ok"
    bad = checker.intended(stateful(53))
    said = checker.of(bad)["has a name that controllers can work with"]
    assert (said.result, "64 characters of 63" in said.detail) == ("error", True)
    for item in bad.objects:  # the real controller says the same, later
        admin.apply(item)
    events = f"/api/v1/namespaces/{namespace}/events"
    wait("it cannot make its pod", lambda: [e for e in admin.items(events) if e["reason"] == "FailedCreate"
                                            and "metadata.labels" in e["message"]])  # fmt: skip


def test_a_namespace_to_be_made(checker: Checker) -> None:
    before = {"creates": frozenset({"namespace", "secret"})}
    found = checker.intended()
    for name, good in (("n" * 63, True), ("n" * 64, False), ("has.dots", False)):
        spec = {**found.spec, "namespace": name}
        checks = checker.of(type(found)(found.origin, spec, found.values, {}), **before)
        assert (f"{name} can be a namespace's name" not in checks) is good


def test_pods_of_a_set_are_tried_although_its_schema_takes_them(checker: Checker, tmp_path: Path) -> None:
    # disaggregatedset-observed.md: "bad label value, port name: accepted; Warning FailedCreate on the LeaderWorkerSet".
    def labelled(length: int) -> Any:
        def change(item: dict[str, Any]) -> None:
            if item["kind"] == "DisaggregatedSet":
                template = item["spec"]["roles"][0]["spec"]["leaderWorkerTemplate"]["workerTemplate"]
                template["metadata"]["labels"]["team"] = "t" * length

        return change

    assert "accepts the pods of" not in checker(labelled(63), topology="e-pd")
    found = checker(labelled(64), topology="e-pd")
    assert found["the server accepts every object"].result == "ok"
    said = found["accepts the pods of DisaggregatedSet"]
    assert said.result == "error"
    assert said.detail.startswith("spec.template.labels: Invalid value")
    assert said.detail.endswith("must be no more than 63 bytes")
