"""What stands in a namespace, without what differs between two runs that came to the same.

Left out: times, uids, addresses, status, names that Kubernetes draws, whose fields are neither mmdeploy's nor helm's.
A Helm release is its newest revision: what it was made of and whether it is deployed.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections import defaultdict
from typing import Any

from tests.rig.api import Object
from tests.rig.contents import Contents

_MANAGERS = ("mmdeploy", "helm")
_HELM = "helm.sh/release.v1"


def standing(contents: Contents, namespace: str) -> dict[str, Any]:
    """``Kind.group/name`` → what is to be the same in every run, whichever namespace it was."""
    found: dict[str, Any] = {}
    pods = defaultdict(list)
    revisions: dict[str, list[Object]] = defaultdict(list)
    hashes = set()
    for name, item in contents.of(namespace).items():
        hashes.add((item["metadata"].get("labels") or {}).get("pod-template-hash"))
        if name.startswith("Pod/"):
            pods[item["metadata"].get("generateName", name)].append(_pod(item))
        elif item.get("type") == _HELM:
            revisions[item["metadata"]["labels"]["name"]].append(item)
        else:
            found[name] = _object(item)
    found |= {f"Pods/{name}": some for name, some in pods.items()}
    for name, some in revisions.items():
        newest = max(some, key=lambda item: int(item["metadata"]["labels"]["version"]))
        found[f"HelmRelease/{name}"] = _release(newest)
    found["Namespace"] = _object(contents.api.get(f"/api/v1/namespaces/{namespace}"))
    text = json.dumps(found, sort_keys=True).replace(namespace, "NAMESPACE")
    for each in hashes - {None}:
        text = text.replace(str(each), "HASH")
    same: dict[str, Any] = json.loads(re.sub(r"kube-api-access-\w{5}", "kube-api-access", text))
    return same


def _object(item: Object) -> Object:
    metadata = item["metadata"]
    kept = {
        "labels": metadata.get("labels") or {},
        "annotations": metadata.get("annotations") or {},
        "finalizers": metadata.get("finalizers") or [],
        "ending": "deletionTimestamp" in metadata,
        "owners": [f"{each['kind']}/{each['name']}" for each in metadata.get("ownerReferences") or []],
        "managed": _managed(metadata),
    }
    content = {key: value for key, value in item.items() if key not in ("metadata", "status", "kind", "apiVersion")}
    if "clusterIP" in content.get("spec", {}):
        content["spec"] = {key: value for key, value in content["spec"].items() if not key.startswith("clusterIP")}
    if "inventory.json" in (item.get("data") or {}):
        content = _inventory(item)
    return {**kept, **content}


def _managed(metadata: Object) -> list[Any]:
    """Which fields mmdeploy and helm say are theirs."""
    return sorted(
        [each["manager"], each["operation"], each.get("subresource", ""), json.dumps(each["fieldsV1"], sort_keys=True)]
        for each in metadata.get("managedFields") or []
        if each["manager"] in _MANAGERS
    )


def _inventory(item: Object) -> Object:
    kept = json.loads(item["data"]["inventory.json"])
    del kept["at"], kept["stages"]  # stages: of the last apply
    for entry in kept["entries"]:
        entry["uid"] = bool(entry["uid"])
    return {"inventory": kept, "spec": item["data"]["mmdeploy.yaml"], "applied": applied(item)}


def applied(item: Object) -> Any:
    """The objects that an inventory keeps, by key."""
    return json.loads(gzip.decompress(base64.b64decode(item["binaryData"]["applied.json.gz"])))


def _pod(item: Object) -> Object:
    spec = {key: value for key, value in item["spec"].items() if key not in ("nodeName", "hostname", "subdomain")}
    labels = {key: value for key, value in item["metadata"]["labels"].items() if not key.startswith("apps.kubernetes")}
    return {"labels": labels, "spec": spec, "ending": "deletionTimestamp" in item["metadata"]}


def release(item: Object) -> Object:
    """What helm wrote in a Secret of its own."""
    found: Object = json.loads(gzip.decompress(base64.b64decode(base64.b64decode(item["data"]["release"]))))
    return found


def _release(item: Object) -> Object:
    read = release(item)
    chart = {key: value for key, value in read["chart"].items() if key != "modtime"}
    return {"status": read["info"]["status"], "values": read.get("config"), "manifest": read["manifest"],
            "chart": chart["metadata"]}  # fmt: skip
