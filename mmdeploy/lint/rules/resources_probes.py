"""5xx, second half: probes, the time an engine may take to start and to stop."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mmdeploy.documents import KeyPath
from mmdeploy.lint.accelerators import group_size, is_follower
from mmdeploy.lint.findings import Found, Level, rule
from mmdeploy.lint.index import Deployment
from mmdeploy.lint.peers import opaque, subject
from mmdeploy.lint.pods import Engine
from mmdeploy.lint.source import dig
from mmdeploy.words import counted

KINDS = ("startupProbe", "readinessProbe", "livenessProbe")
_SERVING = ("Deployment", "StatefulSet", "ReplicaSet", "DaemonSet", "LeaderWorkerSet", "DisaggregatedSet", "Pod")
_BILLIONS = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)[bB](?![\w])")
_SLEEP = re.compile(r"(?:^|[\s;/&])sleep\s+(\d+(?:\.\d+)?)([smh]?)\b")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True)
class Probe:
    """A probe of an engine's container, with Kubernetes' defaults filled in."""

    engine: Engine
    kind: str
    spec: Mapping[str, Any]
    path: KeyPath
    defaults: Mapping[str, int]

    def seconds(self, name: str) -> int:
        """One of the numbers of a probe."""
        value = self.spec.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else self.defaults[name]

    @property
    def budget(self) -> int:
        """Seconds after which the kubelet gives up on a container that never answers."""
        return self.seconds("initialDelaySeconds") + self.seconds("periodSeconds") * self.seconds("failureThreshold")

    @property
    def action(self) -> tuple[str, Mapping[str, Any]] | None:
        """``httpGet``, ``tcpSocket`` or ``grpc``, with what it says; None for a program that is run."""
        for name in ("httpGet", "tcpSocket", "grpc"):
            value = self.spec.get(name)
            if isinstance(value, Mapping):
                return name, value
        return None

    @property
    def port(self) -> int | str | None:
        """The port it calls: its number, where the name is one of the container's, else the name."""
        action = self.action
        port = action[1].get("port") if action else None
        if isinstance(port, str):
            if port.isdigit():
                return int(port)
            return next((number for name, number, _ in self.engine.container.ports() if name == port), port)
        return port if isinstance(port, int) and not isinstance(port, bool) else None

    def found(self, at: KeyPath, message: str, fix: str, level: Level | None = None) -> Found:
        """A find about this probe."""
        document = self.engine.pod.document
        return Found(document, (*self.path, *at), subject(self.engine), f"{self.kind}: {message}", fix, level)


def probes(deployment: Deployment) -> Iterator[Probe]:
    """Every probe of every engine that serves by itself."""
    for engine in deployment.engines:
        yield from filter(None, (probe(deployment, engine, kind) for kind in KINDS))


def probe(deployment: Deployment, engine: Engine, kind: str) -> Probe | None:
    """One probe of an engine."""
    spec = engine.container.spec.get(kind)
    if not isinstance(spec, Mapping):
        return None
    defaults = deployment.tables.notes("platform")["probes"]["defaults"]
    return Probe(engine, kind, spec, (*engine.container.path, kind), defaults)


def _listens(engine: Engine) -> int | None:
    """The port an engine listens on; None where its command line cannot be read fully."""
    flag = engine.command.last("--port")
    if opaque(engine) or (flag is not None and not str(flag.value).isdigit()) or engine.command.last("--uds"):
        return None
    return engine.port


@rule("MMD510", Level.error, "router.md §5.1 (the sidecar's /health is always 200)")
def probe_port(deployment: Deployment) -> Iterator[Found]:
    """Probes that ask the sidecar, or nobody, instead of the engine."""
    seen: set[tuple[int, str]] = set()
    for item in probes(deployment):
        listens, port = _listens(item.engine), item.port
        if listens is None or port is None or port == listens or item.action is None:
            continue
        found = _wrong_port(deployment, item, listens, port, item.action)
        if found is not None and (id(item.engine), found.message) not in seen:
            seen.add((id(item.engine), found.message))
            yield found


def _wrong_port(
    deployment: Deployment, item: Probe, listens: int, port: int | str, action: tuple[str, Mapping[str, Any]]
) -> Found | None:
    sidecar = item.engine.pod.sidecar
    named = action[1].get("port")
    place = next((at for name, _, at in item.engine.container.ports() if name == named), None)
    path: KeyPath = (*place, "containerPort") if place is not None else (*item.path, action[0], "port")
    who = f"containerPort {named} is {port}" if place is not None else f"{item.kind} asks port {port}"
    if isinstance(port, str):
        names = ", ".join(str(name) for name, _, _ in item.engine.container.ports() if name) or "none"
        message = f"no port of the container is called {port!r} (named: {names}): {item.kind} always fails"
        fix = "use the name of a containerPort, or a number"
    elif sidecar is not None and port == (sidecar.command.integer("--port") or 8000):
        if action[0] == "httpGet" and action[1].get("path") != "/health":
            return None  # the sidecar passes everything else on to the engine
        message = f"{who}, which is the sidecar's: its /health answers 200 for a dead engine too"
        fix = f"probe port {listens}, where the engine listens"
    elif _serves_another(item.engine, port) or port in _called(deployment):
        return None
    else:
        message = f"{who}, and the engine listens on {listens}: probes always fail"
        fix = f"probe port {listens}, or start the engine with --port={port}"
    return Found(item.engine.pod.document, path, subject(item.engine), message, fix)


def _called(deployment: Deployment) -> set[int]:
    """Ports that the router calls: an engine that listens elsewhere is a matter of the pool."""
    told = {number for number, _ in deployment.target_ports}
    return told or ({8000} if deployment.router.values else set())


def _serves_another(engine: Engine, port: int) -> bool:
    """Whether another container of the pod declares the port, so that it may well answer there."""
    return any(
        number == port
        for container in engine.pod.containers
        if container is not engine.container
        for _, number, _ in container.ports()
    )


@rule("MMD511", Level.error, "model-servers.md §4; llm-d/llm-d-router#2427")
def probe_path(deployment: Deployment) -> Iterator[Found]:
    """Probes on a path that the server does not have, or does not answer without a key."""
    facts = deployment.tables.notes("platform")["http"]
    for item in probes(deployment):
        action = item.action
        if action is not None and action[0] == "grpc" and not _speaks_grpc(item.engine):
            yield item.found(
                ("grpc",), "the engine speaks HTTP, so it always fails", "write httpGet with path: /health"
            )
        if action is None or action[0] != "httpGet" or not isinstance(action[1].get("path", "/"), str):
            continue
        path = str(action[1].get("path") or "/").split("?")[0]
        encoder = item.engine.kind == "sglang" and item.engine.encodes_only
        known = facts["sglang-encoder" if encoder else item.engine.kind]
        if (path.rstrip("/") or "/") not in known and not item.engine.command.last("--middleware", "--config"):
            server = "SGLang's encoder" if encoder else {"vllm": "vLLM", "sglang": "SGLang"}[item.engine.kind]
            yield item.found(
                ("httpGet", "path"), f"{server} has no {path}, so it always fails",
                "probe /health" + ("" if encoder else ", or /v1/models"),
            )  # fmt: skip
        elif _needs_key(item.engine) and path.startswith(tuple(facts["guarded"])) and not _authorised(action[1]):
            yield item.found(
                ("httpGet", "path"), f"the engine wants an API key for {path}, and the probe sends none: 401",
                "probe /health, which needs no key",
            )  # fmt: skip


def _speaks_grpc(engine: Engine) -> bool:
    return "grpc" in " ".join([*(word for word, _ in engine.command.words), *engine.command.by_name])


def _needs_key(engine: Engine) -> bool:
    key = engine.command.last("--api-key") or engine.container.variable("VLLM_API_KEY")
    return key is not None and engine.kind == "vllm"


def _authorised(action: Mapping[str, Any]) -> bool:
    headers = action.get("httpHeaders")
    names = [str(dig(item, ("name",))).lower() for item in (headers if isinstance(headers, list) else ())]
    return "authorization" in names


@rule("MMD512", Level.error, "vLLM's --ssl-certfile and SGLang's; Kubernetes probes speak HTTP unless told otherwise")
def probe_scheme(deployment: Deployment) -> Iterator[Found]:
    """HTTPS asked of a plain server, or the reverse."""
    for item in probes(deployment):
        action = item.action
        if action is None or action[0] != "httpGet" or opaque(item.engine):
            continue
        scheme = str(action[1].get("scheme") or "HTTP").upper()
        secure = item.engine.command.last("--ssl-certfile") is not None
        if secure != (scheme == "HTTPS"):
            has = "with a certificate" if secure else "without a certificate"
            yield item.found(
                ("httpGet", "scheme") if "scheme" in action[1] else ("httpGet",),
                f"it speaks {scheme}, and the engine serves {has}", f"write scheme: {'HTTPS' if secure else 'HTTP'}",
            )  # fmt: skip


def _shortest_load(deployment: Deployment, engine: Engine) -> tuple[int, int]:
    """Seconds below which a model is never loaded, and below which it hardly is: by its size, if its name tells it."""
    facts = deployment.tables.notes("platform")["probes"]
    sizes = [float(number) for number in _BILLIONS.findall(re.sub(r"[-_/]", " ", engine.model or ""))]
    never, hardly = facts["largeLoad" if sizes and max(sizes) >= facts["largeModel"] else "load"]
    return int(never), int(hardly)


@rule("MMD513", Level.error, "kserve/kserve#5062; model-servers.md §6 (70 s for a toy model)")
def time_to_start(deployment: Deployment) -> Iterator[Found]:
    """A container that is killed before its model can be in memory, and again, and again."""
    for engine in deployment.engines:
        startup = probe(deployment, engine, "startupProbe")
        judged = startup or probe(deployment, engine, "livenessProbe")
        if judged is None or judged.budget <= 0 or (startup is None and judged.action is None):
            continue
        never, hardly = _shortest_load(deployment, engine)
        if judged.budget >= hardly:
            continue
        said = "the container is killed" if startup else "without a startup probe the container is killed"
        yield judged.found(
            ("failureThreshold",), f"{said} after {judged.budget} s (delay {judged.seconds('initialDelaySeconds')} + "
            f"{judged.seconds('periodSeconds')} x {judged.seconds('failureThreshold')}), and a model of this size "
            f"hardly ever loads in less than {hardly} s",
            "raise failureThreshold; the guide gives 120 times 30 s" if startup
            else "add a startupProbe on /v1/models; the guide gives it 120 failures of 30 s",
            Level.error if judged.budget < never else Level.warning,
        )  # fmt: skip


@rule("MMD514", Level.error, "ai-runway/airunway#401; vllm-project/aibrix#685")
def never_asked(deployment: Deployment) -> Iterator[Found]:
    """Without startup and readiness probes a pod is ready the moment its process starts."""
    for engine in deployment.engines:
        pod = engine.pod
        quiet = is_follower(pod, deployment) or (group_size(pod) or 1) > 1 or engine.command.last("--headless")
        if quiet or pod.kind not in _SERVING or engine.container.init:
            continue
        if not any(engine.container.spec.get(kind) for kind in ("startupProbe", "readinessProbe")):
            yield Found(
                pod.document, (*engine.container.path, "name"), subject(engine),
                "neither a readinessProbe nor a startupProbe: the pod is Ready, and is sent requests, while it loads",
                "add a readinessProbe on /health or /v1/models",
            )  # fmt: skip


@rule("MMD515", Level.warning, "llm-d/llm-d-benchmark#1734")
def impatient(deployment: Deployment) -> Iterator[Found]:
    """Busy engines miss answers within a second, and leave the pool (or are killed) together."""
    for item in probes(deployment):
        action = item.action
        if item.kind == "startupProbe" or action is None or action[0] == "tcpSocket":
            continue
        patient = item.seconds("timeoutSeconds") > 1 or item.seconds("failureThreshold") > 3
        if patient:
            continue
        what = "the pod leaves the pool" if item.kind == "readinessProbe" else "the container is restarted"
        given = "timeoutSeconds is 1" if "timeoutSeconds" in item.spec else "timeoutSeconds is left at 1"
        yield item.found(
            ("timeoutSeconds",) if "timeoutSeconds" in item.spec else (),
            f"{given}: a busy engine answers later, and after "
            f"{counted(item.seconds('failureThreshold'), 'miss', 'misses')} {what}",
            "give it timeoutSeconds: 5 or more",
        )  # fmt: skip


@rule("MMD516", Level.warning, "kserve/kserve#5834; field.md §4.1.21")
def progress_deadline(deployment: Deployment) -> Iterator[Found]:
    """A rollout that is declared failed while its pods may still start."""
    default = int(deployment.tables.notes("platform")["probes"]["progressDeadlineSeconds"])
    for engine in deployment.engines:
        pod = engine.pod
        startup = probe(deployment, engine, "startupProbe")
        if pod.kind != "Deployment" or startup is None:
            continue
        given = dig(pod.document.value, ("spec", "progressDeadlineSeconds"))
        deadline = given if isinstance(given, int) and not isinstance(given, bool) else default
        if deadline >= startup.budget or (given is None and not _known_slow(deployment, engine)):
            continue
        said = f"is {deadline}" if given is not None else f"is left at {deadline}"
        yield Found(
            pod.document, ("spec", "progressDeadlineSeconds") if given is not None else ("spec", "replicas"),
            pod.title, f"progressDeadlineSeconds {said} s, and the startup probe allows {startup.budget} s: the "
            "rollout counts as failed while the model loads",
            f"write progressDeadlineSeconds: {startup.budget + default}",
        )  # fmt: skip


def _known_slow(deployment: Deployment, engine: Engine) -> bool:
    """Signs that ten minutes will not do, where nobody set a deadline: most starts stay below the default."""
    pod = engine.pod
    waits = any(item.init and item.spec.get("restartPolicy") != "Always" for item in pod.containers)
    alone = dig(pod.document.value, ("spec", "strategy", "type")) == "Recreate"
    others = any(
        dig(other.document.value, ("spec", "progressDeadlineSeconds")) is not None
        for other in deployment.pods
        if other.kind == "Deployment" and other.engine is not None
    )
    return waits or alone or others


@rule("MMD517", Level.warning, "kserve/kserve#5496; vllm-project/vllm#43208; llm-d-guides.md §2.3")
def time_to_stop(deployment: Deployment) -> Iterator[Found]:
    """Killed before the drain that the command line and the hook ask for can end."""
    default = int(deployment.tables.notes("platform")["probes"]["terminationGracePeriodSeconds"])
    for engine in deployment.engines:
        given = engine.pod.spec.get("terminationGracePeriodSeconds")
        grace = given if isinstance(given, int) and not isinstance(given, bool) else default
        waits = _before_stop(engine)
        drains = engine.command.integer("--shutdown-timeout") or 0
        if waits + drains <= grace or not waits + drains:
            continue
        path: KeyPath = (*engine.pod.path, "spec", "terminationGracePeriodSeconds")
        parts = " + ".join(
            text for text, on in ((f"preStop {waits:g} s", waits), (f"--shutdown-timeout {drains} s", drains)) if on
        )
        yield Found(
            engine.pod.document, path if given is not None else engine.command.path_of("--shutdown-timeout"),
            subject(engine), f"{parts} is longer than terminationGracePeriodSeconds "
            f"{'of' if given is not None else 'left at'} {grace}: running requests are cut",
            f"write terminationGracePeriodSeconds: {int(waits + drains) + 15}",
        )  # fmt: skip


def _before_stop(engine: Engine) -> float:
    """Seconds that the preStop hook sleeps."""
    hook = dig(engine.container.spec, ("lifecycle", "preStop"))
    seconds = dig(hook, ("sleep", "seconds"))
    if isinstance(seconds, int):
        return seconds
    words = dig(hook, ("exec", "command"))
    text = " ".join(map(str, words)) if isinstance(words, list) else ""
    return sum(float(number) * _SECONDS[unit] for number, unit in _SLEEP.findall(text))
