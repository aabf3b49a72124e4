"""Stands in for the manager of DisaggregatedSets and LeaderWorkerSets, which cannot be built here.

It makes what the real one makes: for each role and revision a LeaderWorkerSet, under it a StatefulSet (Ordinal) or a
Deployment (Hash) of the same name, and Services; it moves a rollout on role by role, one pod at a time, as pods become
ready; and it writes status. Pods, their placement and the clean-up after a deletion are the real controllers' work.

It looks at everything a few times a second rather than watching: nothing to reconnect, nothing to miss. Not like the
real one: groups of one pod only (size is ignored), one slice, surge and unavailable of 1, no webhook, and of the labels
that differ from pod to pod none.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from tests.rig.api import Api, Object, RefusedError, path
from tests.rig.standin import StandIn

GROUP = "disaggregatedset.x-k8s.io"
_LWS = "leaderworkerset.x-k8s.io"
_LABELS = "leaderworkerset.sigs.k8s.io"  # of pods (disaggregatedset-observed.md)

# reporting: as the manager should. silent: it works but writes no status, so that a new set's stays empty and an old
# one's grows stale. away: it does nothing at all.
Mode = Literal["reporting", "silent", "away"]


@dataclass
class Sets(StandIn):
    """The stand-in."""

    @contextlib.contextmanager
    def being(self, mode: Mode) -> Iterator[None]:
        """Have it behave otherwise for a while."""
        before, self.mode = self.mode, mode
        try:
            yield
        finally:
            self.mode = before

    def _look(self) -> None:
        found = self.api.items(f"/apis/{GROUP}/v1/disaggregatedsets")
        if not found:
            return
        query = {"labelSelector": f"{GROUP}/name"}
        groups = self.api.items(f"/apis/{_LWS}/v1/leaderworkersets", **query)
        workloads = [
            {**item, "apiVersion": "apps/v1", "kind": kind}
            for kind in ("Deployment", "StatefulSet")
            for item in self.api.items(f"/apis/apps/v1/{kind.lower()}s", **query)
        ]
        for item in found:
            if "deletionTimestamp" not in item["metadata"]:
                _Set(self.api, item, _of(item, groups), _of(item, workloads), self.mode == "reporting").reconcile()


def _of(parent: Object, items: list[Object]) -> dict[str, Object]:
    """Those that belong to a set, by name."""
    namespace, name = parent["metadata"]["namespace"], parent["metadata"]["name"]
    return {
        item["metadata"]["name"]: item
        for item in items
        if item["metadata"]["namespace"] == namespace and item["metadata"]["labels"][f"{GROUP}/name"] == name
    }


@dataclass
class _Set:
    """One look at one set."""

    api: Api
    item: Object
    groups: dict[str, Object]
    workloads: dict[str, Object]
    reporting: bool

    @property
    def name(self) -> str:
        return self.item["metadata"]["name"]

    @property
    def revision(self) -> str:
        """Changes with the order of the roles and with what their pods are made from, and with nothing else.

        Eight characters: with them the longest names that the real webhook lets through fit a Service's 63.
        """
        made_from = [
            [role["name"], role["spec"]["leaderWorkerTemplate"], role["spec"].get("groupIdentity")]
            for role in self.item["spec"]["roles"]
        ]
        return hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()[:8]

    def child(self, role: Object) -> str:
        return f"{self.name}-0-{self.revision}-{role['name']}"

    def ready(self, name: str) -> int:
        return self.workloads.get(name, {}).get("status", {}).get("readyReplicas", 0)

    def reconcile(self) -> None:
        roles = self.item["spec"]["roles"]
        current = {self.child(role) for role in roles}
        old = [name for name in self.groups if name not in current]
        for role in roles:
            self._step(role, [name for name in old if self._role(name) == role["name"]])
        if all(self.ready(self.child(role)) >= role["spec"].get("replicas", 1) for role in roles):
            for name in old:
                self.api.delete(path(self.groups[name]))
        if all(self.ready(self.child(role)) for role in roles):
            for role in roles:
                self._service(role, f"{self.child(role)}-prv", {"port": 8000, "name": "http"})
        if self.reporting:
            for name, group in self.groups.items():
                self._report(group, self._group_status(name))
            self._report(self.item, self._status())

    def _role(self, name: str) -> str:
        return self.groups[name]["metadata"]["labels"][f"{GROUP}/role"]

    def _step(self, role: Object, old: list[str]) -> None:
        """As many new pods as are ready, and one more; as many old ones as the new do not replace yet."""
        wanted, name = role["spec"].get("replicas", 1), self.child(role)
        have = self.ready(name)
        self._scale(role, name, min(wanted, have + 1) if old else wanted)
        for each in old:
            self._scale(role, each, min(self.groups[each]["spec"]["replicas"], max(0, wanted - have)))

    def _scale(self, role: Object, name: str, replicas: int) -> None:
        group = self.groups.get(name)
        if group is None:
            group = self.api.apply(self._group(role, name, replicas), manager="lws")
            self._service(role, name, {})
        elif group["spec"]["replicas"] != replicas:
            self.api.merge(path(group), {"spec": {"replicas": replicas}})
        workload = self.workloads.get(name)
        if workload is None:
            self._create(group, _workload(group, replicas))
        elif workload["spec"]["replicas"] != replicas:
            self.api.merge(path(workload), {"spec": {"replicas": replicas}})

    def _create(self, group: Object, workload: Object) -> None:
        try:
            self.api.apply(workload, manager="lws")
        except RefusedError as refused:
            self._warn(group, str(refused))

    def _group(self, role: Object, name: str, replicas: int) -> Object:
        said = role.get("metadata", {})
        template = json.loads(json.dumps(role["spec"]["leaderWorkerTemplate"]))
        worker = template["workerTemplate"].setdefault("metadata", {})
        worker["labels"] = {**worker.get("labels", {}), **self._labels(role), "app": f"{self.name}-0-{role['name']}"}
        return {
            "apiVersion": f"{_LWS}/v1",
            "kind": "LeaderWorkerSet",
            "metadata": {
                **_owned(self.item, name),
                "labels": {**said.get("labels", {}), **self._labels(role)},
                "annotations": said.get("annotations", {}),
            },
            "spec": {**role["spec"], "replicas": replicas, "leaderWorkerTemplate": template},
        }

    def _labels(self, role: Object) -> dict[str, str]:
        values = {"name": self.name, "role": role["name"], "slice": "0", "revision": self.revision}
        return {f"{GROUP}/{key}": value for key, value in values.items()}

    def _service(self, role: Object, name: str, port: dict[str, Any]) -> None:
        where = f"/api/v1/namespaces/{self.item['metadata']['namespace']}/services/{name}"
        if self.api.find(where):
            return
        spec: dict[str, Any] = {
            "clusterIP": "None",
            "selector": self._labels(role),
            "publishNotReadyAddresses": not port,
        }
        if port:
            spec["ports"] = [port]
        metadata = {**_owned(self.item, name), "labels": self._labels(role)}
        self.api.apply({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}, manager="lws")

    # -------------------------------------------------------------------------------------------------------- status

    def _group_status(self, name: str) -> Object:
        replicas, ready = self.groups[name]["spec"]["replicas"], self.ready(name)
        return {
            "replicas": self.workloads.get(name, {}).get("status", {}).get("replicas", 0),
            "readyReplicas": ready,
            "updatedReplicas": ready,
            "conditions": _conditions(ready >= replicas, "AllGroupsReady", "GroupsProgressing"),
        }

    def _status(self) -> Object:
        roles = []
        for role in self.item["spec"]["roles"]:
            name = self.child(role)
            all_of_it = [each for each in self.workloads if self._role_of(each) == role["name"]]
            roles.append(
                {
                    "name": role["name"],
                    "replicas": sum(self.workloads[each].get("status", {}).get("replicas", 0) for each in all_of_it),
                    "readyReplicas": sum(map(self.ready, all_of_it)),
                    "updatedReplicas": self.workloads.get(name, {}).get("status", {}).get("replicas", 0),
                }
            )
        done = len(self.groups) == len(roles) and all(
            self.ready(self.child(role)) >= role["spec"].get("replicas", 1) for role in self.item["spec"]["roles"]
        )
        return {"roleStatuses": roles, "conditions": _conditions(done, "AllRolesReady", "RolloutInProgress")}

    def _role_of(self, name: str) -> str:
        return self.workloads[name]["metadata"]["labels"][f"{GROUP}/role"]

    def _report(self, item: Object, status: Object) -> None:
        generation, before = item["metadata"]["generation"], item.get("status", {})
        for each in status["conditions"]:
            each["observedGeneration"] = generation
            same = [old for old in before.get("conditions", []) if _alike(old, each, "type", "status")]
            each["lastTransitionTime"] = same[0]["lastTransitionTime"] if same else _now()
        status = {"observedGeneration": generation, **status}
        if not _alike(before, status, *status):
            self.api.merge(f"{path(item)}/status", {"status": status})

    def _warn(self, about: Object, message: str) -> None:
        """An event, as the real manager gives when the API server refuses what it makes."""
        metadata = about["metadata"]
        name = f"{metadata['name']}.{hashlib.sha256(message.encode()).hexdigest()[:8]}"
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": metadata["namespace"]},
            "involvedObject": {
                "apiVersion": about["apiVersion"],
                "kind": about["kind"],
                **{key: metadata[key] for key in ("name", "namespace", "uid")},
            },
            "type": "Warning",
            "reason": "FailedCreate",
            "message": message,
            "source": {"component": "leaderworkerset"},
            "lastTimestamp": _now(),
            "firstTimestamp": _now(),
            "count": 1,
        }
        self.api.apply(event, manager="lws")


def _workload(group: Object, replicas: int) -> Object:
    """The StatefulSet or Deployment under a LeaderWorkerSet."""
    name, spec = group["metadata"]["name"], group["spec"]
    template = json.loads(json.dumps(spec["leaderWorkerTemplate"]["workerTemplate"]))
    identity = {f"{_LABELS}/name": name, f"{_LABELS}/worker-index": "0"}
    hashed = hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:10]
    template["metadata"]["labels"] |= identity | {f"{_LABELS}/template-revision-hash": hashed}
    for container in template["spec"]["containers"] + template["spec"].get("initContainers", []):
        container.setdefault("env", []).extend(
            {"name": f"LWS_{key}", "value": value}
            for key, value in {
                "LEADER_ADDRESS": f"{name}-0.{name}.{group['metadata']['namespace']}",
                "GROUP_SIZE": "1",
                "WORKER_INDEX": "0",
            }.items()
        )
    item = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {**_owned(group, name), "labels": {**group["metadata"]["labels"], **identity}},
        "spec": {"replicas": replicas, "selector": {"matchLabels": identity}, "template": template},
    }
    if spec.get("groupIdentity") != "Hash":
        item["kind"] = "StatefulSet"
        item["spec"] |= {"serviceName": name, "podManagementPolicy": "Parallel"}
    return item


def _owned(owner: Object, name: str) -> dict[str, Any]:
    """Metadata of what goes with its owner."""
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {"name": name, "namespace": owner["metadata"]["namespace"], "ownerReferences": [reference]}


def _conditions(done: bool, ready: str, moving: str) -> list[Object]:
    """A rollout that has not ended once has no Available condition at all."""
    if done:
        return [
            {"type": "Available", "status": "True", "reason": ready, "message": ""},
            {"type": "Progressing", "status": "False", "reason": ready, "message": ""},
        ]
    return [{"type": "Progressing", "status": "True", "reason": moving, "message": ""}]


def _alike(one: Object, other: Object, *keys: str) -> bool:
    return all(one.get(key) == other.get(key) for key in keys)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
