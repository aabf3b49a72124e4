"""Which way requests take: one for addresses of the cluster, plain HTTP for all others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mmdeploy.verify.cluster.places import SCHEMES

if TYPE_CHECKING:
    from mmdeploy.verify.targets import Endpoint
    from mmdeploy.verify.transport import Answer, Transport


@dataclass
class Ways:
    """Sends each request the way that its address asks for."""

    inside: Transport
    """For ``pod://`` and ``service://``."""
    outside: Transport
    """For ``http://`` and ``https://``."""

    def request(
        self,
        endpoint: Endpoint,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None,
        timeout: float,
    ) -> Answer:
        """See `mmdeploy.verify.transport.Transport`."""
        way = self.inside if endpoint.url.partition("://")[0] in SCHEMES else self.outside
        return way.request(endpoint, method, path, headers, body, timeout)
