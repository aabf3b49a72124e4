"""1xx: names, groups and ports by which pools, pickers, objectives and servers refer to each other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from mmdeploy.documents import KeyPath
from mmdeploy.lint.findings import Found, Level, rule
from mmdeploy.lint.index import Deployment, Object
from mmdeploy.lint.pods import Engine
from mmdeploy.lint.pools import pickers_of
from mmdeploy.lint.router_facts import facts
from mmdeploy.lint.rules.words import listed
from mmdeploy.lint.source import dig
from mmdeploy.words import counted

_ORDINAL = re.compile(r"^(.+)-(\d+)$")
_EXT_PROC = ("grpc-ext-proc", "ext-proc", "extproc")


@rule("MMD111", Level.error, "opendatahub-io/kserve#1097; router.md §4.3")
def picker_reference(deployment: Deployment) -> Iterator[Found]:
    """A pool whose endpointPickerRef leads to another port than the endpoint picker's ext_proc."""
    for pool in deployment.kind("InferencePool"):
        path: KeyPath = ("spec", "endpointPickerRef", "port", "number")
        number = pool.get(*path)
        if number is None:
            path = ("spec", "endpointPickerRef", "portNumber")
            number = pool.get(*path)
        if not isinstance(number, int):
            continue
        known = _ext_proc_ports(deployment, str(pool.get("spec", "endpointPickerRef", "name")))
        targets = pool.get("spec", "targetPorts")
        called = [dig(item, ("number",)) for item in (targets if isinstance(targets, list) else ())]
        if number in known or (not known and number not in called):
            continue
        there = f"the endpoint picker answers on {listed(sorted(known))}"
        what = there if known else "that is the model servers' own port"
        default = facts(deployment).fact("chart", "grpcPort")
        yield Found(
            pool.document, path, pool.title,
            f"endpointPickerRef leads to port {number}, and {what}: the gateway opens ext_proc on the wrong port, and "
            "every request ends in 500",
            f"write {next(iter(sorted(known)), default)}",
        )  # fmt: skip


def _ext_proc_ports(deployment: Deployment, name: str) -> set[int]:
    """Ports on which the picker behind a Service of that name takes ext_proc; empty where nothing says."""
    found: set[int] = set()
    for service in deployment.kind("Service"):
        ports = service.get("spec", "ports")
        items = [item for item in (ports if isinstance(ports, list) else ()) if isinstance(item, Mapping)]
        if service.name == name:
            named = [item for item in items if str(item.get("name")) in _EXT_PROC]
            found |= {item["port"] for item in named or items if isinstance(item.get("port"), int)}
    if found:
        return found
    moved = deployment.router.value("router", "epp", "extProcPort")
    if moved is not None and isinstance(moved[0], int):
        return {moved[0]}
    flags = {container.command.integer("--grpc-port") for container in pickers_of(deployment)} - {None}
    if deployment.router.values or any(pickers_of(deployment)):
        default = facts(deployment).fact("chart", "grpcPort")
        return {number for number in flags if number is not None} or {int(default)}
    return set()


@rule("MMD112", Level.warning, "kubernetes-sigs/gateway-api-inference-extension#1306, #1346; llm-d/llm-d-router#1194")
def objective_reference(deployment: Deployment) -> Iterator[Found]:
    """An objective (or model rewrite) whose poolRef is of another group or name than the pool: it is not read."""
    default = str(facts(deployment).fact("pool", "group"))
    pools = {item.name for item in deployment.kind("InferencePool")}
    group = _pool_group(deployment, default)
    for item in deployment.kind("InferenceObjective", "InferenceModel", "InferenceModelRewrite"):
        said = item.get("spec", "poolRef", "group")
        if said not in (None, group):
            yield Found(
                item.document, ("spec", "poolRef", "group"), item.title,
                f"poolRef.group is {said or 'empty'}, and the endpoint picker's pool is of {group}: it compares the "
                "group too, and never reads the object", f"write group: {group}, or leave it out",
            )  # fmt: skip
        name = item.get("spec", "poolRef", "name")
        if pools and name is not None and str(name) not in pools:
            yield Found(
                item.document, ("spec", "poolRef", "name"), item.title,
                f"poolRef names {name}, and the pools here are {listed(sorted(pools))}: the object is never read",
                f"write name: {min(pools)}",
            )  # fmt: skip


def _pool_group(deployment: Deployment, default: str) -> str:
    for container in pickers_of(deployment):
        if container.command.value("--pool-group"):
            return str(container.command.value("--pool-group"))
    pools = [str(item.get("apiVersion")).split("/")[0] for item in deployment.kind("InferencePool")]
    return pools[0] if len(set(pools)) == 1 else default


@rule("MMD113", Level.error, "opendatahub-io/kserve#1097; router-flags.csv (--pool-name and its kind)")
def pool_flags(deployment: Deployment) -> Iterator[Found]:
    """An endpoint picker that watches another pool than the ones that are there."""
    pools = list(deployment.kind("InferencePool"))
    for container in pickers_of(deployment) if pools else ():
        for flag, actual in (("--pool-name", _names(pools)), ("--pool-group", _groups(pools)),
                             ("--pool-namespace", _namespaces(pools))):  # fmt: skip
            said = container.command.value(flag)
            if said is None or "$" in said or not actual or said in actual:
                continue
            yield Found(
                container.pod.document, container.command.path_of(flag), container.pod.title,
                f"{flag} is {said}, and the pool here has {listed(sorted(actual))}: the endpoint picker waits for a "
                "pool that does not come", f"write {flag} {min(actual)}",
            )  # fmt: skip


def _names(pools: list[Object]) -> set[str]:
    return {item.name for item in pools}


def _groups(pools: list[Object]) -> set[str]:
    return {str(item.get("apiVersion")).split("/")[0] for item in pools if item.get("apiVersion")}


def _namespaces(pools: list[Object]) -> set[str]:
    known = {item.namespace for item in pools}
    return set() if None in known else {name for name in known if name is not None}


@rule("MMD114", Level.warning, "llm-d-guides.md §8 (encoder membership is static)")
def stable_names(deployment: Deployment) -> Iterator[Found]:
    """Stable names in a command that no Service and StatefulSet here gives."""
    services = list(deployment.kind("Service"))
    for engine in deployment.engines if services else ():
        for url, path in _encoder_urls(engine):
            problem = _unresolved(deployment, services, url)
            if problem:
                yield Found(engine.pod.document, path, engine.pod.title,
                            f"--encoder-urls names {url}, and {problem}: the pod never reaches that encoder",
                            "write <pod>.<service> as the objects are called after namePrefix and the "
                            "like")  # fmt: skip
                break


def _encoder_urls(engine: Engine) -> Iterator[tuple[str, KeyPath]]:
    flag = engine.command.last("--encoder-urls")
    for index, url in enumerate(flag.values if flag else ()):
        yield url, _argument(engine, flag.path, index) if flag else ()


def _argument(engine: Engine, path: KeyPath, index: int) -> KeyPath:
    """The argument that holds the n-th value: its own where values are separate arguments."""
    at = (*path[:-1], path[-1] + 1 + index) if path and isinstance(path[-1], int) else path
    return at if not engine.command.shell and dig(engine.pod.document.value, at) is not None else path


def _unresolved(deployment: Deployment, services: list[Object], url: str) -> str:
    try:
        host = urlsplit(url if "//" in url else f"//{url}").hostname or ""
    except ValueError:
        return ""
    parts = host.split(".")
    if not host or "$" in host or re.fullmatch(r"[\d.]+", host):
        return ""
    names = {item.name for item in services}
    if len(parts) == 1:
        return "" if host in names or not _renamed(host, names) else f"the Service is called {_renamed(host, names)}"
    pod, service = parts[0], parts[1]
    if service not in names:
        other = _renamed(service, names)
        there = f" (there is {other})" if other else ""
        return f"no Service is called {service}{there}" if other or len(parts) == 2 else ""
    headless = [item for item in services if item.name == service]
    if _ORDINAL.match(pod) and all(str(item.get("spec", "clusterIP")) != "None" for item in headless):
        return f"Service {service} is not headless (clusterIP: None), so its pods have no names"
    match = _ORDINAL.match(pod)
    sets = [item for item in deployment.kind("StatefulSet") if item.get("spec", "serviceName") == service]
    if not match or not sets:
        return ""
    owner = next((item for item in sets if item.name == match[1]), None)
    if owner is None:
        return f"the StatefulSet of Service {service} is called {sets[0].name}"
    replicas = owner.get("spec", "replicas")
    count = replicas if isinstance(replicas, int) else 1
    return f"{owner.title} has {counted(count, 'replica')}" if int(match[2]) >= count else ""


def _renamed(name: str, names: set[str]) -> str | None:
    """A name that a prefix or suffix was added to."""
    return next((other for other in sorted(names) if other.endswith(f"-{name}") or other.startswith(f"{name}-")), None)
