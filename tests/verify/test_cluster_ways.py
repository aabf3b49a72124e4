"""Parts of the ways into a cluster that need none: addresses, what curl is told and says, how kubectl is spelled."""

from __future__ import annotations

import http.server
import shutil
import subprocess
import threading
from collections.abc import Iterator

import pytest

from mmdeploy.verify.cluster.backends import Backends
from mmdeploy.verify.cluster.clientpod import _config, parsed, words
from mmdeploy.verify.cluster.looking import Seen
from mmdeploy.verify.cluster.places import Place, place, pod_url, service_url
from mmdeploy.verify.cluster.proxying import own_words
from mmdeploy.verify.cluster.spelling import speller
from mmdeploy.verify.targets import Endpoint
from mmdeploy.verify.transport import Answer, Request
from tests.verify.clusters import bundle, seen


def test_addresses_survive_names_with_dots() -> None:
    found = place(pod_url("ns", "decode-0.with.dots", 8000, "/metrics"))
    assert found == Place("pod", "ns", "decode-0.with.dots", 8000, "/metrics")
    assert found.proxied() == "/api/v1/namespaces/ns/pods/decode-0.with.dots:8000/proxy/metrics"
    service = place(service_url("ns", "mm-epp", 80))
    assert service is not None
    assert service.proxied("/v1/models") == "/api/v1/namespaces/ns/services/mm-epp:80/proxy/v1/models"
    assert place("http://127.0.0.1:8000") is None


def test_a_service_leads_to_a_ready_pod_s_own_port() -> None:
    meant = bundle("main/aggregation/gpu/vllm/base")
    there = seen(meant)
    asked = place(service_url(meant.namespace, f"{meant.name}-epp", 80))
    assert asked is not None
    # The chart's Service has port 80 for Envoy's 8081: router.md §4.3.
    assert Backends(there, {}).pod(asked) == Place("pod", meant.namespace, f"{meant.name}-epp-7c-x2x4z", 8081)
    unseen = Seen(**{**vars(there), "services": []})
    assert Backends(unseen, {80: 8081}).pod(asked) == Backends(there, {}).pod(asked)
    picker = next(pod for pod in there.pods if "epp" in pod["metadata"]["name"])
    picker["status"] = {"phase": "Running", "podIP": "10.244.9.9", "conditions": [{"type": "Ready", "status": "False"}]}
    assert Backends(there, {}).pod(asked) is None


def test_kubectl_is_spelled_so_that_a_shell_takes_it() -> None:
    spell = speller(["--context", "my cluster"])
    url = service_url("ns", "mm-epp", 80)
    got = spell(Request(Endpoint("entry", url), 5, path="/v1/models"))
    assert got == ("kubectl --context 'my cluster' get --raw /api/v1/namespaces/ns/services/mm-epp:80/proxy/v1/models")
    sent = spell(Request(Endpoint("entry", url), 5, "POST", "/v1/chat/completions", body=b'{"it\'s": 1}'))
    printed = subprocess.run(
        ["sh", "-c", sent.partition(" | ")[0]], capture_output=True, text=True, check=True
    ).stdout  # fmt: skip
    assert printed == '{"it\'s": 1}'
    assert sent.endswith("create --raw /api/v1/namespaces/ns/services/mm-epp:80/proxy/v1/chat/completions -f -")
    assert spell(Request(Endpoint("entry", "http://x"), 5, path="/v1/models")).startswith("curl ")


def test_only_the_api_server_s_own_words_are_taken_for_them() -> None:
    own = b'{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","code":403}'
    assert own_words(Answer(403, pieces=((0.0, own),))) == "no"
    assert own_words(Answer(403, pieces=((0.0, b'{"error": {"message": "no"}}'),))) is None
    assert own_words(Answer(403, pieces=((0.0, b"Forbidden"),))) is None


# --------------------------------------------------------------------------------------------- curl, as the pod runs it


class Echo(http.server.BaseHTTPRequestHandler):
    seen: list[tuple[str, str, bytes]] = []

    def do_POST(self) -> None:  # noqa: N802 - the name is the standard library's
        body = self.rfile.read(int(self.headers["content-length"]))
        self.seen.append((self.path, self.headers.get("authorization", ""), body))
        self.send_response(201)
        self.send_header("X-Kind", "echo")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def echo() -> Iterator[str]:
    Echo.seen.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("head")), reason="needs curl and head")
def test_curl_sends_exactly_the_body_and_no_secret_stands_in_its_arguments(echo: str) -> None:
    body = '{"text": "a \\"quoted\\" \\\\ backslash\\n, ünïcode and %s"}'.encode()
    said = _config(
        Request(Endpoint("entry", "service://a.b:80"), 5, "POST", "/v1/x?y=1", body=body), echo,
        {"authorization": "Bearer s3cret"},
    )  # fmt: skip
    command = words(len(said))
    assert not any("s3cret" in word for word in command)
    # Its input stays open, as a container's does.
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdin
        assert program.stdout
        program.stdin.write(said)
        program.stdin.flush()
        out = program.stdout.read()
        assert program.wait(10) == 0
    status, headers, pieces = parsed([(0.1, out[:10]), (0.2, out[10:])])
    assert Echo.seen == [("/v1/x?y=1", "Bearer s3cret", body)]
    assert (status, headers["x-kind"]) == (201, "echo")
    assert b"".join(data for _, data in pieces) == body


def test_an_answer_that_never_came_has_no_status() -> None:
    assert parsed([]) == (None, {}, ())
    assert parsed([(0.1, b"HTTP/1.1 200 OK\r\ncontent-")]) == (None, {}, ())
