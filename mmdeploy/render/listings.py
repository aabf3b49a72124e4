"""The served models as rows to print, each with its price."""

from __future__ import annotations

from typing import Any

from mmdeploy.catalog import Catalog
from mmdeploy.estimator.pairing import judge, natural_estimate


def models(catalog: Catalog) -> list[dict[str, Any]]:
    """One row a model: family, the estimator that fits, tokens of a 1280x720 image, and where it runs."""
    rows = []
    for name, model in catalog.models.items():
        family = catalog.families[model.family]
        block = natural_estimate(family, video_supported=True)
        pairing = judge(block, family)
        servers = {server: list(kinds) for server, kinds in (model.servers or {}).items()}
        topologies = {
            row.topology
            for row in catalog.rows
            if name in row.models
            or (row.accelerator in servers.get(row.server, ()) and row.server in (*model.encodeServers, "vllm"))
        }
        rows.append(
            {
                "name": name,
                "family": model.family,
                "estimator": _in_words(block),
                "estimate": block,
                "image1280x720Tokens": pairing.true_720p,
                "routerTokens": pairing.price_720p,
                "worstErrorPercent": round(pairing.worst.error_percent, 1),
                "followable": pairing.followable,
                "servers": servers,
                "runsOn": [f"{server} {kind}" for server, kinds in servers.items() for kind in kinds],
                "topologies": sorted(topologies, key=list(catalog.topologies).index),
                "confidence": family.confidence,
                "source": model.source,
            }
        )
    return rows


def _in_words(block: dict[str, Any]) -> str:
    image = block["image"]
    if image.get("mode") == "static":
        return f"static {image['static']['staticToken']}"
    return f"dynamic {image['dynamic']['factor']}"
