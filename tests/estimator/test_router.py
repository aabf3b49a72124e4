"""The router's arithmetic: worked numbers (router.md section 3), observed ones, every default and clamp."""

from __future__ import annotations

from typing import Any

import pytest

from mmdeploy.errors import UsageError
from mmdeploy.estimator.router import Estimator, VideoMetadata, block_problems

SHIPPED_VIDEO: dict[str, Any] = {
    "defaultResolution": {"width": 1280, "height": 720},
    "defaultDuration": 10,
    "maxVideoTokens": 12288,
    "tokensPerFrame": {"mode": "dynamic", "dynamic": {"factor": 1024}},
    "frames": {
        "mode": "sampled",
        "minFrames": 4,
        "maxFrames": 768,
        "sampled": {"sampleFPS": 2, "temporalPatchSize": 2},
    },
}


def image_block(**image: Any) -> dict[str, Any]:
    return {"image": image}


def video_block(**video: Any) -> dict[str, Any]:
    return {"video": video}


# router.md 3.3, and router-observed.md for the same numbers read from the running program
@pytest.mark.parametrize(
    ("width", "height", "factor_1024", "factor_784"),
    [
        (64, 64, 4, 5),
        (224, 224, 49, 64),
        (256, 256, 64, 83),
        (336, 336, 110, 144),
        (640, 360, 225, 293),
        (800, 600, 468, 612),
        (1024, 1024, 1024, 1337),
        (1280, 720, 900, 1175),
        (1920, 1080, 2025, 2644),
        (2550, 3300, 8217, 10733),
        (3840, 2160, 8100, 10579),
        (8000, 6000, 46875, 61224),
        (20, 2000, 39, 51),
    ],
)
def test_area_prices(width: int, height: int, factor_1024: int, factor_784: int) -> None:
    assert Estimator.from_block(None).image(width, height) == factor_1024
    assert Estimator.from_block(image_block(dynamic={"factor": 784})).image(width, height) == factor_784


def test_area_price_is_one_at_least() -> None:
    assert Estimator.from_block({}).image(31, 33) == 1


@pytest.mark.parametrize("factor", [0, -5, None])
def test_factor_of_nothing_is_the_default(factor: int | None) -> None:
    assert Estimator.from_block(image_block(dynamic={"factor": factor})).image(1280, 720) == 900


def test_static_price_ignores_the_size() -> None:
    estimator = Estimator.from_block(image_block(mode="static", static={"staticToken": 280}))
    assert [estimator.image(64, 64), estimator.image(8000, 6000), estimator.image_unseen()] == [280, 280, 280]


@pytest.mark.parametrize("static", [None, {}, {"staticToken": 0}, {"staticToken": -1}])
def test_static_without_a_number_is_one_token(static: Any) -> None:
    assert Estimator.from_block(image_block(mode="static", static=static)).image(1280, 720) == 1


def test_static_number_without_its_mode_has_no_effect() -> None:
    assert Estimator.from_block(image_block(static={"staticToken": 280})).image(1280, 720) == 900


@pytest.mark.parametrize(
    ("resolution", "tokens"),
    [
        (None, 225),
        ({"width": 1280, "height": 720}, 900),
        ({"width": 1280}, 450),  # 1280x360: each side has its own default
        ({"height": 720}, 450),
        ({"width": 0, "height": -1}, 225),
    ],
)
def test_unseen_picture_is_priced_at_the_default_resolution(resolution: Any, tokens: int) -> None:
    assert Estimator.from_block(image_block(defaultResolution=resolution)).image_unseen() == tokens


def test_video_by_default_is_20_frames_of_225() -> None:
    assert Estimator.from_block(None).video() == 4500


# router-observed.md: default, 5 s, 14 s and a 640x360 header under the shipped values
@pytest.mark.parametrize(
    ("said", "tokens"),
    [
        ({}, 9000),
        ({"duration": 5.0}, 4500),
        ({"duration": 13.0}, 11700),
        ({"duration": 14.0}, 12288),
        ({"width": 640, "height": 360}, 2250),
        ({"duration": 0.1}, 1800),  # 4 frames at least, counted before the merge
        ({"duration": 2.5}, 1800),  # 5 frames make 2 groups
        ({"fps": 60.0}, 9000),  # sampled frames do not look at the source's rate
    ],
)
def test_shipped_video_prices(said: dict[str, Any], tokens: int) -> None:
    assert Estimator.from_block({"video": SHIPPED_VIDEO}).video(**said) == tokens


def test_sampled_frames_are_clamped_before_the_merge() -> None:
    frames = {"minFrames": 4, "maxFrames": 30, "sampled": {"temporalPatchSize": 4}}
    estimator = Estimator.from_block(video_block(frames=frames))
    assert [estimator.video_frames(VideoMetadata(duration=d)) for d in (0.5, 7, 600)] == [1, 3, 7]


@pytest.mark.parametrize(
    ("strided", "said", "frames"),
    [
        ({}, {}, 240),  # 10 s at 24 frames a second
        ({"frameStride": 4}, {}, 60),
        ({"frameStride": 0}, {}, 240),
        ({"frameStride": 2}, {"duration": 3.0, "fps": 30.0}, 45),
        ({"frameStride": 7, "defaultSourceFPS": 29.97}, {}, 42),  # 299.7 is cut to 299, then floored
        ({"defaultSourceFPS": -1}, {}, 240),
    ],
)
def test_strided_frames(strided: dict[str, Any], said: dict[str, Any], frames: int) -> None:
    estimator = Estimator.from_block(video_block(frames={"mode": "strided", "strided": strided}))
    assert estimator.video_frames(VideoMetadata(**said)) == frames


def test_guide_values_for_gemma_4() -> None:
    estimator = Estimator.from_block(
        video_block(
            tokensPerFrame={"mode": "static", "static": {"numTokensPerFrame": 280}},
            frames={"mode": "strided", "minFrames": 1, "maxFrames": 8, "strided": {"frameStride": 4}},
        )
    )
    assert estimator.video() == 2240
    assert estimator.video(duration=1.0) == 1680
    assert estimator.video(duration=0.05) == 280  # one frame at least


def test_maximum_wins_over_a_larger_minimum() -> None:
    estimator = Estimator.from_block(video_block(frames={"minFrames": 50, "maxFrames": 8}))
    assert estimator.video_frames() == 8


def test_static_frame_without_a_number_is_one_token() -> None:
    assert Estimator.from_block(video_block(tokensPerFrame={"mode": "static"})).video() == 20


@pytest.mark.parametrize(
    "block",
    [
        video_block(frames={"sampled": {"sampleFPS": 0.01}}),
        video_block(frames={"maxFrames": 1, "sampled": {"temporalPatchSize": 2}}),
    ],
)
def test_video_of_no_frames_is_one_token(block: dict[str, Any]) -> None:
    assert Estimator.from_block(block).video() == 1


def test_video_before_its_estimate_costs_its_url() -> None:
    estimator = Estimator.from_block(None, video_supported=False)
    assert estimator.video(1280, 720, duration=10, url_bytes=41) == 11
    assert estimator.video() == 1


@pytest.mark.parametrize(
    ("headers", "metadata"),
    [
        ({}, VideoMetadata()),
        (
            {
                "X-LLM-D-Video-FPS": "30",
                "x-llm-d-video-duration-seconds": "12.5",
                "x-llm-d-video-resolution": "1920x1080",
            },
            VideoMetadata(1920, 1080, 12.5, 30.0),
        ),
        ({"x-llm-d-video-resolution": " 800 X 600 "}, VideoMetadata(800, 600)),
        ({"x-llm-d-video-resolution": "+800x600"}, VideoMetadata(800, 600)),
        ({"x-llm-d-video-duration-seconds": "1e1"}, VideoMetadata(duration=10.0)),
        ({"x-llm-d-video-duration-seconds": ".5"}, VideoMetadata(duration=0.5)),
        *(
            ({"x-llm-d-video-resolution": text}, VideoMetadata())
            for text in ("1920x", "x1080", "1920", "1920x1080x2", "0x1080", "-1x5", "19.2x10", "", "1_0x5", "x")
        ),
        *(
            ({"x-llm-d-video-fps": text, "x-llm-d-video-duration-seconds": text}, VideoMetadata())
            for text in ("", "fast", "0", "-3", "10s", " 10", "1_0", "NaN", "Inf", "1e999", "1,5")
        ),
    ],
)
def test_video_headers(headers: dict[str, str], metadata: VideoMetadata) -> None:
    assert VideoMetadata.from_headers(headers) == metadata


def test_header_wins_over_configuration_and_needs_both_sides() -> None:
    estimator = Estimator.from_block({"video": SHIPPED_VIDEO})
    assert estimator.video_with(VideoMetadata(width=640, height=360, duration=5.0)) == 1120 + 5
    assert estimator.video(640) == 9000


def test_numbers_are_64_bit_integers() -> None:
    estimator = Estimator.from_block(None)
    assert estimator.video(duration=1e30) == 1  # Go's conversion gives the smallest integer
    assert Estimator.from_block(video_block(frames={"minFrames": 4})).video(duration=1e30) == 900


def test_audio_and_text() -> None:
    estimator = Estimator.from_block(None)
    assert estimator.audio_inline(4000 + len("wav")) == 1001  # router-observed.md
    assert estimator.audio_inline(0) == 1
    assert estimator.audio_url() == 1
    assert [estimator.text(nbytes) for nbytes in (0, 1, 4, 5, 8)] == [0, 1, 1, 2, 2]


def test_field_names_may_have_any_case() -> None:
    estimator = Estimator.from_block({"IMAGE": {"Mode": "static", "STATIC": {"statictoken": 280}}})
    assert estimator.image(1, 1) == 280
    assert Estimator.from_block({"video": {"Frames": {"MODE": "strided"}}}).frames_mode == "strided"


@pytest.mark.parametrize(
    "block", [None, {}, {"image": None}, {"image": {"mode": ""}, "video": {"frames": {"mode": ""}}}]
)
def test_empty_blocks_are_all_defaults(block: Any) -> None:
    assert Estimator.from_block(block) == Estimator()


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ({"image": {"mode": "Static"}}, "estimate.image.mode must be dynamic or static, not 'Static'"),
        (
            {"video": {"tokensPerFrame": {"mode": "area"}}},
            "estimate.video.tokensPerFrame.mode must be dynamic or static",
        ),
        ({"video": {"frames": {"mode": "uniform"}}}, "estimate.video.frames.mode must be sampled or strided"),
        ({"image": {"factor": 784}}, "estimate.image.factor is unknown (known: mode, defaultResolution"),
        ({"images": {}}, "estimate.images is unknown (known: image, video)"),
        ({"image": {"defaultResolution": "1280x720"}}, "estimate.image.defaultResolution must be an object"),
        ({"image": {"dynamic": {"factor": "784"}}}, "estimate.image.dynamic.factor must be a whole number, not '784'"),
        ({"image": {"dynamic": {"factor": 784.5}}}, "must be a whole number"),
        ({"image": {"dynamic": {"factor": True}}}, "must be a whole number"),
        ({"image": {"dynamic": {"factor": 1 << 63}}}, "must be a whole number"),
        ({"video": {"defaultDuration": "10s"}}, "estimate.video.defaultDuration must be a number, not '10s'"),
        ({"video": {"defaultDuration": float("nan")}}, "must be a number"),
        ({"image": []}, "estimate.image must be an object"),
        ([], "estimate must be an object"),
    ],
)
def test_what_the_router_refuses(block: Any, problem: str) -> None:
    (said,) = block_problems(block)
    assert problem in said
    with pytest.raises(UsageError, match="does not start") as refusal:
        Estimator.from_block(block)
    assert said in refusal.value.found


def test_all_problems_are_told_at_once() -> None:
    assert len(block_problems({"image": {"mode": "x", "y": 1}, "audio": {}})) == 3


def test_video_section_before_v0_10_is_refused() -> None:
    (said,) = block_problems({"video": {}}, video_supported=False)
    assert "from router v0.10.0 on" in said


def test_whole_numbers_written_as_floats_are_accepted() -> None:
    assert Estimator.from_block({"image": {"dynamic": {"factor": 784.0}}}).image(1280, 720) == 1175
