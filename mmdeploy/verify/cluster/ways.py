"""Which way requests take: one for addresses of the cluster, plain HTTP for all others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mmdeploy.verify.cluster.places import SCHEMES

if TYPE_CHECKING:
    from mmdeploy.verify.transport import Answer, Request, Transport


@dataclass
class Ways:
    """Sends each request the way that its address asks for."""

    inside: Transport
    """For ``pod://`` and ``service://``."""
    outside: Transport
    """For ``http://`` and ``https://``."""

    def send(self, request: Request) -> Answer:
        """See `mmdeploy.verify.transport.Transport`."""
        way = self.inside if request.endpoint.url.partition("://")[0] in SCHEMES else self.outside
        return way.send(request)
