"""Servers that say what no server should: verify ends with verdicts, and keeps only what it can keep."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path

import pytest

from mmdeploy.errors import UsageError
from mmdeploy.verify import answers, scraping
from mmdeploy.verify.targets import Endpoint
from mmdeploy.verify.transport import Answer, HttpTransport, Request
from tests.verify.test_scraping import VLLM, answer
from tests.verify.test_transport import server

DEEP = b"[" * 100_000  # json of CPython gives up at its recursion limit, 1,000 unless changed


def reading(body: bytes, streamed: bool = False) -> answers.Reading:
    return answers.read(Answer(200, {}, ((0.0, body),)), streamed)


@pytest.mark.parametrize("value", ["NaN", "1e999", "-Infinity", '"many"', "[1]", "true", "1" * 400, '{"a": 1}'])
def test_usage_holds_numbers_alone(value: str) -> None:
    body = f'{{"usage": {{"prompt_tokens": {value}, "completion_tokens": 2}}}}'.encode()
    assert reading(body).usage == {"completion_tokens": 2}
    assert reading(b"data: " + body + b"\n\n", streamed=True).usage == {"completion_tokens": 2}


def test_details_of_usage_are_kept() -> None:
    said = {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 3}}  # as OpenAI's API has it
    assert reading(json.dumps({"usage": said}).encode()).usage == said


def test_half_a_surrogate_pair_is_a_question_mark() -> None:
    found = reading(b'{"model": "m\\ud800", "choices": [{"message": {"content": "a\\udfff"}}]}')
    assert (found.text, found.fields["model"]) == ("a?", "m?")


def test_what_is_nested_without_end_is_no_answer() -> None:
    assert reading(DEEP).error.startswith("[[[")
    assert reading(b"data: " + DEEP + b"\n\n", streamed=True).text == ""
    within = reading(b'{"ec_transfer_params": ' + b"[" * 500 + b"]" * 500 + b"}")
    assert len(json.dumps(within.fields)) < 200


def test_names_that_are_no_text_are_left_out() -> None:
    found = reading(b'{"data": [{"id": ["a"]}, {"id": "b"}, {"id": null}], "version": ["1"], "model": 3}')
    assert found.fields == {"models": ["b"]}


@pytest.mark.parametrize("value", ["NaN", "+Inf", "1e300", "-Inf"])
def test_a_counter_that_is_no_number_makes_no_page(value: str) -> None:
    page = scraping.page("decode-0", "start", 0, answer(f"vllm:request_success_total {value}\nvllm:x 1\n"), VLLM)
    assert page.missing == "garbled"
    assert "vllm:request_success_total" in page.detail


def test_a_gauge_that_is_no_number_is_left_out() -> None:
    body = "vllm:num_requests_running NaN\nvllm:request_success_total 2\n"
    page = scraping.page("decode-0", "start", 0, answer(body), VLLM)
    assert [(item.name, item.value) for item in page.samples] == [("vllm:request_success_total", 2.0)]


@pytest.mark.parametrize("place", ["headers", "body"])
def test_an_answer_that_drips_ends_in_time(place: str) -> None:
    def drip(connection: socket.socket, request: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n" + (b"" if place == "headers" else b"\r\n"))
        try:
            for number in range(80):
                connection.sendall(b"x-%d: y\r\n" % number)
                time.sleep(0.05)
        except OSError:
            return

    with server(drip) as url:
        got = HttpTransport().send(Request(Endpoint("entry", url), 0.3, "POST", "/x", body=b"{}"))
    assert got.trouble == "timeout"
    assert got.seconds < 0.8


@pytest.mark.parametrize("secret", ["open\nsesame", "open\x00sesame", "open sesame", "öffne-dich", " \n", "a\r\nx: y"])
def test_a_token_that_no_header_holds_is_refused_unseen(secret: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(secret, encoding="utf-8")
    with pytest.raises(UsageError) as raised:
        HttpTransport().send(Request(Endpoint("picker", "http://127.0.0.1:9", f"file:{file}"), 1, path="/"))
    told = f"{raised.value.found} {raised.value.next_step}"
    assert not secret.strip() or not any(word in told for word in ("sesame", "öffne"))
    assert "one word of printable ASCII" in told


def test_a_header_that_cannot_be_written_is_not_quoted() -> None:
    headers = {"authorization": "Bearer open\nsesame"}
    got = HttpTransport().send(Request(Endpoint("picker", "http://127.0.0.1:9"), 1, path="/", headers=headers))
    assert got.trouble == "unreachable"
    assert "sesame" not in got.detail
