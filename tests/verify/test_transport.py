"""Plain HTTP against servers that behave, and some that do not."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from mmdeploy.verify import answers
from mmdeploy.verify.targets import Endpoint
from mmdeploy.verify.transport import HttpTransport, Request

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@contextmanager
def server(answer: Callable[[socket.socket, bytes], None]) -> Iterator[str]:
    """Answers every connection once; gives its address."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                answer(connection, connection.recv(65536))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


def test_the_first_token_is_timed_by_the_piece_that_holds_it() -> None:
    pieces = [
        b'data: {"choices": [{"delta": {"role": "assistant", "content": ""}}]}\n\n',
        b'data: {"model": "m", "choices": [{"delta": {"content": "Re"}}]}\n\n',
        b'data: {"choices": [{"delta": {"content": "d."}, "finish_reason": "stop"}]}\n\n'
        b'data: {"choices": [], "usage": {"prompt_tokens": 94}}\n\ndata: [DONE]\n\n',
    ]

    def answer(connection: socket.socket, request: bytes) -> None:
        connection.sendall(HEAD + chunk(pieces[0]))
        time.sleep(0.2)
        connection.sendall(chunk(pieces[1]))
        time.sleep(0.2)
        connection.sendall(chunk(pieces[2]) + b"0\r\n\r\n")

    with server(answer) as url:
        got = HttpTransport().send(Request(Endpoint("entry", url), 5, "POST", "/x", body=b"{}"))
    reading = answers.read(got, streamed=True)
    assert (reading.text, reading.usage, reading.fields["model"]) == ("Red.", {"prompt_tokens": 94}, "m")
    assert reading.first is not None
    assert 0.2 <= reading.first < got.seconds - 0.1


def test_a_stream_that_breaks_off_is_cut() -> None:
    def answer(connection: socket.socket, request: bytes) -> None:
        connection.sendall(HEAD + chunk(b'data: {"choices": [{"delta": {"content": "Re"}}]}\n\n'))

    with server(answer) as url:
        got = HttpTransport().send(Request(Endpoint("entry", url), 5, "POST", "/x", body=b"{}"))
    assert (got.status, got.trouble) == (200, "cut")
    assert answers.read(got, streamed=True).error.startswith("cut")


def test_an_answer_that_takes_too_long_is_a_timeout() -> None:
    def answer(connection: socket.socket, request: bytes) -> None:
        time.sleep(0.6)

    with server(answer) as url:
        got = HttpTransport().send(Request(Endpoint("entry", url), 0.2, "POST", "/x", body=b"{}"))
    assert (got.status, got.trouble) == (None, "timeout")
    assert got.seconds < 0.5


def test_an_endless_trickle_is_a_timeout_too() -> None:
    def answer(connection: socket.socket, request: bytes) -> None:
        connection.sendall(HEAD)
        try:
            for _ in range(100):
                connection.sendall(chunk(b": still there\n"))
                time.sleep(0.05)
        except OSError:
            return

    with server(answer) as url:
        got = HttpTransport().send(Request(Endpoint("entry", url), 0.3, "POST", "/x", body=b"{}"))
    assert got.trouble == "timeout"
    assert got.seconds < 1


def test_nobody_there_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    got = HttpTransport().send(Request(Endpoint("entry", f"http://127.0.0.1:{port}"), 2, path="/"))
    assert (got.status, got.trouble) == (None, "unreachable")
    assert "refused" in got.detail


def test_a_connection_that_ended_meanwhile_is_made_again_for_a_get_only() -> None:
    seen: list[bytes] = []

    def answer(connection: socket.socket, request: bytes) -> None:
        seen.append(request)
        if len(seen) != 1:
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

    with server(answer) as url:
        got = HttpTransport().send(Request(Endpoint("pod", url), 2, path="/"))
        assert (got.status, got.body, len(seen)) == (200, b"ok", 2)
        seen.clear()
        got = HttpTransport().send(Request(Endpoint("pod", url), 2, "POST", "/", body=b"{}"))
    assert (got.status, got.trouble, len(seen)) == (None, "cut", 1)


def test_tls_where_plain_http_was_meant_the_other_way_round() -> None:
    def answer(connection: socket.socket, request: bytes) -> None:
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")

    with server(answer) as url:
        got = HttpTransport().send(Request(Endpoint("pod", url.replace("http:", "https:")), 2, path="/"))
    assert got.status is None
    assert got.trouble == "tls"


def test_the_token_travels_as_a_header(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []

    def answer(connection: socket.socket, request: bytes) -> None:
        seen.append(request)
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    monkeypatch.setenv("PICKER_TOKEN", "sesame")
    with server(answer) as url:
        HttpTransport().send(Request(Endpoint("picker", url, "env:PICKER_TOKEN"), 2, path="/metrics"))
    assert b"bearer sesame" in seen[0].lower()


SAYS = [
    (b'{"choices": [{"message": {"content": "ok"}}]}', 200, "ok", ""),
    (b'{"choices": [{"message": {"content": null, "reasoning_content": "hm"}}]}', 200, "hm", ""),
    (b'{"choices": [{"message": {"content": [{"type": "text", "text": "a"}]}}]}', 200, "a", ""),
    (b'{"choices": []}', 200, "", ""),
    (b"upstream request timeout", 504, "", "upstream request timeout"),
    (b'{"error": {"message": "no"}}', 404, "", '{"error": {"message": "no"}}'),
    (b"[1]", 200, "", "[1]"),
]
NAMES = ["an answer", "thoughts of a model that was cut short", "parts", "no choice", "a proxy", "an error", "a list"]


@pytest.mark.parametrize(("body", "status", "text", "error"), SAYS, ids=NAMES)
def test_what_an_answer_says(body: bytes, status: int, text: str, error: str) -> None:
    def answer(connection: socket.socket, request: bytes) -> None:
        connection.sendall(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body))

    with server(answer) as url:
        got = HttpTransport().send(Request(Endpoint("entry", url), 5, "POST", "/x", body=b"{}"))
    reading = answers.read(got, streamed=False)
    assert (got.status, reading.text, reading.error) == (status, text, error)
