"""What each request does, by topology: the table of router-observed.md ("What each request does")."""

from __future__ import annotations

from typing import Any

import pytest

from mmdeploy.rehearse.messages import Message
from tests.rehearse.client import BLUE, RED, Start, Watch, chat, image, said, text

RED_IMAGE, BLUE_IMAGE = image(colour=RED), image(colour=BLUE)
REQUESTS: dict[str, tuple[Any, ...]] = {
    "text": (text("How are you?"),),
    "image": (RED_IMAGE, text("What colour?")),
    "two images": (RED_IMAGE, BLUE_IMAGE, text("What colours?")),
    "one image given twice": (RED_IMAGE, RED_IMAGE, text("What colours?")),
}
DECISIONS = {  # topology → decision without and with media; None: the counter does not exist
    "aggregation": (None, None),
    "e-pd": ("decode-only", "encode-decode"),
    "e-p-d": ("prefill-decode", "encode-prefill-decode"),
}
ENCODE_CALLS = {"text": 0, "image": 1, "two images": 2, "one image given twice": 1}
FINISHED = "vllm:request_success_total"


@pytest.mark.parametrize("request_name", REQUESTS)
@pytest.mark.parametrize("topology", DECISIONS)
def test_stages_run_as_observed(start: Start, topology: str, request_name: str) -> None:
    deployment = start(topology)
    watch = Watch(deployment)
    reply = chat(deployment.entry, deployment.settings.model, *REQUESTS[request_name])
    assert reply.status == 200
    encodes = ENCODE_CALLS[request_name] if topology != "aggregation" else 0
    expected = {"decode": 1.0}
    if encodes:
        expected["encode"] = encodes
    if topology == "e-p-d":
        expected["prefill"] = 1
    assert watch.roles(FINISHED) == expected
    decision = DECISIONS[topology][request_name != "text"]
    assert watch.by("llm_d_epp_disagg_decision_total", "decision_type") == ({decision: 1} if decision else {})
    busy = [pod for pod in watch.moved(FINISHED) if pod.startswith("encode")]
    assert len(busy) == (1 if encodes else 0), "every item of a request goes to the same encoder"


def test_two_encoders_share_with_a_picker_of_their_own(start: Start) -> None:
    deployment = start("e-pd")
    configuration = deployment.settings.router.configuration
    configuration["plugins"].append(
        {"type": "max-score-picker", "name": "spread", "parameters": {"maxNumOfEndpoints": 2}}
    )
    configuration["schedulingProfiles"][0]["plugins"][-1]["pluginRef"] = "spread"
    deployment = type(deployment)(deployment.settings, deployment.clock)
    watch = Watch(deployment)
    assert chat(deployment.entry, deployment.settings.model, *REQUESTS["two images"]).status == 200
    assert watch.moved(FINISHED, finished_reason="stop") | {"decode": 0} == {
        "encode-0": 1,
        "encode-1": 1,
        "decode": 0,
    } | {pod: 1 for pod in watch.moved(FINISHED) if pod.startswith("decode")}


def test_encode_calls_carry_what_was_observed(start: Start) -> None:
    """max_tokens 1, stream false, and an x-request-id of the sidecar's with -enc-N."""
    deployment = start("e-pd")
    calls: list[Message] = []
    for name in ("encode-0", "encode-1"):
        engine = deployment.pods[name].engine
        original = engine.routes

        def routes(original: Any = original) -> Any:
            found = dict(original())
            inner = found["POST", "/v1/chat/completions"]
            return {
                **found,
                ("POST", "/v1/chat/completions"): lambda message: (calls.append(message), inner(message))[1],
            }

        engine.routes = routes  # type: ignore[method-assign]
    chat(
        deployment.entry,
        deployment.settings.model,
        *REQUESTS["two images"],
        stream=True,
        stream_options={"include_usage": True},
        headers={"x-request-id": "mine"},
    )
    names = [call.headers["x-request-id"] for call in calls]
    assert [name[-6:] for name in names] == ["-enc-0", "-enc-1"]
    assert names[0][:-6] == names[1][:-6] != "mine"
    for call in calls:
        assert (call.content["max_tokens"], call.content["stream"]) == (1, False)
        assert "stream_options" not in call.content
        assert len(call.content["messages"][0]["content"]) == 1


def test_the_picture_is_seen(start: Start) -> None:
    deployment = start("e-p-d")
    assert said(chat(deployment.entry, deployment.settings.model, *REQUESTS["image"])) == "The picture is red."
    both = said(chat(deployment.entry, deployment.settings.model, *REQUESTS["two images"]))
    assert both == "The pictures are red and blue."


def test_a_bare_string_for_a_url_gets_400(start: Start) -> None:
    deployment = start("e-pd")
    part = {"type": "image_url", "image_url": RED_IMAGE["image_url"]["url"]}
    assert chat(deployment.entry, deployment.settings.model, part).status == 400


def test_a_get_reaches_encode_pods_too(start: Start) -> None:
    deployment = start("e-pd")
    served = set()
    for _ in range(100):
        deployment.entry(Message("GET", "/v1/models"))
        served.add(deployment._last)
    assert {"encode-0", "encode-1"} <= served


def test_a_clients_prefiller_header_sends_text_to_an_encoder(start: Start) -> None:
    """In E/PD the picker does not set that header, so the client's survives."""
    deployment = start("e-pd")
    watch = Watch(deployment)
    headers = {"x-prefiller-host-port": deployment.pods["encode-0"].settings.address}
    reply = chat(deployment.entry, deployment.settings.model, text("hello"), headers=headers)
    assert reply.status == 200
    assert watch.moved(FINISHED)["encode-0"] == 1


def test_scheduler_attempts_name_only_the_decode_pod(start: Start) -> None:
    deployment = start("e-p-d")
    watch = Watch(deployment)
    chat(deployment.entry, deployment.settings.model, *REQUESTS["image"])
    (target,) = watch.by("llm_d_epp_scheduler_attempts_total", "endpoint_name")
    assert target.startswith("decode-")


def test_sglang_asks_its_encoders_itself_in_turn(start: Start) -> None:
    """model-servers.md §4, router.md §5.4: the router's pool holds the decode pod alone."""
    deployment = start("sglang")
    watch = Watch(deployment)
    for request in REQUESTS.values():
        assert chat(deployment.entry, deployment.settings.model, *request).status == 200
    assert watch.moved("sglang:encoder_requests_total", status="success") == {f"encode-{n}": 1 for n in range(4)}
    assert watch.roles("sglang:num_requests_total") == {"decode": 4}
    assert watch.by("llm_d_epp_disagg_decision_total", "decision_type") == {}
