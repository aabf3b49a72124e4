"""Who may talk to the API server, and what each of them may do."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.rig.api import Api

ADMIN = "admin"  # may do everything
DEPLOYER = "deployer"  # may do in one namespace what apply does; see grant()
VIEWER = "viewer"  # may read everything but secrets
NOBODY = "nobody"  # may do nothing
USERS = (ADMIN, DEPLOYER, VIEWER, NOBODY)

_WRITE = ["get", "list", "watch", "create", "update", "patch", "delete"]
_READ = ["get", "list", "watch"]


def _rule(group: str, resources: str, verbs: list[str]) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": resources.split(), "verbs": verbs}


# Everything that applying a bundle touches inside its namespace. Whoever creates the router's Roles must hold what
# they grant; helm keeps its releases in Secrets.
_DEPLOYING = [
    _rule("", "configmaps secrets services serviceaccounts", _WRITE),
    _rule("", "pods pods/log events endpoints resourcequotas limitranges persistentvolumeclaims", _READ),
    _rule("", "pods/proxy services/proxy", ["get", "create"]),
    _rule("", "pods/portforward", ["get", "create"]),
    _rule("apps", "deployments statefulsets", _WRITE),
    _rule("apps", "replicasets", _READ),
    _rule("coordination.k8s.io", "leases", _WRITE),
    _rule("disaggregatedset.x-k8s.io", "disaggregatedsets", _WRITE),
    _rule("gateway.networking.k8s.io", "gateways httproutes", _WRITE),
    _rule("inference.networking.k8s.io", "inferencepools", _WRITE),
    _rule("inference.networking.x-k8s.io", "inferencepools inferenceobjectives inferencemodelrewrites", _READ),
    _rule("leaderworkerset.x-k8s.io", "leaderworkersets", _READ),
    _rule("llm-d.ai", "inferenceobjectives inferencemodelrewrites", _WRITE),
    _rule("monitoring.coreos.com", "podmonitors servicemonitors", _WRITE),
    _rule("rbac.authorization.k8s.io", "roles rolebindings", _WRITE),
    _rule("resource.k8s.io", "resourceclaimtemplates", _WRITE),
    _rule("resource.k8s.io", "resourceclaims", _READ),
]
_VIEWING = [
    _rule("", "nodes namespaces pods pods/log services configmaps serviceaccounts events endpoints", _READ),
    *[
        _rule(group, "*", _READ)
        for group in (
            "apiextensions.k8s.io",
            "apps",
            "disaggregatedset.x-k8s.io",
            "gateway.networking.k8s.io",
            "inference.networking.k8s.io",
            "leaderworkerset.x-k8s.io",
            "llm-d.ai",
            "monitoring.coreos.com",
            "resource.k8s.io",
            "scheduling.k8s.io",
        )
    ],
]


@dataclass
class Directory:
    """The users of one API server: a token each, and the files that carry it."""

    folder: Path
    tokens: dict[str, str] = field(default_factory=lambda: {user: secrets.token_hex(16) for user in USERS})

    @property
    def token_file(self) -> Path:
        """What the API server reads: token, name, id and groups."""
        path = self.folder / "tokens.csv"
        groups = {ADMIN: ',"system:masters"'}
        lines = [f"{token},{user},{user}{groups.get(user, '')}\n" for user, token in self.tokens.items()]
        path.write_text("".join(lines), encoding="utf-8")
        path.chmod(0o600)
        return path

    def kubeconfig(self, user: str, server: str, authority: Path) -> Path:
        path = self.folder / f"{user}.kubeconfig"
        if path.exists():
            return path
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "rig", "cluster": {"server": server, "certificate-authority": str(authority)}}],
            "users": [{"name": user, "user": {"token": self.tokens[user]}}],
            "contexts": [{"name": "rig", "context": {"cluster": "rig", "user": user}}],
            "current-context": "rig",
        }
        path.write_text(json.dumps(content, indent=1), encoding="utf-8")
        path.chmod(0o600)
        return path


def grant(api: Api, namespace: str, user: str = DEPLOYER, rules: list[dict[str, Any]] | None = None) -> None:
    """Let a user do in a namespace what deploying needs, or just what is said."""
    metadata = {"name": f"rig-{user}", "namespace": namespace}
    role = {"kind": "Role", "metadata": metadata, "rules": _DEPLOYING if rules is None else rules}
    _apply(api, role)
    _apply(api, _binding("Role", metadata, user))


def grant_reading(api: Api) -> None:
    """Let the viewer read, everywhere."""
    metadata = {"name": f"rig-{VIEWER}"}
    _apply(api, {"kind": "ClusterRole", "metadata": metadata, "rules": _VIEWING})
    _apply(api, _binding("ClusterRole", metadata, VIEWER))


def _binding(kind: str, metadata: dict[str, str], user: str) -> dict[str, Any]:
    group = "rbac.authorization.k8s.io"
    return {
        "kind": f"{kind}Binding",
        "metadata": metadata,
        "roleRef": {"apiGroup": group, "kind": kind, "name": metadata["name"]},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }


def _apply(api: Api, item: dict[str, Any]) -> None:
    api.apply({"apiVersion": "rbac.authorization.k8s.io/v1", **item})
