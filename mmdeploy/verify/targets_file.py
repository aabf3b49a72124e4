"""``targets.yaml``: the addresses of a deployment, for those who have no cluster to ask."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mmdeploy import documents
from mmdeploy.documents import Document, KeyPath
from mmdeploy.errors import UsageError
from mmdeploy.verify.targets import KIND, SCHEMA_VERSION, VARIABLE, Endpoint, Pod, Targets, host_port, token
from mmdeploy.words import nearest

if TYPE_CHECKING:
    from mmdeploy.catalog import Catalog

_TOP = (
    "schemaVersion",
    "kind",
    "model",
    "topology",
    "server",
    "release",
    "bundle",
    "entry",
    "gateway",
    "picker",
    "roles",
)
_NEEDED = ("model", "topology", "server", "release", "entry", "roles")
_ENDPOINT = ("url", "token")
_PICKER = ("name", "metrics", "token")
_POD = ("name", "url", "engine", "metrics", "address", "log", "token")
_TAKEN = ("entry", "gateway", "picker")
"""Names that requests and pages have in the evidence."""
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
"""Of a host's name: RFC 1123 §2.1, and the underscores that some resolvers know."""
_HINT = "guides/verifying.md shows a whole targets file"


def read(path: Path, catalog: Catalog, ready: bool = False) -> Targets:
    """The targets that a file lists. Raises `UsageError` with ``file:line:column`` for the first mistake.

    With ``ready``, a token or a log that is named and not there is one, too: told before any request, it costs none.
    """
    if not path.is_file():
        raise UsageError(
            "no such file",
            origin=str(path),
            next_step="mmdeploy rehearse BUNDLE writes one for a rehearsal; " + _HINT,
        )
    return _Reader(documents.read(path, UsageError), path, catalog, ready).targets()


class _Reader:
    """One file, and what its words may be."""

    def __init__(self, document: Document, path: Path, catalog: Catalog, ready: bool) -> None:
        self.document = document
        self.path = path
        self.catalog = catalog
        self.ready = ready
        self.names: dict[str, KeyPath] = {}
        self.urls: dict[str, KeyPath] = {}

    def targets(self) -> Targets:
        top = self._mapping(self.document.value, (), _TOP)
        self._equal(top, "kind", KIND)
        self._equal(top, "schemaVersion", SCHEMA_VERSION)
        for key in _NEEDED:
            if key not in top:
                raise self._wrong((), f"lacks {key}")
        topology = self._word(top, "topology", tuple(self.catalog.topologies))
        server = self._word(top, "server", self.catalog.metrics.servers)
        release = self._word(top, "release", self.catalog.release_names)
        pickers = tuple(self._picker(item, ("picker", at)) for at, item in enumerate(self._list(top, ("picker",))))
        return Targets(
            model=self._text(top, ("model",)),
            topology=topology,
            server=server,
            release=release,
            entry=self._endpoint(top["entry"], "entry", ("entry",)),
            gateway=self._endpoint(top["gateway"], "gateway", ("gateway",)) if top.get("gateway") else None,
            pickers=pickers,
            pods=self._pods(top["roles"], topology),
            bundle=str(self.path.parent / self._text(top, ("bundle",))) if top.get("bundle") else "",
            where=str(self.path),
        )

    def _pods(self, said: Any, topology: str) -> tuple[Pod, ...]:
        wanted = tuple(self.catalog.topologies[topology]["roles"])
        if not isinstance(said, dict):
            raise self._wrong(("roles",), "roles must map each role to its pods")
        for role in said:
            if role not in wanted:
                raise self._wrong(
                    ("roles", role), f"{topology} has no role {role!r}", near=nearest(str(role), wanted) or wanted
                )
        pods = []
        for role in wanted:
            listed = self._list(said, ("roles", role))
            if not listed:
                raise self._wrong(("roles",), f"{topology} has the role {role}, and none of its pods is listed")
            pods += [self._pod(item, role, ("roles", role, at)) for at, item in enumerate(listed)]
        return tuple(pods)

    def _pod(self, said: Any, role: str, path: KeyPath) -> Pod:
        item = self._mapping(said, path, _POD)
        name = self._name(item, path)
        secret = self._token(item, path)
        url = self._base(item, (*path, "url"))
        self._only(url, (*path, "url"))
        engine = Endpoint(f"{name} engine", self._base(item, (*path, "engine"))) if "engine" in item else None
        metrics = self._url(item, (*path, "metrics")) if "metrics" in item else url + self._metrics_path(role)
        address = self._text(item, (*path, "address")) if "address" in item else host_port(url)
        return Pod(
            name, role, Endpoint(name, url), Endpoint(name, metrics, secret), engine, address, log=self._log(item, path)
        )

    def _log(self, item: Mapping[str, Any], path: KeyPath) -> str:
        """An address as it stands, a file as seen from the targets file; empty where none is named."""
        if "log" not in item:
            return ""
        said = self._text(item, (*path, "log"))
        if said.startswith(("http://", "https://")):
            return self._url(item, (*path, "log"), query=True)
        place = self.path.parent / said
        if self.ready and not place.is_file():
            raise self._wrong(
                (*path, "log"),
                f"{place} is no file",
                hint="mend the log: of that pod, seen from this file, or leave it out",
            )
        return str(place)

    def _metrics_path(self, role: str) -> str:
        return self.catalog.metrics.engine(str(self.document.value["server"]), role).paths["metrics"]

    def _picker(self, said: Any, path: KeyPath) -> Endpoint:
        item = self._mapping(said, path, _PICKER)
        name = self._name(item, path)
        return Endpoint(name, self._url(item, (*path, "metrics")), self._token(item, path))

    def _endpoint(self, said: Any, name: str, path: KeyPath) -> Endpoint:
        item = self._mapping(said, path, _ENDPOINT)
        return Endpoint(name, self._base(item, (*path, "url")), self._token(item, path))

    def _name(self, item: Mapping[str, Any], path: KeyPath) -> str:
        name = self._text(item, (*path, "name"))
        if name in _TAKEN or not name.isprintable() or " " in name:
            why = "stands for another part of the deployment" if name in _TAKEN else "is no name"
            raise self._wrong((*path, "name"), f"{name!r} {why}", hint="call it as its pod is called: decode-0")
        if name in self.names:
            raise self._wrong((*path, "name"), f"{name} is listed twice; the other is on line "
                              f"{self.document.line(self.names[name])}")  # fmt: skip
        self.names[name] = (*path, "name")
        return name

    def _token(self, item: Mapping[str, Any], path: KeyPath) -> str:
        if "token" not in item:
            return ""
        said = self._text(item, (*path, "token"))
        kind, _, name = said.partition(":")
        if kind not in ("env", "file") or not name:
            raise self._wrong(
                (*path, "token"),
                "a token does not stand in a file of addresses",
                near=["env:NAME", "file:PATH"],
                hint="put the token into a variable or a file of its own, and name that",
            )
        if kind == "env" and not re.fullmatch(VARIABLE, name):
            raise self._wrong(
                (*path, "token"),
                f"{name!r} is no name of a variable",
                near=["env:NAME", "file:PATH"],
                hint="letters, digits and _, and no digit first",
            )
        if self.ready and kind == "env" and not os.environ.get(name):
            raise self._wrong(
                (*path, "token"),
                f"the variable {name} is not set",
                hint=f"export {name}=..., or name a file: file:PATH",
            )
        if self.ready and kind == "file" and not Path(name).is_file():
            raise self._wrong((*path, "token"), f"{name} is no file", hint="a file that holds the token, or env:NAME")
        if self.ready:
            token(Endpoint(str(item.get("name", path[-1])), "", said))
        return said

    def _base(self, item: Mapping[str, Any], path: KeyPath) -> str:
        """An address that paths of requests are put behind."""
        found = self._url(item, path)
        if urlsplit(found).path.endswith("/v1"):
            raise self._wrong(
                path, f"{found} ends with /v1, with which the paths of requests begin", near=[found.removesuffix("/v1")]
            )
        return found

    def _only(self, url: str, path: KeyPath) -> None:
        key = url.lower()
        if key in self.urls:
            line = self.document.line(self.urls[key])
            raise self._wrong(path, f"{url} is the address of another pod, on line {line}", hint="give each pod's own")
        self.urls[key] = path

    def _url(self, item: Mapping[str, Any], path: KeyPath, *, query: bool = False) -> str:
        said = self._text(item, path)
        near = ["http://127.0.0.1:8000"]
        try:
            parts = urlsplit(said)
            port = parts.port
        except ValueError:
            raise self._wrong(path, f"{said!r} is no address", near=near) from None
        if "@" in parts.netloc:
            raise self._wrong(path, "a password does not stand in an address", hint="token: env:NAME, or file:PATH")
        if parts.scheme not in ("http", "https") or port == 0 or not _host(parts.hostname or ""):
            raise self._wrong(path, f"{said!r} is no http address", near=near)
        if not re.fullmatch(r"[!-~]+", said):
            raise self._wrong(path, f"{said!r} holds a character that no address has", near=near)
        if "#" in said or ("?" in said and not query):
            raise self._wrong(path, f"{said!r} has a query or a fragment, and paths are put behind it", near=near)
        return said.rstrip("/")

    def _text(self, item: Mapping[str, Any], path: KeyPath) -> str:
        key = path[-1]
        if key not in item:
            raise self._wrong(path[:-1], f"lacks {key}")
        value = item[str(key)]
        if not isinstance(value, str) or not value.strip():
            raise self._wrong(path, f"{key} must be text")
        return value

    def _word(self, item: Mapping[str, Any], key: str, choices: tuple[str, ...]) -> str:
        said = self._text(item, (key,))
        if said not in choices:
            raise self._wrong((key,), f"{key} is {said!r}", near=nearest(said, choices) or choices)
        return said

    def _list(self, item: Mapping[str, Any], path: KeyPath) -> list[Any]:
        value = item.get(str(path[-1]))
        if value is not None and not isinstance(value, list):
            raise self._wrong(path, f"{path[-1]} must be a list")
        return value or []

    def _mapping(self, value: Any, path: KeyPath, keys: tuple[str, ...]) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self._wrong(path, f"{path[-1] if path else 'a targets file'} must be a mapping of {', '.join(keys)}")
        for key in value:
            if key not in keys:
                raise self._wrong((*path, key), f"unknown key {key!r}", near=nearest(str(key), keys) or keys)
        return value

    def _equal(self, item: Mapping[str, Any], key: str, wanted: str | int) -> None:
        if item.get(key) != wanted:
            said = f"{key} is {item[key]!r}" if key in item else f"lacks {key}"
            raise self._wrong((key,) if key in item else (), said, near=[f"{key}: {wanted}"])

    def _wrong(
        self, path: KeyPath, found: str, near: tuple[str, ...] | list[str] = (), hint: str = _HINT
    ) -> UsageError:
        return UsageError(found, origin=self.document.origin(path), nearest=near, next_step=hint)


def _host(name: str) -> bool:
    """Whether something can be called so: a name, or an address."""
    if ":" in name:
        return bool(re.fullmatch(r"[0-9a-f:.]+(%[\w.-]+)?", name))
    return len(name) < 254 and bool(re.fullmatch(rf"{_LABEL}(?:\.{_LABEL})*\.?", name))
