"""Files, pipes and devices that a token is read from, and what is pasted where a path belongs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mmdeploy.apply.secret import TokenSource
from mmdeploy.errors import UsageError

TOKEN = "hf_0123456789secret"


def refused(said: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        TokenSource.of(said).read()
    assert caught.value.next_step
    return caught.value


def test_a_device_without_end_is_read_no_further_than_a_token_goes() -> None:
    assert "more than 64 KiB" in refused("file:/dev/zero").found


def test_a_pipe_is_read_to_its_end() -> None:
    read, write = os.pipe()
    os.write(write, f"{TOKEN}\n".encode())
    os.close(write)
    try:
        assert TokenSource.of(f"file:/dev/fd/{read}").read() == TOKEN
    finally:
        os.close(read)


@pytest.mark.parametrize("pasted", [TOKEN, f"./{TOKEN}", "api_org_AbCdEfGhIjKlMnOpQrStUvWx"])
def test_a_token_that_was_taken_for_a_path_is_not_repeated(pasted: str) -> None:
    problem = refused(f"file:{pasted}")
    assert pasted.removeprefix("./") not in f"{problem.found} {problem.origin} {problem.next_step}"
    assert "<masked>" in str(problem.origin)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "there is no token: it is empty"),
        (b"one two", "that is no token: it holds blanks, several lines, or too much"),
        (b"\xff\xfe", "the token cannot be read: no text"),
    ],
)
def test_what_is_wrong_with_a_file_has_a_next_step(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(content)
    assert refused(f"file:{tmp_path / 'token'}").found == said


def test_a_variable_that_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_TOKEN", raising=False)
    problem = refused("env:MY_TOKEN")
    assert problem.found == "there is no token: the variable is not set, or empty"
    assert problem.next_step == "export MY_TOKEN=…"
