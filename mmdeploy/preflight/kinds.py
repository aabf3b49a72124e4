"""Which kinds of objects the API server must serve for a deployment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mmdeploy.preflight.facts import Facts

if TYPE_CHECKING:
    from mmdeploy.intended import Intended

Kind = tuple[str, str]
"""``apiVersion`` and kind."""


def required(intended: Intended, facts: Facts) -> list[Kind]:
    """The bundle's own kinds, and those that the router's chart makes of the values; in order, each once."""
    found = [(str(item["apiVersion"]), str(item["kind"])) for item in intended.objects]
    if "DisaggregatedSet" in {kind for _, kind in found}:
        found.append(facts.kind("group"))
    router: dict[str, Any] = dict(intended.values.get("router") or {})
    if (router.get("inferencePool") or {}).get("create", True):
        found.append(facts.kind("pool"))
    if routed(intended):
        found += [facts.kind("gateway"), facts.kind("route")]
    if monitored(intended):
        found.append(facts.kind("serviceMonitor"))
    return list(dict.fromkeys(found))


def routed(intended: Intended) -> bool:
    """Whether a gateway stands in front: the chart makes an HTTPRoute."""
    return intended.mode == "gateway" or bool((intended.values.get("httpRoute") or {}).get("create"))


def monitored(intended: Intended) -> bool:
    """Whether the chart makes a ServiceMonitor, and the rights that checking a scrape's token takes."""
    router = intended.values.get("router") or {}
    return bool(((router.get("monitoring") or {}).get("prometheus") or {}).get("enabled"))


def authenticated(intended: Intended) -> bool:
    """Whether the chart makes the Secret of fixed name that scrapes log in with."""
    router = intended.values.get("router") or {}
    prometheus = (router.get("monitoring") or {}).get("prometheus") or {}
    return bool(prometheus.get("enabled")) and bool((prometheus.get("auth") or {}).get("enabled", True))
