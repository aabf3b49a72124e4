"""The words of the parameter table are read as they were meant: defaults are inside, tried bad values are outside."""

from __future__ import annotations

from typing import Any

import pytest

from mmdeploy.lint.findings import Level
from mmdeploy.lint.tables import rows
from mmdeploy.lint.value_ranges import out_of_range, wrong_type
from tests.lint.harness import ROOT

ROWS = {(row["type"], row["parameter"]): row for row in rows(ROOT / "blueprints", "router-plugin-parameters")}


@pytest.mark.parametrize("key", ROWS, ids=lambda key: "-".join(key))
def test_defaults_are_inside(key: tuple[str, str]) -> None:
    row = ROWS[key]
    try:
        default: Any = float(row["default"]) if row["go_type"] in ("int", "float") else None
    except ValueError:
        default = None
    if default is not None and "clamped" not in row["invalid_effect"]:
        assert out_of_range(row, default) is None


@pytest.mark.parametrize(
    ("kind", "parameter", "value", "level"),
    [
        ("prefix-cache-affinity-filter", "affinityThreshold", 60, Level.error),
        ("prefix-cache-affinity-filter", "affinityThreshold", 0, Level.warning),
        ("prefix-cache-affinity-filter", "affinityThreshold", 0.6, None),
        ("prefix-cache-affinity-filter", "peakPrefillThroughput", 0, None),  # allowed beside maxTTFTPenaltyMs 0
        ("prefix-cache-affinity-filter", "ttftSource", "throughput", Level.error),
        ("token-producer", "estimate.image.mode", "Static", Level.error),
        ("token-producer", "estimate.image.dynamic.factor", -5, Level.warning),
        ("token-producer", "estimate.video.maxVideoTokens", 0, None),
        ("token-producer", "estimate.video.frames.sampled.temporalPatchSize", 1, None),
        ("token-producer", "vllm.timeout", "5 s", Level.error),
        ("token-producer", "vllm.timeout", "1m30s", None),
        ("disagg-profile-handler", "stageOrder", "prefillFirst", None),
        ("disagg-profile-handler", "stageOrder", "encode-first", Level.error),
        ("burst-prefix-cache-producer", "maxPerReplica", -1, None),
        ("burst-prefix-cache-producer", "maxPerReplica", 0, Level.error),
        ("session-affinity-filter", "sessionIdConfig.evictionTtlSeconds", 0, Level.warning),
        ("session-affinity-filter", "sessionIdConfig.evictionTtlSeconds", -1, Level.error),
        ("precise-prefix-cache-producer", "kvEventsConfig.concurrency", 0, Level.warning),
        ("priority-holdback-policy", "minCeiling", 1, Level.error),
        ("mm-embeddings-cache-producer", "cacheSizeInMBPerServer", 1, Level.warning),
    ],
)
def test_tried_values(kind: str, parameter: str, value: Any, level: Level | None) -> None:
    row = ROWS[kind, parameter]
    assert wrong_type(row, value) is None
    found = out_of_range(row, value)
    assert (found[0] if found else None) == level


@pytest.mark.parametrize(
    ("kind", "parameter", "value", "wanted"),
    [
        ("prefix-cache-affinity-filter", "maxTTFTPenaltyMs", "36s", "float"),
        ("token-producer", "estimate.image.defaultResolution", "1280x720", "object"),
        ("max-score-picker", "maxNumOfEndpoints", True, "int"),
        ("max-score-picker", "maxNumOfEndpoints", 2.0, None),
        ("precise-prefix-cache-producer", "tokenProcessorConfig.hashSeed", 42, "string"),
        ("precise-prefix-cache-producer", "indexerConfig.kvBlockIndexConfig.metricsLoggingInterval", "10s", "int"),
        ("token-producer", "estimate", None, None),
    ],
)
def test_types(kind: str, parameter: str, value: Any, wanted: str | None) -> None:
    assert wrong_type(ROWS[kind, parameter], value) == wanted
