"""The suggested block against brute force, and against what `render` takes."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mmdeploy.catalog.families import Family
from mmdeploy.estimator.fitting import best_factor, factor_error, off_by, weighted_median
from mmdeploy.estimator.pairing import accepted_prices, judge, natural_estimate
from mmdeploy.estimator.router import Estimator, VideoMetadata
from mmdeploy.estimator.sample import Samples
from mmdeploy.estimator.suggestion import Suggestion, resolution_for, suggest
from mmdeploy.estimator.video import video_tokens
from mmdeploy.estimator.videofit import video_error
from mmdeploy.estimator.visual import image_tokens
from tests.cli.program import run

FAMILIES = ("qwen3-vl", "qwen2.5-vl", "gemma-4", "gemma-3", "internvl", "llama-4", "pixtral", "kimi-vl")
Traffic = list[tuple[int, int, bool]]
"""Width, height, and whether the router sees the size."""


def traffic(seed: int, count: int = 60, longest: int = 2000) -> Traffic:
    draw = random.Random(seed)
    return [(draw.randint(40, longest), draw.randint(40, longest), draw.random() < 0.6) for _ in range(count)]


def suggested(family: Family, pictures: Traffic) -> Suggestion:
    samples = Samples()
    for width, height, seen in pictures:
        samples.add_picture(width, height, seen, image_tokens(family, width, height), 1)
    before = Estimator.from_block(natural_estimate(family, video_supported=True))
    return suggest(samples, family, before, video_supported=True)


def error(block: Mapping[str, Any], family: Family, pictures: Traffic) -> float:
    """Mean absolute error, by pricing every picture with the router's own arithmetic."""
    estimator = Estimator.from_block(block)
    off = 0
    for width, height, seen in pictures:
        price = estimator.image(width, height) if seen else estimator.image_unseen()
        off += abs(price - image_tokens(family, width, height))
    return off / len(pictures)


def brute_force(family: Family, pictures: Traffic) -> float:
    """The smallest error of every block that `judge` accepts: all fixed prices, and all factors with all defaults."""
    counts = {picture: image_tokens(family, *picture[:2]) for picture in pictures}
    unseen = [counts[picture] for picture in pictures if not picture[2]]
    best_unseen = min(sum(abs(price - true) for true in unseen) for price in {1, *unseen})
    blocks: list[tuple[int, dict[str, Any]]] = []
    for price in range(1, 5000):
        off = sum(abs(price - counts[picture]) for picture in pictures)
        blocks.append((off, {"mode": "static", "static": {"staticToken": price}}))
    for factor in range(1, 4000):
        off = sum(abs(max(1, w * h // factor) - counts[w, h, True]) for w, h, seen in pictures if seen) + best_unseen
        blocks.append((off, {"mode": "dynamic", "dynamic": {"factor": factor}}))
    blocks.sort(key=lambda block: block[0])
    return next(off for off, block in blocks if judge({"image": block}, family).fits) / len(pictures)


@pytest.mark.parametrize("slug", FAMILIES)
def test_no_accepted_block_is_less_wrong(families: Mapping[str, Family], slug: str) -> None:
    family, pictures = families[slug], traffic(len(slug))
    suggestion = suggested(family, pictures)
    assert suggestion.after_tokens == pytest.approx(error(suggestion.estimate, family, pictures))
    assert suggestion.after_tokens == pytest.approx(brute_force(family, pictures))
    assert suggestion.before_tokens == pytest.approx(
        error(natural_estimate(family, video_supported=True), family, pictures)
    )


@pytest.mark.parametrize("slug", FAMILIES)
@pytest.mark.parametrize("longest", [100, 700, 6000])
def test_the_block_fits_and_is_never_worse_than_the_catalog(
    families: Mapping[str, Family], slug: str, longest: int
) -> None:
    suggestion = suggested(families[slug], traffic(longest, 200, longest))
    assert judge(suggestion.estimate, families[slug]).fits
    assert suggestion.before_tokens is not None
    assert suggestion.after_tokens is not None
    assert suggestion.after_tokens <= suggestion.before_tokens
    if suggestion.freer_tokens is not None:
        assert suggestion.freer_tokens < suggestion.after_tokens
        assert not judge({"image": suggestion.freer}, families[slug]).fits


@pytest.mark.parametrize("slug", FAMILIES)
def test_the_accepted_prices_are_those_of_the_judge(families: Mapping[str, Family], slug: str) -> None:
    family = families[slug]
    limits = accepted_prices(family)
    low, high = max(low for _, low, _ in limits), min(high for _, _, high in limits)
    for price in {1, low - 1, low, high, high + 1} - {0}:
        fits = judge({"image": {"mode": "static", "static": {"staticToken": price}}}, family).fits
        assert fits == (low <= price <= high), price


weighted = st.dictionaries(
    st.tuples(st.integers(1, 3000), st.integers(1, 40)), st.integers(1, 5), min_size=1, max_size=12
)


@settings(deadline=None)
@given(weighted, st.integers(1, 60), st.integers(0, 400), st.integers(1, 300))
def test_the_best_factor_is_found(pictures: dict[tuple[int, int], int], low: int, span: int, prefer: int) -> None:
    rows = [(area, true, weight) for (area, true), weight in pictures.items()]
    factor, off = best_factor(pictures, low, low + span, prefer)
    errors = {each: factor_error(rows, each) for each in range(low, low + span + 1)}
    assert off == errors[factor] == min(errors.values())
    wanted = min(max(prefer, low), low + span)
    nearest = min(abs(each - wanted) for each, error in errors.items() if error == off)
    assert abs(factor - wanted) == nearest


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9)), min_size=1))
def test_the_median_is_least_wrong(values: list[tuple[int, int]]) -> None:
    assert off_by(weighted_median(values), values) == min(off_by(price, values) for price in range(51))


@given(st.integers(1, 20_000), st.integers(1, 5_000), st.tuples(st.integers(1, 5_000), st.integers(1, 5_000)))
def test_a_resolution_can_be_given_for_any_price(price: int, factor: int, like: tuple[int, int]) -> None:
    width, height = resolution_for(price, factor, like)
    assert min(width, height) >= 1
    assert width * height // factor == price


@pytest.mark.parametrize("slug", ["qwen3-vl", "gemma-4"])
def test_video_defaults_follow_the_traffic(families: Mapping[str, Family], slug: str) -> None:
    family, draw, samples = families[slug], random.Random(5), Samples()
    for _ in range(40):
        width, height = draw.choice([(640, 360), (1920, 1080), (480, 848)])
        fps, duration, told = 24.0, draw.choice([2.0, 3.0, 30.0]), draw.random() < 0.3
        true = video_tokens(family, width, height, fps, duration).visual
        samples.videos.add((width, height, fps, duration, told, true), 1)
    natural = natural_estimate(family, video_supported=True)
    suggestion = suggest(samples, family, Estimator.from_block(natural), video_supported=True)
    videos, section = samples.videos.weights(), suggestion.estimate["video"]
    assert suggestion.after_tokens == video_error(section, videos) / 40
    assert suggestion.before_tokens is not None
    assert suggestion.after_tokens < suggestion.before_tokens
    unheard = [key for key in videos if not key[4]]
    best_single_price = min(
        sum(abs(price - key[5]) * videos[key] for key in unheard) for price in {key[5] for key in unheard}
    )
    if slug == "qwen3-vl":  # told videos do not depend on the defaults, so the others bound what can be reached
        estimator = Estimator.from_block({"video": section})
        told_off = sum(
            abs(estimator.video_with(VideoMetadata(w, h, duration, fps)) - true) * weight
            for (w, h, fps, duration, told, true), weight in videos.items()
            if told
        )
        rounding = 60 * sum(videos[key] for key in unheard)  # a price is a multiple of the groups of frames
        assert video_error(section, videos) <= told_off + best_single_price + rounding


def test_without_known_items_it_is_the_catalog(qwen: Family) -> None:
    suggestion = suggest(Samples(), qwen, None, video_supported=True)
    assert suggestion.estimate == natural_estimate(qwen, video_supported=True)
    assert suggestion.items == 0
    assert suggestion.after_tokens is None


RENDERED = {
    "by area": ("Qwen/Qwen3-VL-32B-Instruct", "main", ["-t", "e-pd"]),
    "fixed": ("google/gemma-4-31B-it", "main", []),
    "limited": ("moonshotai/Kimi-VL-A3B-Instruct", "main", ["-t", "e-pd", "--server", "vllm"]),
    "a router without videos": ("Qwen/Qwen3-VL-32B-Instruct", "v0.8", []),
}


@pytest.mark.parametrize("name", RENDERED)
def test_what_is_printed_can_be_rendered(tmp_path: Path, name: str) -> None:
    model, release, options = RENDERED[name]
    recorded, block = tmp_path / "traffic.jsonl", tmp_path / "estimate.yaml"
    lines = [f'{{"width": {w}, "height": {h}, "via": "{("url", "inline")[seen]}"}}\n' for w, h, seen in traffic(9)]
    lines.append('{"type": "video", "width": 640, "height": 360, "fps": 24, "duration": 4, "headers": false}\n')
    recorded.write_text("".join(lines))
    done = run("estimate", "-m", model, "--release", release, "--requests", recorded, "--suggest", "-o", "yaml")
    assert (done.status, done.stderr) == (0, "")
    assert done.stdout.startswith("# mean absolute error: was ")
    block.write_text(done.stdout)
    assert ("video" in yaml.safe_load(done.stdout)["estimate"]) == (name in ("by area", "fixed"))
    rendered = run("render", "-m", model, "--release", release, *options, "--estimator", block, "-o", "json")
    assert rendered.status == 0, rendered.stderr
