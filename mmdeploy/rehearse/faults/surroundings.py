"""What happens around a deployment that need not be wrong: load, restarts, lost nodes, clocks, slowness."""

from __future__ import annotations

from functools import partial

from mmdeploy.catalog import Catalog
from mmdeploy.rehearse.faults.registry import fault
from mmdeploy.rehearse.settings import Event, Settings

circumstance = partial(fault, circumstance=True)

LOAD = 2.0
"""Requests a second at 1x."""
HAPPENS_AFTER = 4
"""Requests at the entry point before an event."""


@circumstance("restarted", "The pod that served the 4th request was restarted after it, and its counters began anew.")
def _restarted(settings: Settings, catalog: Catalog) -> None:
    settings.events.append(Event("restarted", HAPPENS_AFTER))


@circumstance("node-lost", "The node of the pod that served the 4th request went away after it.")
def _lost(settings: Settings, catalog: Catalog) -> None:
    settings.events.append(Event("lost", HAPPENS_AFTER))


@circumstance("traffic-1x", "Others use the deployment too: 2 requests a second.")
def _traffic_1(settings: Settings, catalog: Catalog) -> None:
    settings.traffic.rate = LOAD


@circumstance("traffic-10x", "Others use the deployment too: 20 requests a second.")
def _traffic_10(settings: Settings, catalog: Catalog) -> None:
    settings.traffic.rate = 10 * LOAD


@circumstance("traffic-100x", "Others use the deployment too: 200 requests a second.")
def _traffic_100(settings: Settings, catalog: Catalog) -> None:
    settings.traffic.rate = 100 * LOAD


@circumstance("slow-first-token", "The engines take 1 s to their first token.")
def _slow(settings: Settings, catalog: Catalog) -> None:
    settings.timings.first_token = 1.0


@circumstance("late-metrics", "The engines' metrics are flushed every 1.5 s.")
def _late(settings: Settings, catalog: Catalog) -> None:
    settings.timings.lag = 1.5


@circumstance("clock-skew", "The nodes' clocks are an hour ahead, or behind.")
def _skew(settings: Settings, catalog: Catalog) -> None:
    for number, pod in enumerate(settings.pods):
        pod.skew = 3600.0 if number % 2 else -3600.0


@circumstance(
    "producer-order",
    "The picker was restarted, and its load producer ran before its prefix producer.",
    server="vllm",
    loaded=True,
)
def _order(settings: Settings, catalog: Catalog) -> None:
    settings.router.blind_load = True
