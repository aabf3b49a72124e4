"""1xx: pools and selectors. This module: which pods a pool selects, and which stage each of them serves."""

from __future__ import annotations

from collections.abc import Iterator

from mmdeploy.documents import KeyPath
from mmdeploy.lint.findings import Found, Level, rule
from mmdeploy.lint.index import Deployment
from mmdeploy.lint.pods import ROLE, Pod
from mmdeploy.lint.pools import Pool, missing_labels, servers_of
from mmdeploy.lint.router import PickerConfig, Profile
from mmdeploy.lint.router_facts import facts
from mmdeploy.lint.rules.picker_stages import ASKED, decider_path
from mmdeploy.lint.rules.words import listed, suggestion
from mmdeploy.lint.stages import accepts, legal_roles, reads_role, role_filters

_SCALERS = ("HorizontalPodAutoscaler", "ScaledObject", "DisaggregatedSetRoleScaler", "VariantAutoscaling")
"""Kinds of objects that change replicas: zero may be meant."""


def labels_path(pod: Pod, key: str | None = None) -> KeyPath:
    """Where a pod's labels stand, or one of them."""
    path: KeyPath = (*pod.path, "metadata", "labels")
    return (*path, key) if key is not None and key in pod.labels else path


@rule("MMD101", Level.error, "llm-d-guides.md §18; llm-d/llm-d-model-service#55")
def selects_nothing(deployment: Deployment) -> Iterator[Found]:
    """A pool whose selector fits no pod: every request is answered 503."""
    servers = servers_of(deployment)
    for pool in deployment.pools:
        if pool.selected or not servers:
            continue
        near = min(servers, key=lambda pod: len(missing_labels(deployment, pool.labels, pod)))
        missing = missing_labels(deployment, pool.labels, near)
        if not missing:
            yield Found(
                pool.document, ("metadata", "namespace"), pool.title,
                f"the pool is in namespace {pool.namespace}, and {near.title} in {near.namespace}: it selects nothing, "
                "and every request is answered 503", "put both into one namespace",
            )  # fmt: skip
            continue
        key = missing[0]
        carried = f"carries {near.labels[key]}" if key in near.labels else "has no such label"
        yield Found(
            pool.document, (*pool.path, key), pool.title,
            f"the pool selects pods with {key}={pool.labels[key]}, and no pod carries it ({near.title} {carried}): "
            "every request is answered 503",
            f"select {key}: {near.labels[key]}" if key in near.labels else f"label the pods {key}: {pool.labels[key]}",
        )  # fmt: skip


def _staged(deployment: Deployment) -> Iterator[tuple[Pool, PickerConfig, dict[str, Profile]]]:
    """Pools whose configuration disaggregates, with the profiles of the stages that run."""
    for pool in deployment.pools:
        config = pool.config
        if config is None or config.handler is None or config.handler.type != "disagg-profile-handler" or not pool.pods:
            continue
        stages = [stage for stage in ASKED if config.decider(stage)]
        if not stages:
            continue
        profiles = {stage: config.profile(config.stage_profile(stage)) for stage in (*stages, "decode")}
        yield pool, config, {stage: profile for stage, profile in profiles.items() if profile is not None}


@rule("MMD102", Level.error, "router.md §1.6; router-observed.md (wrong configurations)")
def stage_without_pods(deployment: Deployment) -> Iterator[Found]:
    """A stage of the configuration that no pod of the pool serves."""
    known = facts(deployment)
    for pool, config, profiles in _staged(deployment):
        explained = _strangers(deployment, pool) or _suspects(deployment, pool, config, profiles)
        for stage, profile in profiles.items():
            pods = [pod for pod in pool.selected if accepts(known, config, profile, pod)]
            mislabelled = stage == "encode" and any(_only_encodes(pod) for pod in pool.pods)
            if pods or explained or mislabelled or config.handler is None:
                continue
            what = "is answered 429" if stage == "decode" else f"runs without {stage} pods, and nothing errors"
            found = sorted({pod.role or "no role" for pod in pool.pods})
            path = profile.path if stage == "decode" else decider_path(config.handler, stage)
            yield Found(
                config.document, path, config.title,
                f"no pod of the pool passes profile {profile.name} (roles found: {listed(found)}): every request "
                f"{what}",
                f"label the {stage} pods {ROLE}: {stage} and give them the pool's labels, or remove the stage",
            )  # fmt: skip
            continue
        yield from _scaled_to_zero(deployment, pool, config, profiles)


def _scaled_to_zero(
    deployment: Deployment, pool: Pool, config: PickerConfig, profiles: dict[str, Profile]
) -> Iterator[Found]:
    known = facts(deployment)
    if any(deployment.kind(*_SCALERS)):
        return
    if all(pod.replicas == 0 for pod in pool.pods):
        return  # the whole deployment is scaled down
    for stage, profile in profiles.items():
        pods = [pod for pod in pool.pods if accepts(known, config, profile, pod)]
        if pods and all(pod.replicas == 0 and pod.kind != "DisaggregatedSet" for pod in pods):
            yield Found(
                pods[0].document, (*pods[0].object_path, "replicas"), pods[0].title,
                f"the {stage} stage has 0 replicas: "
                + ("every request is answered 429" if stage == "decode" else "its work is silently done by other pods"),
                "set replicas to 1 or more, or remove the stage from the router's configuration", Level.warning,
            )  # fmt: skip


def _strangers(deployment: Deployment, pool: Pool) -> list[Pod]:
    """Pods of a pool whose role no filter knows."""
    legal = legal_roles(facts(deployment))
    return [pod for pod in pool.pods if pod.role is not None and pod.role not in legal]


@rule("MMD103", Level.error, "router.md §2.1; llm-d/llm-d-router#2221")
def unknown_role(deployment: Deployment) -> Iterator[Found]:
    """A role label that no role filter accepts: the pods stay idle."""
    known = facts(deployment)
    legal = legal_roles(known)
    filtering = [
        config
        for config in deployment.configs
        if not reads_role(config) and any(role_filters(known, config, profile) for profile in config.profiles)
    ]
    if deployment.configs and not filtering:
        return
    for pod in servers_of(deployment):
        if pod.role is None or pod.role in legal:
            continue
        if deployment.pools and not any(pod in pool.pods for pool in deployment.pools):
            continue
        both = (known.fact("stages", "both") or {}) if pod.role == "both" else {}
        yield Found(
            pod.document, labels_path(pod, ROLE), pod.title,
            f"no filter of router {known.version} accepts the role {pod.role}: these pods get no requests"
            + ("" if both else suggestion(pod.role, legal)),
            f"write {both['instead']}" if both else f"write one of {listed(sorted(legal - {'both'}))}",
        )  # fmt: skip


@rule("MMD104", Level.error, "router.md §2.1, §5.4; llm-d/llm-d#2212")
def encoder_gets_chat(deployment: Deployment) -> Iterator[Found]:
    """A pod that only encodes is a candidate for requests that it cannot answer."""
    known = facts(deployment)
    reported: set[str] = set()
    for pool in deployment.pools:
        config = pool.config
        for pod in pool.pods if config is not None else ():
            if not _only_encodes(pod) or config is None or (config.handler is None and len(config.profiles) > 1):
                continue
            stages = [config.stage_profile(stage) for stage in ("decode", "prefill")] if config.handler else []
            profiles = [item for item in config.profiles if not config.handler or item.name in stages]
            open_to = next((item for item in profiles if accepts(known, config, item, pod)), None)
            if open_to is None:
                continue
            reported.add(pod.title)
            filtered = role_filters(known, config, open_to)
            if filtered and pod.role is None:
                at, why = labels_path(pod), f"it has no {ROLE} label, and {filtered[0]} takes it for a decode pod"
            elif filtered:
                at, why = labels_path(pod, ROLE), f"its role is {pod.role}"
            else:
                at, why = (), f"profile {open_to.name} has no role filter, and the selector does not leave it out"
            document, path = (pod.document, at) if at else (pool.document, pool.path)
            yield Found(
                document, path, pod.title, f"{pod.title} only encodes, and gets chat requests all the same: {why}",
                f"label it {ROLE}: encode" if at else f"add {ROLE}: decode to the selector, or filter in the profile",
            )  # fmt: skip
    if not deployment.configs and not reported:
        yield from _by_labels(deployment)


def _only_encodes(pod: Pod) -> bool:
    """Whether flags leave no doubt. One wrong flag on a pod that is labelled for other work is not mine to tell."""
    engine = pod.engine
    if engine is None:
        return False
    if engine.kind == "sglang":
        return engine.command.last("--encoder-only") is not None
    signs = (engine.command.on("--mm-encoder-only"), engine.ec_role == "ec_producer")
    return all(signs) if pod.role is not None and pod.role != "encode" else any(signs)


def _by_labels(deployment: Deployment) -> Iterator[Found]:
    """Without the router's half: a label that contradicts the flags, or the only one that is missing."""
    labelled = any(pod.role for pod in servers_of(deployment))
    for pod in servers_of(deployment):
        wrong = pod.role is not None and not pod.role.startswith("encode")
        lost = pod.role is None and labelled and pod.engine is not None and pod.engine.kind == "vllm"
        if not _only_encodes(pod) or not (wrong or lost):
            continue
        yield Found(
            pod.document, labels_path(pod, ROLE), pod.title,
            f"{pod.title} only encodes, and " + (f"its role is {pod.role}" if pod.role else
            f"has no {ROLE} label, which makes it a decode candidate"), f"label it {ROLE}: encode",
        )  # fmt: skip


def _suspects(deployment: Deployment, pool: Pool, config: PickerConfig, profiles: dict[str, Profile]) -> list[Pod]:
    """Pods without a role label that are decode candidates beside labelled decode pods."""
    known = facts(deployment)
    decode = profiles.get("decode")
    if decode is None or "decode-filter" not in role_filters(known, config, decode):
        return []
    accepted = [pod for pod in pool.pods if accepts(known, config, decode, pod)]
    if not any(pod.role for pod in accepted):
        return []
    return [pod for pod in accepted if pod.role is None]


@rule("MMD105", Level.error, "router.md §2.1 (pods without a role label are decode candidates)")
def no_role(deployment: Deployment) -> Iterator[Found]:
    """A pod without a role label in a pool whose stages have pods of their own."""
    known = facts(deployment)
    for pool, config, profiles in _staged(deployment):
        empty = [stage for stage, profile in profiles.items()
                 if not any(accepts(known, config, profile, pod) for pod in pool.selected)]  # fmt: skip
        for pod in _suspects(deployment, pool, config, profiles):
            if _only_encodes(pod):
                continue
            lacking = f", and the {listed(empty)} stage has no pods" if empty else ""
            yield Found(
                pod.document, labels_path(pod), pod.title,
                f"{pod.title} has no {ROLE} label: it gets decode requests beside the pods labelled for it{lacking}",
                f"label it {ROLE}: {empty[0] if empty else 'decode'}", None if empty else Level.warning,
            )  # fmt: skip


@rule("MMD107", Level.warning, "llm-d-guides.md §10.3 (both topologies carry one guide label)")
def mixed_pool(deployment: Deployment) -> Iterator[Found]:
    """Pods of two deployments in one pool: same role, and another model or another transfer; or pods in two pools."""
    yield from _shared(deployment)
    for pool in deployment.pools:
        roles: dict[tuple[str | None, str | None], list[Pod]] = {}
        for pod in pool.pods:
            if pod.engine is not None and pod.engine.kind == "vllm":
                roles.setdefault((pod.role, pod.namespace), []).append(pod)
        for (role, _), pods in roles.items():
            first = pods[0]
            for pod in pods[1:]:
                differs = _differs(first, pod, staged=pool.config is not None and pool.config.handler is not None)
                if differs:
                    yield Found(
                        pod.document, labels_path(pod, ROLE), pod.title,
                        f"{pod.title} and {first.title} are both {role or 'unlabelled'} pods of one pool, but "
                        f"{differs}: requests of one deployment reach the other",
                        "give each deployment a label (or a namespace) of its own",
                    )  # fmt: skip
                    break


def _shared(deployment: Deployment) -> Iterator[Found]:
    """Two endpoint pickers over the same pods: each schedules without the other's load."""
    for number, pool in enumerate(deployment.pools):
        for other in deployment.pools[:number]:
            # A pool object beside values or flags may be the same pool, rendered.
            same_form = pool.path == other.path and pool.document is not other.document
            both = [pod for pod in pool.pods if any(pod is item for item in other.pods)]
            if same_form and both:
                yield Found(
                    pool.document, pool.path, pool.title,
                    f"{both[0].title} is in this pool and in {other.title} ({other.document.file}): two endpoint "
                    "pickers schedule over the same pods, each without the other's load",
                    "give each deployment a label (or a namespace) of its own",
                )  # fmt: skip
                break


def _differs(one: Pod, other: Pod, staged: bool) -> str:
    if one.engine is None or other.engine is None:
        return ""
    names = [{pod.engine.model, *_served(pod)} - {None} for pod in (one, other) if pod.engine]
    if all(names) and not names[0] & names[1] and not any("$" in str(name) for name in names[0] | names[1]):
        return f"serve {one.engine.model} and {other.engine.model}"
    transfers = (("a KV transfer", "--kv-transfer-config"), ("an EC transfer", "--ec-transfer-config"))
    for what, flag in transfers if staged else ():
        given = [any(item.name == flag or item.name.startswith(f"{flag}.") for item in pod.engine.command.flags)
                 for pod in (one, other) if pod.engine]  # fmt: skip
        if given[0] != given[1]:
            return f"only one of them has {what}"
    return ""


def _served(pod: Pod) -> tuple[str, ...]:
    flag = pod.engine.command.last("--served-model-name") if pod.engine else None
    return flag.values if flag else ()
