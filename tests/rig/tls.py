"""A server on loopback behind the API server's certificate, which names 127.0.0.1: for what clients trust as they trust
the API server."""

from __future__ import annotations

import contextlib
import http.server
import ssl
import threading
from collections.abc import Iterator
from typing import Any

from tests.rig.controlplane import ControlPlane


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away, or does not trust the certificate, is no error here."""


@contextlib.contextmanager
def serving(plane: ControlPlane, handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[int]:
    """Serve while inside; its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(plane.authority, plane.directory / "apiserver.key")
    with _Server(("127.0.0.1", 0), handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
