"""What a person may ask for: the pydantic model of ``mmdeploy.yaml``.

The model is the one source of the JSON Schema (``mmdeploy schema``), of the reference page in the guides, of the
``--set`` paths and of the ``MMDEPLOY_*`` variables. It says what is *well formed*; whether a combination can work is
for the catalog and the refusal rules. Every field is optional: what is left out is filled from the blueprints, and a
resolved spec (the ``mmdeploy.yaml`` of a bundle) has every field filled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mmdeploy import misfits
from mmdeploy.documents import KeyPath
from mmdeploy.errors import SpecError
from mmdeploy.kinds import (
    PATTERN_NAMES,
    Amount,
    Count,
    Duration,
    FreeMapping,
    FreeMappings,
    Gibibytes,
    Milliseconds,
    Name,
    NamePrefix,
    ProcessorConfig,
    Quantity,
    ReleaseName,
    Replicas,
    SecretKey,
    Share,
    SomeEnv,
    SomeTexts,
    Text,
    Texts,
    Version,
)

ROLES = ("encode", "prefill", "decode")
"""Roles in the order in which media passes through them; also the values of the label ``llm-d.ai/role``."""

SCHEMA_VERSION = 1

FILE_FIELDS = ("processorConfig", "estimator")
"""Fields that may name a file in a spec, instead of holding what is in it."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True)


class Secret(_Strict):
    """The Hugging Face token's Secret; mmdeploy refers to it and never holds its content."""

    name: Name | None = Field(None, description="Name of the Secret.")
    key: SecretKey | None = Field(None, description="Key in the Secret; the engine reads it as HF_TOKEN.")


class Role(_Strict):
    """What can be set for one role's pods."""

    replicas: Replicas | None = Field(None, description="Pods of this role (at least one).")
    tensorParallelSize: Count | None = Field(None, description="Tensor parallel size of the engine.")
    accelerator: Text | None = Field(None, description="Accelerator of this role, where the topology mixes them.")
    accelerators: Count | None = Field(None, description="Accelerators (GPUs, chips, DRA devices) a pod.")
    cpu: Amount | None = Field(None, description="CPU limit of the model server.")
    cpuRequest: Quantity | None = Field(None, description="CPU request of the model server.")
    memory: Amount | None = Field(None, description="Memory limit of the model server; /dev/shm counts against it.")
    memoryRequest: Quantity | None = Field(None, description="Memory request of the model server.")
    shm: Amount | None = Field(None, description="Size limit of /dev/shm.")
    ecCacheBytes: Amount | None = Field(
        None, description="Encoder cache (EC connector) in bytes or as a quantity; lives in /dev/shm."
    )
    processorCacheGb: Gibibytes | None = Field(None, description="Multimodal processor cache in GiB of host memory.")
    image: Text | None = Field(None, description="Image of the model server.")
    extraArgs: Texts = Field(None, description="Engine arguments, appended; a flag given here wins.")
    extraEnv: SomeEnv = Field(None, description="Environment variables: NAME: value, or NAME: {valueFrom: …}.")
    labels: SomeTexts = Field(None, description="Labels added to the pods.")
    annotations: SomeTexts = Field(None, description="Annotations added to the pods.")
    nodeSelector: SomeTexts = Field(None, description="Node labels that the pods require.")
    tolerations: FreeMappings = Field(None, description="Taints that the pods tolerate.")
    affinity: FreeMapping = Field(None, description="Pod and node affinity, as Kubernetes has it.")
    priorityClassName: Name | None = Field(None, description="PriorityClass; it must exist on the cluster.")
    serviceAccountName: Name | None = Field(None, description="An existing ServiceAccount instead of the rendered one.")
    hfSecret: Secret | None = Field(None, description="Hugging Face Secret of this role, where it differs.")


class Gateway(_Strict):
    """The Gateway in front of the router (mode gateway)."""

    gatewayClass: Literal["none", "gke", "istio", "agentgateway"] | None = Field(
        None, description="Who implements the Gateway; none attaches to a Gateway that already exists."
    )
    name: Name | None = Field(None, description="Name of the Gateway that the HTTPRoute attaches to.")
    requestTimeout: Duration | None = Field(
        None, description="Timeout of the HTTPRoute; 0s lifts it (long generations and videos need that)."
    )


class Mooncake(_Strict):
    """Limits of the Mooncake store, for ecConnector ECMooncakeConnector."""

    protocol: Literal["rdma", "tcp"] | None = Field(None, description="Transport of the Mooncake transfer engine.")
    crossEncoderCache: bool | None = Field(None, description="Reuse embeddings across encode pods (vLLM 0.31+).")
    storeMaxPendingItems: Count | None = Field(None, description="Items that may wait for the store.")
    storeMaxPendingBytes: Amount | None = Field(None, description="Bytes that may wait for the store.")
    storeReadBufferBytes: Amount | None = Field(None, description="Read buffer of the store.")


class SharedStorage(_Strict):
    """The volume of ecConnector ECExampleConnector (labs)."""

    claimName: Name | None = Field(None, description="A ReadWriteMany PersistentVolumeClaim in the namespace.")
    path: Text | None = Field(None, description="Mount path, the same on producer and consumer.")


class Calibration(_Strict):
    """The measured numbers of prefix-cache-affinity-filter: they belong to model × accelerator × TP."""

    peakPrefillThroughput: Count | None = Field(None, description="Tokens a second that one pod prefills.")
    affinityThreshold: Share | None = Field(None, description="Cached share from which affinity engages.")
    maxTTFTPenaltyMs: Milliseconds | None = Field(
        None, description="Milliseconds of waiting that a cache hit is worth."
    )


class Versions(_Strict):
    """What a release pins; filled from the catalog, and written out so that a bundle says what it was made for."""

    routerChart: Version | None = Field(None, description="Version of the llm-d router charts.")
    sidecarImage: Text | None = Field(None, description="Image of the routing sidecar.")
    inferenceExtension: Version | None = Field(None, description="Gateway API Inference Extension CRDs.")
    gatewayApi: Version | None = Field(None, description="Gateway API CRDs (mode gateway).")
    leaderWorkerSet: Version | None = Field(None, description="LeaderWorkerSet chart (workload DisaggregatedSet).")


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
    name: ReleaseName | None = Field(None, description="Helm release of the router, and name of its InferencePool.")
    namePrefix: NamePrefix | None = Field(
        None, description="Prefix of the model server objects' names; empty for none."
    )
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
    estimator: FreeMapping = Field(
        None, description="The router's `estimate:` block; left out, it is derived from the model."
    )
    allowMismatch: bool | None = Field(None, description="Render an estimator that does not fit, with a warning.")
    processorConfig: ProcessorConfig = Field(
        None, description="Content of the model's preprocessor_config.json, for a model outside the catalog."
    )
    mmProcessorKwargs: FreeMapping = Field(
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
    kinds = {get_origin(kind) or kind for kind in _kinds(field.annotation)}
    return str in kinds and not kinds & {int, float, bool, list, dict}


def holds_mapping(field: Any) -> bool:
    """Whether a field holds a mapping with keys of a person's choice."""
    return any(get_origin(kind) is dict for kind in _kinds(field.annotation))


def holds_texts(field: Any) -> bool:
    """Whether a field holds a mapping whose values are texts, as they are typed."""
    mappings = [kind for kind in _kinds(field.annotation) if get_origin(kind) is dict]
    return any(str in _kinds(get_args(mapping)[1]) for mapping in mappings)


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
    kinds: list[str] = []
    for kind in _kinds(field.annotation):
        if get_origin(kind) is Literal:
            kinds += [f"`{choice}`" for choice in get_args(kind)]
        else:
            kinds.append(PATTERN_NAMES.get(name, "text") if kind is str else _KINDS[get_origin(kind) or kind])
    if kinds == ["whole number", "number"]:
        kinds = ["number"]
    signs = {"ge": "at least", "gt": "more than", "le": "at most"}
    bounds = [
        f"{word} {getattr(limit, sign)}"
        for limit in _limits(field.annotation)
        for sign, word in signs.items()
        if hasattr(limit, sign)
    ]
    return ", ".join([*kinds, *bounds])


def _kinds(annotation: Any) -> list[Any]:
    """The types that an annotation allows, without None and without what it says about them."""
    if get_origin(annotation) is Annotated:
        return _kinds(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [kind for part in get_args(annotation) for kind in _kinds(part)]
    return [] if annotation is NoneType else [annotation]


def _limits(annotation: Any) -> Iterator[Any]:
    """Bounds that stand with the types of an annotation."""
    for part in get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,):
        if get_origin(part) is Annotated:
            for said in get_args(part)[1:]:
                yield from getattr(said, "metadata", ())


def _model_in(annotation: Any) -> type[BaseModel] | None:
    candidates = [annotation, *getattr(annotation, "__args__", ())]
    return next((c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)), None)


def validate(values: Mapping[str, Any], origin_of: Callable[[KeyPath], str]) -> DeploymentSpec:
    """Check plain values and return the spec.

    ``origin_of(path)`` says where a value came from (``file:line:column``, an option, a variable). Raises
    `SpecError` that lists every problem, each with its origin and, for a word that does not exist, the nearest
    that does.
    """
    try:
        spec = DeploymentSpec.model_validate(values)
    except ValidationError as problem:
        raise misfits.error(problem, values, list(fields_of()), origin_of) from None
    kwargs = values.get("mmProcessorKwargs")
    if path := misfits.null_in(kwargs):
        # Elsewhere null is the same as left out; a processor takes it for a value, and each for another one.
        path = ("mmProcessorKwargs", *path)
        raise SpecError(
            f"{'.'.join(map(str, path))} is null",
            origin=origin_of(path),
            next_step="write the value that you mean, or leave the key out",
        )
    return spec


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
