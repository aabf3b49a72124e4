"""The namespace: whether it is there, and making it where it is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mmdeploy.apply.inventory import DEPLOYMENT, MANAGED_BY, MANAGER
from mmdeploy.apply.secret import ours
from mmdeploy.errors import ConflictError, ForbiddenError, MmdeployError

if TYPE_CHECKING:
    from mmdeploy.cluster.session import Session


@dataclass(frozen=True)
class Standing:
    """What is known about a namespace."""

    state: Literal["there", "absent", "ending", "unknown"]
    """``unknown``: the person may not look. Whoever may work in a single namespace often may not."""
    ours: bool = False
    """Whether mmdeploy made it, for this deployment."""


def standing(session: Session, namespace: str, name: str) -> Standing:
    """Look at the namespace of the deployment ``name``."""
    try:
        live = session.find(f"/api/v1/namespaces/{namespace}")
    except ForbiddenError:
        return Standing("unknown")
    if live is None:
        return Standing("absent")
    ending = live["metadata"].get("deletionTimestamp") or (live.get("status") or {}).get("phase") == "Terminating"
    return Standing("ending" if ending else "there", ours(live, name))


def ending(namespace: str) -> MmdeployError:
    """A namespace that is being deleted takes nothing new."""
    return ConflictError(
        "is being deleted, and takes nothing new until it is gone",
        origin=f"namespace {namespace}",
        next_step=f"kubectl wait --for=delete namespace/{namespace} --timeout=10m, then apply again",
    )


def create(session: Session, namespace: str, name: str, *, dry_run: bool = False) -> bool:
    """Make the namespace; False where somebody was faster. Raises `ForbiddenError` with what to ask for."""
    metadata = {"name": namespace, "labels": {MANAGED_BY: MANAGER}, "annotations": {DEPLOYMENT: name}}
    try:
        session.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}, dry_run=dry_run)
    except ConflictError:
        return False
    except ForbiddenError as problem:
        raise ForbiddenError(
            problem.found,
            origin=f"namespace {namespace}",
            next_step=f"an administrator makes it: kubectl create namespace {namespace}",
        ) from None
    return True


__all__ = ["Standing", "create", "ending", "standing"]
