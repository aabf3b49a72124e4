"""True counts of videos and sounds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmdeploy.catalog.families import Family, load_families
from mmdeploy.errors import UsageError
from mmdeploy.estimator.audio import audio_tokens
from mmdeploy.estimator.video import video_tokens

REPOSITORY = Path(__file__).parents[2]


# model-servers.md section 5, the table of clips (24 frames a second)
@pytest.mark.parametrize(
    ("slug", "seconds", "width", "height", "frames", "visual"),
    [
        ("qwen3-vl", 1, 1280, 720, 4, 1760),
        ("qwen3-vl", 10, 640, 360, 20, 2200),
        ("qwen3-vl", 10, 1280, 720, 20, 8800),
        ("qwen3-vl", 10, 1920, 1080, 20, 11960),
        ("qwen3-vl", 30, 1280, 720, 60, 11700),
        ("qwen3-vl", 60, 1280, 720, 120, 11400),
        ("qwen3-vl", 300, 1280, 720, 600, 9600),
        ("qwen3-vl", 600, 1920, 1080, 768, 10752),
        ("gemma-4", 10, 1280, 720, 32, 2112),
        ("gemma-4", 10, 640, 480, 32, 2016),
        ("gemma-4", 1, 1280, 720, 24, 1584),
    ],
)
def test_clips(
    families: Mapping[str, Family], slug: str, seconds: float, width: int, height: int, frames: int, visual: int
) -> None:
    counted = video_tokens(families[slug], width, height, 24, seconds)
    assert (counted.frames, counted.visual) == (frames, visual)
    assert counted.visual == counted.groups * counted.group_tokens
    assert counted.total == counted.visual + counted.text


# The router's own live test (its PR 2600) reports these prompts of the running engine; 11 tokens are chat template.
@pytest.mark.parametrize(("seconds", "prompt"), [(20, 12061), (60, 11941), (90, 11611)])
def test_text_between_the_frames(families: Mapping[str, Family], seconds: float, prompt: int) -> None:
    assert video_tokens(families["qwen3-vl"], 1280, 720, 24, seconds).total + 11 == prompt


def test_single_frame_is_a_full_group(families: Mapping[str, Family]) -> None:
    counted = video_tokens(families["qwen3-vl"], 1280, 720, 24, 0.01)
    assert (counted.frames, counted.groups, counted.visual) == (1, 1, 880)


def test_odd_frames_fill_a_group(families: Mapping[str, Family]) -> None:
    counted = video_tokens(families["qwen3-vl"], 640, 480, 24, 3.5)
    assert (counted.frames, counted.groups) == (7, 4)


def test_video_budget_is_not_the_image_budget(families: Mapping[str, Family]) -> None:
    large = families["gemma-4"].with_setting("Gemma-4 (max_soft_tokens=1120)")
    assert video_tokens(large, 1280, 720, 24, 10).visual == 2112


FAMILIES = load_families(REPOSITORY / "blueprints")


@settings(max_examples=200, deadline=None)
@given(
    width=st.integers(32, 8000),
    height=st.integers(41, 6400),
    fps=st.floats(0.5, 240),
    seconds=st.floats(0.01, 5000),
)
def test_every_clip_costs_something(width: int, height: int, fps: float, seconds: float) -> None:
    for slug in ("qwen3-vl", "gemma-4"):
        counted = video_tokens(FAMILIES[slug], width, height, fps, seconds)
        assert counted.visual >= counted.groups >= 1
        assert counted.text > 0


@pytest.mark.parametrize(("size", "fps", "seconds"), [((0, 5), 24, 1), ((5, 5), 0, 1), ((5, 5), 24, -1)])
def test_video_without_content(
    families: Mapping[str, Family], size: tuple[int, int], fps: float, seconds: float
) -> None:
    with pytest.raises(UsageError, match="no content"):
        video_tokens(families["qwen3-vl"], *size, fps, seconds)


def test_unknown_video_and_audio(families: Mapping[str, Family]) -> None:
    with pytest.raises(UsageError, match="how InternVL 3/3.5 counts videos is not known"):
        video_tokens(families["internvl"], 640, 480, 24, 1)
    with pytest.raises(UsageError, match="counts sounds is not known"):
        audio_tokens(families["qwen3-vl"], 1)


# model-servers.md section 5, "Audio"
@pytest.mark.parametrize(("seconds", "tokens"), [(0.5, 7), (1, 13), (10, 130), (60, 780), (0.001, 1), (1.01, 14)])
def test_sounds(families: Mapping[str, Family], seconds: float, tokens: int) -> None:
    assert audio_tokens(families["qwen3-omni"], seconds) == tokens


def test_sound_without_content(families: Mapping[str, Family]) -> None:
    with pytest.raises(UsageError, match="no content"):
        audio_tokens(families["qwen3-omni"], 0)
