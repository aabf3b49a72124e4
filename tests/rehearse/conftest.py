"""Simulated deployments of the committed bundles, without sockets, under a clock that the test holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest

from mmdeploy import intended
from mmdeploy.catalog import Catalog
from mmdeploy.rehearse.deployment import Deployment
from mmdeploy.rehearse.rehearsal import prepared
from mmdeploy.rehearse.settings import Clock, Timings, Traffic
from tests.rehearse.client import HeldClock, Start

ROOT = Path(__file__).resolve().parents[2]
BUNDLES = {
    "aggregation": "main/aggregation/gpu/vllm/base",
    "e-pd": "main/e-pd/gpu/vllm/base",
    "e-p-d": "main/e-p-d/gpu/vllm/base",
    "sglang": "main/e-pd/gpu/sglang/base",
    "tpu": "main/aggregation/tpu/v7/vllm/gke",
}


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return Catalog(ROOT / "blueprints")


@pytest.fixture
def clock() -> HeldClock:
    return HeldClock()


@pytest.fixture(scope="session")
def bundles(catalog: Catalog) -> Callable[[str], intended.Intended]:
    """Reads a bundle by a word of `BUNDLES` or its path under overlays/, once."""
    return cache(lambda bundle: intended.read(ROOT / "overlays" / BUNDLES.get(bundle, bundle), catalog))


@pytest.fixture
def start(catalog: Catalog, clock: HeldClock, bundles: Callable[[str], intended.Intended]) -> Start:
    """Start a bundle by a word of `BUNDLES` or its path under overlays/."""

    def started(
        bundle: str,
        faults: Sequence[str] = (),
        timings: Timings | None = None,
        traffic: Traffic | None = None,
        seed: int = 0,
        as_chart: bool = False,
    ) -> Deployment:
        settings = prepared(bundles(bundle), catalog, faults, timings, traffic, as_chart=as_chart)
        return Deployment(settings, Clock(clock.now, clock.sleep), seed)

    return started
