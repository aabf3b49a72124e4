"""``--timeout`` is about the whole of a request: the look-up of a name and TLS have their part in it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from mmdeploy.verify.targets import Endpoint
from mmdeploy.verify.transport import HttpTransport, Request

SECONDS = 0.4
DRIP = 0.05
LATEST = 1.5  # a busy machine has its part in it; without an end these would take 10 s and more


@contextmanager
def dripping(first: bytes) -> Iterator[int]:
    """A port that reads what comes, answers ``first``, and then a zero byte now and then."""
    listener = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def serve() -> None:
        try:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(first)
                while not ended.wait(DRIP):
                    connection.sendall(b"\0")
        except OSError:
            return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        ended.set()
        listener.close()
        thread.join(5)


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(b"", id="before the first record"),
        # RFC 8446 §5.1: a handshake record (22) of version 3.3 that is 16,384 bytes long, and then comes byte by byte
        pytest.param(b"\x16\x03\x03\x40\x00\x02", id="within the handshake"),
    ],
)
def test_tls_that_drips_is_a_timeout(first: bytes) -> None:
    with dripping(first) as port:
        got = HttpTransport().send(Request(Endpoint("pod", f"https://127.0.0.1:{port}"), SECONDS))
    assert got.status is None
    if first:
        assert (got.trouble, got.detail) == ("timeout", f"nothing within {SECONDS:g} s")
    else:
        assert got.trouble in ("timeout", "tls")  # a zero byte is no record: OpenSSL may say so at once
    assert got.seconds < LATEST


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Name → address, seconds until it is known, or nothing; other names are looked up as ever."""
    known: dict[str, Any] = {}
    real = socket.getaddrinfo
    ended = threading.Event()

    def look_up(host: str, port: Any, *more: Any, **named: Any) -> Any:
        if host not in known:
            return real(host, port, *more, **named)
        addresses = known[host]
        if isinstance(addresses, float):
            ended.wait(addresses)
            addresses = ["127.0.0.1"]
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    yield known
    ended.set()


def test_a_name_that_is_not_found_in_time_is_a_timeout(names: dict[str, Any]) -> None:
    names["slow.example"] = 30.0
    for scheme in ("http", "https"):
        got = HttpTransport().send(Request(Endpoint("entry", f"{scheme}://slow.example"), SECONDS))
        assert (got.status, got.trouble) == (None, "timeout")
        assert got.seconds < LATEST


def test_a_name_that_is_not_known_is_unreachable(names: dict[str, Any]) -> None:
    names["none.example"] = []
    got = HttpTransport().send(Request(Endpoint("entry", "http://none.example"), 5))
    assert (got.status, got.trouble) == (None, "unreachable")
    assert "not known" in got.detail


@contextmanager
def answering() -> Iterator[tuple[int, list[bytes]]]:
    """A port on 127.0.0.1 that answers each connection once, and what was asked."""
    listener = socket.create_server(("127.0.0.1", 0))
    asked: list[bytes] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                asked.append(connection.recv(65536))
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1], asked
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


def test_the_next_address_of_a_name_is_tried_and_the_name_stays_the_host(names: dict[str, Any]) -> None:
    """127.0.0.2 is this machine as well, and nobody listens there."""
    names["two.example"] = ["127.0.0.2", "127.0.0.1"]
    with answering() as (port, asked):
        got = HttpTransport().send(Request(Endpoint("entry", f"http://two.example:{port}"), 5))
    assert (got.status, got.body) == (200, b"ok")
    assert f"host: two.example:{port}".encode() in asked[0].lower()


def test_a_request_in_time_leaves_nothing_behind(names: dict[str, Any]) -> None:
    names["one.example"] = ["127.0.0.1"]
    transport = HttpTransport()
    with answering() as (port, _):
        before = threading.active_count()
        for _ in range(3):
            assert transport.send(Request(Endpoint("entry", f"http://one.example:{port}"), 5)).status == 200
        for _ in range(50):
            if threading.active_count() <= before:
                break
            time.sleep(0.01)  # a thread that has ended is counted a moment longer
        assert threading.active_count() <= before
