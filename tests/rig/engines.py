"""Engines that only say which model they serve: what a wait asks when every pod is ready.

One process answers for every pod of the rig's network; see netns.py.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

PORTS = (8000, 8081)  # the pool's target port, and the proxy in the router's pod


def _handler(model: str) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # noqa: N802 - the name is the standard library's
            body = json.dumps({"object": "list", "data": [{"id": model, "object": "model"}]}).encode()
            known = self.path == "/v1/models"
            self.send_response(200 if known else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body) if known else 0))
            self.end_headers()
            if known:
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    return Handler


@contextlib.contextmanager
def serving(model: str, ports: tuple[int, ...] = PORTS) -> Iterator[None]:
    """Have every pod list this model on its ports for a while."""
    servers = [http.server.ThreadingHTTPServer(("0.0.0.0", port), _handler(model)) for port in ports]
    threads = [threading.Thread(target=server.serve_forever, args=(0.05,)) for server in servers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
        for thread in threads:
            thread.join()
