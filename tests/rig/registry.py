"""A registry of charts on loopback, behind TLS: as much of the OCI distribution protocol as ``helm pull`` speaks.

Read off https://github.com/opencontainers/distribution-spec (pull) and helm's media types; what a real registry has
beyond that (logging in, uploads, other hosts for blobs) is not here.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.rig import tls
from tests.rig.controlplane import ControlPlane

REPOSITORY = "charts/llm-d-router-standalone"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.cncf.helm.config.v1+json"
_LAYER = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"


@dataclass
class Registry:
    """One repository and what is in it."""

    port: int = 0
    tags: dict[str, bytes] = field(default_factory=dict)
    """Manifests by tag."""
    blobs: dict[str, bytes] = field(default_factory=dict)
    """Contents by digest; manifests too, which are asked for either way."""
    asked: list[str] = field(default_factory=list)
    """Paths, in order."""

    @property
    def reference(self) -> str:
        """As helm takes it."""
        return f"oci://127.0.0.1:{self.port}/{REPOSITORY}"

    def push(self, plane: ControlPlane, chart: Path, version: str, folder: Path) -> None:
        """Put a chart in under a version, packed by helm itself."""
        plane.helm("package", chart, "--version", version, "--destination", folder)
        (package,) = folder.glob(f"*-{version}.tgz")
        with tarfile.open(package) as archive:
            about = next(name for name in archive.getnames() if name.count("/") == 1 and name.endswith("/Chart.yaml"))
            content = archive.extractfile(about)
            assert content
            config = json.dumps(yaml.safe_load(content)).encode()
        manifest = {
            "schemaVersion": 2, "mediaType": _MANIFEST,
            "config": self._blob(_CONFIG, config), "layers": [self._blob(_LAYER, package.read_bytes())],
        }  # fmt: skip
        self.tags[version] = json.dumps(manifest).encode()
        self._blob(_MANIFEST, self.tags[version])

    def _blob(self, media: str, content: bytes) -> dict[str, Any]:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self.blobs[digest] = content
        return {"mediaType": media, "digest": digest, "size": len(content)}

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """Status, media type and body."""
        self.asked.append(path)
        if path.rstrip("/") == "/v2":
            return 200, "application/json", b"{}"
        kind, _, name = path.removeprefix(f"/v2/{REPOSITORY}/").partition("/")
        if kind == "tags":
            return 200, "application/json", json.dumps({"name": REPOSITORY, "tags": sorted(self.tags)}).encode()
        content = self.tags.get(name, self.blobs.get(name))
        if content is None:
            return 404, "application/json", b'{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}'
        return 200, _MANIFEST if kind == "manifests" else "application/octet-stream", content


@contextlib.contextmanager
def serving(plane: ControlPlane) -> Iterator[Registry]:
    """A registry with the API server's certificate."""
    registry = Registry()
    with tls.serving(plane, _handler(registry)) as registry.port:
        yield registry


def _handler(registry: Registry) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            status, media, content = registry.answer(self.path.partition("?")[0])
            self.send_response_only(status)
            self.send_header("Content-Type", media)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Docker-Content-Digest", f"sha256:{hashlib.sha256(content).hexdigest()}")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        do_GET = do_HEAD = _serve  # noqa: N815 - the names are the standard library's

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    return Handler
