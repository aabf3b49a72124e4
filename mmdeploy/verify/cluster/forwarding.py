"""Requests through forwarded ports: each connection is one of the API server's to a pod, and HTTP runs on it as on any.

A Service is reached by a pod behind it, as with kubectl: its own load balancing takes no part.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mmdeploy.errors import ClusterError, ForbiddenError
from mmdeploy.verify.cluster.backends import Backends
from mmdeploy.verify.cluster.places import Place, place
from mmdeploy.verify.transport import Answer, HttpTransport, Request

if TYPE_CHECKING:
    from mmdeploy.cluster.channels import Forwarded
    from mmdeploy.cluster.session import Session

KEPT = 4
"""Connections that are kept open to one port."""


class ForwardTransport(HttpTransport):
    """See the module. Safe to use from several threads."""

    def __init__(self, session: Session, backends: Backends, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` gives seconds."""
        super().__init__(clock)
        self._ports = _Ports(session, backends)
        self._pool: Any = self._ports

    def send(self, request: Request) -> Answer:
        """See `mmdeploy.verify.transport.Transport`."""
        try:
            answer = super().send(request)
        except ForbiddenError as problem:
            return Answer(None, trouble="forbidden", detail=problem.found)
        except ClusterError as problem:
            return Answer(None, trouble="unreachable", detail=problem.found)
        said = self._ports.said(request.endpoint.url) if answer.trouble and answer.status is None else ""
        return replace(answer, trouble="unreachable", detail=said) if said else answer

    def close(self) -> None:
        """End every connection."""
        self._ports.close()


class _Ports:
    """Pools of connections, one a port of a pod; looks to `HttpTransport` like one pool of everything."""

    def __init__(self, session: Session, backends: Backends) -> None:
        self._session, self._backends = session, backends
        self._pools: dict[Place, Any] = {}
        self._opened: dict[Place, list[Forwarded]] = {}
        self._lock = threading.Lock()

    def request(self, method: str, url: str, **options: Any) -> Any:
        """As `urllib3.PoolManager.request`. Raises `ClusterError`."""
        asked = place(url)
        target = self._backends.pod(asked) if asked else None
        if target is None:
            raise ClusterError(f"no ready pod stands behind {url}")
        options.pop("redirect", None)
        options["retries"] = False
        return self._pool(replace(target, path="")).request(method, target.path or "/", redirect=False, **options)

    def said(self, url: str) -> str:
        """What the node said of the last connection."""
        asked = place(url)
        target = self._backends.pod(asked) if asked else None
        opened = self._opened.get(replace(target, path=""), []) if target else []
        return opened[-1].error if opened else ""

    def close(self) -> None:
        """Close all of them."""
        for pool in self._pools.values():
            pool.close()
        for opened in self._opened.values():
            for each in opened:
                each.close()

    def _pool(self, target: Place) -> Any:
        with self._lock:
            if target not in self._pools:
                self._pools[target] = self._made(target)
            return self._pools[target]

    def _made(self, target: Place) -> Any:
        import urllib3

        from mmdeploy.cluster.channels import forward
        from mmdeploy.verify.deadlines import Plain

        opened = self._opened.setdefault(target, [])
        session = self._session

        class Connection(Plain):
            """HTTP on a forwarded port."""

            def _new_conn(self) -> Any:
                found = forward(session, target.namespace, target.name, target.port)
                opened.append(found)
                found.socket.settimeout(self.timeout if isinstance(self.timeout, float | int) else None)
                return found.socket

        class Pool(urllib3.HTTPConnectionPool):
            ConnectionCls = Connection

        return Pool(f"{target.name}.{target.namespace}", target.port, maxsize=KEPT, block=False)
