"""Which cluster, and as whom: a kubeconfig and one of its contexts, or the account of the pod this runs in."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from mmdeploy.cluster.failures import from_config
from mmdeploy.cluster.kubeconfig import Plain, impersonation, plain
from mmdeploy.words import nearest

CONNECTIONS: Final = 32
"""Connections that are kept open: as many as threads that ask."""
LOGIN_SECONDS: Final = 10.0
"""How long a login is taken for good; `kubernetes` renews tokens minutes before they run out."""
_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True)
class Where:
    """Which cluster a session talks to, for a person to check before anything changes."""

    context: str
    server: str
    namespace: str
    """The kubeconfig context's own namespace."""
    user: str = ""
    """The kubeconfig's name for the person."""


@dataclass(frozen=True)
class Connection:
    """A way to one API server, logged in."""

    where: Where
    pool: Any
    """A ``urllib3.PoolManager``."""
    credentials: Callable[[], Mapping[str, str]]
    """The header that says who asks; nothing with a client certificate."""
    client: Callable[[], Any]
    """The logged-in ``kubernetes.client.ApiClient``, for what is no plain request; made when it is asked for."""


@dataclass(frozen=True)
class Access:
    """What a person said about the cluster to talk to; None for what kubectl would take."""

    kubeconfig: Path | None = None
    context: str | None = None

    def connection(self) -> Connection:
        """A way in; by `kubernetes` where the kubeconfig asks for more than a token or a certificate.

        Raises `ClusterError` in one sentence for what is missing or broken.
        """
        found = plain(self.kubeconfig, self.context)
        if found is not None:
            return self._plain(found)
        api, where = self.client()
        pool = api.rest_client.pool_manager
        pool.connection_pool_kw["maxsize"] = CONNECTIONS  # the library keeps five a processor, and makes others anew
        return Connection(where, pool, _Login(api, self._impersonation(where)), lambda: api)

    def _plain(self, found: Plain) -> Connection:
        from urllib3 import PoolManager

        where = Where(found.context, found.server, found.namespace, found.user)
        pool = PoolManager(maxsize=CONNECTIONS, ssl_context=found.tls, cert_reqs="CERT_REQUIRED")
        return Connection(where, pool, lambda: found.headers, cache(lambda: self.client()[0]))

    def _impersonation(self, where: Where) -> Mapping[str, str]:
        """What `kubernetes` leaves out of a kubeconfig, and kubectl and helm do not."""
        from kubernetes.config import kube_config

        if not where.user:
            return {}
        place = self.kubeconfig or kube_config.KUBE_CONFIG_DEFAULT_LOCATION
        entry = kube_config.KubeConfigMerger(str(place)).config["users"].get_with_name(where.user, safe=True)
        return impersonation((entry.value.get("user") if entry else None) or {})

    def client(self) -> tuple[Any, Where]:
        """A logged-in ``kubernetes.client.ApiClient`` and where it leads.

        Raises `ClusterError` in one sentence for what is missing or broken.
        """
        from kubernetes import client, config

        path = str(self.kubeconfig) if self.kubeconfig else None
        if self.kubeconfig is not None and not self.kubeconfig.is_file():
            what = f"{self.kubeconfig} is no file" if self.kubeconfig.exists() else f"there is no kubeconfig {path}"
            raise from_config(what)
        try:
            contexts, active = config.list_kube_config_contexts(config_file=path)
        except config.ConfigException as problem:
            if self.kubeconfig is None and self.context is None and (_ACCOUNT / "token").is_file():
                config.load_incluster_config()
                api = client.ApiClient()
                return api, Where("in-cluster", api.configuration.host, _own_namespace())
            raise from_config(f"the kubeconfig cannot be read: {_reason(problem)}") from None
        except Exception as problem:  # a kubeconfig that is no YAML, or of another shape: whatever the library trips on
            raise from_config(f"the kubeconfig cannot be read: {_reason(problem)}") from None
        return self._chosen(contexts, active, path)

    def _chosen(self, contexts: list[Any], active: Any, path: str | None) -> tuple[Any, Where]:
        from kubernetes import config

        names = [str(item["name"]) for item in contexts]
        wanted = self.context or (active or {}).get("name")
        if wanted not in names:
            raise from_config(f"the kubeconfig has no context {wanted!r}", nearest(str(wanted), names) or names)
        chosen = next(item for item in contexts if item["name"] == wanted)
        with _complaints() as said:
            try:
                api = config.new_client_from_config(config_file=path, context=wanted)
            except Exception as problem:  # certificates that do not exist, plugins that are missing, wrong types
                raise from_config(f"context {wanted!r} cannot be used: {_reason(problem)}") from None
        if said:
            raise from_config(f"logging in to context {wanted!r} failed: {said[0]}")
        inside = chosen.get("context", {})
        where = Where(wanted, api.configuration.host, inside.get("namespace") or "default", str(inside.get("user", "")))
        return api, where

    def words(self) -> list[str]:
        """The options that lead helm to the same cluster."""
        return ["--kube-context", self.context] if self.context else []

    def environment(self) -> dict[str, str]:
        """The environment in which another program finds the same kubeconfig."""
        extra = {"KUBECONFIG": str(self.kubeconfig)} if self.kubeconfig else {}
        return {**os.environ, **extra}


class _Login:
    """The header by `kubernetes`, which looks anew, and renews a token that has run out, each time it is asked: that
    takes longer than many a request, so it is asked now and then."""

    def __init__(self, api: Any, more: Mapping[str, str]) -> None:
        self._api = api
        self._more = more
        self._until = 0.0
        self._found: Mapping[str, str] = {}

    def __call__(self) -> Mapping[str, str]:
        if time.monotonic() >= self._until:
            found = dict(self._more)
            self._api.update_params_for_auth(found, [], ["BearerToken"], "", "GET", None)
            self._found, self._until = found, time.monotonic() + LOGIN_SECONDS
        return self._found


@contextlib.contextmanager
def _complaints() -> Iterator[list[str]]:
    """What the library logs as an error while it logs in: that an exec plugin failed is said nowhere else."""
    said: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(_first_line(record.getMessage()))

    listener = Listener(logging.ERROR)
    root = logging.getLogger()
    root.addHandler(listener)
    try:
        yield said
    finally:
        root.removeHandler(listener)


def _reason(problem: Exception) -> str:
    """What is wrong with a kubeconfig; whatever the library trips on says nothing to a person."""
    said = _first_line(problem)
    if "SOCKS" in said:
        return "its proxy speaks SOCKS, for which the Python package PySocks is missing here"
    if isinstance(problem, AttributeError | KeyError | TypeError) or " object at 0x" in said:
        return "an entry of it has another form than kubectl writes"
    return said


def _first_line(problem: object) -> str:
    return (str(problem).strip().splitlines() or [type(problem).__name__])[0][:300]


def _own_namespace() -> str:
    path = _ACCOUNT / "namespace"
    return path.read_text(encoding="utf-8").strip() if path.is_file() else "default"


__all__ = ["CONNECTIONS", "Access", "Connection", "Where"]
