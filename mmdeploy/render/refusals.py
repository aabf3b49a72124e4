"""What cannot work, refused before anything is written: one function a rule, each naming what would work.

A rule takes the resolution (what was said, and every value worked out so far) and raises, or returns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING, Any

from mmdeploy.documents import KeyPath
from mmdeploy.errors import UnsupportedError
from mmdeploy.quantities import quantity
from mmdeploy.render.arguments import flag_of, group
from mmdeploy.render.expressions import image_version
from mmdeploy.render.refused_settings import extra_arguments_are_free, labels_are_legal, variables_have_one_source
from mmdeploy.render.refusing import is_said, refuse
from mmdeploy.spec import ROLES

if TYPE_CHECKING:
    from mmdeploy.render.pods import RoleBuild
    from mmdeploy.render.resolve import Resolution

SET_NAME_LIMIT = 47
"""Characters of set name plus role name; LWS's webhook refuses more (disaggregatedset-observed.md, Shape)."""


def check(resolution: Resolution) -> None:
    """Apply every rule. Raises `UnsupportedError` for the first that is broken."""
    for rule in RULES:
        rule(resolution)


def roles_exist(resolution: Resolution) -> None:
    """Settings of a role that the topology does not have."""
    for role in ROLES:
        if role in resolution.said and role not in resolution.roles:
            topology = resolution.facts["topology"]
            with_role = [name for name, entry in resolution.catalog.topologies.items() if role in entry["roles"]]
            raise refuse(
                resolution, (role,), f"topology {topology} has no {role} pods, but {role} settings are given",
                [f"-t {name}" for name in with_role],
                f"remove the {role} settings, or choose a topology that has the role",
            )  # fmt: skip


def workload_fits(resolution: Resolution) -> None:
    """A workload form that this combination cannot take."""
    workload = resolution.facts["workload"]
    if workload not in resolution.workloads:
        where = f"topology {resolution.facts['topology']} with {resolution.facts['server']}"
        raise refuse(
            resolution, ("workload",), f"{where} on release {resolution.release.name} cannot be a {workload}",
            [f"--workload {name}" for name in resolution.workloads], "mmdeploy matrix shows the forms of each row",
        )  # fmt: skip


def set_name_fits(resolution: Resolution) -> None:
    """The names of a DisaggregatedSet's services would be too long."""
    if resolution.facts["workload"] != "DisaggregatedSet":
        return
    prefix = resolution.spec["namePrefix"]
    if not prefix:
        raise refuse(resolution, ("namePrefix",), "a DisaggregatedSet needs a name, but namePrefix is empty")
    longest = max(resolution.roles, key=len)
    if len(prefix) + len(longest) > SET_NAME_LIMIT:
        raise refuse(
            resolution, ("namePrefix",),
            f"the set's name {prefix!r} with role {longest!r} has {len(prefix) + len(longest)} characters; "
            f"LeaderWorkerSet allows {SET_NAME_LIMIT}",
            [f"--set namePrefix={prefix[: SET_NAME_LIMIT - len(longest)].rstrip('-')}"], "choose a shorter name",
        )  # fmt: skip


def estimator_has_a_place(resolution: Resolution) -> None:
    """An estimator where the router counts real tokens, or nothing at all."""
    if "estimator" not in resolution.said:
        return
    if resolution.facts["routing"] == "precise":
        raise refuse(
            resolution, ("estimator",),
            "precise routing tokenises each request, so an estimator cannot be used with it "
            "(the router refuses token-producer with both)",
            ["--routing approximate"], "leave the estimator out, or use --routing approximate",
        )  # fmt: skip
    if resolution.facts["server"] != "vllm":
        raise refuse(
            resolution, ("estimator",),
            f"the router of {resolution.facts['topology']} with {resolution.facts['server']} picks pods by queue and "
            "KV cache and prices nothing: an estimator has no effect",
            None, "leave the estimator out",
        )  # fmt: skip
    if "video" in resolution.said["estimator"] and not resolution.pricing.video:
        name, router = resolution.release.name, resolution.release.routerVersion
        raise refuse(
            resolution, ("estimator",), f"release {name} (router {router}) stops at start on estimate.video",
            _releases_with(resolution, "video-estimate"), "remove the video block",
        )  # fmt: skip


def routing_fits(resolution: Resolution) -> None:
    """Precise routing where no layer provides it; encoder cache affinity in an encode profile."""
    if resolution.facts["routing"] == "precise" and resolution.facts["server"] != "vllm":
        raise refuse(
            resolution, ("routing",), "precise routing needs vLLM: SGLang pods behind this router publish no KV events",
            ["--routing approximate", "--server vllm"], "use --routing approximate",
        )  # fmt: skip
    if resolution.facts["encoderCacheAffinity"] and resolution.facts["encodes"]:
        raise refuse(
            resolution, ("encoderCacheAffinity",),
            "encoder cache affinity scores nothing in an encode profile: the router records the decode pod as the "
            "holder and looks the encode pods up (llm-d-router issue 2626)",
            ["-t aggregation", "--no-encoder-cache-affinity"], "leave it out for encode disaggregation",
        )  # fmt: skip


def connector_fits(resolution: Resolution) -> None:
    """An EC connector, or a setting of one, that the release's engine does not have."""
    connector = resolution.facts.get("ecConnector")
    if connector is None:
        return
    features = resolution.release.features
    if connector == "ECMooncakeConnector" and "ec-mooncake" not in features:
        raise _lacks(resolution, ("ecConnector",), "ECMooncakeConnector", "vLLM 0.30", "ec-mooncake")
    if connector == "ECMooncakeConnector" and resolution.spec["mooncake"]["crossEncoderCache"]:
        _cross_encoder_cache(resolution)
    if connector == "ECMooncakeConnector" and resolution.roles["encode"].values.plain("tensorParallelSize") > 1:
        raise refuse(
            resolution, ("encode", "tensorParallelSize"),
            f"ECMooncakeConnector producers run with tensor parallel size 1, not "
            f"{resolution.roles['encode'].values.plain('tensorParallelSize')}",
            ["encode.tensorParallelSize=1", "--ec-connector ECCPUConnector"], "set encode.tensorParallelSize=1",
        )  # fmt: skip
    if connector == "ECCPUConnector" and "ec-fork" in features and resolution.model.embeddingRowBytes is None:
        raise refuse(
            resolution, ("model",),
            f"release {resolution.release.name} counts the encoder cache in rows of the model's embeddings, and the "
            f"catalog does not know their size for {resolution.model.name}",
            _releases_with(resolution, "ec-nixl"), "use a release whose cache is sized in bytes",
        )  # fmt: skip


def _cross_encoder_cache(resolution: Resolution) -> None:
    image = str(resolution.roles["encode"].values.plain("image"))
    version = image_version(image)
    if version is not None and version < (0, 31):
        raise refuse(
            resolution, ("mooncake", "crossEncoderCache"),
            f"crossEncoderCache needs vLLM 0.31; encode pods run {image}",
            ["mooncake.crossEncoderCache=false"], "set the images to v0.31 or newer, or leave it out",
        )  # fmt: skip


def engines_match(resolution: Resolution) -> None:
    """Engines that hand embeddings or KV cache to each other must be of one release (model-servers.md §0.8, §1.3)."""
    if not resolution.facts["encodes"] or resolution.facts["server"] != "vllm":
        return
    images = {name: str(build.values.plain("image")) for name, build in resolution.roles.items()}
    versions = {name: image_version(image) for name, image in images.items()}
    first, *others = resolution.roles
    for name in others:
        if versions[name] != versions[first] and None not in (versions[name], versions[first]):
            odd = next((role for role in (first, name) if is_said(resolution.said, (role, "image"))), name)
            raise refuse(
                resolution, (odd, "image"),
                f"{first} runs {images[first]}, {name} runs {images[name]}: engines of different releases refuse each "
                "other's transfers, and the consumer encodes by itself",
                [f"{role}.image={images[first]}" for role in others if role == name], "use one release for all roles",
            )  # fmt: skip


def fork_is_kept(resolution: Resolution) -> None:
    """Another image where the release's EC configuration is written for its fork."""
    if not resolution.facts["forked"] or resolution.facts.get("ecConnector") != "ECCPUConnector":
        return
    for name, build in resolution.roles.items():
        own = resolution.release.images["vllm-encode"][build.values["accelerator"]]
        image = str(build.values.plain("image"))
        if image.rsplit("/", 1)[-1] != own.rsplit("/", 1)[-1]:
            raise refuse(
                resolution, (name, "image"),
                f"release {resolution.release.name} configures its fork {own}; {image} reads other keys",
                _releases_with(resolution, "ec-nixl"), "keep the release's image (a mirror of it will do)",
            )  # fmt: skip


def handoff_fits(resolution: Resolution) -> None:
    """Metadata-only hand-off where nothing publishes metadata."""
    if resolution.said.get("mediaHandoff") != "metadata":
        return
    path: KeyPath = ("mediaHandoff",)
    raw = ["mediaHandoff=raw"]
    if not resolution.facts["encodes"] or resolution.facts["server"] != "vllm":
        near = ["-t e-pd", "-t e-p-d"] if not resolution.facts["encodes"] else ["--server vllm"]
        raise refuse(resolution, path, "a metadata-only hand-off needs vLLM encode pods", near)
    if "metadata-handoff" not in resolution.release.features:
        raise _lacks(resolution, path, "the metadata-only hand-off", "vLLM 0.28", "metadata-handoff")
    if not resolution.model.handoffMetadata:
        family = resolution.model.family or "its family"
        able = [name for name, model in resolution.catalog.models.items() if model.handoffMetadata]
        raise refuse(
            resolution, path,
            f"vLLM's encoder publishes no layout metadata for {family} ({resolution.model.name}): the consumer must "
            "receive the media themselves",
            [*raw, *(f"-m {name}" for name in able[:2])], "use mediaHandoff=raw",
        )  # fmt: skip
    if resolution.facts["ecConnector"] == "ECExampleConnector":
        raise refuse(
            resolution, path,
            "with ECExampleConnector a missing embedding kills the engine when there are no media to fall back on",
            [*raw, "--ec-connector ECCPUConnector"], "use mediaHandoff=raw",
        )  # fmt: skip


def _lacks(resolution: Resolution, path: KeyPath, what: str, since: str, feature: str) -> UnsupportedError:
    return refuse(
        resolution, path, f"release {resolution.release.name} lacks {what}, which needs {since}",
        _releases_with(resolution, feature), "mmdeploy matrix shows what each release supports",
    )  # fmt: skip


def _releases_with(resolution: Resolution, feature: str) -> list[str]:
    names = resolution.catalog.release_names
    return [f"--release {name}" for name in names if feature in resolution.catalog.release(name).features]


def accelerators_fit(resolution: Resolution) -> None:
    """Ranks (tensor x data x pipeline parallel) against accelerators, and TPU chips against the slice."""
    for name, build in resolution.roles.items():
        tensor, count = build.values.plain("tensorParallelSize"), build.values.plain("accelerators")
        entry = resolution.catalog.accelerators[build.values["accelerator"]]
        further = _further_ranks(build)
        if not any(tensor * further == count * times for times in entry["tensorParallel"]):
            raise refuse(
                resolution, _blamed_for_ranks(resolution, name, further),
                f"{name}: tensor parallel size {tensor}{f' x {further} further ranks' * (further > 1)} does not fit "
                f"{count} accelerator{'s' * (count != 1)} ({entry['title']})",
                [f"{name}.accelerators={tensor * further}",
                 *(f"{name}.tensorParallelSize={count * times // further}" for times in entry["tensorParallel"]
                   if count * times % further == 0 and count * times // further != tensor)],
                "change the two together",
            )  # fmt: skip
        _slice_fits(resolution, name, build, entry, count)


def _blamed_for_ranks(resolution: Resolution, name: str, further: int) -> KeyPath:
    keys = ("extraArgs",) if further > 1 else ("tensorParallelSize", "accelerators")
    return (name, next((key for key in keys if is_said(resolution.said, (name, key))), "accelerators"))


def _slice_fits(resolution: Resolution, name: str, build: RoleBuild, entry: Mapping[str, Any], count: int) -> None:
    label = entry.get("sliceLabel")
    shape = (build.values.plain("nodeSelector") or {}).get(label) if label else None
    if shape is None:
        return
    chips = prod(int(side) for side in re.findall(r"[0-9]+", shape))
    if chips != count:
        odd = "accelerators" if is_said(resolution.said, (name, "accelerators")) else "nodeSelector"
        raise refuse(
            resolution, (name, odd),
            f"{name}: {count} chips do not fill the slice {shape} ({chips} chips); GKE wants a pod to ask for all",
            [f"--set {name}.accelerators={chips} --set {name}.tensorParallelSize={chips}"],
            "change node selector, chips and tensor parallel size together",
        )  # fmt: skip


def _further_ranks(build: RoleBuild) -> int:
    """Data and pipeline parallel ranks that the extra arguments add on each pod; 1 where they add none."""
    ranks = 1
    for argument in group(build.values.plain("extraArgs") or []):
        if flag_of(argument) in ("--data-parallel-size", "-dp", "--pipeline-parallel-size", "-pp", "--dp-size", "--dp"):
            text = str(argument[1] if isinstance(argument, list) else argument.partition("=")[2])
            ranks *= int(text) if text.isdigit() and int(text) > 0 else 1
    return ranks


def memory_nests(resolution: Resolution) -> None:
    """Encoder cache inside /dev/shm inside the memory limit; requests inside limits."""
    pairs = (("ecCacheBytes", "shm"), ("shm", "memory"), ("memoryRequest", "memory"), ("cpuRequest", "cpu"))
    words = {
        "ecCacheBytes": "the encoder cache lives in /dev/shm",
        "shm": "/dev/shm counts against the memory limit",
        "memoryRequest": "a request cannot exceed its limit",
        "cpuRequest": "a request cannot exceed its limit",
    }
    for name, build in resolution.roles.items():
        for inner, outer in pairs:
            if inner == "ecCacheBytes" and not _caches_embeddings(resolution, name):
                continue
            if inner not in build.values or outer not in build.values:
                continue
            small, large = build.values.plain(inner), build.values.plain(outer)
            _refuse_nothing(resolution, name, outer, large)
            if small is not None and quantity(small) > quantity(large):
                said = inner if is_said(resolution.said, (name, inner)) else outer
                raise refuse(
                    resolution, (name, said), f"{name}: {inner} {small} is more than {outer} {large}: {words[inner]}",
                    [f"{name}.{inner}={large}", f"{name}.{outer}={small}"], "lower the one or raise the other",
                )  # fmt: skip


def _refuse_nothing(resolution: Resolution, name: str, key: str, value: Any) -> None:
    if quantity(value) <= 0:
        raise refuse(resolution, (name, key), f"{name}.{key} is {value}: a limit of nothing lets nothing run")


def _caches_embeddings(resolution: Resolution, role: str) -> bool:
    """Whether a role's engine holds the encoder cache of ECCPUConnector."""
    takes_part = role == "encode" or role in resolution.topology["groups"]["consumer"]
    return takes_part and resolution.facts.get("ecConnector") == "ECCPUConnector"


def kv_order_fits(resolution: Resolution) -> None:
    """NixlConnector refuses prefill with a larger tensor parallel size than decode (llm-d-guides.md §19.7)."""
    if not resolution.facts["prefills"]:
        return
    prefill = resolution.roles["prefill"].values.plain("tensorParallelSize")
    decode = resolution.roles["decode"].values.plain("tensorParallelSize")
    if prefill > decode:
        odd = "decode" if is_said(resolution.said, ("decode", "tensorParallelSize")) else "prefill"
        raise refuse(
            resolution, (odd, "tensorParallelSize"),
            f"prefill runs with tensor parallel size {prefill}, decode with {decode}: NixlConnector does not move "
            "the KV cache to a smaller one",
            [f"prefill.tensorParallelSize={decode}", f"decode.tensorParallelSize={prefill}"], "make them equal",
        )  # fmt: skip


RULES = (
    roles_exist,
    workload_fits,
    set_name_fits,
    estimator_has_a_place,
    routing_fits,
    connector_fits,
    engines_match,
    fork_is_kept,
    handoff_fits,
    accelerators_fit,
    memory_nests,
    kv_order_fits,
    extra_arguments_are_free,
    variables_have_one_source,
    labels_are_legal,
)


def check_unread(resolution: Resolution) -> None:
    """Refuse a setting that nothing in this deployment looks at. Raises `UnsupportedError`."""
    for path, known in _settings(resolution):
        if not known:
            where = ".".join(map(str, path))
            facts = resolution.facts
            raise refuse(
                resolution, path,
                f"{where} has no effect here (topology {facts['topology']}, server {facts['server']}, "
                f"mode {facts['mode']}, workload {facts['workload']})",
                None,
                "remove it; a small spec that holds only what you decide is easier to change than a resolved one",
            )  # fmt: skip


def _settings(resolution: Resolution) -> Iterator[tuple[KeyPath, bool]]:
    for path in resolution.said_paths():
        if path[0] in resolution.roles:
            inner = ("extraLabels",) if path[1] == "labels" else path[1:]
            yield path, resolution.roles[str(path[0])].values.was_read(inner)
        elif path[0] != "schemaVersion":
            yield path, resolution.spec.was_read(path)
