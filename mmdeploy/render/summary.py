"""A deployment in a page: what runs where, how the router picks, what a picture costs. Plain data for the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmdeploy.render.bundle import SUMS_FILE, Bundle
from mmdeploy.render.deployment import Deployment, ResolvedRole

_TRANSFERS = {"--ec-transfer-config": "ec_role", "--kv-transfer-config": "kv_role"}


def summary(bundle: Bundle) -> dict[str, Any]:
    """The summary document of ``render -o json``."""
    deployment = bundle.deployment
    return {
        "schemaVersion": 1,
        "kind": "RenderSummary",
        "status": deployment.status,
        "spec": dict(deployment.spec),
        "roles": [_role(role) for role in deployment.roles],
        "router": _router(deployment),
        "image1280x720": _price(deployment),
        "files": [*bundle.files, SUMS_FILE],
        "warnings": list(deployment.warnings),
    }


def _role(role: ResolvedRole) -> dict[str, Any]:
    containers = {item["name"]: item for kind in ("initContainers", "containers") for item in role.pod.get(kind, ())}
    return {
        "name": role.name,
        "kind": role.kind,
        "replicas": role.settings["replicas"],
        "acceleratorsPerPod": role.settings["accelerators"],
        "accelerator": role.accelerator,
        "tensorParallelSize": role.settings["tensorParallelSize"],
        "image": role.settings["image"],
        "ports": [
            {"container": name, "name": port["name"], "port": port["containerPort"]}
            for name, container in containers.items()
            for port in container.get("ports", ())
        ],
        "connectors": _connectors(containers["modelserver"].get("args", [])),
    }


def _connectors(args: list[str]) -> list[str]:
    import json

    found = []
    for flag, value in zip(args, args[1:], strict=False):
        if flag in _TRANSFERS:
            config = json.loads(value)
            connector = config.get("ec_connector") or config.get("kv_connector")
            found.append(f"{connector} {config[_TRANSFERS[flag]]}")
    roles = {"--encoder-only": "SGLang encoder", "--language-only": "SGLang language server"}
    return found + [name for flag, name in roles.items() if any(flag in arg.split() for arg in args)]


def _router(deployment: Deployment) -> dict[str, Any]:
    config: Mapping[str, Any] = deployment.router.config
    return {
        "release": deployment.spec["name"],
        "chart": f"llm-d-router-{deployment.spec['mode']}",
        "chartVersion": deployment.spec["versions"]["routerChart"],
        "profiles": [
            {
                "name": profile["name"],
                "plugins": [{"name": item["pluginRef"], "weight": item.get("weight")} for item in profile["plugins"]],
            }
            for profile in config["schedulingProfiles"]
        ],
    }


def _price(deployment: Deployment) -> dict[str, Any] | None:
    pairing = deployment.pairing
    if pairing is None:
        return None
    return {
        "routerTokens": pairing.price_720p,
        "modelTokens": pairing.true_720p,
        "errorPercent": round(pairing.error_720p_percent, 1),
        "worstErrorPercent": round(pairing.worst.error_percent, 1),
        "worstSize": f"{pairing.worst.width}x{pairing.worst.height}",
    }
