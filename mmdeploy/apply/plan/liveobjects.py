"""The objects of a namespace as somebody might have written them, to be judged like files."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from mmdeploy.apply.inventory import MANAGED_BY, MANAGER
from mmdeploy.apply.plan.drift import bare
from mmdeploy.errors import ForbiddenError, NotFoundError

if TYPE_CHECKING:
    from mmdeploy.cluster.session import Session

KINDS: Final = (
    ("v1", "ConfigMap"),
    ("v1", "Service"),
    ("v1", "ServiceAccount"),
    ("v1", "PersistentVolumeClaim"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "StatefulSet"),
    ("disaggregatedset.x-k8s.io/v1", "DisaggregatedSet"),
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"),
    ("inference.networking.k8s.io/v1", "InferencePool"),
    ("inference.networking.x-k8s.io/v1alpha2", "InferencePool"),
    ("llm-d.ai/v1alpha2", "InferenceObjective"),
    ("llm-d.ai/v1alpha2", "InferenceModelRewrite"),
    ("gateway.networking.k8s.io/v1", "Gateway"),
    ("gateway.networking.k8s.io/v1", "HTTPRoute"),
    ("networking.istio.io/v1", "DestinationRule"),
    ("networking.gke.io/v1", "HealthCheckPolicy"),
    ("networking.gke.io/v1", "GCPBackendPolicy"),
    ("monitoring.coreos.com/v1", "PodMonitor"),
    ("monitoring.coreos.com/v1", "ServiceMonitor"),
    ("monitoring.googleapis.com/v1", "PodMonitoring"),
    ("resource.k8s.io/v1", "ResourceClaimTemplate"),
    ("autoscaling/v2", "HorizontalPodAutoscaler"),
    ("keda.sh/v1alpha1", "ScaledObject"),
)
"""What a deployment may consist of; Secrets are never read."""
_OF_NAMESPACES: Final = {("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")}
"""What every namespace is given."""


@dataclass(frozen=True)
class LiveObjects:
    """What was read of a namespace."""

    namespace: str
    objects: tuple[dict[str, Any], ...]
    """Without status, versions and owners of fields; no object that another one there made."""
    unread: tuple[str, ...] = ()
    """Kinds that the person may not read."""


def read(session: Session, namespace: str) -> LiveObjects:
    """Every object of the kinds in `KINDS`; a kind that is not served has none. Raises `ForbiddenError` where nothing
    may be read at all, and `NotFoundError` where the namespace holds nothing."""
    session.resource("v1", "ConfigMap")  # alone: where nobody answers, one request waits for it and not one a kind
    found = session.all([partial(_listed, session, namespace, *kind) for kind in KINDS])
    unread = tuple(kind for (_, kind), items in zip(KINDS, found, strict=True) if items is None)
    objects = tuple(bare(item) for items in found for item in items or () if _worth_judging(item))
    if not objects and unread:
        raise ForbiddenError(
            f"nothing in namespace {namespace} may be read",
            next_step="an administrator grants get and list there; --namespace chooses another",
        )
    if not objects:
        raise NotFoundError(_nothing(session, namespace), next_step="--namespace chooses another")
    return LiveObjects(namespace, objects, unread)


def _nothing(session: Session, namespace: str) -> str:
    """Why a namespace holds nothing, as far as the person may see it."""
    try:
        found = session.find(f"/api/v1/namespaces/{namespace}")
    except ForbiddenError:
        return f"namespace {namespace} holds nothing to judge"
    if found is None:
        return f"there is no namespace {namespace}"
    ending = found["metadata"].get("deletionTimestamp") is not None
    return f"namespace {namespace} {'is being removed' if ending else 'holds nothing to judge'}"


def _listed(session: Session, namespace: str, api_version: str, kind: str) -> list[dict[str, Any]] | None:
    """None where the person may not read the kind."""
    try:
        path = session.collection(api_version, kind, namespace)
        return [{**item, "apiVersion": api_version, "kind": kind} for item in session.items(path)]
    except NotFoundError:
        return []
    except ForbiddenError:
        return None


def _worth_judging(item: dict[str, Any]) -> bool:
    """Whether somebody wrote the object, to stay: no controller, nor the cluster, nor mmdeploy for itself."""
    metadata = item["metadata"]
    made = any(owner.get("controller") for owner in metadata.get("ownerReferences") or ())
    ours = item["kind"] == "ConfigMap" and (metadata.get("labels") or {}).get(MANAGED_BY) == MANAGER
    going = metadata.get("deletionTimestamp") is not None
    return not (made or ours or going) and (item["kind"], metadata["name"]) not in _OF_NAMESPACES


__all__ = ["KINDS", "LiveObjects", "read"]
