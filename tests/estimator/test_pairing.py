"""Which estimator fits which model, and what people are told when it does not."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mmdeploy.catalog.families import Family, find
from mmdeploy.errors import UsageError
from mmdeploy.estimator.pairing import COMMON_SIZES, HD, judge, natural_estimate
from mmdeploy.estimator.router import Estimator

FACTS = Path(__file__).parents[3] / "shared" / "facts"
"""Facts read out of the real systems; beside a checkout of the project, but not part of it."""


def area(factor: int) -> dict[str, Any]:
    return {"image": {"mode": "dynamic", "dynamic": {"factor": factor}}}


def fixed(tokens: int) -> dict[str, Any]:
    return {"image": {"mode": "static", "static": {"staticToken": tokens}}}


@pytest.mark.parametrize(
    ("setting", "block"),
    [
        ("qwen3-vl", area(1024)),
        ("qwen3-vl", None),  # the router's own defaults are Qwen3-VL's factor
        ("qwen2.5-vl", area(784)),
        ("gemma-4", fixed(280)),
        ("gemma-4", fixed(266)),
        ("Gemma-4 (max_soft_tokens=1120)", fixed(1120)),
        ("gemma-3", fixed(260)),
        ("gemma-3", fixed(256)),
        ("llava-1.5", fixed(576)),
        ("DeepSeek-VL2 (>2 images)", fixed(421)),
    ],
)
def test_fits(families: Mapping[str, Family], setting: str, block: dict[str, Any] | None) -> None:
    pairing = judge(block, find(families, setting))
    assert pairing.fits
    assert pairing.followable
    assert not pairing.advice


@pytest.mark.parametrize(
    ("setting", "block", "said"),
    [
        ("gemma-4", area(1024), "priced 900, Gemma 4 takes 266: +238 %"),
        ("gemma-4", None, "priced 900, Gemma 4 takes 266: +238 %"),
        ("gemma-4", fixed(560), "+111 %"),
        ("gemma-4", fixed(1), "-100 %"),
        ("Gemma-4 (max_soft_tokens=140)", fixed(280), "priced 280, Gemma 4 takes 122"),
        ("qwen3-vl", area(784), "priced 1175, Qwen3-VL takes 880: +34 %"),
        ("qwen2.5-vl", area(1024), "priced 900, Qwen2.5-VL takes 1196: -25 %"),
        ("qwen3-vl", fixed(880), "512x512 picture is priced 880, Qwen3-VL takes 256"),
        ("internvl", area(1024), "priced 900, InternVL 3/3.5 takes 2306"),
        ("kimi-vl", fixed(1024), "takes"),
    ],
)
def test_does_not_fit(families: Mapping[str, Family], setting: str, block: Any, said: str) -> None:
    pairing = judge(block, find(families, setting))
    assert not pairing.fits
    assert said in pairing.reason


def test_area_against_fixed_budget_is_explained(families: Mapping[str, Family]) -> None:
    pairing = judge(area(1024), families["gemma-4"])
    assert (pairing.kind_needed, pairing.kind_given) == ("fixed", "area")
    assert "about the same number of tokens, whatever its size" in pairing.reason
    assert "the price grows with the picture, the cost does not" in pairing.reason
    assert (pairing.price_720p, pairing.true_720p) == (900, 266)
    assert pairing.error_720p_percent == pytest.approx(238.3, abs=0.1)
    assert pairing.worst.size == (4032, 3024)
    assert pairing.suggestion["image"] == {"mode": "static", "static": {"staticToken": 280}}


def test_fixed_against_area_is_explained(families: Mapping[str, Family]) -> None:
    pairing = judge(fixed(900), families["qwen3-vl"])
    assert (pairing.kind_needed, pairing.kind_given) == ("area", "fixed")
    assert "in proportion to the picture's area" in pairing.reason


def test_tiles_cannot_be_followed(families: Mapping[str, Family]) -> None:
    family = families["internvl"]
    pairing = judge(natural_estimate(family, video_supported=True), family)
    assert pairing.fits
    assert not pairing.followable
    assert pairing.kind_needed == "tiles"
    assert "precise routing" in pairing.advice


def test_capped_family_is_fitted_up_to_its_cap(families: Mapping[str, Family]) -> None:
    pairing = judge(area(784), families["kimi-vl"])
    assert pairing.fits
    assert not pairing.followable
    assert pairing.worst.error_percent > 1000
    assert "limits the tokens of a picture" in pairing.advice


def test_every_family_fits_its_own_estimate(families: Mapping[str, Family]) -> None:
    for family in families.values():
        for setting in family.settings:
            chosen = family.with_setting(setting)
            for video in (True, False):
                block = natural_estimate(chosen, video_supported=video)
                pairing = judge(block, chosen, video_supported=video)
                assert pairing.fits, setting
                assert pairing.suggestion == block


def test_tolerance_decides(families: Mapping[str, Family]) -> None:
    assert not judge(area(1024), families["qwen3-vl"], tolerance_percent=1).fits
    assert judge(area(784), families["qwen3-vl"], tolerance_percent=40).fits


def test_natural_estimates_are_the_guides(families: Mapping[str, Family]) -> None:
    assert natural_estimate(families["qwen3-vl"], video_supported=True) == {
        "image": {
            "mode": "dynamic",
            "defaultResolution": {"width": 1280, "height": 720},
            "dynamic": {"factor": 1024},
        },
        "video": {
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
        },
    }
    assert natural_estimate(families["gemma-4"], video_supported=True) == {
        "image": {"mode": "static", "static": {"staticToken": 280}},
        "video": {
            "defaultResolution": {"width": 1280, "height": 720},
            "defaultDuration": 10,
            "maxVideoTokens": 12288,
            "tokensPerFrame": {"mode": "static", "static": {"numTokensPerFrame": 280}},
            "frames": {"mode": "strided", "minFrames": 1, "maxFrames": 8, "strided": {"frameStride": 4}},
        },
    }


def test_natural_estimate_leaves_video_out_where_it_is_refused(families: Mapping[str, Family]) -> None:
    assert set(natural_estimate(families["qwen3-vl"], video_supported=False)) == {"image"}


def test_natural_estimate_may_be_changed(families: Mapping[str, Family]) -> None:
    natural_estimate(families["qwen3-vl"], video_supported=True)["image"]["dynamic"]["factor"] = 1
    assert natural_estimate(families["qwen3-vl"], video_supported=True)["image"]["dynamic"]["factor"] == 1024


def test_natural_estimate_follows_engine_flags(families: Mapping[str, Family]) -> None:
    budget = families["gemma-4"].with_processor_kwargs({"max_soft_tokens": 560})
    block = natural_estimate(budget, video_supported=True)
    assert block["image"]["static"]["staticToken"] == 560
    assert not judge(fixed(280), budget).fits
    tiles = families["internvl"].with_processor_kwargs({"max_dynamic_patch": 6})
    assert natural_estimate(tiles, video_supported=True)["image"]["static"]["staticToken"] == 770


def test_pan_and_scan_changes_the_kind(families: Mapping[str, Family]) -> None:
    scanned = families["gemma-3"].with_processor_kwargs({"do_pan_and_scan": True})
    assert scanned.kind == "tiles"
    assert natural_estimate(scanned, video_supported=True)["image"]["static"]["staticToken"] == 780


def test_block_that_the_router_refuses(families: Mapping[str, Family]) -> None:
    with pytest.raises(UsageError, match="does not start"):
        judge({"image": {"mode": "area"}}, families["qwen3-vl"])


def test_common_sizes_are_distinct_and_hold_hd() -> None:
    assert HD in COMMON_SIZES
    assert len(set(COMMON_SIZES)) == len(COMMON_SIZES)


@pytest.mark.truth
def test_natural_settings_of_the_truth_file(families: Mapping[str, Family]) -> None:
    truth = FACTS / "visual-token-truth.csv"
    if not truth.exists():
        pytest.skip("visual-token-truth.csv is not beside this checkout")
    with truth.open(newline="") as file:
        for row in csv.DictReader(file):
            block = natural_estimate(find(families, row["model"]), video_supported=True)
            image = block["image"]
            param = image["dynamic"]["factor"] if image["mode"] == "dynamic" else image["static"]["staticToken"]
            assert (image["mode"], param) == (row["llmd_mode"], int(row["llmd_param"])), row["model"]
            price = Estimator.from_block(block).image(int(row["width"]), int(row["height"]))
            assert price == int(row["llmd_estimate"])
