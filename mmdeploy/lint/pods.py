"""Pod templates, wherever they stand, and what their containers run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from mmdeploy.documents import KeyPath
from mmdeploy.lint.commands import Command, NotJsonError, parse
from mmdeploy.lint.source import Document, Position, dig
from mmdeploy.quantities import quantity

ROLE = "llm-d.ai/role"

_TEMPLATES: Mapping[str, KeyPath] = {
    "Deployment": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
    "Pod": (),
}
_GROUP: KeyPath = ("leaderWorkerTemplate", "workerTemplate")
_LEADER: KeyPath = ("leaderWorkerTemplate", "leaderTemplate")


@dataclass
class Container:
    """One container; ``path`` leads to it in the pod's document."""

    pod: Pod
    spec: Mapping[str, Any]
    path: KeyPath
    init: bool

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.spec.get("name", ""))

    @property
    def image(self) -> str:
        """Its image."""
        return str(self.spec.get("image") or "")

    @cached_property
    def command(self) -> Command:
        """What it runs, parsed."""
        return parse(self.spec, self.path)

    @cached_property
    def program(self) -> str:
        """``vllm``, ``vllm-render``, ``sglang``, ``sidecar``, ``epp``, or empty for anything else."""
        return _program(self)

    def variable(self, name: str) -> Mapping[str, Any] | None:
        """The last entry of an environment variable."""
        found = [item for item in _mappings(self.spec.get("env")) if item.get("name") == name]
        return found[-1] if found else None

    def variable_path(self, name: str) -> KeyPath:
        """Where a variable stands; the container's ``env`` where it does not."""
        items = self.spec.get("env")
        for index, item in enumerate(items if isinstance(items, list) else ()):
            if isinstance(item, Mapping) and item.get("name") == name:
                return (*self.path, "env", index)
        return (*self.path, "env") if items else self.path

    def ports(self) -> Iterator[tuple[str | None, int, KeyPath]]:
        """``(name, number, path)`` of each container port."""
        items = self.spec.get("ports")
        for index, item in enumerate(items if isinstance(items, list) else ()):
            if isinstance(item, Mapping) and isinstance(item.get("containerPort"), int):
                yield item.get("name"), item["containerPort"], (*self.path, "ports", index)

    def mounts(self) -> Iterator[tuple[str, str, KeyPath]]:
        """``(mountPath, volume name, path)`` of each mount."""
        items = self.spec.get("volumeMounts")
        for index, item in enumerate(items if isinstance(items, list) else ()):
            if isinstance(item, Mapping):
                yield str(item.get("mountPath", "")), str(item.get("name", "")), (*self.path, "volumeMounts", index)

    def quantity(self, kind: str, resource: str) -> float | None:
        """A resource limit or request (``kind`` is ``limits`` or ``requests``) as a number; None where unset."""
        value = dig(self.spec, ("resources", kind, resource))
        try:
            return None if value is None else quantity(value)
        except ValueError:
            return None

    def position(self, path: KeyPath = ()) -> Position:
        """Where something in the container stands."""
        return self.pod.document.position((*self.path, *path))


@dataclass
class Pod:
    """A pod template of a workload (or of one role of a set)."""

    document: Document
    path: KeyPath
    """Leads to the template (``metadata`` and ``spec`` below it)."""
    kind: str
    name: str
    namespace: str | None
    replicas: int | None
    object_path: KeyPath
    """Leads to what says ``replicas`` and the strategy: the workload's spec, or the role's."""
    set_role: str | None = None
    leader: bool = False
    containers: list[Container] = field(default_factory=list)

    @cached_property
    def template(self) -> Mapping[str, Any]:
        """The template."""
        value = dig(self.document.value, self.path)
        return value if isinstance(value, Mapping) else {}

    @cached_property
    def spec(self) -> Mapping[str, Any]:
        """The PodSpec."""
        value = self.template.get("spec")
        return value if isinstance(value, Mapping) else {}

    @cached_property
    def labels(self) -> dict[str, str]:
        """Labels of the pods."""
        value = dig(self.template, ("metadata", "labels"))
        return {str(key): str(item) for key, item in value.items()} if isinstance(value, Mapping) else {}

    @cached_property
    def role(self) -> str | None:
        """The label ``llm-d.ai/role``."""
        return self.labels.get(ROLE)

    @cached_property
    def title(self) -> str:
        """``Kind/name`` and the role of a set."""
        return f"{self.kind}/{self.name}" + (f" role {self.set_role}" if self.set_role else "")

    @cached_property
    def engine(self) -> Engine | None:
        """The container that serves the model, if one does."""
        for container in self.containers:
            if container.program in ("vllm", "sglang"):
                return Engine(container)
        return None

    @cached_property
    def sidecar(self) -> Container | None:
        """The routing sidecar, if the pod has one."""
        return next((container for container in self.containers if container.program == "sidecar"), None)

    def volume(self, name: str) -> Mapping[str, Any] | None:
        """A volume by name."""
        return next((item for item in _mappings(self.spec.get("volumes")) if item.get("name") == name), None)

    def position(self, path: KeyPath = ()) -> Position:
        """Where something in the template stands."""
        return self.document.position((*self.path, *path))


@dataclass
class Engine:
    """A model server container: vLLM or SGLang."""

    container: Container
    stage: str | None = None
    """What it does in the deployment, once `mmdeploy.lint.peers` has found out."""

    @cached_property
    def kind(self) -> str:
        """``vllm`` or ``sglang``."""
        return self.container.program

    @cached_property
    def command(self) -> Command:
        """Its command line."""
        return self.container.command

    @cached_property
    def pod(self) -> Pod:
        """The pod it runs in."""
        return self.container.pod

    @cached_property
    def model(self) -> str | None:
        """The model it loads: a positional of vLLM, ``--model`` or ``--model-path``."""
        given = self.command.value("--model", "--model-path")
        if given is not None:
            return given
        words = [word for word, _ in self.command.words]
        if "serve" in words:
            after = words[words.index("serve") + 1 :]
            return after[0] if after else None
        in_args = [word for word, path in self.command.words if "args" in path and not word.startswith("/")]
        return in_args[0] if in_args and self.kind == "vllm" and not self.command.shell else None

    @cached_property
    def served_name(self) -> str | None:
        """The name that clients use."""
        return self.command.value("--served-model-name") or self.model

    @property
    def port(self) -> int:
        """The port it listens on: 8000 for vLLM, 30000 for SGLang, unless told otherwise."""
        default = 8000 if self.kind == "vllm" else 30000
        return self.command.integer("--port") or default

    @property
    def tensor_parallel(self) -> int:
        """Tensor parallel size."""
        return self.command.integer("--tensor-parallel-size", "-tp", "--tp-size", "--tp") or 1

    @property
    def data_parallel(self) -> int:
        """Data parallel size on this pod."""
        local = self.command.integer("--data-parallel-size-local", "-dpl")
        return local or self.command.integer("--data-parallel-size", "-dp", "--dp-size", "--dp") or 1

    @cached_property
    def version(self) -> str | None:
        """The engine's release from its image tag (``0.30.0``); None for a tag that is no version.

        An image whose name does not say the engine counts its own releases, and so do those of vendors (25.09-py3):
        both engines are at 0.x.
        """
        name = self.container.image.split("@")[0]
        match = re.search(r":v?(0\.\d+(?:\.\d+)?(?:\.post\d+)?)", name)
        told = self.kind in name.rsplit("/", 1)[-1].partition(":")[0]
        return match[1] if match and told and "llm-d/vllm-openai" not in name and "/llm-d-" not in name else None

    @property
    def forked(self) -> bool:
        """Whether the image is one of the forks that count the EC cache in blocks and ignore ``ec_cpu_bytes``."""
        image = self.container.image
        return "ec-cpu-connector-support" in image or "revit13/vllm-openai" in image

    @cached_property
    def ec(self) -> dict[str, Any] | None:
        """``--ec-transfer-config``; None where it is absent or not JSON."""
        return self._json("--ec-transfer-config")

    @cached_property
    def kv(self) -> dict[str, Any] | None:
        """``--kv-transfer-config``; None where it is absent or not JSON."""
        return self._json("--kv-transfer-config")

    def _json(self, name: str) -> dict[str, Any] | None:
        try:
            return self.command.json(name)
        except NotJsonError:
            return None

    @property
    def ec_role(self) -> str | None:
        """``ec_producer``, ``ec_consumer`` or ``ec_both``."""
        role = (self.ec or {}).get("ec_role")
        return str(role) if role is not None else None

    @property
    def ec_connector(self) -> str | None:
        """Name of the EC connector."""
        name = (self.ec or {}).get("ec_connector")
        return str(name) if name is not None else None

    @property
    def ec_extra(self) -> Mapping[str, Any]:
        """``ec_connector_extra_config``."""
        extra = (self.ec or {}).get("ec_connector_extra_config")
        return extra if isinstance(extra, Mapping) else {}

    @property
    def encodes_only(self) -> bool:
        """Whether this engine only encodes: by its flags, its EC role, or SGLang's ``--encoder-only``."""
        return (
            self.command.on("--mm-encoder-only")
            or self.command.last("--encoder-only") is not None
            or self.ec_role == "ec_producer"
        )


def pods_of(document: Document) -> Iterator[Pod]:
    """The pod templates of a Kubernetes object."""
    value = document.value
    if not isinstance(value, Mapping):
        return
    kind, metadata = value.get("kind"), value.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    name, namespace = str(metadata.get("name", "")), str(metadata.get("namespace") or "") or None
    for path, object_path, role, leader in _template_paths(str(kind), value):
        replicas = dig(value, (*object_path, "replicas"))
        if any(dig(value, (*place, "scaling", "mode")) == "External" for place in (object_path, object_path[:-1])):
            replicas = None  # somebody else counts
        pod = Pod(
            document, path, str(kind), name, namespace, replicas if isinstance(replicas, int) else None, object_path,
            set_role=role, leader=leader,
        )  # fmt: skip
        pod.containers = list(_containers(pod))
        yield pod


def _template_paths(kind: str, value: Mapping[str, Any]) -> Iterator[tuple[KeyPath, KeyPath, str | None, bool]]:
    if kind in _TEMPLATES:
        yield _TEMPLATES[kind], ("spec",), None, False
    elif kind == "LeaderWorkerSet":
        for part, leader in ((_LEADER, True), (_GROUP, False)):
            if dig(value, ("spec", *part)) is not None:
                yield ("spec", *part), ("spec",), None, leader
    elif kind == "DisaggregatedSet":
        roles = dig(value, ("spec", "roles"))
        for index, role in enumerate(roles if isinstance(roles, list) else ()):
            inner: KeyPath = ("spec", "roles", index, "spec")
            if dig(value, (*inner, *_GROUP)) is None:
                inner = ("spec", "roles", index)  # the retired v1alpha1 nests nothing
            for part, leader in ((_LEADER, True), (_GROUP, False)):
                if dig(value, (*inner, *part)) is not None:
                    yield (*inner, *part), inner, str(dig(role, ("name",))), leader


def _containers(pod: Pod) -> Iterator[Container]:
    for part, init in (("initContainers", True), ("containers", False)):
        items = pod.spec.get(part)
        for index, item in enumerate(items if isinstance(items, list) else ()):
            if isinstance(item, Mapping):
                yield Container(pod, item, (*pod.path, "spec", part, index), init)


def _mappings(value: Any) -> Iterator[Mapping[str, Any]]:
    for item in value if isinstance(value, list) else ():
        if isinstance(item, Mapping):
            yield item


def _program(container: Container) -> str:
    image = container.image.split("@")[0].lower()
    if "disagg-sidecar" in image or "routing-sidecar" in image or container.name == "routing-proxy":
        return "sidecar"
    if "endpoint-picker" in image or "inference-scheduler" in image or container.command.last("--pool-name"):
        return "epp"
    words = [word.rsplit("/", 1)[-1] for word, _ in container.command.words]
    modules = container.command.value("-m") or ""
    line = " ".join(words)
    if "launch render" in line or container.name == "vllm-render":
        return "vllm-render"
    if "vllm serve" in line or "vllm.entrypoints" in line + modules:
        return "vllm"
    if "sglang.launch_server" in line + modules or "sglang serve" in line:
        return "sglang"
    if container.init and container.spec.get("restartPolicy") != "Always":
        return ""
    if re.search(r"/?vllm-(openai|tpu)|llm-d-(cuda|xpu|tpu)\b", image) and "sglang" not in image:
        return "" if "serve" not in words and container.spec.get("command") else "vllm"
    return ""
