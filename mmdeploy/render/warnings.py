"""What a person should know about a deployment that is allowed: one function a remark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mmdeploy.quantities import quantity

if TYPE_CHECKING:
    from mmdeploy.render.resolve import Resolution


def warnings(resolution: Resolution) -> list[str]:
    """Every remark that applies, one sentence each."""
    return [text for remark in REMARKS for text in remark(resolution)]


def how_tested(resolution: Resolution) -> Iterator[str]:
    """How well the combination is tested."""
    row, status = resolution.choice.row, resolution.choice.status
    note = f" ({row.note})" if row.note else ""
    if status == "unverified":
        yield f"unverified: nobody is known to have run this combination on release {resolution.release.name}"
    elif status == "experimental":
        what = "encode disaggregation and its manifests may change" if resolution.facts["encodes"] else "may change"
        yield f"experimental: {what}{note}"
    elif status == "validated" and resolution.status == "experimental":
        yield f"experimental: the nightly run covers this as {row.testedAs}, not as {resolution.facts['workload']}"


def inferred(resolution: Resolution) -> Iterator[str]:
    """Parts whose form no published manifest shows."""
    facts = resolution.facts
    if facts["workload"] == "DisaggregatedSet":
        version = resolution.spec["versions"]["leaderWorkerSet"]
        yield (
            f"inferred: no published DisaggregatedSet has an encode role; the layout follows the guide's P/D set and "
            f"needs LeaderWorkerSet {version} or newer with enableDisaggregatedSet=true (--workload Deployment is the "
            "form that was published)"
        )
        yield from _long_set_names(resolution)
    if facts.get("ecConnector") == "ECMooncakeConnector":
        yield "unverified: the routing sidecar has no Mooncake mode and hands the encoder's answer on unchanged"
    if facts["routing"] == "precise":
        yield "unverified: precise routing is not part of the published multimodal guides"
    if facts["encoderCacheAffinity"]:
        yield "unverified: encoder cache affinity is not in the published guides; its weight is an unmerged variant's"
    if facts.get("mediaHandoff") == "metadata":
        yield (
            "unverified: the routing sidecar always forwards the media; a metadata-only hand-off needs a client or "
            "proxy that rewrites requests"
        )


ORDINAL_NAME_LIMIT = 40
"""Characters of set name plus role name: with ``-0-``, a revision and the StatefulSet controller's own ``-`` and ten
characters, the label it puts on a pod stays within Kubernetes' 63."""


def _long_set_names(resolution: Resolution) -> Iterator[str]:
    """Names that the webhook allows, but whose StatefulSets (groupIdentity Ordinal or none) may never make a pod."""
    if resolution.spec["groupIdentity"] == "Hash":
        return
    prefix, longest = resolution.spec["namePrefix"], max(resolution.roles, key=len)
    if len(prefix) + len(longest) > ORDINAL_NAME_LIMIT:
        yield (
            f"inferred: without groupIdentity Hash, {prefix!r} with role {longest!r} is too long for a label that the "
            f"StatefulSet controller puts on its pods; keep the two within {ORDINAL_NAME_LIMIT} characters (namePrefix)"
        )


def floating(resolution: Resolution) -> Iterator[str]:
    """Versions that are not pinned."""
    names = [name for name in resolution.release.floating if resolution.spec.was_read(("versions", name))]
    kept = [f"{name} {resolution.spec['versions'][name]}" for name in names
            if resolution.spec["versions"][name] == resolution.release.versions[name]]  # fmt: skip
    if kept:
        yield f"floating: what these name changes with time: {', '.join(kept)}; pin them with versions.*"
    for name, build in resolution.roles.items():
        image = str(build.values.plain("image"))
        if ":" not in image.rsplit("/", 1)[-1] and "@" not in image:
            yield f"floating: {name}.image {image} has neither tag nor digest"


def prices(resolution: Resolution) -> Iterator[str]:
    """Estimator and measured numbers."""
    pricing = resolution.pricing
    if pricing.mismatch:
        yield f"the estimator does not fit {resolution.model.name}: {pricing.mismatch}"
    elif pricing.pairing is not None and not pricing.pairing.followable:
        yield f"{resolution.model.name}: {pricing.pairing.reason}. {pricing.pairing.advice}"
    if pricing.estimates and pricing.family is None:
        yield f"unverified: nothing is known of {resolution.model.name}; its estimator is taken as given"
    elif pricing.from_memory:
        yield f"unverified: what {resolution.model.name} takes rests on {pricing.from_memory}"
    if pricing.borrowed:
        yield f"borrowed: the affinity filter's numbers were measured for {pricing.borrowed}; measure your own"


def cluster_needs(resolution: Resolution) -> Iterator[str]:
    """Things that the bundle expects to find on the cluster."""
    for name, build in resolution.roles.items():
        priority = build.values["priorityClassName"]
        if priority:
            yield f"{name} pods need the PriorityClass {priority}, which nothing here creates"
    if resolution.facts.get("ecConnector") == "ECExampleConnector":
        claim = resolution.spec["sharedStorage"]["claimName"]
        yield f"the encoder cache needs a ReadWriteMany PersistentVolumeClaim {claim}, and nothing ever empties it"


def memory(resolution: Resolution) -> Iterator[str]:
    """/dev/shm and the processor cache together against the memory limit."""
    for name, build in resolution.roles.items():
        if not {"shm", "memory", "processorCacheGb"} <= set(build.values):
            continue
        shm, limit = quantity(build.values.plain("shm")), quantity(build.values.plain("memory"))
        cache = build.values.plain("processorCacheGb") * 2**30
        if shm + cache > limit:
            yield (
                f"{name}: /dev/shm ({build.values.plain('shm')}) and the processor cache "
                f"({build.values.plain('processorCacheGb')} GiB) can together outgrow the memory limit "
                f"{build.values.plain('memory')}"
            )


def encoder_parallelism(resolution: Resolution) -> Iterator[str]:
    """A flag that the engine would ignore."""
    if resolution.facts.get("encoderParallelism") == "data" and not resolution.model.encoderDataParallel:
        yield f"vLLM is not known to split media items for {resolution.model.name}; it falls back to weights"


REMARKS = (how_tested, inferred, floating, prices, cluster_needs, memory, encoder_parallelism)
