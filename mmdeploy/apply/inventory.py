"""What a deployment has put on a cluster, kept there, so that it can be resumed and taken away without the render.

One ConfigMap a deployment, ``mmdeploy-<name>``. It is written before the first change and says what may be there: a
process that is killed leaves nothing outside it. Contents of Secrets are never in it.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from mmdeploy.apply.events import STAGES
from mmdeploy.errors import MmdeployError

if TYPE_CHECKING:
    from mmdeploy.cluster.session import Session

SCHEMA_VERSION = 1
MANAGED_BY = "app.kubernetes.io/managed-by"
"""Label of what mmdeploy keeps for itself (inventory, lease), and of a namespace or Secret that it made."""
MANAGER = "mmdeploy"
DEPLOYMENT = "mmdeploy/deployment"
"""Annotation of a namespace or Secret that mmdeploy made: for which deployment."""
SELECTOR = f"{MANAGED_BY}={MANAGER}"

_DATA = "inventory.json"
_SPEC = "mmdeploy.yaml"
_CONTENT = "applied.json.gz"


def key(item: Mapping[str, Any]) -> str:
    """What an object is, whichever version of its kind it is written in: ``Deployment.apps/decode``."""
    return _key(item["apiVersion"], item["kind"], item["metadata"]["name"])


def _key(api_version: str, kind: str, name: str) -> str:
    group = api_version.partition("/")[0] if "/" in api_version else ""
    return f"{kind}{'.' if group else ''}{group}/{name}"


@dataclass(frozen=True)
class Entry:
    """One object, in the deployment's namespace."""

    stage: str
    api_version: str
    kind: str
    name: str
    uid: str = ""
    """Empty until it was written: then it may be there or not."""

    @property
    def key(self) -> str:
        """As `key` names the object."""
        return _key(self.api_version, self.kind, self.name)

    def item(self, namespace: str) -> dict[str, Any]:
        """As much of an object as a request needs."""
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": {"name": self.name, "namespace": namespace},
        }


@dataclass(frozen=True)
class HelmRelease:
    """The release that is the router."""

    name: str
    chart: str
    """An OCI reference or a path."""
    version: str = ""
    """Empty for a chart from a path."""
    restart: tuple[str, ...] = ()
    """Deployments of the release that still run with an older configuration: they have to be restarted."""


@dataclass(frozen=True)
class Ending:
    """Pods that have to be gone before a removal is done."""

    labels: Mapping[str, str]
    owner: str = ""
    """Name of the Deployment or StatefulSet that they are of: others' pods may carry the same labels."""

    def has(self, pod: Mapping[str, Any]) -> bool:
        """Whether a pod with these labels is one of them. A ReplicaSet is called after its Deployment and a hash."""
        owners = [str(each["name"]) for each in pod["metadata"].get("ownerReferences") or ()]
        return not self.owner or any(self.owner in (name, name.rpartition("-")[0]) for name in owners)


@dataclass(frozen=True)
class Inventory:
    """What a deployment has, or may have, on the cluster."""

    name: str
    namespace: str
    entries: tuple[Entry, ...] = ()
    """In the order in which they are applied."""
    release: HelmRelease | None = None
    stages: tuple[str, ...] = ()
    """Stages that the last apply has finished."""
    spec: Mapping[str, Any] = field(default_factory=dict)
    """The resolved spec: rendering it gives the bundle back."""
    content: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The objects as they were last applied, by `key`; never a Secret."""
    namespace_ours: bool = False
    """Whether mmdeploy made the namespace."""
    at: str = ""
    """When it was last applied, RFC 3339, by the API server's clock."""
    by: str = ""
    """Who applied it last: user@host."""
    version: str = ""
    """mmdeploy's version then."""
    ending: tuple[Ending, ...] = ()
    """While it is taken away: the pods that have to be gone at the end."""

    @property
    def finished(self) -> bool:
        """Whether the last apply wrote everything that it listed; not so while one is at work."""
        listed = {entry.stage for entry in self.entries} | ({"router"} if self.release else set())
        return not self.ending and listed <= set(self.stages) and all(entry.uid for entry in self.entries)

    @property
    def configmap(self) -> str:
        """Name of the ConfigMap that keeps it."""
        return object_name(self.name)

    def entry(self, wanted: str) -> Entry | None:
        """The entry of a `key`."""
        return next((each for each in self.entries if each.key == wanted), None)

    def with_uid(self, wanted: str, uid: str) -> Inventory:
        """The same, once an object was written."""
        entries = tuple(replace(each, uid=uid) if each.key == wanted else each for each in self.entries)
        return replace(self, entries=entries)

    def without(self, keys: Iterable[str]) -> Inventory:
        """The same, without objects that were taken away."""
        gone = set(keys)
        content = {name: item for name, item in self.content.items() if name not in gone}
        return replace(self, entries=tuple(each for each in self.entries if each.key not in gone), content=content)


def object_name(name: str) -> str:
    """Name of a deployment's ConfigMap and of its Lease."""
    return f"mmdeploy-{name}"


def load(session: Session, namespace: str, name: str) -> Inventory | None:
    """The inventory of a deployment; None where there is none. Raises `MmdeployError` for one that was damaged."""
    found = session.find(f"/api/v1/namespaces/{namespace}/configmaps/{object_name(name)}")
    return None if found is None else parse(found)


def all_in(session: Session, namespace: str) -> dict[str, Inventory]:
    """Every inventory of a namespace, by deployment; one request."""
    found = session.items(f"/api/v1/namespaces/{namespace}/configmaps", labelSelector=SELECTOR)
    read = [parse(item) for item in found if _DATA in (item.get("data") or {})]
    return {each.name: each for each in read}


def save(session: Session, inventory: Inventory) -> None:
    """Write it; what somebody else wrote over it is taken back."""
    session.apply(configmap(inventory), force=True)


def remove(session: Session, inventory: Inventory) -> None:
    """Take the inventory itself away: the last thing of a removal."""
    session.delete(configmap(inventory), policy="Background")


def configmap(inventory: Inventory) -> dict[str, Any]:
    """The ConfigMap that keeps it."""
    kept = {name: value for name, value in asdict(inventory).items() if name not in ("spec", "content")}
    content = gzip.compress(_plain(inventory.content).encode(), mtime=0)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": inventory.configmap,
            "namespace": inventory.namespace,
            "labels": {MANAGED_BY: MANAGER},
        },
        "data": {
            _DATA: json.dumps({"schemaVersion": SCHEMA_VERSION, **kept}, indent=1) + "\n",
            _SPEC: _yaml(_plain(inventory.spec)),
        },
        "binaryData": {_CONTENT: base64.b64encode(content).decode()},
    }


@cache
def _yaml(spec: str) -> str:
    """The spec for people. An apply writes the same one several times."""
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(yaml.dump(json.loads(spec), Dumper=dumper, sort_keys=False, allow_unicode=True))


def _plain(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def parse(item: Mapping[str, Any]) -> Inventory:
    """The inventory that a ConfigMap keeps. Raises `MmdeployError` where it was damaged, or is a newer mmdeploy's."""
    import yaml

    name = item["metadata"]["name"]
    data = item.get("data") or {}
    try:
        kept = json.loads(data[_DATA])
        if kept.pop("schemaVersion") != SCHEMA_VERSION:
            raise _unreadable(name, "another version of mmdeploy wrote it")
        entries = tuple(Entry(**each) for each in kept.pop("entries"))
        release = _release(kept.pop("release"))
        ending = tuple(Ending(**each) for each in kept.pop("ending"))
        stages = tuple(kept.pop("stages"))
        content = json.loads(gzip.decompress(base64.b64decode((item.get("binaryData") or {})[_CONTENT])))
        spec = yaml.load(data[_SPEC], getattr(yaml, "CSafeLoader", yaml.SafeLoader)) or {}
        found = Inventory(
            **kept, entries=entries, release=release, stages=stages, ending=ending, spec=spec, content=content
        )
        _check(found, item["metadata"])
        return found
    except (KeyError, TypeError, ValueError, AttributeError, OSError, EOFError, binascii.Error, zlib.error,
            yaml.YAMLError):  # fmt: skip
        raise _unreadable(name, "it was changed by hand") from None


def _check(found: Inventory, metadata: Mapping[str, Any]) -> None:
    """Raise ValueError for what this program cannot have written: another place than its own, other types."""
    in_place = object_name(found.name) == metadata["name"] and found.namespace == metadata.get("namespace")
    texts = [found.at, found.by, found.version, *found.stages]
    for entry in found.entries:
        texts += [entry.stage, entry.api_version, entry.kind, entry.name, entry.uid]
    if found.release is not None:
        texts += [found.release.name, found.release.chart, found.release.version, *found.release.restart]
    right = (
        in_place
        and all(isinstance(text, str) for text in texts)
        and all(entry.stage in STAGES and entry.name and entry.kind for entry in found.entries)
        and isinstance(found.spec, Mapping)
        and isinstance(found.content, Mapping)
        and all(isinstance(each, Mapping) for each in found.content.values())
        and isinstance(found.namespace_ours, bool)
    )
    if not right:
        raise ValueError


def _release(kept: Mapping[str, Any] | None) -> HelmRelease | None:
    if kept is None:
        return None
    return HelmRelease(**{**kept, "restart": tuple(kept["restart"])})


def _unreadable(name: str, why: str) -> MmdeployError:
    return MmdeployError(
        f"the inventory cannot be read: {why}",
        origin=f"ConfigMap {name}",
        next_step=f"kubectl get configmap {name} -o yaml; delete it by hand, and --adopt takes its objects over again",
    )


__all__ = [
    "DEPLOYMENT", "MANAGED_BY", "MANAGER", "SELECTOR", "Ending", "Entry", "HelmRelease", "Inventory", "all_in",
    "configmap", "key", "load", "object_name", "parse", "remove", "save",
]  # fmt: skip
