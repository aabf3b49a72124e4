"""What a person may ask for: the pydantic model of ``mmdeploy.yaml``.

The model is the one source of the JSON Schema (``mmdeploy schema``), of the reference page in the guides, of the
``--set`` paths and of the ``MMDEPLOY_*`` variables. It says what is *well formed*; whether a combination can work is
for the catalog and the refusal rules. Every field is optional: what is left out is filled from the blueprints, and a
resolved spec (the ``mmdeploy.yaml`` of a bundle) has every field filled.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError

from mmdeploy.documents import KeyPath
from mmdeploy.errors import SpecError
from mmdeploy.words import nearest

ROLES = ("encode", "prefill", "decode")
"""Roles in the order in which media passes through them; also the values of the label ``llm-d.ai/role``."""

SCHEMA_VERSION = 1

FILE_FIELDS = ("processorConfig", "estimator")
"""Fields that may name a file in a spec, instead of holding what is in it."""


def _text(value: Any) -> Any:
    """Numbers become text where Kubernetes wants text: people write ``cpu: 8``; YAML reads ``0.9`` as a number."""
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _exact_text(value: Any) -> Any:
    """Whole numbers become text; others would lose digits (``0.10`` is read as 0.1), so they must be quoted."""
    if isinstance(value, float):
        raise ValueError("it is read as a number and loses digits; put it in quotes")
    return _text(value)


def _env_text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return _text(value)


def _texts(value: Any) -> Any:
    return {k: _env_text(v) for k, v in value.items()} if isinstance(value, dict) else value


Quantity = Annotated[
    str,
    BeforeValidator(_text),
    StringConstraints(pattern=r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"),
]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]
Text = Annotated[str, BeforeValidator(_exact_text), StringConstraints(min_length=1)]
TextMap = Annotated[dict[str, str], BeforeValidator(_texts)]
EnvMap = Annotated[dict[str, str | dict[str, Any]], BeforeValidator(_texts)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True)


class Secret(_Strict):
    """The Hugging Face token's Secret; mmdeploy refers to it and never holds its content."""

    name: Name | None = Field(None, description="Name of the Secret.")
    key: Text | None = Field(None, description="Key in the Secret; the engine reads it as HF_TOKEN.")


class Role(_Strict):
    """What can be set for one role's pods."""

    replicas: int | None = Field(None, ge=1, description="Pods of this role (at least one).")
    tensorParallelSize: int | None = Field(None, ge=1, description="Tensor parallel size of the engine.")
    accelerator: Text | None = Field(None, description="Accelerator of this role, where the topology mixes them.")
    accelerators: int | None = Field(None, ge=1, description="Accelerators (GPUs, chips, DRA devices) a pod.")
    cpu: Quantity | None = Field(None, description="CPU limit of the model server.")
    cpuRequest: Quantity | None = Field(None, description="CPU request of the model server.")
    memory: Quantity | None = Field(None, description="Memory limit of the model server; /dev/shm counts against it.")
    memoryRequest: Quantity | None = Field(None, description="Memory request of the model server.")
    shm: Quantity | None = Field(None, description="Size limit of /dev/shm.")
    ecCacheBytes: Quantity | None = Field(
        None, description="Encoder cache (EC connector) in bytes or as a quantity; lives in /dev/shm."
    )
    processorCacheGb: int | float | None = Field(
        None, ge=0, description="Multimodal processor cache in GiB of host memory."
    )
    image: Text | None = Field(None, description="Image of the model server.")
    extraArgs: list[Text] | None = Field(None, description="Engine arguments, appended; a flag given here wins.")
    extraEnv: EnvMap | None = Field(None, description="Environment variables: NAME: value, or NAME: {valueFrom: …}.")
    labels: TextMap | None = Field(None, description="Labels added to the pods.")
    annotations: TextMap | None = Field(None, description="Annotations added to the pods.")
    nodeSelector: TextMap | None = Field(None, description="Node labels that the pods require.")
    tolerations: list[dict[str, Any]] | None = Field(None, description="Taints that the pods tolerate.")
    affinity: dict[str, Any] | None = Field(None, description="Pod and node affinity, as Kubernetes has it.")
    priorityClassName: Name | None = Field(None, description="PriorityClass; it must exist on the cluster.")
    serviceAccountName: Name | None = Field(None, description="An existing ServiceAccount instead of the rendered one.")
    hfSecret: Secret | None = Field(None, description="Hugging Face Secret of this role, where it differs.")


class Gateway(_Strict):
    """The Gateway in front of the router (mode gateway)."""

    gatewayClass: Literal["none", "gke", "istio", "agentgateway"] | None = Field(
        None, description="Who implements the Gateway; none attaches to a Gateway that already exists."
    )
    name: Name | None = Field(None, description="Name of the Gateway that the HTTPRoute attaches to.")
    requestTimeout: Annotated[str, StringConstraints(pattern=r"^([0-9]{1,5}(h|m|s|ms)){1,4}$")] | None = Field(
        None, description="Timeout of the HTTPRoute; 0s lifts it (long generations and videos need that)."
    )


class Mooncake(_Strict):
    """Limits of the Mooncake store, for ecConnector ECMooncakeConnector."""

    protocol: Literal["rdma", "tcp"] | None = Field(None, description="Transport of the Mooncake transfer engine.")
    crossEncoderCache: bool | None = Field(None, description="Reuse embeddings across encode pods (vLLM 0.31+).")
    storeMaxPendingItems: int | None = Field(None, ge=1, description="Items that may wait for the store.")
    storeMaxPendingBytes: Quantity | None = Field(None, description="Bytes that may wait for the store.")
    storeReadBufferBytes: Quantity | None = Field(None, description="Read buffer of the store.")


class SharedStorage(_Strict):
    """The volume of ecConnector ECExampleConnector (labs)."""

    claimName: Name | None = Field(None, description="A ReadWriteMany PersistentVolumeClaim in the namespace.")
    path: Text | None = Field(None, description="Mount path, the same on producer and consumer.")


class Calibration(_Strict):
    """The measured numbers of prefix-cache-affinity-filter: they belong to model × accelerator × TP."""

    peakPrefillThroughput: int | None = Field(None, ge=1, description="Tokens a second that one pod prefills.")
    affinityThreshold: int | float | None = Field(
        None, gt=0, le=1, description="Cached share from which affinity engages."
    )
    maxTTFTPenaltyMs: int | None = Field(None, ge=0, description="Milliseconds of waiting that a cache hit is worth.")


class Versions(_Strict):
    """What a release pins; filled from the catalog, and written out so that a bundle says what it was made for."""

    routerChart: Text | None = Field(None, description="Version of the llm-d router charts.")
    sidecarImage: Text | None = Field(None, description="Image of the routing sidecar.")
    inferenceExtension: Text | None = Field(None, description="Gateway API Inference Extension CRDs.")
    gatewayApi: Text | None = Field(None, description="Gateway API CRDs (mode gateway).")
    leaderWorkerSet: Text | None = Field(None, description="LeaderWorkerSet chart (workload DisaggregatedSet).")


class DeploymentSpec(_Strict):
    """A deployment as a person asks for it."""

    schemaVersion: Literal[1] = Field(1, description="Version of this file's format.")
    topology: Literal["aggregation", "e-pd", "e-p-d"] | None = Field(
        None, description="Which stages have pods of their own."
    )
    accelerator: Text | None = Field(None, description="Accelerator: gpu, xpu or tpu/v7.")
    server: Text | None = Field(None, description="Model server: vllm or sglang.")
    provider: Text | None = Field(None, description="Infrastructure provider: base, gke or coreweave.")
    model: Text | None = Field(None, description="Served model, as Hugging Face names it.")
    release: Text | None = Field(None, description="llm-d release: v0.8, v0.9 or main.")
    workload: Literal["Deployment", "DisaggregatedSet"] | None = Field(
        None, description="Kubernetes form of the model servers; the release has a default for each topology."
    )
    name: Annotated[Name, StringConstraints(max_length=40)] | None = Field(
        None, description="Helm release of the router, and name of its InferencePool."
    )
    namePrefix: (
        Annotated[str, StringConstraints(pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$", max_length=54)] | None
    ) = Field(None, description="Prefix of the model server objects' names; empty for none.")
    namespace: Name | None = Field(None, description="Namespace of everything.")
    mode: Literal["standalone", "gateway"] | None = Field(
        None, description="Router with its own Envoy, or behind a Kubernetes Gateway."
    )
    gateway: Gateway = Field(default_factory=Gateway, description="The Gateway (mode gateway).")
    routing: Literal["approximate", "precise"] | None = Field(
        None, description="Prefix cache: estimated from the request, or tokenised and indexed from KV events."
    )
    encoderCacheAffinity: bool | None = Field(
        None, description="Also score pods by the media they have seen (aggregation only)."
    )
    ecConnector: Literal["ECCPUConnector", "ECMooncakeConnector", "ECExampleConnector"] | None = Field(
        None, description="How embeddings move from encode pods to their consumer."
    )
    mooncake: Mooncake = Field(default_factory=Mooncake, description="Mooncake settings (ECMooncakeConnector).")
    sharedStorage: SharedStorage = Field(
        default_factory=SharedStorage, description="Shared volume (ECExampleConnector)."
    )
    mediaHandoff: Literal["raw", "metadata"] | None = Field(
        None, description="What the consumer is sent: the media again, or only the encoder's layout metadata."
    )
    encoderParallelism: Literal["weights", "data"] | None = Field(
        None, description="--mm-encoder-tp-mode: split the encoder's weights, or its items, over the TP ranks."
    )
    monitoring: bool | None = Field(None, description="PodMonitors, and the router's ServiceMonitor.")
    tracing: bool | None = Field(None, description="OpenTelemetry traces of the router and the engines.")
    tracingEndpoint: Text | None = Field(None, description="OTLP gRPC endpoint of the collector.")
    estimator: dict[str, Any] | None = Field(
        None, description="The router's `estimate:` block; left out, it is derived from the model."
    )
    allowMismatch: bool | None = Field(None, description="Render an estimator that does not fit, with a warning.")
    processorConfig: dict[str, Any] | None = Field(
        None, description="Content of the model's preprocessor_config.json, for a model outside the catalog."
    )
    mmProcessorKwargs: dict[str, Any] | None = Field(
        None, description="--mm-processor-kwargs of every engine; changes what an image takes."
    )
    calibration: Calibration = Field(default_factory=Calibration, description="Measured routing numbers.")
    hfSecret: Secret = Field(default_factory=Secret, description="Hugging Face Secret of every role.")
    groupIdentity: Literal["Hash", "Ordinal", "none"] | None = Field(
        None, description="groupIdentity of a DisaggregatedSet's roles; none leaves the field out (older LWS)."
    )
    versions: Versions = Field(default_factory=Versions, description="Pinned versions.")
    encode: Role = Field(default_factory=Role, description="Encode pods (e-pd, e-p-d).")
    prefill: Role = Field(default_factory=Role, description="Prefill pods (e-p-d).")
    decode: Role = Field(default_factory=Role, description="Decode pods; in aggregation and e-pd they prefill too.")

    def role(self, name: str) -> Role:
        """The `Role` named ``encode``, ``prefill`` or ``decode``."""
        role: Role = getattr(self, name)
        return role


def fields_of(model: type[BaseModel] = DeploymentSpec, prefix: KeyPath = ()) -> dict[KeyPath, Any]:
    """Every settable path of the spec (``("encode", "replicas")``) with its pydantic field."""
    paths: dict[KeyPath, Any] = {}
    for name, field in model.model_fields.items():
        inner = _model_in(field.annotation)
        if inner is not None:
            paths.update(fields_of(inner, (*prefix, name)))
        else:
            paths[(*prefix, name)] = field
    return paths


def takes_text(field: Any) -> bool:
    """Whether a field holds text as it is typed, so that ``0.10`` in an option must not be read as a number."""
    kinds = {annotation for annotation in _annotations(field.annotation) if isinstance(annotation, type)}
    return str in kinds and not kinds & {int, float, bool, list, dict}


_KINDS: Mapping[type, str] = {
    bool: "`true` or `false`",
    int: "whole number",
    float: "number",
    str: "text",
    list: "list",
    dict: "mapping",
}


def in_words(name: str, field: Any) -> str:
    """What the field ``name`` takes, for a person: its choices, or the kind of value and its bounds."""
    annotation = field.annotation
    inner = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    kinds: list[str] = []
    for part in inner:
        if get_origin(part) is Literal:
            kinds += [f"`{choice}`" for choice in get_args(part)]
        elif part is not NoneType:
            bare = get_args(part)[0] if get_origin(part) is Annotated else part
            kind = get_origin(bare) or bare
            kinds.append(_PATTERN_NAMES.get(name, "text") if kind is str else _KINDS[kind])
    if kinds == ["whole number", "number"]:
        kinds = ["number"]
    signs = {"ge": "at least", "gt": "more than", "le": "at most"}
    bounds = [
        f"{word} {getattr(limit, sign)}"
        for limit in field.metadata
        for sign, word in signs.items()
        if hasattr(limit, sign)
    ]
    return ", ".join([*kinds, *bounds])


def _annotations(annotation: Any) -> Iterator[Any]:
    yield getattr(annotation, "__origin__", None) or annotation
    for inner in getattr(annotation, "__args__", ()):
        if isinstance(inner, str):
            yield str
        else:
            yield from _annotations(inner)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    candidates = [annotation, *getattr(annotation, "__args__", ())]
    return next((c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)), None)


def validate(values: Mapping[str, Any], origin_of: Any) -> DeploymentSpec:
    """Check plain values and return the spec.

    ``origin_of(path)`` says where a value came from (``file:line:column``, an option, a variable). Raises
    `SpecError` that lists every problem, each with its origin and, for a word that does not exist, the nearest
    that does.
    """
    try:
        return DeploymentSpec.model_validate(values)
    except ValidationError as problem:
        problems = []
        seen: set[KeyPath] = set()
        for detail in problem.errors(include_url=False):
            path = _spec_path(detail["loc"])
            if path not in seen:
                seen.add(path)
                problems.append((origin_of(path), *_explain(path, detail)))
        raise _as_error(problems) from None


def _as_error(problems: Sequence[tuple[str, str, Sequence[str]]]) -> SpecError:
    origin, found, nearest = problems[0]
    error = SpecError(found, origin=origin, nearest=nearest, next_step="mmdeploy schema lists every field")
    error.more = [
        f"{at}: {text}" + (f" (nearest: {', '.join(near)})" if near else "") for at, text, near in problems[1:]
    ]
    return error


def _spec_path(loc: tuple[int | str, ...]) -> KeyPath:
    """pydantic's location without the steps that name a branch of a union."""
    return tuple(step for step in loc if not (isinstance(step, str) and re.search(r"[\[\]()]|^(str|dict|int)$", step)))


def _explain(path: KeyPath, detail: Any) -> tuple[str, Sequence[str]]:
    where = ".".join(map(str, path)) or "the spec"
    kind, value = detail["type"], detail.get("input")
    if kind == "extra_forbidden":
        siblings = [p[len(path) - 1] for p in fields_of() if p[: len(path) - 1] == path[:-1]]
        return f"unknown field {where!r}", nearest(str(path[-1]), [str(s) for s in dict.fromkeys(siblings)])
    if kind == "literal_error":
        choices = re.findall(r"'([^']*)'", detail["ctx"]["expected"]) or [detail["ctx"]["expected"]]
        return f"{where} is {value!r}; it can be {', '.join(choices)}", nearest(str(value), choices)
    if kind == "string_pattern_mismatch":
        return f"{where} is {value!r}, which is not a valid {_PATTERN_NAMES.get(where.split('.')[-1], 'value')}", ()
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return f"{where} must be a mapping, not {_kind_of(value)}", ()
    if kind in _IN_WORDS:
        return f"{where} is {value!r}; it must be {_IN_WORDS[kind].format(**detail.get('ctx', {}))}", ()
    message = detail["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    return f"{where} is {value!r}: {message}", ()


_PATTERN_NAMES = {
    **dict.fromkeys(
        (
            "cpu",
            "cpuRequest",
            "memory",
            "memoryRequest",
            "shm",
            "ecCacheBytes",
            "storeMaxPendingBytes",
            "storeReadBufferBytes",
        ),
        "Kubernetes quantity (8, 500m, 128Gi)",
    ),
    **dict.fromkeys(
        ("name", "namePrefix", "namespace", "priorityClassName", "serviceAccountName", "claimName"),
        "Kubernetes name (lower-case letters, digits and '-')",
    ),
    "requestTimeout": "duration (30s, 5m, 0s)",
}


_IN_WORDS = {
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_parsing", "float_type"), "a number"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "true or false"),
    "list_type": "a list",
    "string_type": "text",
    "string_too_short": "at least {min_length} character long",
    "string_too_long": "at most {max_length} characters long",
    "greater_than_equal": "{ge} or more",
    "greater_than": "more than {gt}",
    "less_than_equal": "{le} or less",
}
"""pydantic's error types in a person's words; the braces take the limits from the error's context."""


def _kind_of(value: Any) -> str:
    names = {list: "a list", str: f"the text {value!r}", type(None): "nothing", bool: f"{value!r}"}
    return names.get(type(value), f"{value!r}")


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a spec file."""
    schema: dict[str, Any] = _untitled(DeploymentSpec.model_json_schema())
    for name in FILE_FIELDS:
        field = schema["properties"][name]
        field["anyOf"] = [*field["anyOf"][:1], {"type": "string", "description": "Path of a file that holds it."},
                          *field["anyOf"][1:]]  # fmt: skip
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "mmdeploy deployment spec", **schema}


def _untitled(schema: Any) -> Any:
    """Without pydantic's titles: they repeat the names, in other letters. (A field may be called ``title``.)"""
    if isinstance(schema, dict):
        return {k: _untitled(v) for k, v in schema.items() if not (k == "title" and isinstance(v, str))}
    return [_untitled(item) for item in schema] if isinstance(schema, list) else schema
