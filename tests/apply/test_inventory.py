"""An inventory is read back as it was written, from what a cluster keeps."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import replace

import pytest

from mmdeploy.apply.inventory import Ending, Entry, HelmRelease, Inventory, configmap, key, parse
from mmdeploy.errors import MmdeployError

DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "mm-decode", "namespace": "ns1"},
    "spec": {"replicas": 1},
}
INVENTORY = Inventory(
    "mm", "ns1",
    entries=(
        Entry("secret", "v1", "Secret", "token", "uid-1"), Entry("model-servers", "apps/v1", "Deployment", "mm-decode")
    ),
    release=HelmRelease("mm", "oci://example.com/chart", "v0.10.0", ("mm-epp",)),
    stages=("crds", "namespace"), spec={"name": "mm", "estimator": {"image": {"mode": "dynamic"}}},
    content={"Deployment.apps/mm-decode": DEPLOYMENT}, namespace_ours=True, at="2026-01-02T03:04:05Z", by="ada@here",
    version="0.1.0", ending=(Ending({"app": "mm"}, "mm-decode"),),
)  # fmt: skip


def test_what_is_written_is_read_back() -> None:
    assert parse(configmap(INVENTORY)) == INVENTORY
    assert parse(configmap(Inventory("mm", "ns1"))) == Inventory("mm", "ns1")


def test_the_same_inventory_is_the_same_bytes() -> None:
    assert configmap(INVENTORY) == configmap(parse(configmap(INVENTORY)))


def test_people_can_read_it_with_kubectl() -> None:
    item = configmap(INVENTORY)
    assert json.loads(item["data"]["inventory.json"])["entries"][1]["name"] == "mm-decode"
    assert "mode: dynamic" in item["data"]["mmdeploy.yaml"]
    content = json.loads(gzip.decompress(base64.b64decode(item["binaryData"]["applied.json.gz"])))
    assert content == {"Deployment.apps/mm-decode": DEPLOYMENT}


@pytest.mark.parametrize(
    "damage", ["not json", "[]", "{}", '{"schemaVersion": 2}', '{"schemaVersion": 1, "name": "mm"}']
)
def test_a_damaged_one_is_an_error_with_a_way_out(damage: str) -> None:
    item = configmap(INVENTORY)
    item["data"]["inventory.json"] = damage
    with pytest.raises(MmdeployError, match="the inventory cannot be read") as caught:
        parse(item)
    assert caught.value.origin == "ConfigMap mmdeploy-mm"
    assert "--adopt" in str(caught.value.next_step)


@pytest.mark.parametrize(
    "change",
    [{"namespace": "other"}, {"name": "other"}, {"at": 5}, {"namespace_ours": "yes"}, {"stages": [1]}],
    ids=lambda change: next(iter(change)),
)
def test_one_that_says_another_place_or_other_types_is_an_error(change: dict[str, object]) -> None:
    """A removal goes where the inventory lies: what it says of itself must be the same."""
    item = configmap(INVENTORY)
    item["data"]["inventory.json"] = json.dumps(json.loads(item["data"]["inventory.json"]) | change)
    with pytest.raises(MmdeployError, match="changed by hand"):
        parse(item)


@pytest.mark.parametrize("entry", [{"name": 5}, {"stage": "bogus"}, {"kind": ""}], ids=lambda entry: next(iter(entry)))
def test_an_entry_of_no_stage_or_name_is_an_error(entry: dict[str, object]) -> None:
    item = configmap(INVENTORY)
    kept = json.loads(item["data"]["inventory.json"])
    kept["entries"][0] |= entry
    item["data"]["inventory.json"] = json.dumps(kept)
    with pytest.raises(MmdeployError, match="changed by hand"):
        parse(item)


def test_a_spec_that_is_no_mapping_is_an_error() -> None:
    item = configmap(INVENTORY)
    item["data"]["mmdeploy.yaml"] = "[1, 2]"
    with pytest.raises(MmdeployError, match="changed by hand"):
        parse(item)


def test_content_that_is_cut_off_is_an_error() -> None:
    item = configmap(INVENTORY)
    item["binaryData"]["applied.json.gz"] = item["binaryData"]["applied.json.gz"][:40]
    with pytest.raises(MmdeployError, match="changed by hand"):
        parse(item)


def test_an_object_is_the_same_in_every_version_of_its_kind() -> None:
    metadata = {"name": "mm"}
    keys = {
        key({"apiVersion": f"inference.networking.k8s.io/{version}", "kind": "InferencePool", "metadata": metadata})
        for version in ("v1", "v1alpha2")
    }
    assert keys == {"InferencePool.inference.networking.k8s.io/mm"}
    assert key({"apiVersion": "v1", "kind": "Secret", "metadata": metadata}) == "Secret/mm"


def test_entries_are_updated_and_struck_by_key() -> None:
    told = INVENTORY.with_uid("Deployment.apps/mm-decode", "uid-2")
    assert [entry.uid for entry in told.entries] == ["uid-1", "uid-2"]
    struck = told.without(["Deployment.apps/mm-decode"])
    assert [entry.name for entry in struck.entries] == ["token"]
    assert struck.content == {}
    assert replace(struck, entries=told.entries, content=told.content) == told


# A Deployment makes ReplicaSets that are called after it and a hash, and those own the pods (Kubernetes); a
# StatefulSet owns its pods itself.
@pytest.mark.parametrize(
    ("owner", "yes"),
    [("mm-decode-7dfc6f886f", True), ("mm-decode", True), ("mm-decode-two-7dfc6f886f", False), ("other-5c4rw", False)],
)
def test_pods_of_another_deployment_with_the_same_labels_are_not_waited_for(owner: str, yes: bool) -> None:
    pod = {"metadata": {"name": "x", "ownerReferences": [{"kind": "ReplicaSet", "name": owner}]}}
    assert Ending({"app": "mm"}, "mm-decode").has(pod) is yes


def test_an_apply_is_finished_when_all_that_it_listed_was_written() -> None:
    entry = Entry("model-servers", "apps/v1", "Deployment", "mm-decode", "uid")
    whole = Inventory("mm", "serving", (entry,), HelmRelease("mm", "chart"), ("router", "model-servers"))
    assert whole.finished
    assert not replace(whole, stages=("router",)).finished
    assert not replace(whole, stages=("model-servers",)).finished
    assert not replace(whole, entries=(replace(entry, uid=""),)).finished
