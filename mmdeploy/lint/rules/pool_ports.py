"""1xx: the port that a pool calls, and who answers there: sidecar, engine, a group's workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mmdeploy.documents import KeyPath
from mmdeploy.lint.findings import Found, Level, rule
from mmdeploy.lint.index import Deployment
from mmdeploy.lint.listeners import Listener, engine_port, front, others
from mmdeploy.lint.pods import Pod
from mmdeploy.lint.pools import Pool, group_size, leads, selects, servers_of
from mmdeploy.lint.router import PickerConfig
from mmdeploy.lint.router_facts import RouterFacts, facts
from mmdeploy.lint.rules.words import listed
from mmdeploy.lint.source import dig

_RANKED = ("--data-parallel-hybrid-lb", "--data-parallel-external-lb", "--data-parallel-rank", "-dpr")
"""Flags by which every pod of a group serves requests of its own."""


@rule("MMD106", Level.error, "llm-d/llm-d-router v0.10.0 datastore.go; llm-d/llm-d#2488; router.md §4.3, §5.2")
def target_port(deployment: Deployment) -> Iterator[Found]:
    """A port that the pool calls and a selected pod does not listen on."""
    known = facts(deployment)
    for pool in deployment.pools:
        wrong = [(pod, found) for pod in pool.pods if (found := _deaf(pool, pod, known)) is not None]
        if len(wrong) == len(pool.pods) and wrong and pool.ports and len({item[1][0] for item in wrong}) == 1:
            # Every pod listens elsewhere, on one port: the pool's own number is what does not fit.
            number, document, path = next(item for item in pool.ports if item[0] == wrong[0][1][0])
            pod, (_, listener) = wrong[0]
            yield Found(
                document, path, pool.title,
                f"the pool calls port {number}, and {pod.title} listens on {listed(listener.ports)} "
                f"({listener.title}): connection refused, request by "
                "request", f"write {listener.ports[0]}, or move the servers to {number}",
            )  # fmt: skip
            continue
        for pod, (number, listener) in wrong:
            yield _elsewhere(pod, number, listener, f"the pool calls port {number}")
    if not deployment.pools:
        yield from _unequal(deployment)


def _deaf(pool: Pool, pod: Pod, known: RouterFacts) -> tuple[int, Listener] | None:
    """The first target port that nobody listens on in a pod, and who listens elsewhere; None where all is well."""
    listener = front(pod)
    annotations = dig(pod.template, ("metadata", "annotations"))
    active = any(key in (annotations or {}) for key in known.fact("pool", "activePorts") or ())
    if listener is None or active or not (leads(pod) or _serves_by_rank(pod)):
        return None
    numbers = pool.port_numbers
    if len(numbers) > 1 and pod.engine is not None and pod.engine.data_parallel > 1:
        return None  # ranks with ports of their own
    missing = [number for number in numbers if number not in listener.ports and number not in others(pod)]
    return (missing[0], listener) if missing else None


def _elsewhere(pod: Pod, number: int, listener: Listener, why: str) -> Found:
    role = f" ({pod.role})" if pod.role else ""
    effect = "its encode calls end in 502 while text works" if pod.role == "encode" else "connection refused"
    alone = pod.sidecar is None and pod.role not in ("encode", "prefill")
    sidecar = "; no sidecar stands in front of it" if alone else ""
    return Found(
        pod.document, listener.path, pod.title,
        f"{why}, and {pod.title}{role} listens on {listed(listener.ports)} ({listener.title}{sidecar}): {effect}",
        f"let the {listener.title} listen on {number}", Level.warning if pod.role == "encode" else None,
    )  # fmt: skip


def _unequal(deployment: Deployment) -> Iterator[Found]:
    """Without the router's half: roles of one deployment must answer on one port, since a pool has one for all."""
    guide = deployment.catalog.labels["guide"]
    groups: dict[tuple[str, str | None], list[tuple[Pod, Listener]]] = {}
    for pod in servers_of(deployment):
        listener = front(pod)
        if listener is not None and pod.role and guide in pod.labels and leads(pod):
            groups.setdefault((pod.labels[guide], pod.namespace), []).append((pod, listener))
    for members in groups.values():
        ports = [listener.ports[0] for _, listener in members]
        behind = [listener.ports[0] for pod, listener in members if pod.sidecar is not None]
        usual = behind[0] if behind else max(sorted(set(ports)), key=ports.count)
        for pod, listener in members if len(members) > 1 else ():
            if usual not in listener.ports and usual not in others(pod) and pod.engine and pod.engine.kind == "vllm":
                why = f"the other roles answer on port {usual}, and a pool has one for all"
                yield _elsewhere(pod, usual, listener, why)


def _serves_by_rank(pod: Pod) -> bool:
    return pod.engine is not None and any(pod.engine.command.last(name) is not None for name in _RANKED)


@rule("MMD108", Level.error, "llm-d/llm-d-router#220; llm-d/llm-d#2212")
def workers_selected(deployment: Deployment) -> Iterator[Found]:
    """A pool that also selects the workers of multi-node groups, which serve no HTTP."""
    index = facts(deployment).fact("pool", "workerIndex")
    for pool in deployment.pools:
        for pod in deployment.pods:
            if group_size(pod) < 2 or index in pool.labels or not selects(deployment, pool, pod):
                continue
            if _serves_by_rank(pod) or pod.leader:
                continue
            yield Found(
                pool.document, pool.path, pool.title,
                f"the selector also takes the workers of {pod.title} (groups of {group_size(pod)} pods), which serve "
                "no HTTP: connections are refused now and then",
                f'add {index}: "0" to the selector',
            )  # fmt: skip
            break


@rule("MMD109", Level.error, "llm-d/llm-d#2025; router.md §2.5, §2.6")
def engine_label(deployment: Deployment) -> Iterator[Found]:
    """The endpoint picker reads an engine's metrics by another engine's names."""
    known = facts(deployment)
    default_label = (known.fact("pool", "engineLabels") or ("",))[0]
    for pool in deployment.pools:
        for pod in pool.pods:
            if pod.engine is None:
                continue
            keys, fallback, own = _engine_reading(deployment, pool, known)
            said = next((pod.labels[key] for key in keys if key in pod.labels), None)
            read_as = said or fallback
            if read_as is None or read_as == pod.engine.kind or read_as in own:
                continue
            if said is None and not _reads_metrics(pool, known):
                continue
            path: KeyPath = (*pod.path, "metadata", "labels")
            at = (*path, next(key for key in keys if key in pod.labels)) if said else path
            why = f"its label says {said}" if said else f"without {default_label} that is the default"
            yield Found(
                pod.document, at, pod.title,
                f"{pod.title} runs {pod.engine.kind}, but the endpoint picker reads its metrics by the names of "
                f"{read_as}: {why}, so queue and cache scores stay flat",
                f"label the pods {default_label}: {pod.engine.kind}",
            )  # fmt: skip


def _engine_reading(deployment: Deployment, pool: Pool, known: RouterFacts) -> tuple[list[str], str | None, set[str]]:
    """Label keys, the engine of pods without the label (None where nobody knows), and engines that the config adds."""
    keys = [str(key) for key in known.fact("pool", "engineLabels") or ()]
    default = str(known.fact("pool", "defaultEngine"))
    own: set[str] = set()
    if not pool.configs:
        said = deployment.router.value("router", "modelServers", "type")
        return keys, str(said[0]) if said else default if deployment.router.values else None, own
    for config in pool.configs:
        if config.file_name == "default-plugins.yaml":
            said = deployment.router.value("router", "modelServers", "type")
            default = str(said[0]) if said else default
        for plugin in config.of_type("core-metrics-extractor"):
            keys = [str(plugin.parameters["engineLabelKey"])] if plugin.parameters.get("engineLabelKey") else keys
            default = str(plugin.parameters.get("defaultEngine") or default)
            own |= _engine_names(plugin.parameters.get("engineConfigs"))
    return keys, default, own


def _engine_names(configs: Any) -> set[str]:
    return {str(item.get("name")) for item in (configs if isinstance(configs, list) else ()) if isinstance(item, dict)}


def _reads_metrics(pool: Pool, known: RouterFacts) -> bool:
    """Whether some profile scores by what engines' metrics say; True where the chart's defaults do."""
    scorers = known.fact("pool", "metricScorers") or ()
    return not pool.configs or any(_refers(config, kind) for config in pool.configs for kind in scorers)


def _refers(config: PickerConfig, kind: str) -> bool:
    return any(kind in config.profile_types(profile) for profile in config.profiles) or (
        not config.profiles and bool(config.of_type(kind))
    )


@rule("MMD110", Level.error, "model-servers.md §4; sgl-project/sglang#4444")
def no_metrics(deployment: Deployment) -> Iterator[Found]:
    """An SGLang server that publishes no metrics, which the router schedules by."""
    known = facts(deployment)
    pods = [pod for pool in deployment.pools if _reads_metrics(pool, known) for pod in pool.pods]
    for pod in pods if deployment.pools else servers_of(deployment):
        engine = pod.engine
        if engine is None or engine.kind != "sglang" or engine.encodes_only or engine.command.on("--enable-metrics"):
            continue
        if engine.command.last("--config") is None:
            yield Found(
                pod.document, engine.command.path_of("--enable-metrics"), pod.title,
                f"{pod.title} has no /metrics without --enable-metrics: queue and cache scorers have no data of it",
                "add --enable-metrics",
            )  # fmt: skip


@rule("MMD116", Level.error, "router.md §5.1, §5.2; llm-d-incubation/llm-d-modelservice#150")
def sidecar_shadowed(deployment: Deployment) -> Iterator[Found]:
    """Engine and sidecar of one pod on the same port: one of them cannot bind."""
    for pod in deployment.pods:
        listener, port = front(pod), engine_port(pod)
        if listener is not None and listener.title == "sidecar" and port in listener.ports and pod.engine is not None:
            yield Found(
                pod.document, pod.engine.command.path_of("--port"), pod.title,
                f"engine and sidecar of {pod.title} both listen on {port}: one of them cannot bind it",
                "give the engine --port=8200 and let the sidecar lead there",
            )  # fmt: skip
