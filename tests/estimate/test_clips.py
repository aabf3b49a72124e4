"""Headers of videos and sounds, in files that the tests make."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmdeploy.errors import UsageError
from mmdeploy.estimator import items
from mmdeploy.estimator.clips import ClipHeader, read_movie, read_wave
from mmdeploy.estimator.items import Clip, Picture, Sound
from tests.estimate.media import box, data_url, movie, png, sound, webp


def read(data: bytes) -> ClipHeader:
    return read_movie(io.BytesIO(data), len(data))


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("moov_first", [True, False])
def test_a_movie_says_its_size_length_and_frames(version: int, moov_first: bool) -> None:
    clip = read(movie(1920, 1080, frames=250, ticks=1001, scale=24000, version=version, moov_first=moov_first))
    assert (clip.width, clip.height, clip.frames) == (1920, 1080, 250)
    assert clip.duration == pytest.approx(250 * 1001 / 24000)
    assert clip.fps == pytest.approx(24000 / 1001)


def test_a_fragmented_movie_has_a_size_but_no_frames() -> None:
    assert read(movie(frames=0)).fps == 0


@pytest.mark.parametrize("kept", [8, 40, 100_050, 100_700, -10])
def test_a_movie_that_is_cut_off_is_refused(kept: int) -> None:
    with pytest.raises(UsageError, match="cut off|index|damaged"):
        read(movie()[:kept])


def test_a_movie_without_video_is_refused() -> None:
    with pytest.raises(UsageError, match="no video track"):
        read(box(b"ftyp", b"M4A ", bytes(4)) + box(b"moov", box(b"mvhd", bytes(100))))


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 900), st.binary(min_size=1, max_size=8))
def test_a_damaged_movie_raises_nothing_but_the_refusal(at: int, junk: bytes) -> None:
    data = bytearray(movie(moov_first=True)[:2000])
    data[at : at + len(junk)] = junk
    with contextlib.suppress(UsageError):
        read(bytes(data))


@pytest.mark.parametrize(("seconds", "rate"), [(0.5, 16000), (30, 8000), (2.25, 44100)])
def test_a_wave_file_says_its_length(seconds: float, rate: int) -> None:
    assert read_wave(io.BytesIO(sound(seconds, rate))) == pytest.approx(seconds, abs=1 / rate)


@pytest.mark.parametrize("data", [b"RIFF", sound(1)[:30], sound(0), b"RIFF\0\0\0\0WAVEjunk"])
def test_a_broken_wave_file_is_refused(data: bytes) -> None:
    with pytest.raises(UsageError):
        read_wave(io.BytesIO(data))


def test_files_become_items(tmp_path: Path) -> None:
    for name, data in {
        "a.png": png(300, 200),
        "b.webp": webp(300, 200),
        "c.mp4": movie(640, 360, frames=48, ticks=1, scale=24),
        "d.wav": sound(2),
        "e.mp3": b"ID3" + bytes(297),
        "f.webm": b"\x1aE\xdf\xa3" + bytes(50),
    }.items():
        (tmp_path / name).write_bytes(data)
    found = {path.name: items.file(str(path)).item for path in sorted(tmp_path.iterdir())}
    assert found["a.png"] == Picture(300, 200, "")
    assert found["b.webp"] == Picture(300, 200, "WebP")
    clip = found["c.mp4"]
    assert isinstance(clip, Clip)
    assert (clip.width, clip.height, clip.fps, clip.duration) == (640, 360, 24, 2)
    assert clip.url_bytes == len(data_url((tmp_path / "c.mp4").read_bytes(), "video/mp4"))
    assert found["d.wav"] == Sound(2.0, len(data_url(sound(2), "")) - len("data:;base64,") + 3)
    assert isinstance(found["e.mp3"], Sound)
    assert found["e.mp3"].inline_bytes == 400 + 3
    assert "MP3" in found["e.mp3"].unread
    assert isinstance(found["f.webm"], Clip)
    assert "WebM" in found["f.webm"].unread


def test_a_picture_behind_a_large_profile_is_found(tmp_path: Path) -> None:
    profile = b"\xff\xe2\xff\xff" + bytes(65533)
    frame = b"\xff\xc0\x00\x11\x08\x00\xc8\x01\x2c" + bytes(20)
    (tmp_path / "a.jpg").write_bytes(b"\xff\xd8" + 3 * profile + frame)
    assert items.file(str(tmp_path / "a.jpg")).item == Picture(300, 200, "")


@pytest.mark.parametrize("data", [b"", b"hello, world", png(300, 200)[:18], b"\xff\xd8\xff\xda"])
def test_a_broken_file_is_named(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "broken"
    path.write_bytes(data)
    with pytest.raises(UsageError) as refusal:
        items.file(str(path))
    assert refusal.value.origin == str(path)
