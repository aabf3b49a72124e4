"""Helm releases, read where helm keeps them: one request instead of several runs of the program.

helm keeps each revision in a Secret (or a ConfigMap, by ``HELM_DRIVER``), labelled with the release's name, its
content as gzipped JSON in base64 (the Secret's own base64 comes on top). Seen with helm 3 and 4.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mmdeploy import documents
from mmdeploy.cluster.helm import Helm, Release
from mmdeploy.errors import ClusterError

if TYPE_CHECKING:
    from mmdeploy.cluster.session import Session

_KINDS = {"": "secrets", "secret": "secrets", "secrets": "secrets", "configmap": "configmaps",
          "configmaps": "configmaps"}  # fmt: skip


@dataclass(frozen=True)
class Stored(Release):
    """A release with what it was made of."""

    values: Mapping[str, Any] = field(default_factory=dict)
    """What somebody gave, without the chart's defaults."""
    text: str = ""
    """The objects, as helm rendered them."""

    @cached_property
    def manifest(self) -> Sequence[dict[str, Any]]:
        """The objects."""
        return documents.parse_all(self.text, f"release {self.name}")


def stored(session: Session, namespace: str, name: str) -> Stored | None:
    """The newest revision of a release, whatever its status; None where there is none.

    Raises `ForbiddenError` where the person may not read it, `ClusterError` where it cannot be understood.
    """
    kind = _KINDS.get(os.environ.get("HELM_DRIVER", ""))
    if kind is None:
        return _told(Helm(session.access, namespace), name)
    path = f"/api/v1/namespaces/{namespace}/{kind}"
    revisions = list(session.items(path, labelSelector=f"owner=helm,name={name}"))
    if not revisions:
        return None
    newest = max(revisions, key=lambda item: int(item["metadata"]["labels"]["version"]))
    try:
        return _read(newest, kind)
    except (KeyError, TypeError, ValueError, OSError, EOFError, binascii.Error, zlib.error):
        raise ClusterError(
            f"the Helm release {name} cannot be read from {newest['metadata']['name']}",
            next_step=f"helm history {name} --namespace {namespace}",
        ) from None


def _read(item: Mapping[str, Any], kind: str) -> Stored:
    data = item["data"]["release"]
    data = base64.b64decode(data) if kind == "secrets" else data
    raw = base64.b64decode(data)
    found = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    chart, info = found["chart"]["metadata"], found["info"]
    return Stored(
        found["name"], int(found["version"]), info["status"], f"{chart['name']}-{chart['version']}",
        info.get("deleted") or info.get("last_deployed", ""), found.get("config") or {}, found.get("manifest") or "",
    )  # fmt: skip


def _told(helm: Helm, name: str) -> Stored | None:
    """The same from the program, where releases are kept out of reach."""
    found = helm.release(name)
    if found is None:
        return None
    text = helm.manifest_text(name)
    return Stored(found.name, found.revision, found.status, found.chart, found.updated, helm.values(name), text)


__all__ = ["Stored", "stored"]
