"""Where the token comes from; what is wrong is said without the token."""

from __future__ import annotations

from pathlib import Path

import pytest

from mmdeploy.apply.secret import TokenSource, hidden
from mmdeploy.errors import RejectedError, UsageError

TOKEN = "hf_0123456789secret"


@pytest.mark.parametrize("text", [TOKEN, f"env:{TOKEN}", "env:", "file:", "vault:x", "", "existing:", "ENV:HF_TOKEN"])
def test_what_is_no_place_is_not_repeated(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        TokenSource.of(text)
    problem = caught.value
    assert TOKEN not in f"{problem.found} {problem.origin} {problem.next_step} {problem.nearest}"
    assert "env:HF_TOKEN" in str(problem.next_step)


def test_environment_and_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MY_TOKEN", f" {TOKEN}\n")
    assert TokenSource.of("env:MY_TOKEN").read() == TOKEN
    (tmp_path / "token").write_text(TOKEN + "\n")
    assert TokenSource.of(f"file:{tmp_path / 'token'}").read() == TOKEN
    assert TokenSource.of("existing").read() is None


@pytest.mark.parametrize("content", [b"", b"\n", b"one two", b"a\nb", b"\xff\xfe", b"x" * 5000])
def test_what_is_no_token(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(UsageError):
        TokenSource.of(f"file:{tmp_path / 'token'}").read()


def test_what_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_TOKEN", raising=False)
    for said in ("env:MY_TOKEN", f"file:{tmp_path / 'absent'}", f"file:{tmp_path}"):
        with pytest.raises(UsageError) as caught:
            TokenSource.of(said).read()
        assert said in str(caught.value.origin)


def test_a_refusal_that_repeats_the_token_is_told_without_it() -> None:
    with pytest.raises(RejectedError) as caught, hidden(TOKEN):
        raise RejectedError(f"data.HF_TOKEN: invalid value {TOKEN!r}")
    assert str(caught.value) == caught.value.found == "data.HF_TOKEN: invalid value '***'"
