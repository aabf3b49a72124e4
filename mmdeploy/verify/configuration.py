"""What a bundle says that a judge needs: the picker's configuration, replicas, block size, timeouts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mmdeploy.verify import handoff

if TYPE_CHECKING:
    from mmdeploy.intended import Intended


def read(meant: Intended) -> dict[str, Any]:
    """As plain data: ``mode``, ``model``, ``picker``, ``replicas``, ``blockSize``, ``apiServers``, ``requestTimeout``,
    ``handoff``, ``strippedHeaders``, ``spec``."""
    replicas: dict[str, int] = {}
    for role, count, _ in meant.pods():
        replicas[role] = replicas.get(role, 0) + count
    http_route = meant.values.get("httpRoute")
    return {
        "mode": meant.mode,
        "model": meant.spec.get("model"),
        "picker": picker(meant.values),
        "replicas": replicas,
        "blockSize": _block_size(meant),
        "apiServers": _api_servers(meant),
        "requestTimeout": http_route.get("requestTimeout") if isinstance(http_route, Mapping) else None,
        "handoff": handoff.read(meant),
        "strippedHeaders": sorted(_stripped(meant)),
        "spec": dict(meant.spec),
    }


def _stripped(meant: Intended) -> set[str]:
    """Request headers that a route of the bundle takes away."""
    routes = [item for item in meant.objects if item.get("kind") == "HTTPRoute"]
    filters = [
        found
        for route in routes
        for rule in route.get("spec", {}).get("rules") or ()
        for found in rule.get("filters") or ()
    ]
    removed = [(found.get("requestHeaderModifier") or {}).get("remove") or () for found in filters]
    return {str(name).lower() for names in removed for name in names}


def picker(values: Mapping[str, Any]) -> dict[str, Any]:
    """The EndpointPickerConfig that the router's Helm values hold; empty where they hold none."""
    from mmdeploy import documents

    router = values.get("router")
    picker = router.get("epp") if isinstance(router, Mapping) else None
    if not isinstance(picker, Mapping):
        return {}
    texts = picker.get("pluginsCustomConfig") or {}
    name = picker.get("pluginsConfigFile")
    text = texts.get(name) if isinstance(texts, Mapping) else None
    found = documents.parse(text, str(name)).value if isinstance(text, str) else None
    return found if isinstance(found, dict) else {}


def plugins(config: Mapping[str, Any], profile: str | None = None) -> list[dict[str, Any]]:
    """Declared plugins; of one profile only those that it refers to."""
    declared: Sequence[Mapping[str, Any]] = config.get("plugins") or ()
    if profile is None:
        return [dict(item) for item in declared]
    profiles: Sequence[Mapping[str, Any]] = config.get("schedulingProfiles") or ()
    wanted = {
        ref.get("pluginRef") for item in profiles if item.get("name") == profile for ref in item.get("plugins") or ()
    }
    return [dict(item) for item in declared if item.get("name", item.get("type")) in wanted]


def profiles(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the scheduling profiles."""
    return tuple(str(item.get("name")) for item in config.get("schedulingProfiles") or ())


def _block_size(meant: Intended) -> int | None:
    """``--block-size`` of the engines, where it is said."""
    for words in _arguments(meant):
        found = re.search(r"--block-size[= ](\d+)", words)
        if found:
            return int(found[1])
    return None


def _api_servers(meant: Intended) -> int:
    """Processes of a pod that take requests, each with a processor cache of its own: as many as are said, or as there
    are data-parallel ranks (model-servers.md §1: ``--mm-processor-cache-gb`` counts once for each)."""
    counts = [
        int(number)
        for words in _arguments(meant)
        for number in re.findall(r"(?:--api-server-count|-asc|--data-parallel-size|-dp)[= ](\d+)", words)
    ]
    return max(counts, default=1)


def _arguments(meant: Intended) -> Iterator[str]:
    for role, _, template in meant.pods():
        if role == "encode":
            continue
        for container in template["spec"].get("containers", ()):
            yield " ".join(map(str, [*container.get("command", ()), *container.get("args", ())]))
