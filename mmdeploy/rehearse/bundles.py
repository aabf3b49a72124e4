"""The settings of a rehearsal, read off a bundle: its pods, their command lines, and the router's values."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from mmdeploy.catalog import Catalog
from mmdeploy.catalog.families import Family
from mmdeploy.catalog.support import model_of
from mmdeploy.errors import UsageError
from mmdeploy.estimator.question import VIDEO_FEATURE
from mmdeploy.intended import Intended
from mmdeploy.lint.commands import Command, parse, parse_json
from mmdeploy.rehearse import configuration
from mmdeploy.rehearse.series import numbers
from mmdeploy.rehearse.settings import (
    LOCALHOST,
    EngineSettings,
    PodSettings,
    RouterSettings,
    Settings,
    SidecarSettings,
)

NETWORK = "10.244"
"""First half of the pods' addresses; they are names in headers and metrics here, no network."""

FACTS = "rehearse.yaml"

_EC, _KV = "--ec-transfer-config", "--kv-transfer-config"
_EC_HOST, _KV_HOST = "VLLM_EC_SIDE_CHANNEL_HOST", "VLLM_NIXL_SIDE_CHANNEL_HOST"
_SECURE = ("--secure-serving", "--secure-proxy")
_EC_PORT, _KV_PORT = "VLLM_EC_SIDE_CHANNEL_PORT", "VLLM_NIXL_SIDE_CHANNEL_PORT"


def settings(intended: Intended, catalog: Catalog, *, as_chart: bool = False) -> Settings:
    """What ``intended`` comes to. Raises `UsageError` for a bundle whose model or picker cannot be made out.

    The picker's metrics are open, as without Kubernetes; with ``as_chart`` they are as on a cluster: they ask for what
    the chart's values say, and number a pod's ports (createEndpointNamespacedName in the router's datastore, v0.10.0).
    """
    facts = catalog.document("catalog", FACTS).value
    spec = intended.spec
    reader = Reader(intended, catalog, facts)
    return Settings(
        model=str(spec["model"]),
        topology=str(spec["topology"]),
        server=str(spec["server"]),
        release=str(spec["release"]),
        mode=intended.mode,
        pods=list(reader.pods()),
        router=reader.router(as_chart=as_chart),
        facts=facts,
    )


class Reader:
    """Reads one bundle, piece by piece: whoever has real pods gives their names and addresses."""

    def __init__(self, intended: Intended, catalog: Catalog, facts: Mapping[str, Any]) -> None:
        self.intended, self.catalog, self.facts = intended, catalog, facts
        router = intended.values.get("router") or {}
        servers = router.get("modelServers") or {}
        targets = servers.get("targetPorts") or [{"number": catalog.ports["modelServer"]}]
        self.port = int(targets[0]["number"])
        self.match_labels = {str(key): str(value) for key, value in (servers.get("matchLabels") or {}).items()}
        self.release = catalog.release(str(intended.spec["release"]))

    def router(self, *, as_chart: bool = False) -> RouterSettings:
        """The router, by its Helm values."""
        return RouterSettings(
            name=self.intended.name,
            namespace=self.intended.namespace,
            version=self.release.routerVersion,
            configuration=copy.deepcopy(configuration.of_values(self.intended.values, self.intended.origin)),
            match_labels=self.match_labels,
            video_supported=VIDEO_FEATURE in self.release.features,
            authentication=self._authentication() if as_chart else "open",
            ranked=as_chart,
        )

    def _authentication(self) -> str:
        """Source: router.md §4.4. The rights to check a token come with ``prometheus.enabled`` alone."""
        monitoring = (self.intended.values.get("router") or {}).get("monitoring") or {}
        prometheus = monitoring.get("prometheus") or {}
        if not (prometheus.get("auth") or {}).get("enabled", True):
            return "open"
        return "token" if prometheus.get("enabled") else "broken"

    def pods(self) -> Iterator[PodSettings]:
        """As many pods of each role as the bundle has replicas, named ``ROLE-N``."""
        number = 0
        for role, replicas, template in self.intended.pods():
            for index in range(replicas):
                number += 1
                yield self.pod(role, f"{role}-{index}", f"{NETWORK}.{number // 250}.{number % 250 + 1}", template)

    def pod(self, role: str, name: str, ip: str, template: Mapping[str, Any]) -> PodSettings:
        """One pod, by its template."""
        spec = template["spec"]
        containers = [*spec["containers"], *(spec.get("initContainers") or ())]
        sidecar = next((each for each in containers if _is_sidecar(each)), None)
        container = next((each for each in spec["containers"] if _is_engine(each)), None)
        if container is None:
            raise UsageError(f"the {role} pods run no vLLM and no SGLang", origin=self.intended.origin)
        command = parse(container, ())
        engine = self.engine(role, ip, container, command)
        own = command.integer("--port")
        labels = {str(key): str(value) for key, value in template["metadata"].get("labels", {}).items()}
        return PodSettings(
            name=name,
            role=role,
            ip=ip,
            port=self.port,
            engine_port=own or self.catalog.ports["modelServer"],
            labels=labels,
            engine=engine,
            sidecar=_sidecar(parse(sidecar, ())) if sidecar else None,
        )

    def engine(self, role: str, ip: str, container: Mapping[str, Any], command: Command) -> EngineSettings:
        """The engine of a container."""
        sglang = any("sglang" in word for word, _ in command.words)
        model = command.value("--model-path", "--model") or _positional(command) or str(self.intended.spec["model"])
        found = EngineSettings(
            server=("sglang-encode" if command.on("--encoder-only") else "sglang") if sglang else "vllm",
            model=model,
            served=command.value("--served-model-name") or model,
            family=self.family(model, command),
            version=self.version(str(container.get("image", ""))),
            debug=_variable(container, "VLLM_LOGGING_LEVEL", ip) == "DEBUG",
        )
        if sglang:
            flag = command.last("--encoder-urls")
            found.block_size = command.integer("--page-size") or self.facts["engines"]["blockSize"]["sglang"]
            found.prefix_caching = command.last("--disable-radix-cache") is None
            found.encoder_urls = flag.values if flag else ()
            found.backend = command.value("--encoder-transfer-backend") or "auto"
        else:
            self._vllm(found, role, ip, container, command)
        return found

    def family(self, model: str, command: Command) -> Family:
        """The model's family, as the engine's processor arguments make it."""
        family = self.catalog.family_of(model_of(self.catalog, model))
        kwargs = command.value("--mm-processor-kwargs")
        return family.with_processor_kwargs(parse_json(kwargs)) if kwargs else family

    def version(self, image: str) -> str:
        """The engine's version by its image's tag."""
        tag = image.partition("@")[0].rpartition(":")[2]
        return tag if numbers(tag) else str(self.facts["engines"]["version"]["fork"])

    def _vllm(self, found: EngineSettings, role: str, ip: str, container: Mapping[str, Any], command: Command) -> None:
        ports, model = self.catalog.ports, model_of(self.catalog, found.model)
        transfer, kv = command.json(_EC) or {}, command.json(_KV) or {}
        extra = transfer.get("ec_connector_extra_config") or {}
        accelerator = str((self.intended.spec.get(role) or {}).get("accelerator") or self.intended.spec["accelerator"])
        found.block_size = command.integer("--block-size") or self.facts["engines"]["blockSize"].get(accelerator, 16)
        found.ec_role = str(transfer.get("ec_role") or "")
        found.encoder_only = command.on("--mm-encoder-only") or found.ec_role == "ec_producer"
        found.prefix_caching = command.on("--enable-prefix-caching", default=True) and not found.encoder_only
        found.processor_cache = float(command.value("--mm-processor-cache-gb") or 4) > 0
        found.ec_nixl = _on(extra.get("ec_enable_nixl")) or self.facts["engines"]["forkKey"] in extra
        found.ec_host = _variable(container, _EC_HOST, ip) or (
            ip if self.facts["engines"]["forkKey"] in extra else LOCALHOST
        )
        found.ec_port = int(_variable(container, _EC_PORT, ip) or ports["ecSideChannel"])
        found.metadata, found.token_bytes = model.handoffMetadata, model.embeddingTokenBytes or 0
        found.kv = bool(kv.get("kv_connector"))
        found.kv_host = _variable(container, _KV_HOST, ip) or LOCALHOST
        found.kv_port = int(_variable(container, _KV_PORT, ip) or ports["kvSideChannel"])
        found.kv_recompute = kv.get("kv_load_failure_policy") == "recompute"


def _sidecar(command: Command) -> SidecarSettings:
    secure = command.last(*_SECURE)
    own = ("--ec-connector", "--port", "--model-server-port", "--vllm-port", *_SECURE)
    others = (flag for flag in command.flags if flag.name not in own)
    return SidecarSettings(
        ec_connector=command.value("--ec-connector") or "",
        tls=secure is None or secure.value != "false",
        secure_flag=secure.name if secure else "",
        arguments=tuple(flag.name + (f"={flag.value}" if flag.value is not None else "") for flag in others),
    )


def _is_sidecar(container: Mapping[str, Any]) -> bool:
    return "sidecar" in str(container.get("image", "")).partition(":")[0]


def _is_engine(container: Mapping[str, Any]) -> bool:
    text = " ".join(map(str, [*(container.get("command") or ()), *(container.get("args") or ())]))
    return not _is_sidecar(container) and ("vllm" in text or "sglang" in text)


def _positional(command: Command) -> str:
    """The model of ``vllm serve MODEL``."""
    words = [word for word, _ in command.words]
    return words[words.index("serve") + 1] if "serve" in words and words.index("serve") + 1 < len(words) else ""


def _variable(container: Mapping[str, Any], name: str, ip: str) -> str:
    for entry in container.get("env") or ():
        if entry.get("name") == name:
            path = ((entry.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath")
            return ip if path == "status.podIP" else str(entry.get("value", ""))
    return ""


def _on(value: Any) -> bool:
    return str(value).lower() in ("true", "1", "yes")
