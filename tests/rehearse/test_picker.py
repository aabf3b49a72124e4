"""The picker beyond its decisions: its pool, its metrics, who may read them, and wrong configurations.

Expectations: router-observed.md ("Wrong configurations on v0.10.0"), router.md §1.6, §2.3, §4.4, §6.1.
"""

from __future__ import annotations

from typing import Any

import pytest

from mmdeploy.errors import UsageError
from mmdeploy.rehearse.deployment import Deployment
from mmdeploy.rehearse.messages import Message, UnreachableError
from mmdeploy.rehearse.rehearsal import prepared
from tests.rehearse.client import HeldClock, Start, Watch, chat, image, samples, text, total

READY, POLLS = "llm_d_epp_ready_endpoints", "llm_d_epp_datalayer_poll_errors_total"
BEARER = {"authorization": "Bearer some-token"}


def page(deployment: Deployment, **headers: str) -> str:
    reply = deployment.scrape_picker(Message("GET", "/metrics", headers))
    assert reply.status == 200
    return str(reply.content)


def test_half_a_surrogate_pair_in_a_name_leaves_the_metrics_readable(start: Start) -> None:
    deployment = start("e-pd")
    body = b'{"model": "m\\ud800", "messages": [{"role": "user", "content": "a\\udfff"}]}'
    deployment.entry(Message("POST", "/v1/chat/completions", {"content-type": "application/json"}, body))
    page(deployment).encode()  # raises UnicodeEncodeError for what no page can hold
    assert deployment.scrape_picker(Message("GET", "/metrics")).encoded()


def again(deployment: Deployment) -> Deployment:
    """The picker restarted, with the configuration as it is now."""
    return Deployment(deployment.settings, deployment.clock)


def test_ready_endpoints_forgets_a_lost_pod_with_the_next_flush(start: Start, clock: HeldClock) -> None:
    """Metrics go stale after 2 s, and the gauge is flushed every 5 s."""
    deployment = start("aggregation")
    clock.sleep(1)  # 1 s after a flush
    deployment.pods["decode-3"].lost_at = clock.now()
    seen = []
    for _ in range(6):
        seen.append(total(page(deployment), READY))
        clock.sleep(1)
    assert seen == [8, 8, 8, 8, 7, 7]


def test_a_lost_pod_is_asked_until_its_metrics_are_stale(start: Start, clock: HeldClock) -> None:
    deployment = start("sglang")
    deployment.pods["decode-0"].lost_at = clock.now()
    assert chat(deployment.entry, deployment.settings.model, text("hello")).status == 503
    with pytest.raises(UnreachableError):
        deployment.send(deployment.pods["decode-0"].settings.ip, 8000, Message("GET", "/health"))
    clock.sleep(3)
    assert deployment.members() == []


def test_each_failed_poll_counts(start: Start, clock: HeldClock) -> None:
    """Every 50 ms, for each pod of the pool whose metrics cannot be read."""
    deployment = start("aggregation", ["metrics-port"])
    page(deployment)
    clock.sleep(1)
    assert total(page(deployment), POLLS, source_type="metrics-data-source") == 8 * 20


def test_no_failed_poll_no_series(start: Start, clock: HeldClock) -> None:
    deployment = start("aggregation")
    clock.sleep(60)
    with pytest.raises(KeyError):
        total(page(deployment), POLLS)


@pytest.mark.parametrize(
    ("monitoring", "without", "with_token"),
    [
        ({}, 401, 500),  # the chart's defaults
        ({"prometheus": {"auth": {"enabled": False}}}, 200, 200),
        ({"prometheus": {"enabled": True, "auth": {"enabled": False}}}, 200, 200),
        ({"prometheus": {"enabled": True}}, 401, 403),  # a token that is not allowed
    ],
)
def test_the_charts_values_say_who_may_read(
    start: Start, catalog: Any, bundles: Any, monitoring: dict[str, Any], without: int, with_token: int
) -> None:
    import dataclasses

    read = bundles("e-pd")
    values = {**read.values, "router": {**read.values["router"], "monitoring": monitoring}}
    settings = prepared(dataclasses.replace(read, values=values), catalog, as_chart=True)
    deployment = Deployment(settings, start("e-pd").clock)
    assert deployment.scrape_picker(Message("GET", "/metrics")).status == without
    assert deployment.scrape_picker(Message("GET", "/metrics", BEARER)).status == with_token


def test_the_right_token_is_let_in(start: Start) -> None:
    deployment = start("e-pd", ["metrics-token"])
    assert deployment.scrape_picker(Message("GET", "/metrics")).status == 401
    assert page(deployment, authorization="Bearer rehearsal")


def test_no_decode_pods_429_and_no_pods_503(start: Start) -> None:
    deployment = start("e-pd")
    for pod in deployment.settings.of("decode"):
        pod.ready = False
    assert chat(deployment.entry, deployment.settings.model, text("hello")).status == 429
    for pod in deployment.settings.pods:
        pod.ready = False
    assert chat(deployment.entry, deployment.settings.model, text("hello")).status == 503


def test_an_absent_decode_profile_answers_429(start: Start) -> None:
    deployment = start("e-pd")
    configuration = deployment.settings.router.configuration
    configuration["schedulingProfiles"] = [
        each for each in configuration["schedulingProfiles"] if each["name"] != "decode"
    ]
    deployment = again(deployment)
    assert chat(deployment.entry, deployment.settings.model, text("hello")).status == 429


def test_renamed_profiles_need_the_handler_to_know(start: Start) -> None:
    deployment = start("e-pd", ["encode-profile-renamed"])
    for plugin in deployment.settings.router.configuration["plugins"]:
        if plugin["type"] == "disagg-profile-handler":
            plugin["parameters"]["profiles"] = {"encode": "encoder"}
    deployment = again(deployment)
    watch = Watch(deployment)
    chat(deployment.entry, deployment.settings.model, image())
    assert watch.by("llm_d_epp_disagg_decision_total", "decision_type") == {"encode-decode": 1}


def test_a_decider_by_uncached_tokens(start: Start) -> None:
    """prefix-based-pd-decider: prefill when that many tokens or more are not cached; 0 never."""
    decided = []
    for least in (0, 100, 10_000):
        deployment = start("e-p-d")
        configuration = deployment.settings.router.configuration
        configuration["plugins"].append({"type": "prefix-based-pd-decider", "parameters": {"nonCachedTokens": least}})
        for plugin in configuration["plugins"]:
            if plugin["type"] == "disagg-profile-handler":
                plugin["parameters"]["deciders"]["prefill"] = "prefix-based-pd-decider"
        deployment = again(deployment)
        watch = Watch(deployment)
        chat(deployment.entry, deployment.settings.model, text("x" * 4000))
        decided += watch.by("llm_d_epp_disagg_decision_total", "decision_type")
    assert decided == ["decode-only", "prefill-decode", "decode-only"]


def test_a_dangling_reference_is_refused(start: Start) -> None:
    deployment = start("e-pd")
    deployment.settings.router.configuration["schedulingProfiles"][0]["plugins"].append(
        {"pluginRef": "max-scorer-picker"}
    )
    with pytest.raises(UsageError, match="max-scorer-picker"):
        again(deployment)


def test_missing_producers_are_made_with_defaults(start: Start) -> None:
    """Forgetting approx-prefix-cache-producer and inflight-load-producer is no error; the filter asks for both."""
    deployment = start("aggregation")
    configuration = deployment.settings.router.configuration
    configuration["plugins"] = [each for each in configuration["plugins"] if not each["type"].endswith("-producer")]
    deployment = again(deployment)
    for _ in range(2):
        chat(deployment.entry, deployment.settings.model, text("x" * 4000))
    assert total(page(deployment), "llm_d_epp_prefix_indexer_hit_ratio_sum") == 1.0


def test_affinity_gives_way_to_a_long_queue(start: Start) -> None:
    """A warm pod is left when waiting for it costs more than maxTTFTPenaltyMs: tokens in flight / peak x 1000."""
    deployment = start("aggregation")
    words = text("x" * 4000)
    chat(deployment.entry, deployment.settings.model, words)
    warm = deployment._last
    chat(deployment.entry, deployment.settings.model, words)
    assert deployment._last == warm
    load = deployment.picker.ledger
    load._load("inflight-load-producer", warm, "others", 1, 15751 * 40)  # 40 s at the bundle's peak; 36 s are allowed
    chat(deployment.entry, deployment.settings.model, words)
    assert deployment._last != warm


def test_requests_and_their_ends_are_counted(start: Start) -> None:
    deployment = start("aggregation")
    watch = Watch(deployment)
    headers = {"x-llm-d-inference-fairness-id": "me"}
    reply = chat(deployment.entry, deployment.settings.model, image(), text("?"), headers=headers)
    chat(deployment.entry, "some/other", text("hello"), headers=headers)
    assert watch.by("llm_d_epp_request_total", "model_name") == {deployment.settings.model: 1, "some/other": 1}
    assert watch.by("llm_d_epp_request_error_total", "error_code") == {"404": 1}
    assert watch.moved("llm_d_epp_request_input_tokens_sum", fairness_id="me") == {
        "picker": reply.content["usage"]["prompt_tokens"]
    }


def test_names_of_models_and_clients_do_not_pile_up(start: Start) -> None:
    """1000 distinct names, then `other` (router.md §6.1); as many clients are remembered."""
    deployment = start("sglang")
    for number in range(1100):
        headers = {"x-llm-d-inference-fairness-id": f"client-{number}"}
        chat(deployment.entry, f"model-{number}", text("hello"), headers=headers)
    counted = [at for name, at, _ in samples(page(deployment)) if name == "llm_d_epp_request_total"]
    assert len(counted) == 1000
    assert {at["fairness_id"] for at in counted} == {f"client-{number}" for number in range(100, 1100)}
    assert sum(at["model_name"] == "other" for at in counted) == 100


def test_on_a_cluster_a_pods_ports_are_numbered(start: Start) -> None:
    """As the router's datastore does it (v0.10.0); a file lists endpoints under their own names."""
    for as_chart, ending in ((True, "-rank-0"), (False, "")):
        deployment = start("aggregation", as_chart=as_chart)
        deployment.settings.router.authentication = "open"
        chat(deployment.entry, deployment.settings.model, text("hello"))
        name = deployment._last + ending
        assert total(page(deployment), "llm_d_epp_scheduler_attempts_total", endpoint_name=name) == 1


def test_info_tells_the_release(start: Start) -> None:
    assert total(page(start("v0.9/e-pd/gpu/vllm/base")), "llm_d_epp_info", build_ref="v0.10.0") == 1


def test_a_repeat_in_e_p_d_hits_only_on_the_same_decode_pod(start: Start) -> None:
    """The ratio is that of the decode pod, even where the prefill pod hits."""
    deployment = start("e-p-d")
    request = (text("x" * 4000), image())
    chat(deployment.entry, deployment.settings.model, *request)
    first, watch = deployment._last, Watch(deployment)
    for _ in range(12):
        before = total(page(deployment), "llm_d_epp_prefix_indexer_hit_ratio_sum")
        used = {deployment._last}
        chat(deployment.entry, deployment.settings.model, *request)
        hit = total(page(deployment), "llm_d_epp_prefix_indexer_hit_ratio_sum") - before
        assert hit in (0, 1)
        if deployment._last == first:
            assert hit == 1
        used.add(deployment._last)
    assert watch.roles("vllm:prefix_cache_hits_total")["prefill"] > 0
