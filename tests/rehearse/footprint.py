"""What a handful of requests shows of a deployment, in plain data: a fault is told by what it changes here."""

from __future__ import annotations

from typing import Any

from mmdeploy.rehearse.deployment import Deployment
from mmdeploy.rehearse.messages import Message, Reply
from tests.rehearse.client import RED, Watch, chat, image, said, samples, text, total

LONG = "The router hashes the text and the image of a multimodal request. " * 30
GOOD_TOKEN = {"authorization": "Bearer rehearsal"}
REQUESTS: dict[str, tuple[Any, ...]] = {
    "text": (text("[1] What is 19 + 23?"),),
    "picture": (text(LONG), image(256, 256, RED)),
    "again": (text(LONG), image(256, 256, RED)),
    "other": (text("[2] And this one?"), image(1280, 720, RED)),
    "last": (text("[3] What is 20 + 22?"),),
}
COUNTED = {
    "ended": ("vllm:request_success_total", "sglang:num_requests_total", "sglang:encoder_requests_total"),
    "prefix hits": ("vllm:prefix_cache_hits_total",),
    "media hits": ("vllm:mm_cache_hits_total", "sglang:encoder_cache_hit_files_total"),
    "KV tokens moved": ("vllm:external_prefix_cache_hits_total",),
    "KV transfers failed": ("vllm:nixl_num_failed_transfers_total",),
}
LOGGED = {"READ completed": "embeddings fetched", "using local input": "embeddings missed", "warning": "sidecar warns"}


def of(deployment: Deployment) -> dict[str, Any]:
    """The footprint: flat, so that two of them compare key by key."""
    for pod in deployment.pods.values():
        pod.engine.settings.debug = True
    watch = Watch(deployment) if _open(deployment) else None
    found: dict[str, Any] = {}
    model = deployment.settings.model
    for name, parts in REQUESTS.items():
        before = deployment.clock.now()
        reply = chat(deployment.entry, model, *parts)
        found[f"{name}: status"] = reply.status
        if reply.status == 200:
            found[f"{name}: answer"] = said(reply)
            found[f"{name}: prompt tokens"] = reply.content["usage"]["prompt_tokens"]
        if deployment.clock.now() - before > 0.01:
            found[f"{name}: slow"] = True
        deployment.clock.sleep(0.5)  # between requests of a person
    found |= _counted(watch) if watch else {}
    found |= _logged(deployment)
    found |= _direct(deployment)
    found |= _scraped(deployment)
    return found


def changed(clean: dict[str, Any], faulty: dict[str, Any]) -> dict[str, Any]:
    """What differs; None for what is not there any more."""
    return {key: faulty.get(key) for key in (*clean, *(set(faulty) - set(clean))) if clean.get(key) != faulty.get(key)}


def _open(deployment: Deployment) -> bool:
    router = deployment.settings.router
    return router.up and router.authentication == "open"


def _counted(watch: Watch) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for title, names in COUNTED.items():
        for name in names:
            for role, value in watch.roles(name).items():
                found[f"{role}: {title}"] = found.get(f"{role}: {title}", 0) + value
    for decision, value in watch.by("llm_d_epp_disagg_decision_total", "decision_type").items():
        found[f"picker: {decision}"] = value
    for name, title in (("hit_ratio_sum", "hit ratio"), ("hit_bytes_sum", "hit bytes")):
        for pod, value in watch.moved(f"llm_d_epp_prefix_indexer_{name}").items():
            found[f"{pod}: {title}"] = value
    return found


def _logged(deployment: Deployment) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pod in deployment.pods.values():
        for line in pod.engine.logs:
            for words, title in LOGGED.items():
                if words in line and pod.settings.role != "encode":
                    found[title] = found.get(title, 0) + 1
    return found


def _direct(deployment: Deployment) -> dict[str, Any]:
    """A picture straight to an encode pod, and what each pod says that it serves."""
    found: dict[str, Any] = {}
    served = set()
    for name, pod in deployment.pods.items():
        engine = pod.engine
        if engine.settings.encoder_only and name.endswith("-0"):
            reply = chat(engine, deployment.settings.model, image())
            answer = reply.content.get("ec_transfer_params") if reply.status == 200 else reply.status
            found["encode: hands over"] = (
                next(iter(answer.values()))["peer_host"] if isinstance(answer, dict) else answer
            )
        models = engine(Message("GET", "/v1/models"))
        if models.status == 200:
            served.add((models.content["data"][0]["id"], engine.settings.version))
    found["served"] = sorted(map(" ".join, served))
    return found


def _scraped(deployment: Deployment) -> dict[str, Any]:
    """The picker's metrics without and with a token, and its pods."""
    found: dict[str, Any] = {}
    try:
        reply = deployment.scrape_picker(Message("GET", "/metrics"))
        found["picker: with a token"] = deployment.scrape_picker(Message("GET", "/metrics", GOOD_TOKEN)).status
    except Exception as problem:
        return {"picker: metrics": type(problem).__name__}
    found["picker: metrics"] = reply.status
    if reply.status == 200:
        deployment.clock.sleep(6)
        page = str(deployment.scrape_picker(Message("GET", "/metrics")).content)
        found["picker: ready"] = total(page, "llm_d_epp_ready_endpoints")
        found["picker: polls fail"] = any(name.endswith("poll_errors_total") for name, _, _ in samples(page))
    found["pods answer"] = sum(_answers(deployment, name) for name in deployment.pods)
    return found


def _answers(deployment: Deployment, name: str) -> bool:
    """Whether plain HTTP gets metrics from a pod's own port."""
    pod = deployment.pods[name].settings
    handler = deployment.door(pod.ip, pod.port)
    reply: Reply | None = handler(Message("GET", "/metrics")) if handler else None
    return reply is not None and reply.status == 200
