"""8xx: what Prometheus scrapes, and what it silently does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mmdeploy.documents import KeyPath
from mmdeploy.lint.accelerators import is_follower
from mmdeploy.lint.findings import Found, Level, rule
from mmdeploy.lint.index import Deployment, Object
from mmdeploy.lint.pods import Pod
from mmdeploy.lint.scrapes import Endpoint, Monitor, has_port, matches, monitors, port_names, service_ports
from mmdeploy.lint.source import dig


def _notes(deployment: Deployment) -> Mapping[str, Any]:
    found: Mapping[str, Any] = deployment.tables.notes("platform")["metrics"]
    return found


def _ours(deployment: Deployment, monitor: Monitor) -> bool:
    """Whether a monitor speaks of model servers: by llm-d's labels in its selector, or because it finds some."""
    keys = set(deployment.catalog.labels.values())
    wanted = monitor.object.get("spec", "selector", "matchLabels")
    named = keys & set(map(str, wanted)) if isinstance(wanted, Mapping) else set()
    return bool(named) or bool(_targets(deployment, monitor))


def _targets(deployment: Deployment, monitor: Monitor) -> list[Pod]:
    """Pods with an engine that a monitor of pods selects."""
    return [
        pod
        for pod in deployment.pods
        if pod.engine is not None and monitor.of_pods and monitor.selects(pod.labels, pod.namespace)
    ]


def _selector(monitor: Monitor) -> KeyPath:
    return ("spec", "selector", "matchLabels") if monitor.object.get("spec", "selector", "matchLabels") else ("spec",)


@rule("MMD801", Level.warning, "llm-d-guides.md §9; field.md §4.2 (llm-d-async#355)")
def selects_nothing(deployment: Deployment) -> Iterator[Found]:
    """A monitor without targets: no error anywhere, no series either."""
    served = [pod for pod in deployment.pods if pod.engine is not None]
    for monitor in monitors(deployment):
        item = monitor.object
        if not monitor.endpoints:
            yield Found(
                item.document, ("spec",), item.title, f"{item.title} lists no endpoint, so nothing is scraped",
                "list the port and path to scrape",
            )  # fmt: skip
        elif monitor.of_pods and served and _ours(deployment, monitor) and not _any_pod(deployment, monitor):
            yield from _without_pods(monitor, served)


def _any_pod(deployment: Deployment, monitor: Monitor) -> bool:
    return any(monitor.selects(pod.labels, pod.namespace) for pod in deployment.pods)


def _without_pods(monitor: Monitor, served: list[Pod]) -> Iterator[Found]:
    item = monitor.object
    elsewhere = [pod for pod in served if matches(item.get("spec", "selector"), pod.labels)]
    if elsewhere:
        places = ", ".join(sorted({str(pod.namespace) for pod in elsewhere}))
        yield Found(
            item.document, ("spec", "namespaceSelector") if item.get("spec", "namespaceSelector") else ("spec",),
            item.title, f"it looks into its own namespace ({item.namespace}), and the pods it selects are in {places}",
            f"add namespaceSelector.matchNames: [{places}], or create it in that namespace",
        )  # fmt: skip
        return
    yield Found(
        item.document, _selector(monitor), item.title,
        f"its selector {_words(item.get('spec', 'selector', 'matchLabels'))} matches none of the model servers here: "
        "nothing is scraped, and nothing says so",
        "use labels that the pods carry, or remove it",
    )  # fmt: skip


def _words(labels: Any) -> str:
    return ", ".join(f"{key}={value}" for key, value in labels.items()) if isinstance(labels, Mapping) else "{}"


@rule("MMD802", Level.warning, "kubeai-project/kubeai#391; llm-d-guides.md §9")
def no_such_port(deployment: Deployment) -> Iterator[Found]:
    """A port that no selected pod (or Service) has, or a path that engines do not serve."""
    services = _by_label(deployment)
    for monitor in monitors(deployment):
        pods = _targets(deployment, monitor)
        for endpoint in monitor.endpoints if pods else ():
            yield from _port(monitor, endpoint, pods)
            yield from _path(deployment, monitor, endpoint)
        if not monitor.of_pods:
            yield from _service_port(monitor, services)


def _port(monitor: Monitor, endpoint: Endpoint, pods: list[Pod]) -> Iterator[Found]:
    port, key = endpoint.port
    lacking = [pod for pod in pods if port is not None and not has_port(pod, port)]
    if not lacking:
        return
    names = ", ".join(port_names(lacking)) or "none"
    which = "none of the pods it selects has" if len(lacking) == len(pods) else f"{lacking[0].title} does not have"
    yield Found(
        monitor.object.document, (*endpoint.path, key), monitor.object.title,
        f"{which} a port {port!r} (its ports: {names}): no target, and no error",
        f"write port: {port_names(lacking)[0]}" if port_names(lacking) else "name the engine's containerPort",
    )  # fmt: skip


def _path(deployment: Deployment, monitor: Monitor, endpoint: Endpoint) -> Iterator[Found]:
    wanted = _notes(deployment)["path"]
    path = endpoint.spec.get("path")
    if isinstance(path, str) and path.rstrip("/") != wanted and path.strip("/"):
        yield Found(
            monitor.object.document, (*endpoint.path, "path"), monitor.object.title,
            f"engines serve their metrics on {wanted}, not on {path}", f"write path: {wanted}",
        )  # fmt: skip


def _by_label(deployment: Deployment) -> Mapping[tuple[str, str], list[Object]]:
    """Services by each of their labels: comparing every monitor with every Service would take too long."""
    found: dict[tuple[str, str], list[Object]] = {}
    for item in deployment.kind("Service"):
        labels = item.get("metadata", "labels")
        for key, value in labels.items() if isinstance(labels, Mapping) else ():
            found.setdefault((str(key), str(value)), []).append(item)
    return found


def _service_port(monitor: Monitor, by_label: Mapping[tuple[str, str], list[Object]]) -> Iterator[Found]:
    wanted = monitor.object.get("spec", "selector", "matchLabels")
    first = (
        next(((str(key), str(value)) for key, value in wanted.items()), None) if isinstance(wanted, Mapping) else None
    )
    services = [item for item in by_label.get(first, ()) if _chosen(monitor, item)] if first else []
    for endpoint in monitor.endpoints if services else ():
        port, key = endpoint.port
        if port is None or key == "targetPort" or any(port in service_ports(item) for item in services):
            continue
        names = ", ".join(sorted({str(name) for item in services for name in service_ports(item)})) or "none"
        yield Found(
            monitor.object.document, (*endpoint.path, key), monitor.object.title,
            f"{services[0].title} has no port {port!r} (it has {names}): no target, and no error",
            "use the name of one of the Service's ports",
        )  # fmt: skip


def _chosen(monitor: Monitor, service: Object) -> bool:
    labels = service.get("metadata", "labels")
    texts = {str(key): str(value) for key, value in labels.items()} if isinstance(labels, Mapping) else {}
    return monitor.selects(texts, service.namespace)


@rule("MMD803", Level.warning, "llm-d-guides.md §9 (no PodMonitor for encode)")
def unwatched_role(deployment: Deployment) -> Iterator[Found]:
    """Some model servers are scraped and others are not."""
    listed = [monitor for monitor in monitors(deployment) if deployment.engines and _ours(deployment, monitor)]
    watched = [pod for monitor in listed for pod in _targets(deployment, monitor)]
    if not watched or any(not monitor.of_pods and _of_engines(deployment, monitor) for monitor in listed):
        return
    for pod in deployment.pods:
        quiet = pod.engine is None or _annotated(deployment, pod) or is_follower(pod, deployment)
        if quiet or any(pod is other for other in watched) or not _together(deployment, pod, watched):
            continue
        role = f"role {pod.role}" if pod.role else pod.title
        yield Found(
            listed[0].object.document, ("metadata", "name"), pod.title,
            f"pods of {role} ({pod.title}) are scraped by no monitor, while others of the deployment are",
            f"add a PodMonitor whose selector matches {role}",
        )  # fmt: skip


def _together(deployment: Deployment, pod: Pod, watched: list[Pod]) -> bool:
    """Whether a pod belongs to the deployment of the watched ones: same namespace, same guide label."""
    guide = deployment.catalog.labels["guide"]
    return any(
        (pod.namespace is None or other.namespace is None or pod.namespace == other.namespace)
        and pod.labels.get(guide) == other.labels.get(guide)
        for other in watched
    )


def _of_engines(deployment: Deployment, monitor: Monitor) -> bool:
    """Whether a ServiceMonitor reaches engines through a Service of theirs."""
    for service in deployment.kind("Service"):
        selector = service.get("spec", "selector")
        if _chosen(monitor, service) and isinstance(selector, Mapping) and selector:
            labels = {str(key): str(value) for key, value in selector.items()}
            if any(pod.engine is not None for pod in deployment.selected(labels)):
                return True
    return False


def _annotated(deployment: Deployment, pod: Pod) -> bool:
    value = dig(pod.template, ("metadata", "annotations", _notes(deployment)["scrapeAnnotation"]))
    return str(value).lower() == "true"


@rule("MMD804", Level.warning, "router.md §4.4; field.md §4.1.24 (llm-d/llm-d-router#2370)")
def unauthorised(deployment: Deployment) -> Iterator[Found]:
    """The endpoint picker's metrics want a token unless told otherwise, and nothing sends one."""
    for monitor in monitors(deployment):
        for endpoint in monitor.endpoints:
            if endpoint.port[0] not in (_notes(deployment)["pickerPort"], _notes(deployment)["pickerPortNumber"]):
                continue
            if not endpoint.authorised and _guarded(deployment):
                yield Found(
                    monitor.object.document, endpoint.path, monitor.object.title,
                    "the endpoint picker answers 401 to a scrape without a token, and this endpoint sends none",
                    "set router.monitoring.prometheus.auth.enabled: false, or add an authorization with a token that "
                    "may get /metrics",
                )  # fmt: skip


def _guarded(deployment: Deployment) -> bool:
    """Whether metrics of the endpoint picker are known to be guarded: by its flags, else by the values."""
    flag = _notes(deployment)["authFlag"]
    pickers = [item for pod in deployment.pods for item in pod.containers if item.program == "epp"]
    if pickers:
        return all(item.command.value(flag) not in ("false", "False", "0", "f", "F", "FALSE") for item in pickers)
    if not deployment.router.values:
        return False
    auth = deployment.router.value("router", "monitoring", "prometheus", "auth", "enabled")
    own = deployment.router.value("router", "epp", "flags", flag.lstrip("-"))
    return (auth is None or auth[0] is not False) and (own is None or str(own[0]).lower() != "false")


@rule("MMD805", Level.warning, "router.md §4.4 (rights to check a token come with prometheus.enabled)")
def token_without_rights(deployment: Deployment) -> Iterator[Found]:
    """A picker that guards its metrics but may not check tokens answers 500 to a scrape with one."""
    for monitor in monitors(deployment):
        for endpoint in monitor.endpoints:
            picker = endpoint.port[0] in (_notes(deployment)["pickerPort"], _notes(deployment)["pickerPortNumber"])
            if not picker or not endpoint.authorised or not deployment.router.values:
                continue
            enabled = deployment.router.value("router", "monitoring", "prometheus", "enabled")
            if any(item.program == "epp" for pod in deployment.pods for item in pod.containers):
                continue  # the rendered chart shows its own rights
            if _guarded(deployment) and (enabled is None or enabled[0] is not True):
                yield Found(
                    monitor.object.document, endpoint.path, monitor.object.title,
                    "the endpoint picker lacks the rights to check the token (they come with "
                    "router.monitoring.prometheus.enabled), and every scrape ends in 500",
                    "set router.monitoring.prometheus.enabled: true, or auth.enabled: false",
                )  # fmt: skip
