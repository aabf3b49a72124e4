"""Sockets: many pods in one process, told apart by port or by address; connections kept, refused and cut."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from mmdeploy.errors import UsageError
from mmdeploy.rehearse.listeners import Doors, Listeners
from mmdeploy.rehearse.messages import Handler, Message, Reply, UnreachableError
from tests.rehearse.client import Start

Open = Callable[[Doors], int]


@pytest.fixture
def opened() -> Iterator[Open]:
    """Opens doors on a free port of every address of this machine."""
    running: list[Listeners] = []

    def listen(doors: Doors) -> int:
        listeners = Listeners(doors)
        running.append(listeners)
        port = listeners.open("0.0.0.0")
        listeners.start()
        return port

    yield listen
    for listeners in running:
        listeners.close()


def get(port: int, path: str = "/", host: str = "127.0.0.1") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(host, port, timeout=10)
    try:
        connection.request("GET", path)
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()


def echo(message: Message) -> Reply:
    return Reply(200, f"{message.method} {message.path} {len(message.body)}", "text/plain")


def test_pods_are_told_apart_by_the_connections_own_address(start: Start, opened: Open) -> None:
    """As in the rig: one port for all, and each pod has an address that is local to this machine."""
    deployment = start("e-pd")
    for number, pod in enumerate(deployment.settings.pods, 1):
        pod.ip = f"127.77.0.{number}"

    def door(host: str, port: int) -> Handler | None:
        return deployment.door(host, 8000)

    port = opened(door)
    seen = {get(port, "/metrics", pod.ip)[0] for pod in deployment.settings.pods}
    assert seen == {200}
    assert b'finished_reason="stop"' in get(port, "/metrics", "127.77.0.1")[1]
    with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
        get(port, "/metrics", "127.77.0.99")


def test_a_connection_serves_request_after_request(opened: Open) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", opened(lambda host, port: echo), timeout=10)
    for size in (0, 10, 100_000):
        connection.request("POST", "/path", b"x" * size)
        reply = connection.getresponse()
        assert reply.read() == f"POST /path {size}".encode()
    connection.close()


def exchange(port: int, request: bytes) -> bytes:
    """What comes back until the other side closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as raw:
        raw.sendall(request)
        return b"".join(iter(lambda: raw.recv(4096), b""))


CHUNKED = b"POST /x HTTP/1.1\r\nhost: a\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"


def test_a_body_in_pieces_is_put_together(opened: Open) -> None:
    """An API server's proxy passes requests on so."""
    port = opened(lambda host, port: echo)
    assert exchange(port, CHUNKED + b"3\r\nabc\r\n5;x=y\r\ndefgh\r\n0\r\n\r\n").endswith(b"POST /x 8")


@pytest.mark.parametrize("size", [b"-5", b"many", b"FFFFFFFF"])
def test_a_piece_of_no_size_ends_the_connection(opened: Open, size: bytes) -> None:
    assert exchange(opened(lambda host, port: echo), CHUNKED + size + b"\r\nabc\r\n") == b""


def test_chunks_leave_as_they_are_made(opened: Open) -> None:
    gate = threading.Event()

    def streaming(message: Message) -> Reply:
        def chunks() -> Iterator[bytes]:
            yield b"first"
            assert gate.wait(10)
            yield b"second"

        return Reply(200, chunks=chunks())

    connection = http.client.HTTPConnection("127.0.0.1", opened(lambda host, port: streaming), timeout=10)
    connection.request("GET", "/")
    reply = connection.getresponse()
    assert reply.read(5) == b"first"
    gate.set()
    assert reply.read() == b"second"
    connection.close()


def test_what_is_unreachable_is_cut_and_not_answered(opened: Open) -> None:
    def unreachable(message: Message) -> Reply:
        raise UnreachableError("gone")

    with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
        get(opened(lambda host, port: unreachable))


def test_head_gets_no_body(opened: Open) -> None:
    request = b"HEAD /x HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
    head, _, rest = exchange(opened(lambda host, port: echo), request).partition(b"\r\n\r\n")
    assert b"content-length: 9" in head
    assert rest == b""


@pytest.mark.parametrize("length", ["many", "999999999999"])
def test_a_length_that_cannot_be_is_refused(opened: Open, length: str) -> None:
    with socket.create_connection(("127.0.0.1", opened(lambda host, port: echo)), timeout=10) as raw:
        raw.sendall(f"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n".encode())
        assert raw.recv(4096).startswith(b"HTTP/1.1 4")


def test_a_taken_port_says_so(opened: Open) -> None:
    port = opened(lambda host, port: echo)
    second = Listeners(lambda host, port: echo)
    with pytest.raises(UsageError, match="in use"):
        second.open("0.0.0.0", port)
    second.close()


def test_threads_end_with_the_rehearsal(opened: Open) -> None:
    before = threading.active_count()
    listeners = Listeners(lambda host, port: echo)
    port = listeners.open("127.0.0.1")
    listeners.start()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/")
    connection.getresponse().read()
    listeners.close()
    for thread in threading.enumerate():
        if thread.name.startswith(("Thread-", "listeners")) and thread is not threading.main_thread():
            thread.join(10)
    assert threading.active_count() <= before
    connection.close()
