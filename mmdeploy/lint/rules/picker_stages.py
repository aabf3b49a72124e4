"""2xx: stages of disaggregated serving inside one configuration: deciders, profiles, filters, entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mmdeploy.documents import KeyPath
from mmdeploy.lint.findings import Found, Level, rule
from mmdeploy.lint.index import Deployment
from mmdeploy.lint.router import PickerConfig, Plugin, Profile
from mmdeploy.lint.router_facts import RouterFacts, facts
from mmdeploy.lint.rules.words import listed
from mmdeploy.lint.source import dig

ASKED = ("encode", "prefill")
"""Stages that a decider switches on, request by request; decode always runs."""
HANDLER = "disagg-profile-handler"
_BY_PREFIX = ("approx-prefix-cache-producer", "prefix-cache-affinity-filter", "prefix-cache-scorer")


def disaggregated(deployment: Deployment) -> Iterator[tuple[PickerConfig, Plugin]]:
    """Configurations with a disaggregation handler, and the handler."""
    for config in deployment.configs:
        if config.handler is not None and config.handler.type == HANDLER:
            yield config, config.handler


def decider_path(handler: Plugin, stage: str) -> KeyPath:
    """Where the decider of a stage is named; the handler's parameters, or itself, where it is not."""
    for keys in (("deciders", stage), (f"{stage}DeciderPluginName",), ("deciderPluginName",)):
        if dig(handler.parameters, keys) and (stage == "prefill" or keys != ("deciderPluginName",)):
            return (*handler.path, "parameters", *keys)
    if isinstance(handler.parameters.get("deciders"), Mapping):
        return (*handler.path, "parameters", "deciders")
    return (*handler.path, "parameters") if handler.parameters else handler.path


def idle_profiles(config: PickerConfig) -> list[Profile]:
    """Profiles that no stage of the handler is called after."""
    run = {config.stage_profile(stage) for stage in ("encode", "prefill", "decode")}
    fallback = dig(config.handler.parameters, ("profiles", "fallback")) if config.handler else None
    return [profile for profile in config.profiles if profile.name and profile.name not in run | {str(fallback)}]


@rule("MMD212", Level.error, "router.md §1.6; router-observed.md (wrong configurations)")
def stage_without_profile(deployment: Deployment) -> Iterator[Found]:
    """A stage whose profile does not exist: it never runs, or (decode) every request is answered 429."""
    for config, handler in disaggregated(deployment):
        idle = idle_profiles(config)
        for stage in ("decode", *ASKED):
            name = config.stage_profile(stage)
            if config.profile(name) is not None or (stage in ASKED and not config.decider(stage)):
                continue
            what = f"the {stage} stage never runs, without an error"
            what = "every request is answered 429" if stage == "decode" else what
            renamed = next((profile for profile in idle if len(idle) == 1 or stage[:3] in profile.name), None)
            path = (*renamed.path, "name") if renamed else decider_path(handler, stage)
            also = f"; profile {renamed.name} is used by nothing" if renamed else ""
            fix = f"add a scheduling profile called {name}"
            if renamed:
                fix = f"rename the profile to {name}, or set parameters.profiles.{stage}: {renamed.name}"
            elif stage != "decode":
                fix += f", or remove deciders.{stage}"
            yield Found(config.document, path, config.title,
                        f"the {stage} stage looks for a profile called {name}, and there is none: "
                        f"{what}{also}", fix)  # fmt: skip


@rule("MMD213", Level.error, "router.md §1.6")
def profile_without_decider(deployment: Deployment) -> Iterator[Found]:
    """A profile for a stage that nothing switches on."""
    for config, handler in disaggregated(deployment):
        for stage in ASKED:
            profile = config.profile(config.stage_profile(stage))
            if profile is not None and not config.decider(stage):
                yield Found(
                    config.document, decider_path(handler, stage), config.title,
                    f"profile {profile.name} is there, but {handler.name} has no deciders.{stage}: the {stage} stage "
                    "is off for good, and one INFO line says so",
                    f"set deciders.{stage}, or remove the profile",
                )  # fmt: skip
        wanted = ["decode", *(stage for stage in ASKED if config.decider(stage))]
        missing = any(config.profile(config.stage_profile(stage)) is None for stage in wanted)
        for profile in () if missing else idle_profiles(config):
            yield Found(
                config.document, (*profile.path, "name"), config.title,
                f"profile {profile.name} is never run: {handler.name} runs "
                f"{listed(config.stage_profile(stage) for stage in ('encode', 'prefill', 'decode'))}",
                "remove it, or name it under parameters.profiles", Level.warning,
            )  # fmt: skip


@rule("MMD214", Level.error, "router.md §1.4, §2.3; router-observed.md (the wrong decider)")
def deciders(deployment: Deployment) -> Iterator[Found]:
    """A decider that is of another stage, never says yes, or stands where the router does not find it."""
    known = facts(deployment)
    for config, handler in disaggregated(deployment):
        for stage in ASKED:
            plugin = config.named(config.decider(stage) or "")
            if plugin is None:
                continue
            path = decider_path(handler, stage)
            kinds = known.fact("stages", "deciders", stage) or ()
            if plugin.type not in kinds and known.kind(plugin.type):
                yield Found(
                    config.document, path, config.title,
                    f"{plugin.name} ({plugin.type}) decides the {stage} stage, which {listed(kinds)} is for: "
                    + ("it runs, and decides by something else" if known.kind(plugin.type) == "decider"
                       else "the endpoint picker exits at start"),
                    f"name a plugin of type {listed(kinds)}",
                )  # fmt: skip
            elif plugin.type == "prefix-based-pd-decider" and not _positive(plugin, "nonCachedTokens", "promptTokens"):
                yield Found(
                    config.document, plugin.path, config.title,
                    f"{plugin.name} has nonCachedTokens 0, which means never: prefill pods are not used",
                    "set parameters.nonCachedTokens (512, for instance)",
                )  # fmt: skip
            if known.has("pluginsInOrder") and plugin.path > handler.path:
                yield Found(
                    config.document, plugin.path, config.title,
                    f"{plugin.name} stands below {handler.name}: router {known.version} reads plugins in order, does "
                    "not find it, and exits at start", f"move it above {handler.name}",
                )  # fmt: skip


def _positive(plugin: Plugin, *keys: str) -> bool:
    folded = {str(key).lower(): value for key, value in plugin.parameters.items()}
    values = [folded.get(key.lower()) for key in keys]
    return any(isinstance(value, int | float) and value > 0 for value in values)


@rule("MMD215", Level.error, "router.md §2.1 (a pool selects every role; filters do the split)")
def stage_filters(deployment: Deployment) -> Iterator[Found]:
    """A stage's profile that does not choose the stage's own pods."""
    known = facts(deployment)
    roles = known.fact("stages", "roles") or {}
    for config, _ in disaggregated(deployment):
        active = [stage for stage in ASKED if config.decider(stage)]
        for stage in ("decode", *ASKED):
            profile = config.profile(config.stage_profile(stage))
            if profile is None or (stage in ASKED and stage not in active) or (stage == "decode" and not active):
                continue
            types = set(config.profile_types(profile))
            names_labels = types & {"label-selector-filter", "by-label", "by-label-selector"}
            unknown = any(known.plugin(kind).state == "unknown" for kind in types)
            own = f"{stage}-filter"
            if own in types or names_labels or unknown:
                continue
            others = [kind for kind in types if kind in roles]
            at = next((path for name, _, path in profile.entries if _type(config, name) in others), profile.path)
            found = f"uses {others[0]}" if others else "has no role filter"
            yield Found(
                config.document, at, config.title,
                f"profile {profile.name} {found}: "
                + (f"it chooses pods of another role than {stage}" if others else
                   f"{stage} requests also go to pods of the other roles"),
                f"put {own} first in the profile",
            )  # fmt: skip


def _type(config: PickerConfig, name: str) -> str:
    plugin = config.named(name)
    return plugin.type if plugin else ""


@rule("MMD216", Level.warning, "router.md §1.6")
def prefill_renamed(deployment: Deployment) -> Iterator[Found]:
    """A prefill profile under another name: the approximate prefix index does not learn from it."""
    for config, handler in disaggregated(deployment):
        name = config.stage_profile("prefill")
        producers = config.of_type(*_BY_PREFIX)
        precise = config.of_type("precise-prefix-cache-producer")
        if name == "prefill" or config.profile(name) is None or not config.decider("prefill"):
            continue
        if producers and not precise:
            nested = dig(handler.parameters, ("profiles", "prefill"))
            path = ("profiles", "prefill") if nested else ("prefillProfile",)
            yield Found(
                config.document, (*handler.path, "parameters", *path), config.title,
                f"the prefill profile is called {name}: approx-prefix-cache-producer learns only from the primary "
                "profile and one called prefill, so affinity on prefill pods decays",
                "call it prefill",
            )  # fmt: skip


@rule("MMD218", Level.info, "router.md §1.3; router-tables.md (surprise 5)")
def idle_entries(deployment: Deployment) -> Iterator[Found]:
    """Entries of a profile that do nothing there."""
    known = facts(deployment)
    for config in deployment.configs:
        for profile in config.profiles:
            yield from _idle(config, known, profile)


def _idle(config: PickerConfig, known: RouterFacts, profile: Profile) -> Iterator[Found]:
    for name, weight, path in profile.entries:
        kind = known.kind(_type(config, name))
        subject = f"{config.title}, profile {profile.name}"
        if kind in ("decider", "producer", "handler"):
            yield Found(config.document, path, subject,
                        f"{name} is a {kind}: in a scheduling profile it does nothing", "remove the entry")  # fmt: skip
        elif weight is not None and kind in ("filter", "picker"):
            yield Found(config.document, (*path, "weight"), subject,
                        f"{name} is a {kind}: its weight is not read", "remove the weight")  # fmt: skip
        elif kind == "scorer" and isinstance(weight, int | float) and weight < 0:
            yield Found(config.document, (*path, "weight"), subject,
                        f"{name} has the negative weight {weight}: it prefers what it scores worst",
                        "write a weight above 0", Level.warning)  # fmt: skip
