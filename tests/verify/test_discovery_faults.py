"""What the objects of a namespace show to be wrong, before anything is sent."""

from __future__ import annotations

from typing import Any

import pytest

from mmdeploy.errors import NotFoundError, UsageError
from mmdeploy.verify.cluster import discovery, routers
from mmdeploy.verify.cluster.looking import Seen
from tests.verify.clusters import CATALOG, READY, bundle, picker_pod, picker_service, pool_of, seen

EPD = "main/e-pd/gpu/vllm/base"


def symptoms(there: Seen, known: bool = True) -> list[tuple[str, str]]:
    meant = bundle(EPD) if known else None
    result = discovery.discover(there, routers.find(there, CATALOG, None), CATALOG, meant=meant)
    return [(item.numbers["symptom"], item.about) for item in result.observations if item.numbers.get("symptom")]


def pod_of(there: Seen, role: str) -> Any:
    return next(pod for pod in there.pods if pod["metadata"]["labels"].get("llm-d.ai/role") == role)


def stranger(**labels: str) -> Any:
    container = {"name": "modelserver", "image": "docker.io/vllm/vllm-openai:v0.27.1",
                 "command": ["vllm", "serve", "other/model"], "args": []}  # fmt: skip
    return {
        "metadata": {
            "name": "other-5d8f-abcde",
            "labels": {"pod-template-hash": "5d8f", **{key.replace("__", "/"): value for key, value in labels.items()}},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "other-5d8f"}],
        },
        "spec": {"containers": [container]},
        "status": {"phase": "Running", "podIP": "10.244.7.7", "conditions": READY},
    }


def test_a_pod_of_somebody_else_in_the_pool() -> None:
    there = seen(bundle(EPD))
    other = stranger() | {}
    other["metadata"]["labels"]["llm-d.ai/guide"] = "e-disaggregation"
    there = Seen(**{**vars(there), "pods": [*there.pods, other]})
    assert symptoms(there) == [("pool-foreign", "other-5d8f-abcde")]


def test_the_picker_itself_in_the_pool() -> None:
    there = seen(bundle(EPD))
    picker = next(pod for pod in there.pods if "epp" in pod["metadata"]["name"])
    picker["metadata"]["labels"]["llm-d.ai/guide"] = "e-disaggregation"  # disaggregatedset-observed.md: it counts then
    assert symptoms(there) == [("pool-foreign", picker["metadata"]["name"])]


@pytest.mark.parametrize("known", [True, False])
def test_a_pod_that_the_pool_does_not_select(known: bool) -> None:
    there = seen(bundle(EPD))
    pod = pod_of(there, "encode")
    del pod["metadata"]["labels"]["llm-d.ai/guide"]
    assert symptoms(there, known) == [("not-selected", pod["metadata"]["name"])]


@pytest.mark.parametrize("known", [True, False])
def test_an_encode_pod_without_its_role_label(known: bool) -> None:
    there = seen(bundle(EPD))
    pod = pod_of(there, "encode")
    del pod["metadata"]["labels"]["llm-d.ai/role"]
    assert symptoms(there, known) == [("unlabelled", pod["metadata"]["name"])]


def test_a_selector_that_matches_nothing() -> None:
    there = seen(bundle(EPD))
    there.pools[0]["spec"]["selector"]["matchLabels"] = {"llm-d.ai/guide": "e-pd"}
    found = symptoms(there)
    assert {symptom for symptom, _ in found} == {"not-selected"}
    assert len(found) == 10  # 2 encode pods and 8 decode pods: llm-d-guides.md §6


def test_pods_that_end_or_have_ended_do_not_count() -> None:
    from mmdeploy.verify.cluster.looking import _lives

    pod = pod_of(seen(bundle(EPD)), "decode")
    assert _lives(pod)
    assert not _lives({**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    assert not _lives({**pod, "status": {"phase": "Failed"}})


def test_without_any_pod_that_serves() -> None:
    meant = bundle(EPD)
    there = Seen(meant.namespace, pods=[picker_pod(meant)], services=[picker_service(meant)], pools=[pool_of(meant)])
    with pytest.raises(NotFoundError, match="no pod of the deployment"):
        symptoms(there)


def test_without_any_router() -> None:
    with pytest.raises(NotFoundError, match="no endpoint picker and no InferencePool"):
        routers.find(Seen("empty"), CATALOG, None)


def test_two_deployments_ask_for_a_name() -> None:
    there = seen(bundle(EPD))
    other = {**there.pools[0], "metadata": {"name": "second"}, "spec": {**there.pools[0]["spec"],
             "endpointPickerRef": {"name": "second-epp"}}}  # fmt: skip
    there = Seen(**{**vars(there), "pools": [*there.pools, other]})
    with pytest.raises(UsageError, match="2 deployments") as caught:
        routers.find(there, CATALOG, None)
    assert caught.value.nearest == ("multimodal-serving", "second")
    assert routers.find(there, CATALOG, "second").release == "second"
    with pytest.raises(UsageError) as caught:
        routers.find(there, CATALOG, "secund")
    assert caught.value.nearest == ("second",)
