"""2xx: Helm values of the router charts, which have no schema: keys that are not read, files, and refusals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mmdeploy.documents import KeyPath
from mmdeploy.lint.findings import Found, Level, rule
from mmdeploy.lint.index import Deployment
from mmdeploy.lint.pools import pickers_of
from mmdeploy.lint.router import LEGACY_KEYS, Values
from mmdeploy.lint.router_facts import RouterFacts, facts
from mmdeploy.lint.rules.words import listed, short, suggestion
from mmdeploy.lint.source import dig
from mmdeploy.lint.tables import Row, age
from mmdeploy.lint.tables import version as numbers

EPP = ("router", "epp")
_WHOLE = ("map", "any", "list")
"""Types of values whose content is handed on as it is."""
_READ_ELSEWHERE = ("global", "nameOverride", "fullnameOverride", "enabled")


@rule("MMD241", Level.error, "router.md §4.2 (renames of 0.9.0)")
def legacy_keys(deployment: Deployment) -> Iterator[Found]:
    """Top-level keys of the chart's predecessor, which the templates refuse."""
    moved = {
        "inferenceExtension": "router.epp, router.monitoring and router.tracing",
        "inferencePool": "router.modelServers and router.inferencePool",
        "inferenceObjectives": "router.inferenceObjectives",
        "experimentalHttpRoute": "httpRoute",
    }
    for values in deployment.router.values:
        for key in LEGACY_KEYS:
            if values.get(key):
                yield Found(
                    values.document, (key,), "Helm values",
                    f"{key} is a key of the Inference Extension's chart: the template of this one fails",
                    f"move it below {moved[key]}",
                )  # fmt: skip


@rule("MMD242", Level.warning, "router-chart-values.csv; router.md §4.2 (the charts have no values schema)")
def unread_keys(deployment: Deployment) -> Iterator[Found]:
    """Values that no template of the chart reads: silently ignored."""
    known = facts(deployment)
    for values in deployment.router.values:
        tree = values.document.value
        for key in ("router", "httpRoute", "provider"):
            if isinstance(tree.get(key), Mapping):
                yield from _unread(values, known, (key,), tree[key])
        for key in tree:
            if key not in (*LEGACY_KEYS, "router", "httpRoute", "provider", *_READ_ELSEWHERE):
                near = suggestion(str(key), ("router", "httpRoute", "provider"))
                if near and str(key).lower() in ("routers", "httproute", "providers", "http_route", "http-route"):
                    yield Found(values.document, (str(key),), "Helm values",
                                f"the chart reads no {key}{near}", "correct the key")  # fmt: skip


def _unread(values: Values, known: RouterFacts, path: KeyPath, tree: Mapping[Any, Any]) -> Iterator[Found]:
    for key, value in tree.items():
        at = (*path, str(key))
        dotted = ".".join(map(str, at))
        if dotted == "router.epp.pluginsConfig" and dotted not in known.known_keys:
            continue  # MMD243 says what happens instead
        if _handed_on(known, dotted):
            continue
        if any(name.startswith(f"{dotted}.") for name in known.known_keys):
            if isinstance(value, Mapping):
                yield from _unread(values, known, at, value)
            continue
        siblings = {name[len(".".join(map(str, path))) + 1 :].split(".")[0] for name in known.known_keys
                    if name.startswith(".".join(map(str, path)) + ".")}  # fmt: skip
        yield Found(
            values.document, at, "Helm values",
            f"no template of the router charts {known.version} reads {dotted}: it is silently ignored"
            + _later(known.keys.get(dotted)) + suggestion(str(key), siblings),
            "correct the key, or remove it",
        )  # fmt: skip


def _later(row: Row | None) -> str:
    return f" (read by {row['first']} to {row['last']})" if row is not None and row["first"] != "none" else ""


def _handed_on(known: RouterFacts, dotted: str) -> bool:
    if any(dotted == name or dotted.startswith(f"{name}.") for name in known.fact("chart", "open") or ()):
        return True
    if dotted in known.known_keys:
        row = known.keys.get(dotted)
        deeper = any(name.startswith(f"{dotted}.") for name in known.known_keys)
        return row is None or row["type"] in _WHOLE or not deeper
    return False


@rule("MMD243", Level.error, "router.md §4.2; router-chart-values.csv")
def config_files(deployment: Deployment) -> Iterator[Found]:
    """The configuration file that the endpoint picker is told to read is not there, or not the one that was written."""
    known = facts(deployment)
    builtin = known.fact("chart", "builtinConfigs") or ()
    structured = "router.epp.pluginsConfig" in known.known_keys
    given: dict[str, Values] = {}
    for values in deployment.router.values:
        yield from _config_texts(values)
        custom = values.get(*EPP, "pluginsCustomConfig")
        given |= {str(key): values for key in (custom if isinstance(custom, Mapping) else ())}
        if values.get(*EPP, "pluginsConfig") is not None and not structured:
            yield Found(
                values.document, (*EPP, "pluginsConfig"), "Helm values",
                f"the chart of router {known.version} does not read pluginsConfig: the plugins in it are never loaded",
                "write them as text under router.epp.pluginsCustomConfig, and name the file in pluginsConfigFile",
            )  # fmt: skip
    names = [(values, name) for values in deployment.router.values
             if (name := values.get(*EPP, "pluginsConfigFile")) is not None]  # fmt: skip
    inline = structured and any(values.get(*EPP, "pluginsConfig") for values in deployment.router.values)
    yield from _rendered(deployment)
    for values, name in names:
        if str(name) not in given and str(name) not in builtin and not inline:
            yield Found(
                values.document, (*EPP, "pluginsConfigFile"), "Helm values",
                f"pluginsConfigFile is {name}, and pluginsCustomConfig holds {listed(given) or 'nothing'}: it renders, "
                "and the endpoint picker exits for want of its file"
                + suggestion(str(name), given),
                "name a file of pluginsCustomConfig",
            )  # fmt: skip
    custom_names = [name for name in given if name not in builtin]
    if custom_names and not any(str(name) in given for _, name in names) and all(str(n) in builtin for _, n in names):
        values = given[custom_names[0]]
        yield Found(
            values.document, (*EPP, "pluginsCustomConfig", custom_names[0]), "Helm values",
            f"{custom_names[0]} is written, but pluginsConfigFile "
            + (f"is {names[-1][1]}" if names else "is left at default-plugins.yaml") + ": it is never read",
            f"set router.epp.pluginsConfigFile: {custom_names[0]}",
        )  # fmt: skip


def _rendered(deployment: Deployment) -> Iterator[Found]:
    """The same of a rendered chart: the picker's flag against the ConfigMap that it mounts."""
    maps = {item.name: item for item in deployment.kind("ConfigMap")}
    for container in pickers_of(deployment):
        flag = container.command.value("--config-file")
        sources = [dig(volume, ("configMap", "name")) for volume in _mappings(container.pod.spec.get("volumes"))]
        mounted = [maps[str(name)] for name in sources if str(name) in maps]
        keys = [str(key) for item in mounted for key in _keys(item.get("data"))]
        configs = [key for key in keys if key.endswith((".yaml", ".yml"))]
        if flag and configs and flag.rsplit("/", 1)[-1] not in keys:
            yield Found(
                container.pod.document, container.command.path_of("--config-file"), container.pod.title,
                f"--config-file is {flag}, and {listed(item.title for item in mounted)} holds {listed(configs)}: the "
                "endpoint picker exits for want of its file", "name a key of the ConfigMap",
            )  # fmt: skip


def _keys(value: Any) -> list[Any]:
    return list(value) if isinstance(value, Mapping) else []


def _mappings(value: Any) -> Iterator[Mapping[str, Any]]:
    return (item for item in (value if isinstance(value, list) else ()) if isinstance(item, Mapping))


def _config_texts(values: Values) -> Iterator[Found]:
    custom = values.get(*EPP, "pluginsCustomConfig")
    if custom is not None and not isinstance(custom, Mapping):
        yield Found(values.document, (*EPP, "pluginsCustomConfig"), "Helm values",
                    f"pluginsCustomConfig is {short(custom)}, not a mapping of file names to text",
                    "write file names, each with a text after |")  # fmt: skip
        return
    for name, text in (custom or {}).items():
        path = (*EPP, "pluginsCustomConfig", str(name))
        if text is not None and not isinstance(text, str):
            yield Found(
                values.document, path, "Helm values",
                f"{name} is {short(text) if not isinstance(text, Mapping) else 'a mapping'}, not a text: the chart "
                "renders a ConfigMap that the API server rejects",
                f"write {name}: | and indent the configuration below it",
            )  # fmt: skip
        elif isinstance(text, str) and values.document.embedded(path, []) is None and text.strip():
            continue  # text that is not YAML is MMD901
        elif text is None or not text.strip():
            yield Found(values.document, path, "Helm values",
                        f"{name} is empty: the endpoint picker runs its default plugins", "write the configuration",
                        Level.warning)  # fmt: skip


@rule("MMD244", Level.warning, "router.md §4.2; router-tables.md (surprise 9); router-chart-values.csv")
def without_effect(deployment: Deployment) -> Iterator[Found]:
    """Settings that the chart reads and that change nothing as things are."""
    known = facts(deployment)
    builtin = known.fact("chart", "builtinConfigs") or ()
    custom = any(name not in builtin for name in deployment.config_files)
    for values in deployment.router.values:
        for dotted in known.fact("chart", "builtinOnly") or ():
            path = tuple(dotted.split("."))
            if custom and values.get(*path):
                yield Found(values.document, path, "Helm values",
                            f"only the chart's own default-plugins.yaml reads {dotted}, and the endpoint picker is "
                            f"told to read {listed(deployment.config_files)}",
                            "write it in the custom configuration (requestHandler.parsers, "
                            "metrics-data-source)")  # fmt: skip
        for path, why, fix in _inert(values, known):
            yield Found(values.document, path, "Helm values", why, fix)


def _inert(values: Values, known: RouterFacts) -> Iterator[tuple[KeyPath, str, str]]:
    if values.get(*EPP, "metricsDataSource", "insecureSkipVerify") is False:
        yield (
            (*EPP, "metricsDataSource", "insecureSkipVerify"),
            "insecureSkipVerify: false renders as true (the template takes false for unset)",
            "write a metrics-data-source in a custom configuration",
        )
    flags = values.get(*EPP, "flags")
    if isinstance(flags, Mapping) and "tracing" in flags:
        yield (
            (*EPP, "flags", "tracing"),
            "flags.tracing is overridden by router.tracing.enabled, which is rendered last",
            "set router.tracing.enabled",
        )
    if values.get("router", "metricsPort") not in (None, 9090):
        yield (
            ("router", "metricsPort"),
            "metricsPort moves the Service's port only: the endpoint picker stays on 9090",
            "leave metricsPort out",
        )
    if values.get(*EPP, "replicas") == 0:
        yield (*EPP, "replicas"), "replicas: 0 renders as 1", "scale the Deployment to 0 instead"


@rule("MMD248", Level.warning, "router.md §4.2; llm-d/llm-d-router#1884")
def several_pickers(deployment: Deployment) -> Iterator[Found]:
    """More than one endpoint picker: standbys stay NotReady by design."""
    for values in deployment.router.values:
        count = values.get(*EPP, "replicas")
        if isinstance(count, int) and count > 1 and not values.get("provider", "gke", "preferredBackends", "enabled"):
            yield Found(
                values.document, (*EPP, "replicas"), "Helm values",
                f"replicas: {count} turns on leader election: {count - 1} of them stay NotReady by design, and helm "
                "--wait never returns",
                "use one replica, or install without --wait",
            )  # fmt: skip


@rule("MMD250", Level.error, "router-flags.csv; router-tables.md (surprise 6)")
def picker_flags(deployment: Deployment) -> Iterator[Found]:
    """Flags that the endpoint picker of this version does not take, or that are not read as they are written."""
    known = facts(deployment)
    for values in deployment.router.values:
        flags = values.get(*EPP, "flags")
        for key in flags if isinstance(flags, Mapping) else ():
            answer = _flag(known, f"--{key}")
            if answer is not None:
                yield Found(values.document, (*EPP, "flags", str(key)), "Helm values", *answer)
    for container in pickers_of(deployment):
        document, title = container.pod.document, container.pod.title
        for flag in container.command.flags:
            answer = _flag(known, flag.name)
            if answer is not None:
                yield Found(document, flag.path, title, *answer)
            elif _detached(known, document.value, flag.name, flag.path, flag.value):
                yield Found(document, flag.path, title,
                            f"{flag.name} {flag.value} with a space is a switch and a stray word: the flag is on",
                            f"write {flag.name}={flag.value}")  # fmt: skip


def _detached(known: RouterFacts, document: Any, name: str, path: KeyPath, value: str | None) -> bool:
    row = known.flags.get(name)
    written = dig(document, path)
    return row is not None and row["type"] == "bool" and str(value).lower() == "false" and written == name


def _flag(known: RouterFacts, name: str) -> tuple[str, str, Level | None] | None:
    row = known.flags.get(name) or (known.flags.get("--v") if name == "-v" else None)
    if row is None:
        return (f"the catalog knows no flag {name} of the endpoint picker{suggestion(name, known.flags)}",
                "check the spelling: an unknown flag stops the endpoint picker", Level.info)  # fmt: skip
    if "any use" in row["notes"]:
        return f"{name} is retired: any use of it stops the endpoint picker", "use core-metrics-extractor", None
    state = age([row], known.version)
    if state == "known":
        return None
    when = "no longer" if state == "removed" else "not yet"
    return f"the endpoint picker {known.version} {when} has {name}: it exits at start", "remove the flag", None


@rule("MMD254", Level.error, "router.md §4.1, §9; llm-d/llm-d-autoscaling#1337")
def chart_version(deployment: Deployment) -> Iterator[Found]:
    """A chart or image version that was never published: the llm-d release number is not the router's."""
    oldest, names = deployment.routers.versions[0], facts(deployment).fact("chart", "names") or ()
    for document, path, version in _pins(deployment, names):
        if _older(version, oldest):
            yield Found(
                document, path, f"chart version {version}",
                f"the router's chart {version} does not exist: charts follow the router's version, not llm-d's, and "
                f"begin with {oldest}",
                _which_goes_with(deployment),
            )  # fmt: skip
    tag = deployment.router.value(*EPP, "image", "tag")
    repository = deployment.router.value(*EPP, "image", "repository")
    if tag and _older(str(tag[0]), oldest) and (not repository or "llm-d-router" in str(repository[0])):
        yield Found(tag[1].document, (*EPP, "image", "tag"), "Helm values",
                    f"the endpoint picker image has no tag {tag[0]}: under its present name it begins with {oldest}",
                    _which_goes_with(deployment))  # fmt: skip


def _which_goes_with(deployment: Deployment) -> str:
    """Which tagged router belongs to which llm-d release, oldest first."""
    catalog = deployment.catalog
    releases = [(name, catalog.release(name).routerVersion) for name in reversed(catalog.release_names)]
    tagged = [(name, router) for name, router in releases if router != deployment.routers.rolling]
    return ", ".join(f"llm-d {name} goes with {router}" for name, router in tagged)


def _pins(deployment: Deployment, names: Any) -> Iterator[tuple[Any, KeyPath, str]]:
    """Places that pin the router's chart: a spec of ours, Flux, Argo CD, a parent chart, helmfile."""
    for document in [*deployment.documents, *deployment.kustomizations]:
        value = document.value
        if not isinstance(value, Mapping):
            continue
        places: list[tuple[KeyPath, KeyPath]] = [
            (("spec", "chart", "spec", "chart"), ("spec", "chart", "spec", "version")),
            (("spec", "source", "chart"), ("spec", "source", "targetRevision")),
            (("spec", "url"), ("spec", "ref", "tag")),
        ]
        for part in ("releases", "dependencies", "helmCharts"):
            items = value.get(part)
            for index in range(len(items) if isinstance(items, list) else 0):
                name = "chart" if part == "releases" else "name"
                places.append(((part, index, name), (part, index, "version")))
        for at, version in places:
            if str(dig(value, at)).rsplit("/", 1)[-1] in names and dig(value, version):
                yield document, version, str(dig(value, version))
        if "schemaVersion" in value and dig(value, ("versions", "routerChart")):
            yield document, ("versions", "routerChart"), str(dig(value, ("versions", "routerChart")))


def _older(version: str, oldest: str) -> bool:
    return bool(numbers(version)) and len(numbers(version)) > 1 and numbers(version) < numbers(oldest)


@rule("MMD255", Level.warning, "llm-d/llm-d#2285; llm-d-guides.md §19.15; router.md §0")
def skew(deployment: Deployment) -> Iterator[Found]:
    """A router that floats beside a pinned sidecar: configuration, headers and flags drift apart."""
    release, rolling = deployment.release, deployment.routers.rolling
    if not release.known or release.router != rolling or release.sidecar == rolling:
        return
    for pod in deployment.pods:
        if pod.sidecar is not None and pod.sidecar.image:
            yield Found(
                pod.document, (*pod.sidecar.path, "image"), pod.title,
                f"the sidecar is {release.sidecar}, while the router is {release.router} ({release.reasons[0]}): their "
                "configuration, headers and flags are made for each other",
                "use chart, endpoint picker and sidecar of one version",
            )  # fmt: skip
            return
